package gpu

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"omni-engine/kernels"
)

// samplingState is a step's questions about its logits, reused from batch to batch.
type samplingState struct {
	ids     []int32 // histories, allowed, banned and biased tokens of all rows
	bias    []float32
	top     int  // entries of a row's logprobs, the chosen one included; 0: nobody asked
	special bool // ids do not fit their place: they have one of their own, which no graph knows
	extra   *block
	large   *pinned // for ids that do not fit
	masks   *pinned
	tops    *pinned // ids, then values
	raw     *pinned // rows of logits that are wanted whole
	whole   []int   // which rows those are
}

// hostLayout is where a step's page-locked memory holds what.
type hostLayout struct{ rows, ids, bias, results, size int64 }

func (p *plan) hostLayout() hostLayout {
	l := layout{size: roundUp(p.images.limits.size)}
	n, a := max(p.limits.LogitRows, 1), p.scratch.sampling
	return hostLayout{rows: l.take(int64(n) * sampleRowBytes), ids: l.take(int64(a.idCap) * 4), bias: l.take(int64(a.idCap) * 4), results: l.take(int64(n) * 12), size: l.size}
}

// ask sends what each row of logits wants.
func (s *step) ask(padded int) error {
	b, p, q := &s.batch, s.program.plan, &s.sampling
	n := len(b.LogitRows)
	if words := n * p.scratch.sampling.words; len(b.Masks) != 0 && len(b.Masks) != words { // masks may come after the batch was checked
		return fmt.Errorf("grammar masks have %d words, not %d", len(b.Masks), words)
	}
	q.ids, q.bias, q.top, q.whole = q.ids[:0], q.bias[:0], 0, q.whole[:0]
	rows := view[sampleRow](s.host, s.layout.rows, padded)
	for i := range n {
		s.question(&rows[i], i)
	}
	for i := n; i < padded; i++ {
		rows[i] = sampleRow{Flags: rowSkip, Slot: -1}
	}
	d, a := s.program.dev, p.scratch.sampling
	if err := d.cuda.CopyToDevice(s.program.scratch.at(a.rows), s.host.at(s.layout.rows), int64(padded)*sampleRowBytes, d.stream); err != nil {
		return err
	}
	if err := s.sendIDs(); err != nil {
		return err
	}
	if len(b.Masks) == 0 {
		return nil
	}
	if q.masks == nil {
		var err error
		if q.masks, err = d.pin("grammar masks", int64(max(p.limits.LogitRows, 1))*int64(a.words)*4); err != nil {
			return err
		}
	}
	copy(view[uint32](q.masks, 0, len(b.Masks)), b.Masks)
	return d.cuda.CopyToDevice(s.program.scratch.at(a.masks), q.masks.p, int64(len(b.Masks))*4, d.stream)
}

// question writes how row i is to be sampled.
func (s *step) question(r *sampleRow, i int) {
	b, q := &s.batch, &s.sampling
	o := &b.Sampling[i]
	*r = sampleRow{Seed: o.Seed, Position: o.Position, Temperature: o.Temperature, TopP: o.TopP, MinP: o.MinP, TopK: o.TopK,
		Presence: o.Presence, Frequency: o.Frequency, Repetition: o.Repetition, Slot: b.Slots[b.LogitOwner[i]], Target: o.Target}
	if o.Logprobs >= 0 {
		r.Flags |= rowLogprobs
		if r.Logprobs = o.Logprobs; o.Logprobs > maxLogprobs {
			r.Logprobs = 0
			q.whole = append(q.whole, i)
		}
		q.top = max(q.top, int(r.Logprobs)+1)
	}
	if o.Skip {
		r.Flags |= rowSkip
		r.Slot = -1
		return
	}
	penalties := o.Presence != 0 || o.Frequency != 0 || o.Repetition != 0 && o.Repetition != 1
	if penalties {
		r.Prompt, r.Output = q.list(o.Prompt), q.list(o.Output)
	}
	r.Banned = q.list(o.Banned)
	if len(o.BiasIDs) > 0 {
		r.Biased = q.list(o.BiasIDs)
		q.bias = append(append(q.bias, make([]float32, int(r.Biased[0])-len(q.bias))...), o.Bias...)
	}
	if o.Allowed != nil {
		r.Flags |= rowAllowed
		r.Allowed = q.list(o.Allowed)
	}
	if len(b.Masks) > 0 {
		r.Flags |= rowMask
	}
	if penalties || len(o.Banned) > 0 || len(o.BiasIDs) > 0 || r.Flags&(rowAllowed|rowMask) != 0 {
		r.Flags |= rowProcess
	}
}

