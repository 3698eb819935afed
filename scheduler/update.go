package scheduler

import (
	"fmt"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// outputs is the memory of a StepOutputs; there is one, since a second would push the first out of the processor's cache.
type outputs struct {
	step    request.StepOutputs
	tokens  []int32
	events  []request.Event
	changes []request.StateChange
	prefill []request.PrefillStats
	ints    []int
	moved   uint32      // counts the moves of tokens
	plain   []plainMark // parallel to step.Outputs
}

// plainMark says that an output holds one token of a request and nothing else that can change: the same output of the next step is already there
// when its token lands in the same place.
type plainMark struct {
	q     *seq // nil: not plain
	epoch uint32
	moved uint32
	at    int // in outputs.tokens
}

// Update commits the results of a decision and returns what the step says, read-only. With r.Rows empty nothing sampled. The result is valid
// until the next Update; d goes back to the scheduler.
func (s *Scheduler) Update(now clock.Time, d *Decision, r *StepResult) *request.StepOutputs {
	o := &s.outputs
	o.tokens, o.events, o.changes, o.prefill = o.tokens[:0], o.events[:0], o.changes[:0], o.prefill[:0]
	before := len(o.step.Outputs)
	o.step.Outputs, o.plain = o.step.Outputs[:0], o.plain[:0]
	swept := false
	for i := range d.items {
		if i%ahead == 0 && len(d.items) >= manyRows {
			s.warmed += warmTokens(d.items[i:min(i+ahead, len(d.items))])
		}
		it := &d.items[i]
		var res *RowResult
		if i < len(r.Rows) {
			res = &r.Rows[i]
			if s.decoded(it, res) {
				s.emitPlain(o, it.q, res.Tokens[0])
				continue
			}
		}
		stopped, was := s.updateRow(now, o, it, res)
		swept = swept || (stopped && was == running)
	}
	if swept {
		s.sweepRunning()
	}
	s.addTerminal(o)
	if n := len(o.step.Outputs); n < before {
		clear(o.step.Outputs[n:before]) // what is not overwritten would keep old requests' memory
		clear(o.plain[n:before])
	}
	o.step.At, o.step.Scheduled = now, d.At
	s.takeStats(o)
	s.decisions = append(s.decisions, d)
	if len(d.Rows) > 0 {
		s.flights--
	}
	s.verifyUpdated()
	return &o.step
}

// decoded commits a row as most are: one token of a running request, which neither stops it nor fills a block. Anything else it leaves to updateRow,
// unchanged.
func (s *Scheduler) decoded(it *item, res *RowResult) bool {
	q := it.q
	if q.status != running || !q.hasOutput || q.recompute || q.needPrefill || q.noted || q.careful || q.stale > 0 || it.drafts > 0 {
		return false
	}
	if len(res.Tokens) != 1 || res.Fault != "" || res.Payload != nil || res.Logprobs != nil || res.PromptLogprobs != nil {
		return false
	}
	t, n := res.Tokens[0], len(q.tokens)
	if n+1 >= q.limit || n == cap(q.tokens) || (t == q.eos && t >= 0) {
		return false
	}
	if s.cfg.Async {
		if q.computed-q.placeholders+1 >= q.hashAt {
			return false
		}
		q.placeholders--
	}
	q.inFlight -= int(it.n)
	q.tokens = q.tokens[:n+1]
	q.tokens[n] = t
	return true
}

// updateRow commits one row. It reports whether the request stopped (or its turn), and its status before.
func (s *Scheduler) updateRow(now clock.Time, o *outputs, it *item, res *RowResult) (stopped bool, was status) {
	q := it.q
	if q.status == ended {
		return false, ended
	}
	q.inFlight -= int(it.n)
	stale := q.stale > 0
	if stale {
		q.stale -= int(it.n)
		if q.dropStale {
			return false, q.status
		}
	}
	if res == nil {
		return false, q.status
	}
	was = q.status
	if res.Fault != "" {
		s.fail(now, o, q, res)
		return true, was
	}
	if len(res.Tokens) == 0 {
		if res.Payload != nil {
			s.output(now, o, q, nil, res)
		}
		return false, was
	}
	if k := int(it.drafts); k > 0 {
		s.verify(q, k, len(res.Tokens)-1, stale)
	}
	tokens, why := s.appendTokens(q, res.Tokens)
	if s.cfg.Async {
		if !stale {
			q.placeholders -= len(tokens)
		}
		if was == running {
			s.cacheBlocks(q, q.computed-q.placeholders)
			s.setMarks(q)
		}
	}
	s.finishRow(now, o, q, tokens, why, res)
	return why != request.NotFinished, was
}

// finishRow emits a row's output and, after a stop, ends the request or its turn.
func (s *Scheduler) finishRow(now clock.Time, o *outputs, q *seq, tokens []int32, why request.FinishReason, res *RowResult) {
	out := s.emit(o, q, tokens, res)
	if out.Prefill != nil {
		out.Prefill.Created = max(0, min(s.hashedTokens(q), out.Prefill.PromptTokens)-out.Prefill.Cached)
	}
	if q.recompute || !q.hasOutput {
		q.hasOutput, q.recompute = true, false
		if q.status == running && why == request.NotFinished {
			s.enter(now, q)
		}
	}
	if why != request.NotFinished {
		out.Finish = why
		out.Segment = s.stop(now, q)
	}
	s.attach(o, out, q)
}

// output is finishRow for an output without a token.
func (s *Scheduler) output(now clock.Time, o *outputs, q *seq, tokens []int32, res *RowResult) {
	s.finishRow(now, o, q, tokens, request.NotFinished, res)
}

// fail ends a request alone with an error.
func (s *Scheduler) fail(now clock.Time, o *outputs, q *seq, res *RowResult) {
	out := s.emit(o, q, nil, res)
	out.Finish, out.Err, out.Corrupted = request.FinishError, res.Fault, res.Corrupted
	s.leave(q)
	s.end(now, q)
	s.attach(o, out, q)
}

// verify settles accepted and rejected drafts: what was rejected was not computed after all.
func (s *Scheduler) verify(q *seq, drafts, accepted int, stale bool) {
	accepted = max(accepted, 0)
	rejected := drafts - accepted
	if !stale {
		if q.computed > 0 {
			q.computed -= rejected
		}
		if q.placeholders > 0 {
			q.placeholders -= rejected
		}
	}
	s.counters.NumDrafts++
	s.counters.DraftTokens += drafts
	s.counters.Accepted += accepted
	for i := 0; i < min(accepted, len(s.acceptedPos)); i++ {
		s.acceptedPos[i]++
	}
	for i := 0; i < min(drafts, len(s.draftedPos)); i++ {
		s.draftedPos[i]++
	}
}

// appendTokens appends new tokens until one stops the request; the rest is dropped.
func (s *Scheduler) appendTokens(q *seq, tokens []int32) ([]int32, request.FinishReason) {
	for i, t := range tokens {
		if len(q.tokens) == cap(q.tokens) {
			q.epoch++
		}
		q.tokens = append(q.tokens, t)
		if why := q.checkStop(); why != request.NotFinished {
			return tokens[:i+1], why
		}
	}
	return tokens, request.NotFinished
}

// stop ends a request, or a session's turn (true): then it takes the next segment or pauses.
func (s *Scheduler) stop(now clock.Time, q *seq) (segment bool) {
	s.leave(q)
	if !q.resumable {
		s.end(now, q)
		return false
	}
	// The turn may have ended inside accepted drafts: what was dropped behind the stop does not count as computed. (vLLM 0.32 leaves the
	// count past the kept tokens, which later trips an assertion.)
	q.computed = min(q.computed-q.placeholders, len(q.tokens))
	q.setSpec(nil)
	q.placeholders = 0
	q.dropStale, q.stale = true, q.inFlight
	if len(q.segments) > 0 {
		next := q.segments[0]
		q.segments = q.segments[1:]
		if next.Last {
			s.end(now, q)
			return false
		}
		if !s.fitsSegment(q, next) {
			o := s.terminalOutput(q, request.FinishError)
			o.Err = fmt.Sprintf("the next segment makes the session longer than the maximum model length of %d tokens", s.cfg.MaxModelLen)
			s.terminal = append(s.terminal, o)
			s.end(now, q)
			return true
		}
		s.adopt(now, q, next)
	} else {
		q.status = waitingStreaming
		s.sessions++
	}
	s.enqueue(q)
	s.enter(now, q)
	return true
}

// leave takes a request out of the queue it is in; out of running it is swept once, at the end of the update.
func (s *Scheduler) leave(q *seq) {
	switch q.status {
	case running:
		q.leaving = true
	case parked:
		s.unparkCounts(q)
	default:
		one := [1]*seq{q}
		s.waiting.remove(one[:])
		s.holding.remove(one[:])
		s.setDeferred(q, false)
	}
}

// UpdateDrafts gives the speculative tokens that were proposed after a step, parallel to ids. They are dropped for requests that ended
// and for prefill chunks. With asynchronous scheduling the drafts stay on the device, and the call does nothing.
func (s *Scheduler) UpdateDrafts(ids []request.ID, drafts [][]int32) {
	if s.cfg.Async {
		return
	}
	for i, id := range ids {
		q := s.requests[id]
		if q == nil {
			continue
		}
		if q.prefillChunk {
			q.setSpec(q.spec[:0])
			continue
		}
		q.setSpec(append(q.spec[:0], drafts[i]...))
	}
}
