//go:build cgo && linux && amd64

package cpu

// #include "omni.h"
import "C"

import (
	"errors"
	"fmt"
	"strings"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// plan is a module laid out for this device: phases, packed weights and buffers, before any memory is taken.
type plan struct {
	module  *kernels.Module
	limits  kernels.Limits
	threads int
	attRows int
	packing layout
	kv      C.int32_t // elements of caches

	matrices map[kernels.WeightID]*matrix
	order    []*matrix
	vectors  map[vectorKey]*vector
	vecOrder []*vector
	ropes    []*ropePlan
	entries  []*entryPlan
	ratios   []int // query heads per KV head in use, at most two

	shared map[string]*buffer // buffers that entries share, by name
	errs   []error
}

type vectorKey struct {
	weight kernels.WeightID
	addOne bool
}

// vector is a small weight as float32, padded to whole tiles.
type vector struct {
	data []float32
	p    *C.float
}

type ropePlan struct {
	op *kernels.Rope
	n  int
	c  *C.RopeTable
}

// buffer is one value of an entry: float rows, panels for products with blocks, or both.
type buffer struct {
	name         string
	width        int
	rows         C.int32_t
	limit        int // most rows
	float, panel bool
	output       bool
	first, last  int // phases
	c            *C.Buf
	f, q         int64 // offsets in the scratch arena
}

func (b *buffer) ld() int           { return (b.width + 31) / 32 * 32 }
func (b *buffer) floatBytes() int64 { return int64(b.limit) * int64(b.ld()) * 4 }
func (b *buffer) panelBytes(l layout) int64 {
	return int64((b.limit+l.panel-1)/l.panel) * int64(b.width/32) * l.panelBytes
}

type segment struct {
	w, w2                          *matrix
	bias, bias2                    *vector
	units, tiles                   int
	epilogue                       C.int32_t
	out                            kernels.BufferID
	column                         int
	act                            kernels.Act
	scale, post, offset, clamp     float32
	alpha                          float32
	norm                           *vector
	eps                            float32
	normOn                         bool
	headDim, rotFrom, rotDim, pair int
	rope                           *ropePlan
	state                          kernels.StateID
}

// phase is one step of an entry on the pool.
type phase struct {
	kind               C.int32_t
	label              string
	rows               C.int32_t
	in, in2, out, res  kernels.BufferID
	segs               []segment
	weight, bias       *vector
	weight2, bias2     *vector
	eps, eps2, alpha   float32
	norm, norm2, group int
	gather, addFirst   bool
	whole              bool
	state              kernels.StateID
	heads, kvHeads     int
	window, chunk      int
	ratio              int
	scale, softcap     float32
	post, offset       float32
	clamp              float32
	sinks              *vector
	rope               *ropePlan
	headDim, rotFrom   int
	rotDim, pair       int
	act                kernels.Act
	op                 int
	copy               *kernels.Copy
	table              *matrix
	input              string // host: rows that a step's inputs overwrite
}

// hostInput marks a phase that Go runs between two runs of the pool.
const hostInput = -1

type entryPlan struct {
	entry   *kernels.Entry
	flow    *kernels.Flow
	phases  []phase
	buffers []*buffer
	samples kernels.BufferID
}

func newPhase(kind C.int32_t, rows C.int32_t, label string) phase {
	return phase{kind: kind, rows: rows, label: label, in: kernels.None, in2: kernels.None, out: kernels.None, res: kernels.None,
		scale: 1, post: 1, alpha: 1}
}

func newPlan(m *kernels.Module, l kernels.Limits, threads int, level *C.Level) (*plan, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("module %s: %w", m.Name, err)
	}
	p := &plan{module: m, limits: l, threads: threads, attRows: int(level.att_rows), packing: layoutOf(level), matrices: map[kernels.WeightID]*matrix{},
		vectors: map[vectorKey]*vector{}, shared: map[string]*buffer{}}
	if err := p.checkLimits(); err != nil {
		return nil, err
	}
	names := map[string]int{}
	for i := range m.Entries {
		for _, b := range m.Entries[i].Buffers {
			names[b.Name]++
		}
	}
	for i := range m.Entries {
		p.entry(&m.Entries[i], names)
	}
	if len(p.ratios) > 2 {
		p.errs = append(p.errs, fmt.Errorf("more than two ratios of query heads to KV heads: %v", p.ratios))
	}
	if err := errors.Join(p.errs...); err != nil {
		return nil, fmt.Errorf("module %s on the CPU: %w", m.Name, err)
	}
	return p, nil
}

