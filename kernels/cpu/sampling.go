//go:build cgo && linux && amd64

package cpu

// #include "omni.h"
import "C"

import (
	"fmt"
	"math/bits"
	"slices"
	"unsafe"

	"omni-engine/kernels"
)

// recentTokens is how many samples a slot remembers.
const recentTokens = 8

func (s *states) recent(slot int32, k int) int32 {
	if k >= recentTokens || int(slot) >= s.plan.Slots {
		return 0
	}
	return s.last[int(slot)*recentTokens+k]
}

func (s *states) remember(slot, token int32) {
	if int(slot) >= s.plan.Slots {
		return
	}
	l := s.last[int(slot)*recentTokens : (int(slot)+1)*recentTokens]
	copy(l[1:], l)
	l[0] = token
}

// list pins a Go slice for the step.
func list[T int32 | uint32 | float32](s *step, v []T) (unsafe.Pointer, C.int32_t) {
	if len(v) == 0 {
		return nil, 0
	}
	s.pinner.Pin(&v[0])
	return unsafe.Pointer(&v[0]), C.int32_t(len(v))
}

// ask writes the batch's questions about its logits to C memory.
func (s *step) ask() error {
	b, w := &s.batch, s.program.logits
	n := len(b.LogitRows)
	rows, samples := unsafe.Slice(w.rows, n), unsafe.Slice(w.samples, n)
	words := (s.program.plan.module.Vocab + 31) / 32
	if len(b.Masks) != 0 && len(b.Masks) != n*words { // masks may come after the batch was checked
		return fmt.Errorf("grammar masks have %d words, not %d", len(b.Masks), n*words)
	}
	for i := range n {
		q := &b.Sampling[i]
		rows[i] = C.LogitRow{target: C.int32_t(q.Target)}
		if q.Logprobs >= 0 {
			rows[i].want = 1
			if !wantsAll(q) {
				rows[i].nbest = C.int32_t(q.Logprobs)
			}
			rows[i].best_ids = (*C.int32_t)(unsafe.Add(s.best, i*maxBest*8))
			rows[i].best_values = (*C.float)(unsafe.Add(s.best, i*maxBest*8+maxBest*4))
		}
		c := C.SampleRow{temperature: C.float(q.Temperature), top_k: C.int32_t(q.TopK), top_p: C.float(q.TopP), min_p: C.float(q.MinP),
			presence: C.float(q.Presence), frequency: C.float(q.Frequency), repetition: C.float(q.Repetition), u: C.double(uniform(q.Seed, q.Position))}
		c.skip = flag(q.Skip)
		if !q.Skip {
			s.edits(&c, q)
			if len(b.Masks) > 0 {
				p, _ := list(s, b.Masks[i*words:(i+1)*words])
				c.mask, c.edits = (*C.uint32_t)(p), 1
			}
		}
		samples[i] = c
	}
	return nil
}

// wantsAll reports a row whose logprobs are better sorted by Go than kept in a short list.
func wantsAll(q *kernels.RowSampling) bool { return q.Logprobs > maxBest }

func (s *step) edits(c *C.SampleRow, q *kernels.RowSampling) {
	ids := func(v []int32) (*C.int32_t, C.int32_t) {
		p, n := list(s, v)
		return (*C.int32_t)(p), n
	}
	c.banned, c.nbanned = ids(q.Banned)
	c.bias_ids, c.nbias = ids(q.BiasIDs)
	if c.nbias > 0 {
		p, _ := list(s, q.Bias)
		c.bias = (*C.float)(p)
	}
	if q.Allowed != nil {
		c.has_allowed = 1
		c.allowed, c.nallowed = ids(q.Allowed)
	}
	penalties := q.Presence != 0 || q.Frequency != 0 || (q.Repetition != 0 && q.Repetition != 1)
	if penalties {
		c.prompt, c.nprompt = ids(q.Prompt)
		c.output, c.noutput = ids(q.Output)
	}
	if penalties || c.nbanned > 0 || c.nbias > 0 || c.has_allowed != 0 {
		c.edits = 1
	}
}

