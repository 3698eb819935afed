//go:build cgo && linux && amd64

package cpu

/*
#include <stdlib.h>
#include "omni.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// step is one batch in C memory. Submit records, Wait runs everything in one call into the pool.
type step struct {
	program *program
	states  *states
	batch   kernels.Batch
	calls   []kernels.Call
	checked bool

	memory arena
	exec   *C.Exec
	c      *C.Batch
	arrays []array // C memory behind the batch's slices
	tables []array
	blocks []array
	best   unsafe.Pointer // ids and values of the best logits
	spans  []C.Span       // C memory: phases of one trip to the pool
	pinner runtime.Pinner

	result   kernels.Result
	tokens   []int32
	logprobs []kernels.Logprobs
}

// maxBest is the most logprobs that C keeps for one row; rows that ask for more are sorted in Go.
const maxBest = 128

// array is C memory of n int32 and the slice that fills it.
type array struct {
	p unsafe.Pointer
	n int
}

func (a array) slice() []int32 { return unsafe.Slice((*int32)(a.p), a.n) }

// take makes the C memory hold what s holds: nothing to do when s still lies in it.
func (a array) take(s []int32) error {
	if len(s) > a.n {
		return fmt.Errorf("%d entries where %d are possible", len(s), a.n)
	}
	if len(s) > 0 && unsafe.Pointer(&s[0]) != a.p {
		copy(a.slice(), s)
	}
	return nil
}

// NewStep makes a step over the states of this program.
func (pr *program) NewStep(ks kernels.States) (kernels.Step, error) {
	st, ok := ks.(*states)
	if !ok || st.program != pr {
		return nil, errors.New("new step: states of another program")
	}
	s := &step{program: pr, states: st}
	if err := s.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("new step: %w", err), s.close())
	}
	runtime.AddCleanup(s, func(a *arena) { a.free() }, &arena{chunks: s.memory.chunks})
	return s, nil
}

func (s *step) close() error {
	s.memory.free()
	return nil
}

func (s *step) build() error {
	p := s.program.plan
	l := p.limits
	perRow := 1
	if l.BlockSize > 0 {
		perRow = (max(l.MaxModelLen, l.Tokens)+l.BlockSize-1)/l.BlockSize + 2
	}
	tiles := 0
	for _, r := range p.ratios {
		tiles += l.Tokens*r/p.attRows + l.Rows + 1
	}
	cut := p.cuts()
	groups := max(len(p.module.Groups), 1)
	sizes := []int{l.Tokens, l.Tokens, l.Tokens, l.Tokens, l.Rows + 1, l.Rows, max(l.LogitRows, 1), l.Tokens, l.Tokens}
	total := round64(int64(unsafe.Sizeof(C.Exec{}))) + round64(int64(unsafe.Sizeof(C.Batch{}))) + round64(int64(tiles+1)*int64(unsafe.Sizeof(C.RowTile{})))
	for _, n := range sizes {
		total += round64(int64(n) * 4)
	}
	total += int64(groups) * (round64(int64(l.Rows+1)*4) + round64(int64(l.Rows*perRow)*4))
	total += round64(int64(max(l.LogitRows, 1))*maxBest*8) + round64(maxSpans*int64(unsafe.Sizeof(C.Span{})))
	total += round64(int64(cut.parts)*int64(unsafe.Sizeof(C.Part{}))) + round64(cut.rows*cut.width*4) + round64(int64(2*cut.few*cut.kv)*4)
	mem, err := s.memory.alloc(total)
	if err != nil {
		return err
	}
	b := &bump{p: mem, n: total}
	s.exec = (*C.Exec)(b.take(int64(unsafe.Sizeof(C.Exec{}))))
	s.c = (*C.Batch)(b.take(int64(unsafe.Sizeof(C.Batch{}))))
	*s.exec = C.Exec{lv: s.program.dev.level, b: s.c, scratch: s.program.threads, threads: C.int32_t(p.threads)}
	for _, n := range sizes {
		s.arrays = append(s.arrays, array{b.take(int64(n) * 4), n})
	}
	c := s.c
	fields := []**C.int32_t{&c.tokens, &c.pos[0], &c.pos[1], &c.pos[2], &c.qstart, &c.seqlens, &c.logit_rows, &c.row, &c.kvpos}
	for i, f := range fields {
		*f = (*C.int32_t)(s.arrays[i].p)
	}
	c.tiles = (*C.RowTile)(b.take(int64(tiles+1) * int64(unsafe.Sizeof(C.RowTile{}))))
	c.few, c.most_parts, c.most_kv, c.partial_rows = C.int32_t(cut.few), C.int32_t(cut.parts), C.int32_t(cut.kv), C.int64_t(cut.rows)
	c.parts = (*C.Part)(b.take(int64(cut.parts) * int64(unsafe.Sizeof(C.Part{}))))
	c.partial = (*C.float)(b.take(cut.rows * cut.width * 4))
	c.left = (*C.int32_t)(b.take(int64(2*cut.few*cut.kv) * 4))
	c.groups = C.int32_t(groups)
	for g := range groups {
		s.tables = append(s.tables, array{b.take(int64(l.Rows+1) * 4), l.Rows + 1})
		s.blocks = append(s.blocks, array{b.take(int64(l.Rows*perRow) * 4), l.Rows * perRow})
		c.tables[g] = C.Table{start: (*C.int32_t)(s.tables[g].p), blocks: (*C.int32_t)(s.blocks[g].p)}
	}
	s.best = b.take(int64(max(l.LogitRows, 1)) * maxBest * 8)
	s.spans = unsafe.Slice((*C.Span)(b.take(maxSpans*int64(unsafe.Sizeof(C.Span{})))), maxSpans)[:0]
	s.expose(groups)
	return nil
}

// cuts bounds how attention over long contexts is cut into parts.
type cuts struct {
	few, kv, parts int
	rows, width    int64
}

// maxPartial bounds the memory for parts; contexts that need more of it are not cut.
const maxPartial = 32 << 20

func (p *plan) cuts() cuts {
	c := cuts{kv: 1, width: 16, parts: 1}
	for _, s := range p.module.States {
		c.kv, c.width = max(c.kv, s.Heads), max(c.width, int64(s.VDim)+16)
	}
	c.few = 8*p.threads/c.kv + 2
	if len(p.ratios) > 0 {
		c.parts = min(c.few*(max(p.limits.MaxModelLen, p.limits.Tokens)/int(C.CHUNK)+2), 1<<16)
	}
	c.rows = min(int64(c.parts)*int64(c.kv*p.attRows), maxPartial/(4*c.width))
	return c
}

// parts tells into how many parts the attention of the last batch was cut; 0: not at all.
func (s *step) parts() int { return int(s.c.nparts[0] + s.c.nparts[1]) }

// maxSpans is how many runs of phases one call into the pool takes.
const maxSpans = 64

// expose gives the caller slices over the C memory.
func (s *step) expose(groups int) {
	s.batch.Tokens = s.arrays[0].slice()[:0]
	for i := range s.batch.Positions {
		s.batch.Positions[i] = s.arrays[1+i].slice()[:0]
	}
	s.batch.QueryStart = s.arrays[4].slice()[:0]
	s.batch.SeqLens = s.arrays[5].slice()[:0]
	s.batch.LogitRows = s.arrays[6].slice()[:0]
	s.batch.Tables = make([]kernels.GroupTable, groups)
	for g := range groups {
		s.batch.Tables[g] = kernels.GroupTable{Start: s.tables[g].slice()[:0], Blocks: s.blocks[g].slice()[:0]}
	}
}

func (s *step) Batch() *kernels.Batch { return &s.batch }

// Submit checks the batch and records the calls.
func (s *step) Submit(calls ...kernels.Call) error {
	if !s.checked {
		if err := s.batch.Check(s.program.plan.module, s.program.plan.limits, s.states.plan); err != nil {
			return err
		}
		s.checked = true
	}
	for _, c := range calls {
		if c.Entry < 0 || c.Entry >= len(s.program.entries) {
			return fmt.Errorf("submit: entry %d of %d", c.Entry, len(s.program.entries))
		}
	}
	s.calls = append(s.calls, calls...)
	return nil
}

// Wait runs what was submitted. It does not return early: a step takes milliseconds.
func (s *step) Wait(ctx context.Context) (*kernels.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	pr := s.program
	pr.mu.Lock()
	defer pr.mu.Unlock()
	if pr.closed || s.states.base == nil {
		return nil, errors.New("running a step: the program or its states are closed")
	}
	defer s.pinner.Unpin()
	if err := s.enter(); err != nil {
		return nil, fmt.Errorf("running a step: %w", err)
	}
	s.states.bind()
	if err := s.run(); err != nil {
		return nil, fmt.Errorf("running a step: %w", err)
	}
	s.calls = s.calls[:0]
	return &s.result, nil
}

// run takes all calls to the pool in one trip, but for what Go must do between phases.
func (s *step) run() error {
	pr, samples := s.program, false
	for _, call := range s.calls {
		samples = samples || pr.entries[call.Entry].plan.samples != kernels.None
	}
	if samples {
		if err := s.ask(); err != nil {
			return err
		}
	}
	for _, call := range s.calls {
		e := &pr.entries[call.Entry]
		for i := range e.runs {
			r := &e.runs[i]
			if r.n > 0 {
				if len(s.spans) == cap(s.spans) {
					s.flush()
				}
				s.spans = append(s.spans, C.Span{phases: r.phases, n: C.int32_t(r.n)})
			}
			if r.out != kernels.None {
				s.flush()
				if err := s.input(e.plan.buffers[r.out], r.input); err != nil {
					return err
				}
			}
		}
	}
	s.flush()
	if samples {
		s.answer()
	}
	return nil
}

// flush runs the phases gathered so far.
func (s *step) flush() {
	if len(s.spans) > 0 {
		C.pool_run(s.program.dev.pool, s.exec, &s.spans[0], C.int(len(s.spans)), C.int(s.program.plan.limits.Priority))
		s.spans = s.spans[:0]
	}
}

// enter moves the batch to C memory and derives its lists.
func (s *step) enter() error {
	b, c := &s.batch, s.c
	for i, list := range [][]int32{b.Tokens, b.Positions[0], b.Positions[1], b.Positions[2], b.QueryStart, b.SeqLens, b.LogitRows} {
		if err := s.arrays[i].take(list); err != nil {
			return fmt.Errorf("batch array %d: %w", i, err)
		}
	}
	for g := range b.Tables {
		if err := errors.Join(s.tables[g].take(b.Tables[g].Start), s.blocks[g].take(b.Tables[g].Blocks)); err != nil {
			return fmt.Errorf("block table of group %d: %w", g, err)
		}
	}
	c.T, c.R, c.L = C.int32_t(len(b.Tokens)), C.int32_t(len(b.SeqLens)), C.int32_t(len(b.LogitRows))
	for axis := 1; axis < 3; axis++ {
		if len(b.Positions[axis]) == 0 {
			c.pos[axis] = c.pos[0]
		} else {
			c.pos[axis] = (*C.int32_t)(s.arrays[1+axis].p)
		}
	}
	tokens := s.arrays[0].slice()[:len(b.Tokens)]
	for r := range b.SeqLens {
		for t := b.QueryStart[r]; t < b.QueryStart[r+1]; t++ {
			if tokens[t] < 0 {
				tokens[t] = s.states.recent(b.Slots[r], int(-1-tokens[t]))
			}
		}
	}
	s.widen()
	ratios := [2]C.int{}
	for i, r := range s.program.plan.ratios {
		ratios[i] = C.int(r)
	}
	C.batch_prepare(c, C.int(s.program.plan.attRows), ratios[0], ratios[1])
	return nil
}

// input overwrites rows of a buffer with the batch's inputs of that name.
func (s *step) input(b *buffer, name string) error {
	for i := range s.batch.Inputs {
		in := &s.batch.Inputs[i]
		if in.Name != name {
			continue
		}
		if in.Width != b.width || len(in.Data) != len(in.Rows)*in.Width {
			return fmt.Errorf("input %s: width %d with %d values for %d rows of width %d", name, in.Width, len(in.Data), len(in.Rows), b.width)
		}
		for k, row := range in.Rows {
			copy(b.row(int(row)), in.Data[k*in.Width:(k+1)*in.Width])
		}
	}
	return nil
}

func (b *buffer) row(t int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(b.c.f), t*b.ld()*4)), b.width)
}

// Output copies a named output's rows.
func (s *step) Output(name string) (tensor.View, error) {
	for _, e := range s.program.entries {
		for _, b := range e.plan.buffers {
			if b.name != name || !b.output || b.c == nil || b.c.f == nil {
				continue
			}
			rows := [...]int{len(s.batch.Tokens), len(s.batch.LogitRows), len(s.batch.SeqLens)}[b.rows]
			out := make([]float32, rows*b.width)
			for t := range rows {
				copy(out[t*b.width:], b.row(t))
			}
			return tensor.NewView(tensor.F32, []int{rows, b.width}, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(out))), 4*len(out)))
		}
	}
	return tensor.View{}, fmt.Errorf("output %q: the module has none of that name", name)
}

// Release readies the step for the next batch.
func (s *step) Release() {
	s.calls, s.checked = s.calls[:0], false
	s.result = kernels.Result{}
}