func (p *plan) checkLimits() error {
	l, m := p.limits, p.module
	if l.Tokens < 1 || l.Rows < 1 || l.LogitRows < 0 {
		return fmt.Errorf("limits: %d tokens, %d rows, %d logit rows", l.Tokens, l.Rows, l.LogitRows)
	}
	paged := false
	for _, s := range m.States {
		if s.Kind == kernels.Slot {
			return fmt.Errorf("state %s: %w", s.Name, errSlot)
		}
		paged = true
		if s.KDim%16 != 0 || s.VDim%16 != 0 || s.KDim == 0 || s.VDim == 0 || s.KDim > 16*C.MAX_UNIT_TILES || s.VDim > 16*C.MAX_UNIT_TILES {
			return fmt.Errorf("state %s: %w: heads of %d and %d", s.Name, errHead, s.KDim, s.VDim)
		}
	}
	if paged && (l.BlockSize <= 0 || l.BlockSize%16 != 0) {
		return fmt.Errorf("limits: block size %d is no multiple of the CPU's page of 16 tokens", l.BlockSize)
	}
	if len(m.Groups) > 16 {
		return fmt.Errorf("%d KV groups; at most 16 are possible", len(m.Groups))
	}
	return p.chooseKV()
}

// chooseKV decides what caches hold. A level with AMX reads bfloat16 where heads have whole tiles.
func (p *plan) chooseKV() error {
	l, tiles := p.limits, p.packing.kv == C.KV_PAIRS
	for _, s := range p.module.States {
		tiles = tiles && s.KDim%32 == 0
	}
	p.kv = C.KV_F32
	switch l.KV {
	case tensor.Invalid:
		switch {
		case l.Exact:
		case tiles:
			p.kv = C.KV_PAIRS
		default:
			p.kv = C.KV_F16
		}
	case tensor.F32:
	case tensor.F16:
		p.kv = C.KV_F16
	case tensor.BF16:
		if !tiles {
			return errors.New("limits: caches in BF16 need AMX and heads of a multiple of 32 (F32 and F16 always work)")
		}
		p.kv = C.KV_PAIRS
	default:
		return fmt.Errorf("limits: caches of %s are not supported on the CPU (F32, F16, and BF16 with AMX)", l.KV)
	}
	if l.Exact && p.kv != C.KV_F32 {
		return errors.New("limits: an exact program keeps its caches in F32")
	}
	return nil
}

var (
	errSlot = errors.New("slot states have no CPU kernels")
	errHead = errors.New("head size has no CPU kernels")
)

func (p *plan) matrix(w kernels.WeightID) *matrix {
	if m, ok := p.matrices[w]; ok {
		return m
	}
	m, err := newMatrix(p.module.Weights[w], p.limits.Exact, p.packing)
	if err != nil {
		p.errs = append(p.errs, err)
		m = &matrix{n: 32, k: 32, format: C.W_F32}
	}
	p.matrices[w] = m
	p.order = append(p.order, m)
	return m
}

