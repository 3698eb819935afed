package scheduler

import "omni-engine/engine/request"

// emit starts a row's output.
func (s *Scheduler) emit(o *outputs, q *seq, tokens []int32, res *RowResult) *request.Output {
	n := len(o.step.Outputs)
	if n < cap(o.step.Outputs) {
		o.step.Outputs = o.step.Outputs[:n+1]
	} else {
		o.step.Outputs = append(o.step.Outputs, request.Output{})
	}
	from := len(o.tokens)
	o.tokens = append(o.tokens, tokens...)
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
	o.step.Outputs = append(o.step.Outputs, s.terminal...)
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

// takeStats returns the step's statistics and starts the counters anew.
func (s *Scheduler) takeStats(o *outputs) request.SchedulerStats {
	st := s.Stats()
	if st.NumDrafts > 0 {
		o.ints = append(append(o.ints[:0], s.acceptedPos...), s.draftedPos...)
		st.AcceptedPerPos, st.DraftedPerPos = o.ints[:len(s.acceptedPos)], o.ints[len(s.acceptedPos):]
		clear(s.acceptedPos)
		clear(s.draftedPos)
	}
	s.counters = request.SchedulerStats{}
	return st
}