// answer reads what the pool found into the step's result.
func (s *step) answer() {
	b, w := &s.batch, s.program.logits
	n := len(b.LogitRows)
	rows, samples := unsafe.Slice(w.rows, n), unsafe.Slice(w.samples, n)
	s.tokens = append(s.tokens[:0], make([]int32, n)...)
	s.result = kernels.Result{Tokens: s.tokens}
	for i := range n {
		q := &b.Sampling[i]
		tok, reason := int32(samples[i].token), ""
		switch samples[i].status {
		case 1:
			tok, reason = -1, "NaN in the logits"
		case 2:
			tok, reason = -1, "no token may be sampled"
		case 3:
			tok, reason = -1, "infinite logit"
		}
		if q.Skip {
			tok = -1
		}
		s.tokens[i] = tok
		if reason != "" {
			s.result.Faults = append(s.result.Faults, kernels.RowFault{LogitRow: i, Reason: reason})
			continue
		}
		if !q.Skip {
			s.states.remember(b.Slots[b.LogitOwner[i]], tok)
		}
		if q.Logprobs >= 0 {
			if s.result.Logprobs == nil {
				s.result.Logprobs = make([]kernels.Logprobs, n)
			}
			s.result.Logprobs[i] = s.logprobsOf(i, &rows[i], q, tok)
		}
	}
}

func (s *step) logprobsOf(i int, r *C.LogitRow, q *kernels.RowSampling, tok int32) kernels.Logprobs {
	if q.Skip {
		tok = q.Target
	}
	best := int(r.nbest)
	out := kernels.Logprobs{IDs: make([]int32, 0, best+1), Values: make([]float32, 0, best+1)}
	lse := float64(r.lse)
	if tok >= 0 && int(tok) < s.program.plan.module.Vocab {
		out.IDs, out.Values, out.Rank = append(out.IDs, tok), append(out.Values, float32(float64(r.target_value)-lse)), int32(r.rank)
	}
	if wantsAll(q) {
		return s.allLogprobs(i, out, lse, int(q.Logprobs))
	}
	ids, values := unsafe.Slice((*int32)(unsafe.Pointer(r.best_ids)), best), unsafe.Slice((*float32)(unsafe.Pointer(r.best_values)), best)
	for k := range best {
		out.IDs, out.Values = append(out.IDs, ids[k]), append(out.Values, float32(float64(values[k])-lse))
	}
	return out
}

// allLogprobs orders a whole row.
func (s *step) allLogprobs(i int, out kernels.Logprobs, lse float64, n int) kernels.Logprobs {
	var row []float32
	for _, e := range s.program.entries {
		if e.plan.samples != kernels.None {
			row = e.plan.buffers[e.plan.samples].row(i)
		}
	}
	order := make([]int32, len(row))
	for k := range order {
		order[k] = int32(k)
	}
	slices.SortFunc(order, func(a, b int32) int {
		switch {
		case row[a] > row[b]:
			return -1
		case row[a] < row[b]:
			return 1
		}
		return int(a - b)
	})
	for _, id := range order[:min(n, len(order))] {
		out.IDs, out.Values = append(out.IDs, id), append(out.Values, float32(float64(row[id])-lse))
	}
	return out
}

// uniform is the row's random number in [0, 1): Philox4x32-10 with the seed as key and the position as counter, as kernels/ref
// defines it.
func uniform(seed, position uint64) float64 {
	c := [4]uint32{uint32(position), uint32(position >> 32)}
	k0, k1 := uint32(seed), uint32(seed>>32)
	for range 10 {
		h0, l0 := bits.Mul32(0xD2511F53, c[0])
		h1, l1 := bits.Mul32(0xCD9E8D57, c[2])
		c = [4]uint32{h1 ^ c[1] ^ k0, l1, h0 ^ c[3] ^ k1, l0}
		k0 += 0x9E3779B9
		k1 += 0xBB67AE85
	}
	return float64((uint64(c[0])<<32|uint64(c[1]))>>11) / (1 << 53)
}