// vector of a bias or norm weight, to be read in full tiles.
func (p *plan) vector(w kernels.WeightID, addOne bool) *vector {
	if w == kernels.None {
		return nil
	}
	key := vectorKey{w, addOne}
	if v, ok := p.vectors[key]; ok {
		return v
	}
	v := &vector{}
	data, err := floats(p.module.Weights[w])
	if err != nil {
		p.errs = append(p.errs, err)
	}
	v.data = append(data, make([]float32, 32+(32-len(data)%32)%32)...)
	if addOne {
		for i := range data {
			v.data[i]++
		}
	}
	p.vectors[key] = v
	p.vecOrder = append(p.vecOrder, v)
	return v
}

func (p *plan) ropeTable(op *kernels.Rope) *ropePlan {
	for _, r := range p.ropes {
		if sameRope(r.op, op) {
			return r
		}
	}
	r := &ropePlan{op: op, n: op.RotDim / 2}
	p.ropes = append(p.ropes, r)
	return r
}

func sameRope(a, b *kernels.Rope) bool {
	same := a.RotDim == b.RotDim && a.LongFrom == b.LongFrom && a.Factor == b.Factor && a.LongFactor == b.LongFactor &&
		len(a.InvFreq) == len(b.InvFreq) && len(a.LongFreq) == len(b.LongFreq) && string(a.Axis) == string(b.Axis)
	for i := 0; same && i < len(a.InvFreq); i++ {
		same = a.InvFreq[i] == b.InvFreq[i]
	}
	for i := 0; same && i < len(a.LongFreq); i++ {
		same = a.LongFreq[i] == b.LongFreq[i]
	}
	return same
}

func (p *plan) ratio(heads, kvHeads int) int {
	r := heads / kvHeads
	for i, x := range p.ratios {
		if x == r {
			return i
		}
	}
	p.ratios = append(p.ratios, r)
	return len(p.ratios) - 1
}

func rowsKind(d kernels.Dim) (C.int32_t, bool) {
	plain := (d.Mul == 0 || d.Mul == 1) && (d.Div == 0 || d.Div == 1) && d.Add == 0
	switch d.Sym {
	case kernels.Tokens:
		return C.ROWS_TOKENS, plain
	case kernels.LogitRows:
		return C.ROWS_LOGITS, plain
	case kernels.Rows:
		return C.ROWS_REQUESTS, plain
	}
	return 0, false
}

func (p *plan) entry(e *kernels.Entry, names map[string]int) {
	ep := &entryPlan{entry: e, samples: kernels.None}
	kept := make([]bool, len(e.Buffers))
	for i, b := range e.Buffers {
		sharedName := b.Name != "" && names[b.Name] > 1
		kept[i] = b.Role == kernels.Output || sharedName
		kind, ok := rowsKind(b.Rows)
		if !ok || b.DType == tensor.I32 {
			p.errs = append(p.errs, fmt.Errorf("entry %s buffer %s: %w", e.Name, b.Name, errBuffer))
		}
		nb := &buffer{name: b.Name, width: b.Width, rows: kind, limit: p.rowLimit(kind), output: kept[i], first: -1}
		if sharedName {
			if s := p.shared[b.Name]; s != nil && s.width == b.Width {
				nb = s
			} else {
				p.shared[b.Name] = nb
			}
		}
		ep.buffers = append(ep.buffers, nb)
	}
	ep.flow = kernels.NewFlow(e, kept)
	p.lower(ep)
	p.forms(ep)
	p.entries = append(p.entries, ep)
}

var errBuffer = errors.New("this kind of buffer has no CPU kernels")

func (p *plan) rowLimit(kind C.int32_t) int {
	n := p.limits.Tokens
	switch kind {
	case C.ROWS_LOGITS:
		n = max(p.limits.LogitRows, 1)
	case C.ROWS_REQUESTS:
		n = p.limits.Rows
	}
	return (n+p.packing.panel-1)/p.packing.panel*p.packing.panel + p.packing.panel
}

