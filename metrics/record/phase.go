package record

import (
	"time"

	"omni-engine/internal/clock"
)

// carries reports whether the record tells the phase split at all: only a terminal one does (PS-51), a diffusion stage has
// none (PS-41), and nothing was observed while recording is off (PS-15).
func (s *Stage) carries() bool { return s.ended && !s.off && s.Type != Diffusion }

func (s *Stage) between(from, to clock.Time) clock.Span {
	if !s.carries() {
		return clock.Span{}
	}
	return to.Sub(from).NonNegative()
}

// QueuedTime is QUEUED → first SCHEDULED.
func (s *Stage) QueuedTime() clock.Span { return s.between(s.QueuedTS, s.ScheduledTS) }

// InboxWait is the time in the core's inbox, before QUEUED.
func (s *Stage) InboxWait() clock.Span { return s.between(s.SubmitTS, s.QueuedTS) }

// PrefillTime is first SCHEDULED → first output.
func (s *Stage) PrefillTime() clock.Span { return s.between(s.ScheduledTS, s.FirstTokenTS) }

// DecodeTime is first output → last output.
func (s *Stage) DecodeTime() clock.Span { return s.between(s.FirstTokenTS, s.LastTokenTS) }

// InferenceTime is first SCHEDULED → last output.
func (s *Stage) InferenceTime() clock.Span { return s.between(s.ScheduledTS, s.LastTokenTS) }

// Preemptions is the number of PREEMPTED events; absent when the request was never seen scheduled (PS-12), or when events
// may have been missed because recording was off for a while.
func (s *Stage) Preemptions() (int, bool) {
	if !s.carries() || !s.ScheduledTS.IsSet() || s.segment.gap {
		return 0, false
	}
	return s.NumPreemptions, true
}

// TTFT is arrival → first output, front-end clock.
func (s *Stage) TTFT() clock.Span {
	if s.off {
		return clock.Span{}
	}
	return s.segment.firstWall.Sub(s.Arrival).NonNegative()
}

// E2E is arrival → end, front-end clock.
func (s *Stage) E2E() clock.Span {
	if s.off {
		return clock.Span{}
	}
	return s.FinishedAt.Sub(s.Arrival).NonNegative()
}

// MeanTimePerOutputToken is decode time over (generated tokens − 1); absent for one token (http.md, differences).
func (s *Stage) MeanTimePerOutputToken() clock.Span {
	d, ok := s.DecodeTime().Get()
	if !ok || s.NumGenerationTokens < 2 {
		return clock.Span{}
	}
	return clock.SpanOf(d / time.Duration(s.NumGenerationTokens-1))
}

// TPOT is the time of the steps after the first output over their tokens; without such a step, the mean at finish.
func (s *Stage) TPOT() clock.Span {
	if g := &s.segment; g.stepTokens > 0 && !s.off {
		return clock.SpanOf(time.Duration(g.stepNanos / g.stepTokens))
	}
	return s.MeanTimePerOutputToken()
}

// ITL is the mean over the steps after the first output; without such a step, the mean at finish.
func (s *Stage) ITL() clock.Span {
	if n := len(s.segment.itls); n > 0 && !s.off {
		return clock.SpanOf(time.Duration(s.segment.stepNanos / int64(n)))
	}
	return s.MeanTimePerOutputToken()
}

// ITLs are the engine-core times between successive outputs, one a step. The slice is the record's own.
func (s *Stage) ITLs() []time.Duration { return s.segment.itls }

// OutputGaps are the front end's times between successive non-empty outputs. The slice is the record's own.
func (s *Stage) OutputGaps() []time.Duration { return s.segment.arrivals }

// FirstOutput is request start → first non-empty output, front-end clock.
func (s *Stage) FirstOutput() clock.Span {
	return s.segment.firstText.Sub(s.RequestStart).NonNegative()
}

// GenTime is submit to this stage → its finished output, front-end clock.
func (s *Stage) GenTime() clock.Span { return s.FinishedAt.Sub(s.Arrival).NonNegative() }

// TimePerUnit is (end − first non-empty output)/(tokens − 1), front-end clock; absent for fewer than two tokens.
func (s *Stage) TimePerUnit() clock.Span {
	d, ok := s.FinishedAt.Sub(s.segment.firstText).NonNegative().Get()
	if !ok || s.NumGenerationTokens < 2 {
		return clock.Span{}
	}
	return clock.SpanOf(d / time.Duration(s.NumGenerationTokens-1))
}

// InputWait is the part of [QUEUED, first SCHEDULED] spent waiting for the input or the first chunk (PS-31).
func (s *Stage) InputWait() clock.Span {
	return s.wait(CanWaitInput|CanWaitChunk, s.QueuedTime(), s.segment.waits.input)
}

// ChunkWait is the part of [first SCHEDULED, last output] spent waiting for a later chunk (PS-31).
func (s *Stage) ChunkWait() clock.Span {
	return s.wait(CanWaitChunk, s.InferenceTime(), s.segment.waits.chunk)
}

// KVWait is, for a receiver, the part of [QUEUED, first SCHEDULED] spent waiting for remote KV; for a sender, the time from
// the stop condition to the acknowledgement (PS-31). A stage that is both shows their sum.
func (s *Stage) KVWait() clock.Span {
	w := &s.segment.waits
	recv := s.wait(CanReceiveKV, s.QueuedTime(), w.kvLoad)
	send := s.wait(CanSendKV, s.InferenceTime(), w.ack)
	a, okA := recv.Get()
	b, okB := send.Get()
	if !okA && !okB {
		return clock.Span{}
	}
	return clock.SpanOf(a + b)
}

// PreemptedTime sums PREEMPTED → next SCHEDULED. Absent when the request was never seen scheduled, or when it ended
// preempted: that interval has no end (PS-11).
func (s *Stage) PreemptedTime() clock.Span {
	if _, ok := s.Preemptions(); !ok || s.segment.waits.preemptedAt.IsSet() {
		return clock.Span{}
	}
	return clock.SpanOf(time.Duration(s.segment.waits.preemptedFor))
}

// UnscheduledWait is QUEUED → end, only for a request that was never scheduled (PS-31).
func (s *Stage) UnscheduledWait() clock.Span {
	if s.ScheduledTS.IsSet() || s.segment.sawOutput || s.segment.gap {
		return clock.Span{}
	}
	return s.between(s.QueuedTS, s.EndTS)
}

// SchedulerWait is the queue time that was the scheduler's alone: without input, receiver's KV and grammar wait.
// The ledger covers all segments, so it is absent for a streaming session.
func (s *Stage) SchedulerWait() clock.Span { return s.Ledger.queuedAlone(s) }

func (s *Stage) wait(can Waits, enclosing clock.Span, ns int64) clock.Span {
	if s.Waits&can == 0 || !enclosing.IsSet() || s.segment.gap {
		return clock.Span{}
	}
	return clock.SpanOf(time.Duration(ns))
}
