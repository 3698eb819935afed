package record

import (
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// waitClock sums the waits of PS-31 for one segment, in integer nanoseconds, clipped to the interval that each belongs to.
// Events are applied before the state changes that rode on the same output, so both borders are known when they are needed.
type waitClock struct {
	state request.State
	since clock.Time

	input, kvLoad int64 // inside [QUEUED, first SCHEDULED]
	chunk         int64 // inside [first SCHEDULED, last output]: what the last output made certain
	pendingChunk  int64 // after the last output: counts only if another output follows
	ack           int64
	preemptedFor  int64
	preemptedAt   clock.Time // set while a preemption has no following SCHEDULED
}

// restart forgets what was summed before a later QUEUED, which overwrites the earlier one (PS-01).
func (w *waitClock) restart() { w.input, w.kvLoad = 0, 0 }

func (w *waitClock) preempted(at clock.Time) { w.preemptedAt = at }

func (w *waitClock) resumed(at clock.Time) {
	if d, ok := at.Sub(w.preemptedAt).NonNegative().Get(); ok {
		w.preemptedFor += int64(d)
	}
	w.preemptedAt = clock.Time{}
}

func (w *waitClock) enter(to request.State, at, queued, scheduled clock.Time) {
	w.close(at, queued, scheduled)
	w.state = to
}

// output makes the waits up to an output certain.
func (w *waitClock) output(at, queued, scheduled clock.Time) {
	w.close(at, queued, scheduled)
	w.chunk += w.pendingChunk
	w.pendingChunk = 0
}

// close adds the time since the last border to the wait of the current state.
func (w *waitClock) close(at, queued, scheduled clock.Time) {
	from := w.since
	w.since = at
	switch w.state {
	case request.StateWaitingInput, request.StateWaitingChunk:
		w.input += overlap(from, at, queued, scheduled)
		if scheduled.IsSet() {
			w.pendingChunk += overlap(from, at, scheduled, clock.Time{})
		}
	case request.StateWaitingKVLoad:
		w.kvLoad += overlap(from, at, queued, scheduled)
	case request.StateWaitingKVAck:
		w.ack += overlap(from, at, scheduled, clock.Time{})
	}
}

// overlap returns the nanoseconds of [a, b] inside [from, to]; an absent to is open, an absent from holds nothing.
func overlap(a, b, from, to clock.Time) int64 {
	if !from.IsSet() {
		return 0
	}
	if a.Before(from) {
		a = from
	}
	if to.IsSet() && to.Before(b) {
		b = to
	}
	d, _ := b.Sub(a).NonNegative().Get()
	return int64(d)
}