// forms decides which buffers are floats and which are panels, and quantises those whose producers cannot.
func (p *plan) forms(ep *entryPlan) {
	wantPanel := make([]bool, len(ep.buffers))
	direct := make([]bool, len(ep.buffers)) // every producer can write panels
	for i := range direct {
		direct[i] = ep.buffers[i].width%32 == 0
	}
	read := func(b kernels.BufferID) {
		if b != kernels.None {
			ep.buffers[b].float = true
		}
	}
	for i := range ep.phases {
		ph := &ep.phases[i]
		for j := range ph.segs {
			s := &ph.segs[j]
			for _, w := range []*matrix{s.w, s.w2} {
				switch {
				case w == nil:
				case isFloat(w.format):
					read(ph.in)
				default:
					wantPanel[ph.in] = true
				}
			}
			switch s.epilogue {
			case C.E_STORE, C.E_GATED:
			case C.E_ADD, C.E_HEAD_Q:
				read(s.out)
				direct[s.out] = false
			}
		}
		if ph.kind != C.P_LINEAR {
			read(ph.in)
			read(ph.in2)
			read(ph.res)
			if ph.res != kernels.None {
				direct[ph.res] = false
			}
		}
		switch ph.kind {
		case C.P_LINEAR, C.P_NORM:
		case C.P_ATTENTION:
			if p.module.States[ph.state].VDim%32 != 0 && ph.out != kernels.None {
				direct[ph.out] = false
			}
		default:
			if ph.out != kernels.None {
				direct[ph.out] = false
			}
		}
	}
	for i, b := range ep.buffers {
		if b.output {
			b.float = true
		}
		if wantPanel[i] {
			b.panel = true
			if !direct[i] {
				b.float = true
			}
		}
	}
	p.quantisePhases(ep, wantPanel, direct)
	for i := range ep.phases {
		ep.touch(i)
	}
}

// quantisePhases inserts a phase before the first product that reads panels of a value whose producer wrote floats.
func (p *plan) quantisePhases(ep *entryPlan, want, direct []bool) {
	var out []phase
	fresh := make([]bool, len(ep.buffers))
	for _, ph := range ep.phases {
		if ph.kind == C.P_LINEAR && want[ph.in] && !direct[ph.in] && !fresh[ph.in] {
			q := newPhase(C.P_QUANTISE, ph.rows, "quantise")
			q.in, q.out = ph.in, ph.in
			out = append(out, q)
			fresh[ph.in] = true
		}
		for _, b := range ph.writes() {
			fresh[b] = false
		}
		out = append(out, ph)
	}
	ep.phases = out
}

func (ph *phase) writes() []kernels.BufferID {
	var w []kernels.BufferID
	for _, b := range []kernels.BufferID{ph.out, ph.res} {
		if b != kernels.None {
			w = append(w, b)
		}
	}
	for i := range ph.segs {
		if ph.segs[i].out != kernels.None {
			w = append(w, ph.segs[i].out)
		}
	}
	return w
}

func (ep *entryPlan) touch(i int) {
	ph := &ep.phases[i]
	for _, b := range append(ph.writes(), ph.in, ph.in2) {
		if b == kernels.None {
			continue
		}
		buf := ep.buffers[b]
		if buf.first < 0 {
			buf.first = i
		}
		buf.last = i
	}
}

// explain lists an entry's phases in the order of their first appearance, equal ones counted.
func (ep *entryPlan) explain(s *strings.Builder) {
	fmt.Fprintf(s, "entry %s: %d operations in %d phases\n", ep.entry.Name, len(ep.entry.Ops), len(ep.phases))
	counts := map[string]int{}
	var order []string
	for i := range ep.phases {
		label := ep.phases[i].label
		if counts[label] == 0 {
			order = append(order, label)
		}
		counts[label]++
	}
	for _, label := range order {
		fmt.Fprintf(s, "  %4d x %s\n", counts[label], label)
	}
}

var errOperation = errors.New("has no CPU kernels")
