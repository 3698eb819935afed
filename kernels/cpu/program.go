//go:build cgo && linux && amd64

package cpu

/*
#include <stdlib.h>
#include "omni.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"omni-engine/kernels"
)

// program is a compiled module: packed weights, buffers and phases in C memory. One step runs at a time.
type program struct {
	dev  *device
	plan *plan

	memory  arena // weights
	scratch arena // buffers, phases, thread scratch
	entries []compiled
	caches  []C.Cache // a view of C memory, by state
	logits  *C.LogitWork
	threads *C.Scratch

	mu     sync.Mutex
	bound  *states // whose memory the caches point to
	closed bool
}

// compiled is an entry's phases in runs that Go interrupts only for what C cannot do.
type compiled struct {
	plan *entryPlan
	runs []run
}

type run struct {
	phases *C.Phase
	n      int
	input  string           // after the run: rows to overwrite
	out    kernels.BufferID // of input
}

// Plan sizes a module for this device.
func (d *device) Plan(m *kernels.Module, l kernels.Limits) (kernels.MemoryPlan, error) {
	p, err := newPlan(m, l, d.threads, d.level)
	if unsupported(err) {
		return d.reference().Plan(m, l)
	}
	if err != nil {
		return kernels.MemoryPlan{}, err
	}
	return p.memory(), nil
}

func (p *plan) memory() kernels.MemoryPlan {
	mp := kernels.MemoryPlan{Scratch: p.scratchBytes(), BlockBytes: make([]int64, len(p.module.Groups))}
	for _, m := range p.order {
		mp.Weights += round64(m.bytes())
	}
	for _, v := range p.vecOrder {
		mp.Weights += round64(int64(len(v.data)) * 4)
	}
	for _, s := range p.module.States {
		mp.BlockBytes[s.Group] += p.stateBlockBytes(s)
	}
	return mp
}

func (p *plan) elemBytes() int64 {
	return int64(C.kv_bytes(C.int(p.kv)))
}

func (p *plan) stateBlockBytes(s kernels.StateSpec) int64 {
	return round64(int64(p.limits.BlockSize) * int64(s.Heads) * int64(s.KDim+s.VDim) * p.elemBytes())
}

// threadFloats is the attention scratch of one thread; norms borrow it.
func (p *plan) threadFloats() int64 {
	widest := 0
	for _, s := range p.module.States {
		widest = max(widest, s.VDim)
	}
	n := int64(p.attRows) * int64(256+2*widest)
	for _, e := range p.entries {
		for _, b := range e.buffers {
			n = max(n, int64(b.width)+64)
		}
	}
	return n
}

// expandBytes holds the largest unit's tiles as bytes.
func (p *plan) expandBytes() int64 {
	var most int64
	for _, e := range p.entries {
		for i := range e.phases {
			for _, s := range e.phases[i].segs {
				n := int64(s.tiles) * int64(s.w.k/32) * p.packing.expandBytes
				if s.w2 != nil {
					n *= 2
				}
				most = max(most, n)
			}
		}
	}
	return most
}

// sampleBytes is one thread's copy of a row of logits, counts and candidates.
func (p *plan) sampleBytes() int64 { return int64(p.module.Vocab+16) * 16 }

func (p *plan) scratchBytes() int64 {
	n := int64(p.threads) * (round64(p.threadFloats()*4) + round64(p.expandBytes()) + round64(C.MAX_UNIT_TILES*2*C.OUT_ROWS*64) + round64(p.sampleBytes()) + 4096)
	n += round64(int64(p.threads) * int64(unsafe.Sizeof(C.Scratch{})))
	for _, e := range p.entries {
		n += p.layout(e)
		n += int64(len(e.buffers)) * round64(int64(unsafe.Sizeof(C.Buf{})))
		n += round64(int64(len(e.phases)+len(p.ropes)+1) * int64(unsafe.Sizeof(C.Phase{})))
		for i := range e.phases {
			n += round64(int64(len(e.phases[i].segs)) * int64(unsafe.Sizeof(C.Segment{})))
		}
	}
	n += round64(int64(len(p.module.States)+1) * int64(unsafe.Sizeof(C.Cache{})))
	for _, r := range p.ropes {
		n16 := int64(r.n+15) / 16 * 16
		n += round64(int64(unsafe.Sizeof(C.RopeTable{}))) + 2*round64(int64(p.limits.Tokens)*n16*4) + 3*round64(int64(r.n)*8)
	}
	n += round64(int64(unsafe.Sizeof(C.LogitWork{}))) + round64(int64(p.limits.LogitRows+1)*int64(unsafe.Sizeof(C.LogitRow{}))) + round64(int64(p.limits.LogitRows+1)*int64(unsafe.Sizeof(C.SampleRow{})))
	return n + readAhead
}

// layout gives an entry's buffers their places; values that are never alive together share memory. Shared buffers are placed by
// the first entry that has them.
func (p *plan) layout(e *entryPlan) int64 {
	type piece struct {
		at, size int64
		free     int // the phase after which it may be used again
	}
	var pieces []piece
	var end int64
	place := func(size int64, b *buffer) int64 {
		size = round64(size)
		best := -1
		for i, pc := range pieces {
			if !b.output && pc.free < b.first && pc.size >= size && (best < 0 || pc.size < pieces[best].size) {
				best = i
			}
		}
		last := b.last
		if b.output {
			last = 1 << 30
		}
		if best >= 0 {
			pieces[best].free = last
			return pieces[best].at
		}
		pieces = append(pieces, piece{end, size, last})
		end += size
		return end - size
	}
	for ph := range e.phases {
		for _, b := range e.buffers {
			if b.first != ph || (p.shared[b.name] == b && b.c != nil) {
				continue
			}
			if b.float {
				b.f = place(b.floatBytes(), b)
			}
			if b.panel {
				b.q = place(b.panelBytes(p.packing), b)
			}
		}
	}
	return end
}

// Compile packs the module's weights and lays out its buffers.
func (d *device) Compile(m *kernels.Module, l kernels.Limits) (kernels.Program, error) {
	p, err := newPlan(m, l, d.threads, d.level)
	if unsupported(err) {
		return d.compileReference(m, l, err)
	}
	if err != nil {
		return nil, err
	}
	pr := &program{dev: d, plan: p}
	if err := pr.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("compiling %s for the CPU: %w", m.Name, err), pr.Close())
	}
	return pr, nil
}

func (pr *program) build() error {
	p := pr.plan
	if err := pr.pack(); err != nil {
		return err
	}
	size := p.scratchBytes()
	mem, err := pr.scratch.alloc(size)
	if err != nil {
		return err
	}
	b := &bump{p: mem, n: size}
	pr.threads = (*C.Scratch)(b.take(int64(p.threads) * int64(unsafe.Sizeof(C.Scratch{}))))
	for i := range p.threads {
		s := &unsafe.Slice(pr.threads, p.threads)[i]
		s.scores = (*C.float)(b.take(p.threadFloats() * 4))
		s.expand = (*C.uint8_t)(b.take(p.expandBytes()))
		s.out = (*C.tile_out)(b.take(C.MAX_UNIT_TILES * 2 * C.OUT_ROWS * 64))
		s.logits = (*C.float)(b.take(p.sampleBytes()))
		b.take(4096) // threads' scratch on different pages
	}
	for _, r := range p.ropes {
		r.build(b, p.limits.Tokens)
	}
	pr.buildCaches(b)
	pr.logits = (*C.LogitWork)(b.take(int64(unsafe.Sizeof(C.LogitWork{}))))
	pr.logits.rows = (*C.LogitRow)(b.take(int64(p.limits.LogitRows+1) * int64(unsafe.Sizeof(C.LogitRow{}))))
	pr.logits.samples = (*C.SampleRow)(b.take(int64(p.limits.LogitRows+1) * int64(unsafe.Sizeof(C.SampleRow{}))))
	pr.logits.vocab = C.int32_t(p.module.Vocab)
	for _, e := range p.entries {
		pr.buildEntry(e, b)
	}
	return nil
}

func (pr *program) pack() error {
	p := pr.plan
	size := p.memory().Weights + readAhead
	mem, err := pr.memory.alloc(size)
	if err != nil {
		return err
	}
	b := &bump{p: mem, n: size}
	for _, m := range p.order {
		m.place(b.take(m.bytes()))
	}
	for _, v := range p.vecOrder {
		v.p = (*C.float)(b.take(int64(len(v.data)) * 4))
		copy(unsafe.Slice((*float32)(unsafe.Pointer(v.p)), len(v.data)), v.data)
		v.data = v.data[:len(v.data):len(v.data)]
	}
	return packAll(p.order, pr.dev.threads)
}

func (r *ropePlan) build(b *bump, tokens int) {
	op := r.op
	r.c = (*C.RopeTable)(b.take(int64(unsafe.Sizeof(C.RopeTable{}))))
	n16 := (r.n + 15) / 16 * 16
	*r.c = C.RopeTable{n: C.int32_t(r.n), n16: C.int32_t(n16), long_from: C.int32_t(op.LongFrom), factor: C.float(orOne(op.Factor)), long_factor: C.float(orOne(op.LongFactor))}
	r.c.freq = doubles(b, op.InvFreq)
	if len(op.LongFreq) > 0 {
		r.c.long_freq = doubles(b, op.LongFreq)
	}
	if len(op.Axis) > 0 {
		p := b.take(int64(r.n))
		copy(unsafe.Slice((*byte)(p), r.n), op.Axis)
		r.c.axis = (*C.uint8_t)(p)
	}
	r.c.cos = (*C.float)(b.take(int64(tokens) * int64(n16) * 4))
	r.c.sin = (*C.float)(b.take(int64(tokens) * int64(n16) * 4))
}

func doubles(b *bump, f []float64) *C.double {
	p := b.take(int64(len(f)) * 8)
	copy(unsafe.Slice((*float64)(p), len(f)), f)
	return (*C.double)(p)
}

// buildCaches describes the paged states: all groups draw blocks from one pool, so a block has room for the largest group, and a
// layer lies at its offset within the block.
func (pr *program) buildCaches(b *bump) {
	p := pr.plan
	n := len(p.module.States)
	pr.caches = unsafe.Slice((*C.Cache)(b.take(int64(n+1)*int64(unsafe.Sizeof(C.Cache{})))), n+1)[:n]
	for i, s := range p.module.States {
		pr.caches[i] = C.Cache{block_size: C.int32_t(p.limits.BlockSize), heads: C.int32_t(s.Heads), kdim: C.int32_t(s.KDim), vdim: C.int32_t(s.VDim), group: C.int32_t(s.Group), kind: p.kv}
	}
}

func (pr *program) buildEntry(e *entryPlan, b *bump) {
	p := pr.plan
	size := p.layout(e)
	base := b.take(size)
	for _, buf := range e.buffers {
		if buf.c != nil {
			continue
		}
		buf.c = (*C.Buf)(b.take(int64(unsafe.Sizeof(C.Buf{}))))
		*buf.c = C.Buf{ld: C.int32_t(buf.ld()), nb: C.int32_t(buf.width / 32), width: C.int32_t(buf.width), rows_kind: buf.rows}
		if buf.float && buf.first >= 0 {
			buf.c.f = (*C.float)(unsafe.Add(base, buf.f))
		}
		if buf.panel && buf.first >= 0 {
			buf.c.q = (*C.uint8_t)(unsafe.Add(base, buf.q))
		}
	}
	n := len(e.phases) + len(p.ropes) + 1
	all := unsafe.Slice((*C.Phase)(b.take(int64(n)*int64(unsafe.Sizeof(C.Phase{})))), n)
	c := compiled{plan: e}
	used, start := 0, 0
	for _, r := range p.ropes {
		if e.uses(r) {
			all[used] = C.Phase{kind: C.P_ROPE_TABLE, rows: C.ROWS_TOKENS, rope: r.c}
			used++
		}
	}
	flush := func(input string, out kernels.BufferID) {
		c.runs = append(c.runs, run{&all[start], used - start, input, out})
		start = used
	}
	for i := range e.phases {
		if e.phases[i].kind == hostInput {
			flush(e.phases[i].input, e.phases[i].out)
			continue
		}
		pr.buildPhase(&all[used], e, &e.phases[i], b)
		used++
	}
	flush("", kernels.None)
	pr.entries = append(pr.entries, c)
}

func (e *entryPlan) uses(r *ropePlan) bool {
	for i := range e.phases {
		if e.phases[i].rope == r {
			return true
		}
		for _, s := range e.phases[i].segs {
			if s.rope == r {
				return true
			}
		}
	}
	return false
}

func pointer(v *vector) *C.float {
	if v == nil {
		return nil
	}
	return v.p
}

func flag(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}

func (pr *program) buildPhase(c *C.Phase, e *entryPlan, ph *phase, b *bump) {
	buf := func(id kernels.BufferID) *C.Buf {
		if id == kernels.None {
			return nil
		}
		return e.buffers[id].c
	}
	*c = C.Phase{kind: ph.kind, rows: ph.rows, in: buf(ph.in), in2: buf(ph.in2), out: buf(ph.out), res: buf(ph.res),
		weight: pointer(ph.weight), bias: pointer(ph.bias), weight2: pointer(ph.weight2), bias2: pointer(ph.bias2),
		eps: C.float(ph.eps), eps2: C.float(ph.eps2), alpha: C.float(ph.alpha), norm_kind: C.int32_t(ph.norm),
		norm_kind2: C.int32_t(ph.norm2), group_size: C.int32_t(ph.group), gather: flag(ph.gather), add_first: flag(ph.addFirst),
		weight_whole: flag(ph.whole), heads: C.int32_t(ph.heads), kv_heads: C.int32_t(ph.kvHeads), window: C.int32_t(ph.window),
		chunk: C.int32_t(ph.chunk), tile_list: C.int32_t(ph.ratio), scale: C.float(ph.scale), softcap: C.float(ph.softcap),
		post: C.float(ph.post), offset: C.float(ph.offset), clamp: C.float(ph.clamp), sinks: pointer(ph.sinks),
		head_dim: C.int32_t(ph.headDim), rot_from: C.int32_t(ph.rotFrom), rot_dim: C.int32_t(ph.rotDim), rot_pair: C.int32_t(ph.pair),
		act: C.int32_t(ph.act), op: C.int32_t(ph.op)}
	if ph.rope != nil {
		c.rope = ph.rope.c
	}
	if ph.table != nil {
		c.table = ph.table.c
	}
	if o := ph.copy; o != nil {
		c.groups, c.width, c.in_stride, c.in_from = C.int32_t(o.Groups), C.int32_t(o.Width), C.int32_t(o.InStride), C.int32_t(o.InFrom)
		c.out_stride, c.out_from = C.int32_t(o.OutStride), C.int32_t(o.OutFrom)
	}
	if ph.kind == C.P_LOGITS {
		c.logits = pr.logits
	}
	if ph.kind == C.P_ATTENTION || ph.kind == C.P_KV_WRITE {
		c.cache = &pr.caches[ph.state]
	}
	if len(ph.segs) > 0 {
		segs := unsafe.Slice((*C.Segment)(b.take(int64(len(ph.segs))*int64(unsafe.Sizeof(C.Segment{})))), len(ph.segs))
		for i := range ph.segs {
			pr.buildSegment(&segs[i], &ph.segs[i], buf)
			c.units += segs[i].units
		}
		c.seg, c.nseg = &segs[0], C.int32_t(len(segs))
	}
}

func (pr *program) buildSegment(c *C.Segment, s *segment, buf func(kernels.BufferID) *C.Buf) {
	*c = C.Segment{w: s.w.c, bias: pointer(s.bias), bias2: pointer(s.bias2), units: C.int32_t(s.units), tiles: C.int32_t(s.tiles),
		epilogue: s.epilogue, out: buf(s.out), column: C.int32_t(s.column), act: C.int32_t(s.act), scale: C.float(s.scale),
		post: C.float(s.post), offset: C.float(s.offset), clamp: C.float(s.clamp), alpha: C.float(s.alpha), norm: pointer(s.norm),
		eps: C.float(s.eps), norm_on: flag(s.normOn), head_dim: C.int32_t(s.headDim), rot_from: C.int32_t(s.rotFrom),
		rot_dim: C.int32_t(s.rotDim), rot_pair: C.int32_t(s.pair)}
	if s.w2 != nil {
		c.w2 = s.w2.c
	}
	if s.rope != nil {
		c.rope = s.rope.c
	}
	if s.epilogue == C.E_HEAD_K || s.epilogue == C.E_HEAD_V {
		c.cache = &pr.caches[s.state]
	}
}

func (pr *program) SetAdapter(slot int, a *kernels.Adapter) error {
	if a == nil {
		return nil
	}
	return fmt.Errorf("adapter %s in slot %d: the CPU device has no adapters", a.Name, slot)
}

// Explain lists the phases of each entry.
func (pr *program) Explain() string {
	var s strings.Builder
	fmt.Fprintf(&s, "cpu %s, %d threads, caches in %s, no reference operations\n", C.GoString(pr.dev.level.name), pr.dev.threads, []string{"F32", "F16", "BF16"}[pr.plan.kv])
	s.WriteString(productsOf(C.GoString(pr.dev.level.name)))
	for _, e := range pr.entries {
		e.plan.explain(&s)
	}
	return s.String()
}

func (pr *program) Close() error {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	if !pr.closed {
		pr.closed = true
		pr.memory.free()
		pr.scratch.free()
	}
	return nil
}