// list adds ids to those of all rows and returns their range.
func (q *samplingState) list(ids []int32) [2]int32 {
	from := int32(len(q.ids))
	q.ids = append(q.ids, ids...)
	return [2]int32{from, int32(len(q.ids))}
}

// sendIDs sends the rows' lists, to their place or, where they do not fit, to one that is made for them.
func (s *step) sendIDs() error {
	q, d, a := &s.sampling, s.program.dev, s.program.plan.scratch.sampling
	s.sizes.ids, s.sizes.bias = s.program.scratch.at(a.ids), s.program.scratch.at(a.bias)
	if q.special = len(q.ids) > a.idCap; q.special {
		return s.sendMany()
	}
	if len(q.ids) == 0 {
		return nil
	}
	copy(view[int32](s.host, s.layout.ids, len(q.ids)), q.ids)
	if err := d.cuda.CopyToDevice(s.sizes.ids, s.host.at(s.layout.ids), int64(len(q.ids))*4, d.stream); err != nil || len(q.bias) == 0 {
		return err
	}
	copy(view[float32](s.host, s.layout.bias, len(q.bias)), q.bias)
	return d.cuda.CopyToDevice(s.sizes.bias, s.host.at(s.layout.bias), int64(len(q.bias))*4, d.stream)
}

// sendMany is sendIDs for histories that are longer than planned.
func (s *step) sendMany() error {
	q, d := &s.sampling, s.program.dev
	half := roundUp(int64(len(q.ids)) * 4)
	if q.extra == nil || q.extra.size < 2*half {
		// Nothing reads the old memory: the step that used it was waited for.
		if err := q.extra.free(); err != nil {
			return err
		}
		if err := q.large.free(); err != nil {
			return err
		}
		var err error
		if q.extra, err = d.alloc("token histories", 4*half); err != nil {
			return err
		}
		if q.large, err = d.pin("token histories", 4*half); err != nil {
			return err
		}
	}
	copy(view[int32](q.large, 0, len(q.ids)), q.ids)
	copy(view[float32](q.large, half, len(q.bias)), q.bias)
	s.sizes.ids, s.sizes.bias = q.extra.at(0), q.extra.at(half)
	return d.cuda.CopyToDevice(q.extra.base, q.large.p, half+int64(len(q.bias))*4, d.stream)
}

// fetch puts the way back of what was sampled on the stream.
func (s *step) fetch() error {
	q, d, a := &s.sampling, s.program.dev, s.program.plan.scratch.sampling
	capacity, n := max(s.program.plan.limits.LogitRows, 1), len(s.batch.LogitRows)
	if q.top > 0 {
		sz := s.sizes
		sz.logits, sz.topStride = n, q.top
		if err := s.states.runs.one(s.states.runs.logprobs, &sz); err != nil {
			return err
		}
	}
	if err := d.cuda.CopyToHost(s.host.at(s.layout.results), s.program.scratch.at(a.results), int64(capacity)*12, d.stream); err != nil || q.top == 0 {
		return err
	}
	bytes := int64(n) * int64(q.top) * 4
	if q.tops == nil || q.tops.size < 2*roundUp(bytes) {
		if err := q.tops.free(); err != nil {
			return err
		}
		var err error
		if q.tops, err = d.pin("logprobs", 2*roundUp(int64(capacity)*int64(q.top)*4)); err != nil {
			return err
		}
	}
	if err := d.cuda.CopyToHost(q.tops.p, s.program.scratch.at(a.topIDs), bytes, d.stream); err != nil {
		return err
	}
	if err := d.cuda.CopyToHost(q.tops.at(q.tops.size/2), s.program.scratch.at(a.topVal), bytes, d.stream); err != nil {
		return err
	}
	return s.fetchWhole()
}

