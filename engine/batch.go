package engine

import (
	"strings"

	"omni-engine/engine/request"
	"omni-engine/engine/sampling"
	"omni-engine/kernels"
	"omni-engine/scheduler"
)

// reset makes the result parallel to the decision's rows, reusing its memory.
func (f *flight) reset(d *scheduler.Decision) {
	f.done = false
	f.scratch.Reset()
	f.tokens, f.prompt = f.tokens[:0], f.prompt[:0]
	clear(f.reqs)
	f.reqs = f.reqs[:0]
	if cap(f.result.Rows) < len(d.Rows) {
		f.result.Rows = make([]scheduler.RowResult, len(d.Rows), 2*len(d.Rows))
	}
	f.result.Rows = f.result.Rows[:len(d.Rows)]
	clear(f.result.Rows)
	if cap(f.tokens) < len(d.Rows) { // rows alias it: it must not move while they are filled
		f.tokens = make([]int32, 0, 2*len(d.Rows))
	}
}

// enter readies a row's slot and notes how many of the row's tokens give prompt logprobs.
func (r *DeviceRunner) enter(f *flight, row *scheduler.Row) {
	s := &r.slots[row.Slot]
	if row.First || row.New || s.owner != row.Req {
		s.owner = row.Req
		s.prompt, s.recent = nil, s.recent[:0]
		s.promptDone = row.Req.Sampling.PromptLogprobs == nil || row.NumComputed > 0 || len(row.Tokens) > row.PromptLen
		s.prepared.Reset()
	}
	s.prepared.For(row.Req, r.seed, r.vocab)
	n := 0
	if !s.promptDone {
		n = max(0, min(row.NumTokens, row.PromptLen-1-row.NumComputed))
	}
	f.reqs = append(f.reqs, row.Req)
	f.prompt = append(f.prompt, n)
}

// logitRows returns the rows of logits that tokens [from, from+n) of decision row i take.
func (f *flight) logitRows(row *scheduler.Row, i, from, n int) int {
	k := max(0, min(f.prompt[i], from+n)-from)
	if row.Samples && from+n == row.NumTokens {
		k++
	}
	return k
}

// fitting returns how many tokens of the row from token from on can go into room logit rows.
func (f *flight) fitting(row *scheduler.Row, i, from, room int) int {
	n := row.NumTokens - from
	if f.prompt[i]-from > room {
		return room
	}
	if f.logitRows(row, i, from, n) > room {
		n-- // the sampling token waits for the next part
	}
	return n
}

// begin empties the batch.
func (r *DeviceRunner) begin(f *flight) {
	b := f.step.Batch()
	b.Tokens, b.SeqLens, b.Slots, b.Flags = b.Tokens[:0], b.SeqLens[:0], b.Slots[:0], b.Flags[:0]
	for i := range b.Positions {
		b.Positions[i] = b.Positions[i][:0]
	}
	b.QueryStart = append(b.QueryStart[:0], 0)
	if len(b.Tables) != r.groups {
		b.Tables = make([]kernels.GroupTable, r.groups)
	}
	for i := range b.Tables {
		b.Tables[i].Start = append(b.Tables[i].Start[:0], 0)
		b.Tables[i].Blocks = b.Tables[i].Blocks[:0]
	}
	b.Adapters, b.Inputs, b.Masks = b.Adapters[:0], b.Inputs[:0], nil
	b.LogitRows, b.LogitOwner, b.Sampling = b.LogitRows[:0], b.LogitOwner[:0], b.Sampling[:0]
	f.owners = f.owners[:0]
}

// fill adds tokens [from, from+n) of decision row i to the batch and returns the logit rows that they take.
func (r *DeviceRunner) fill(f *flight, d *scheduler.Decision, i, from, n int) (logits int) {
	b, row := f.step.Batch(), &d.Rows[i]
	at, pos := len(b.Tokens), row.NumComputed+from
	for p := pos; p < pos+n; p++ {
		b.Tokens = append(b.Tokens, tokenAt(row, p))
		b.Positions[0] = append(b.Positions[0], int32(p))
	}
	flags := kernels.RowFlags(0)
	if row.First && from == 0 {
		flags |= kernels.RowFirst
	}
	if n > 1 || !row.Samples {
		flags |= kernels.RowPrefill
	}
	b.QueryStart = append(b.QueryStart, int32(len(b.Tokens)))
	b.SeqLens = append(b.SeqLens, int32(pos+n))
	b.Slots = append(b.Slots, int32(row.Slot))
	b.Flags = append(b.Flags, flags)
	for g := range b.Tables {
		if g < len(row.Blocks) {
			b.Tables[g].Blocks = append(b.Tables[g].Blocks, row.Blocks[g]...)
		}
		b.Tables[g].Start = append(b.Tables[g].Start, int32(len(b.Tables[g].Blocks)))
	}
	return r.fillLogits(f, row, i, from, n, at)
}

