package scheduler

import "omni-engine/engine/request"

// extend makes room for one more output and returns its place.
func (o *outputs) extend() int {
	n := len(o.plain)
	if n == cap(o.plain) {
		o.plain = append(o.plain, plainMark{})
	}
	if n == cap(o.step.Outputs) {
		o.step.Outputs = append(o.step.Outputs, request.Output{})
	}
	o.plain, o.step.Outputs = o.plain[:n+1], o.step.Outputs[:n+1]
	return n
}

// emitPlain emits an output of one token.
func (s *Scheduler) emitPlain(o *outputs, q *seq, token int32) {
	n, at := o.extend(), len(o.tokens)
	if at == cap(o.tokens) {
		o.moved++
	}
	o.tokens = append(o.tokens, token)
	if m := (plainMark{q: q, epoch: q.epoch, moved: o.moved, at: at}); o.plain[n] != m {
		o.plain[n] = m
		o.step.Outputs[n] = request.Output{
			ID: q.id, Client: q.client, NewTokens: o.tokens[at : at+1 : at+1], StopToken: q.stopToken, Repeated: q.repeated, NumCached: q.prefillLocal,
		}
	}
}

// emit starts a row's output.
func (s *Scheduler) emit(o *outputs, q *seq, tokens []int32, res *RowResult) *request.Output {
	n, from := o.extend(), len(o.tokens)
	if from+len(tokens) > cap(o.tokens) {
		o.moved++
	}
	o.tokens = append(o.tokens, tokens...)
	o.plain[n] = plainMark{}
	out := &o.step.Outputs[n]
	*out = request.Output{
		ID: q.id, Client: q.client, NewTokens: o.tokens[from:], StopToken: q.stopToken, Repeated: q.repeated, NumCached: q.prefillLocal,
		Payload: res.Payload, Logprobs: res.Logprobs, PromptLogprobs: res.PromptLogprobs,
	}
	if len(out.Logprobs) > len(tokens) {
		out.Logprobs = out.Logprobs[:len(tokens)]
	}
	if q.needPrefill {
		q.needPrefill = false
		o.prefill = append(o.prefill, request.PrefillStats{
			PromptTokens: q.prefillPrompt, Computed: q.prefillPrompt - q.prefillLocal, Cached: q.prefillLocal, Local: q.prefillLocal,
		})
		out.Prefill = &o.prefill[len(o.prefill)-1]
	}
	return out
}

// attach moves the request's events and ledger changes onto its output.
func (s *Scheduler) attach(o *outputs, out *request.Output, q *seq) {
	if !q.noted {
		return
	}
	q.noted = false
	if len(q.events) > 0 {
		from := len(o.events)
		o.events = append(o.events, q.events...)
		out.Events = o.events[from:]
		q.events = q.events[:0]
	}
	if len(q.changes) > 0 {
		from := len(o.changes)
		o.changes = append(o.changes, q.changes...)
		out.Changes = o.changes[from:]
		q.changes = q.changes[:0]
	}
}

// addTerminal appends the ends that happened without a step: end markers that found their session paused.
func (s *Scheduler) addTerminal(o *outputs) {
	for _, out := range s.terminal {
		n := o.extend()
		o.plain[n], o.step.Outputs[n] = plainMark{}, out
	}
	clear(s.terminal)
	s.terminal = s.terminal[:0]
}

// Stats returns the gauges now, and the counters since the last Update.
func (s *Scheduler) Stats() request.SchedulerStats {
	st := s.counters
	s.gauges(&st)
	return st
}

func (s *Scheduler) gauges(st *request.SchedulerStats) {
	st.Running = len(s.running)
	st.Waiting = s.waiting.len() + s.holding.len() - s.deferred
	st.Skipped = s.deferred
	st.Parked = s.parked
	st.Parked[request.WaitSession] += s.sessions
	st.FreeBlocks, st.TotalBlocks = s.pool.free, s.cfg.NumBlocks-1
	st.Usage = s.pool.usage()
}

// takeStats writes the step's statistics and starts the counters anew.
func (s *Scheduler) takeStats(o *outputs) {
	st := &o.step.Stats
	*st = s.counters
	s.gauges(st)
	if st.NumDrafts > 0 {
		o.ints = append(append(o.ints[:0], s.acceptedPos...), s.draftedPos...)
		st.AcceptedPerPos, st.DraftedPerPos = o.ints[:len(s.acceptedPos)], o.ints[len(s.acceptedPos):]
		clear(s.acceptedPos)
		clear(s.draftedPos)
	}
	if s.pool.residency != nil {
		st.Evicted = s.pool.residency.drain()
	}
	s.counters = request.SchedulerStats{}
}