// fetchWhole brings back the rows of logits of which more are wanted than the device sorts.
func (s *step) fetchWhole() error {
	q, p, d := &s.sampling, s.program.plan, s.program.dev
	if len(q.whole) == 0 {
		return nil
	}
	row := int64(p.module.Vocab) * 4
	if need := int64(len(q.whole)) * row; q.raw == nil || q.raw.size < need {
		if err := q.raw.free(); err != nil {
			return err
		}
		var err error
		if q.raw, err = d.pin("rows of logits", need); err != nil {
			return err
		}
	}
	e := p.sampler()
	base := s.program.scratch.at(e.buffers[e.logits].offset)
	for k, i := range q.whole {
		if err := d.cuda.CopyToHost(q.raw.at(int64(k)*row), base.Add(int64(i)*row), row, d.stream); err != nil {
			return err
		}
	}
	return nil
}

// sampler is the entry that samples.
func (p *plan) sampler() *entry {
	for _, e := range p.entries {
		if e.logits != kernels.None {
			return e
		}
	}
	return nil
}

// answer reads what came back into the step's result.
func (s *step) answer() {
	b, capacity := &s.batch, max(s.program.plan.limits.LogitRows, 1)
	n := len(b.LogitRows)
	tokens, faults := view[int32](s.host, s.layout.results, n), view[int32](s.host, s.layout.results+4*int64(capacity), n)
	s.tokens = append(s.tokens[:0], tokens...)
	s.result.Tokens = s.tokens
	for i := range n {
		reason := ""
		switch faults[i] {
		case faultNaN:
			reason = "NaN in the logits"
		case faultNoToken:
			reason = "no token may be sampled"
		case faultInfinite:
			reason = "infinite logit"
		}
		if b.Sampling[i].Skip || reason != "" {
			s.tokens[i] = -1
		}
		if reason != "" {
			s.result.Faults = append(s.result.Faults, kernels.RowFault{LogitRow: i, Reason: reason})
			continue
		}
		if b.Sampling[i].Logprobs >= 0 {
			if s.result.Logprobs == nil {
				s.result.Logprobs = make([]kernels.Logprobs, n)
			}
			s.result.Logprobs[i] = s.logprobs(i)
		}
	}
}

// logprobs reads one row's: the chosen or asked token, then the best.
func (s *step) logprobs(i int) kernels.Logprobs {
	q, o := &s.sampling, &s.batch.Sampling[i]
	n, capacity := len(s.batch.LogitRows), max(s.program.plan.limits.LogitRows, 1)
	ids, values := view[int32](q.tops, 0, n*q.top)[i*q.top:], view[float32](q.tops, q.tops.size/2, n*q.top)[i*q.top:]
	rank := view[int32](s.host, s.layout.results+8*int64(capacity), n)[i]
	want := min(int(o.Logprobs), s.program.plan.module.Vocab)
	out := kernels.Logprobs{Rank: rank}
	if k := slices.Index(q.whole, i); k >= 0 {
		return wholeLogprobs(view[float32](q.raw, int64(k)*int64(s.program.plan.module.Vocab)*4, s.program.plan.module.Vocab), ids[0], rank, want)
	}
	out.IDs = slices.Clone(ids[:want+1])
	out.Values = slices.Clone(values[:want+1])
	return out
}

// wholeLogprobs orders a whole row.
func wholeLogprobs(row []float32, chosen, rank int32, want int) kernels.Logprobs {
	top := float64(slices.Max(row))
	var sum float64
	for _, v := range row {
		sum += math.Exp(float64(v) - top)
	}
	lse := top + math.Log(sum)
	order := make([]int32, len(row))
	for k := range order {
		order[k] = int32(k)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(row[b], row[a]), cmp.Compare(a, b)) })
	out := kernels.Logprobs{Rank: rank}
	for _, id := range append([]int32{chosen}, order[:want]...) {
		out.IDs, out.Values = append(out.IDs, id), append(out.Values, float32(float64(row[id])-lse))
	}
	return out
}

// free gives back what was made on demand.
func (q *samplingState) free() []error {
	return []error{q.extra.free(), q.large.free(), q.masks.free(), q.tops.free(), q.raw.free()}
}