func (r *DeviceRunner) fillLogits(f *flight, row *scheduler.Row, i, from, n, at int) (logits int) {
	b, s := f.step.Batch(), &r.slots[row.Slot]
	add := func(token int, prompt bool) *kernels.RowSampling {
		logits++
		b.LogitRows = append(b.LogitRows, int32(at+token-from))
		b.LogitOwner = append(b.LogitOwner, int32(len(b.SeqLens)-1))
		b.Sampling = append(b.Sampling, kernels.RowSampling{})
		f.owners = append(f.owners, owner{row: i, prompt: prompt})
		return &b.Sampling[len(b.Sampling)-1]
	}
	for k := from; k < min(f.prompt[i], from+n); k++ {
		best := sampling.Best(*row.Req.Sampling.PromptLogprobs, r.vocab)
		sampling.PromptRow(add(k, true), row.Tokens[row.NumComputed+k+1], best)
	}
	if row.Samples && from+n == row.NumTokens {
		end := row.NumComputed + row.NumTokens
		late := s.recent[max(0, len(s.recent)-max(end-len(row.Tokens), 0)):]
		s.prepared.Row(add(row.NumTokens-1, false), &f.scratch, row.Tokens, late, row.PromptLen, end)
	}
	return logits
}

// tokenAt returns the token at position p, or the reference to the slot's last sample while that is in flight.
func tokenAt(row *scheduler.Row, p int) int32 {
	if p < len(row.Tokens) {
		return row.Tokens[p]
	}
	return -1
}

// read adds a device result to the step's.
func (r *DeviceRunner) read(f *flight, res *kernels.Result) {
	b := f.step.Batch()
	for l, o := range f.owners {
		s := &r.slots[b.Slots[b.LogitOwner[l]]]
		if s.owner != f.reqs[o.row] {
			s = nil // the request ended while the step ran, and its slot has another owner
		}
		if o.prompt {
			if s != nil {
				s.gather(&res.Logprobs[l])
			}
			continue
		}
		r.readSample(f, &f.result.Rows[o.row], s, res, l)
	}
	for _, fault := range res.Faults {
		row := &f.result.Rows[f.owners[fault.LogitRow].row]
		row.Fault, row.Corrupted = fault.Reason, strings.HasPrefix(fault.Reason, "NaN") // the other reason is that no token is legal
	}
}

func (r *DeviceRunner) readSample(f *flight, out *scheduler.RowResult, s *slotState, res *kernels.Result, l int) {
	tok := res.Tokens[l]
	if tok < 0 {
		return
	}
	f.tokens = append(f.tokens, tok)
	n := len(f.tokens)
	out.Tokens = f.tokens[n-1 : n : n]
	if len(res.Logprobs) > l && len(res.Logprobs[l].IDs) > 0 {
		out.Logprobs = []request.TokenLogprobs{logprobs(&res.Logprobs[l])}
	}
	if s == nil {
		return
	}
	s.remember(tok)
	if !s.promptDone {
		s.gather(nil)
		out.PromptLogprobs, s.prompt, s.promptDone = s.prompt, nil, true
	}
}

// gather adds a prompt position's logprobs; the first position has none.
func (s *slotState) gather(l *kernels.Logprobs) {
	if len(s.prompt) == 0 {
		s.prompt = append(s.prompt, request.TokenLogprobs{})
	}
	if l != nil {
		s.prompt = append(s.prompt, logprobs(l))
	}
}

// maxRecent bounds the samples that a slot remembers: no more steps are ever in flight.
const maxRecent = 8

func (s *slotState) remember(tok int32) {
	if len(s.recent) == maxRecent {
		copy(s.recent, s.recent[1:])
		s.recent = s.recent[:maxRecent-1]
	}
	s.recent = append(s.recent, tok)
}

// logprobs copies a device's answer, which is valid only until the step is released.
func logprobs(l *kernels.Logprobs) request.TokenLogprobs {
	t := request.TokenLogprobs{IDs: make([]int32, len(l.IDs)), Logprobs: make([]float32, len(l.Values)), Ranks: make([]int32, len(l.IDs))}
	copy(t.IDs, l.IDs)
	copy(t.Logprobs, l.Values)
	for i := range t.Ranks {
		t.Ranks[i] = int32(i)
	}
	if len(t.Ranks) > 0 {
		t.Ranks[0] = l.Rank
	}
	return t
}
