package record

import (
	"time"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// Ledger says where a request spent its life in a core: at each instant in exactly one state, in integer nanoseconds of the
// core's clock, over all segments. Its parts sum to (end − first QUEUED) exactly (PS-32). The zero value is ready.
type Ledger struct {
	parts  [request.NumStates]int64
	state  request.State
	first  clock.Time
	since  clock.Time
	ended  bool
	broken bool // a reading was absent or of another clock: nothing can be said
	course timeline
}

// Enter moves the request to a state. The first state entered other than none starts the ledger; none ends it.
func (l *Ledger) Enter(to request.State, at clock.Time) {
	if l.ended || l.broken {
		return
	}
	if l.state == request.StateNone {
		if to == request.StateNone {
			return
		}
		l.state, l.first, l.since, l.broken = to, at, at, !at.IsSet()
		return
	}
	l.advance(at)
	if l.state = to; to == request.StateNone {
		l.ended = true
	}
}

// advance gives the time since the last border to the current state. Readings never go back: an earlier one adds nothing,
// so the parts stay non-negative and still telescope to the whole.
func (l *Ledger) advance(at clock.Time) {
	d, ok := at.Sub(l.since).Get()
	if !ok {
		l.broken = true
		return
	}
	if d > 0 {
		l.course.add(Stay{l.state, l.since, at})
		l.parts[l.state] += int64(d)
		l.since = at
	}
}

// End closes the ledger when the request leaves the core. An absent time (a lost replica) leaves it absent.
func (l *Ledger) End(at clock.Time) {
	if !l.ended && l.state != request.StateNone {
		l.Enter(request.StateNone, at)
	}
}

// Part returns the time spent in a state; absent until the ledger has ended.
func (l *Ledger) Part(s request.State) clock.Span {
	if !l.ended || l.broken {
		return clock.Span{}
	}
	return clock.SpanOf(time.Duration(l.parts[s]))
}

// Total returns end − first QUEUED; absent until the ledger has ended.
func (l *Ledger) Total() clock.Span {
	if !l.ended || l.broken {
		return clock.Span{}
	}
	return l.since.Sub(l.first)
}

// Running returns the parts at an instant, the current state's up to then, for views of requests that still live.
func (l *Ledger) Running(at clock.Time) (parts [request.NumStates]time.Duration, ok bool) {
	c := *l
	c.course = timeline{} // the copy must not write to what the ledger keeps
	if !c.ended && c.state != request.StateNone {
		c.Enter(request.StateNone, at)
	}
	for i, ns := range c.parts {
		parts[i] = time.Duration(ns)
	}
	return parts, c.ended && !c.broken
}

// waitClock starts a segment's waits where the ledger is: a restarted session keeps the state that it is in (PS-50).
func (l *Ledger) waitClock() waitClock { return waitClock{state: l.state, since: l.since} }

// queuedAlone is QUEUED → first SCHEDULED without the waits that were not the scheduler's (PS-31).
func (l *Ledger) queuedAlone(s *Stage) clock.Span {
	queued, ok := s.QueuedTime().Get()
	if !ok || !l.ended || l.broken || l.first != s.QueuedTS {
		return clock.Span{}
	}
	w := &s.segment.waits
	alone := int64(queued) - w.input - w.kvLoad - l.parts[request.StateWaitingGrammar]
	return clock.SpanOf(time.Duration(alone)).NonNegative()
}
