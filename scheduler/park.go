package scheduler

import (
	"fmt"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// Park takes a request out of scheduling until Unpark: it waits for its input, a chunk, a KV transfer, a grammar. It keeps its
// blocks and its slot; what is in flight for it is still delivered.
func (s *Scheduler) Park(now clock.Time, id request.ID, w request.Wait) error {
	q := s.requests[id]
	switch {
	case q == nil:
		return fmt.Errorf("parking request %s: %w", id, ErrUnknownRequest)
	case w == request.WaitNone || int(w) >= len(s.parked):
		return fmt.Errorf("parking request %s: unknown reason %d", id, w)
	case q.status == waitingStreaming:
		return fmt.Errorf("parking request %s: it waits for its session's next input", id)
	case q.status == parked:
		s.unparkCounts(q)
	default:
		q.leaving = true
		s.withdraw([]*seq{q})
	}
	s.park(q, w)
	s.enter(now, q)
	return nil
}

func (s *Scheduler) park(q *seq, w request.Wait) {
	q.status, q.wait = parked, w
	s.parked[w]++
	if q.slot >= 0 {
		s.held++
	}
}

func (s *Scheduler) unparkCounts(q *seq) {
	s.parked[q.wait]--
	if q.slot >= 0 {
		s.held--
	}
	q.wait = request.WaitNone
}

// Unpark lets a parked request be scheduled again. One that never ran comes before all that arrived after it; one that holds blocks goes
// to those that are admitted first.
func (s *Scheduler) Unpark(now clock.Time, id request.ID) error {
	q := s.requests[id]
	if q == nil {
		return fmt.Errorf("unparking request %s: %w", id, ErrUnknownRequest)
	}
	if q.status != parked {
		return nil
	}
	if len(q.tokens) == 0 && q.req.Rows == nil {
		return fmt.Errorf("unparking request %s: %w", id, ErrEmptyPrompt)
	}
	s.unparkCounts(q)
	q.status = waiting
	if q.preemptions > 0 && q.computed == 0 {
		q.status = preempted
	}
	switch {
	case q.holdsKV():
		s.holding.push(q)
	case q.fresh:
		next := s.waiting.first
		for next != nil && (!next.fresh || next.order < q.order) {
			next = next.after
		}
		s.waiting.insert(q, next)
	default:
		s.waiting.pushFront(q)
	}
	s.enter(now, q)
	return nil
}

// extendParked gives a parked request further input.
func (s *Scheduler) extendParked(q *seq, seg request.Segment) error {
	if q.resumable && seg.Last && len(seg.Tokens) == 0 {
		q.segments = append(q.segments, seg)
		return nil
	}
	if q.numOutput() > 0 || q.placeholders > 0 {
		return fmt.Errorf("extending request %s: it has outputs already: %w", q.id, ErrNotResumable)
	}
	if len(q.tokens)+len(seg.Tokens) >= s.cfg.MaxModelLen {
		return fmt.Errorf("extending request %s to %d tokens: %w", q.id, len(q.tokens)+len(seg.Tokens), ErrPromptTooLong)
	}
	q.tokens = append(q.tokens, seg.Tokens...)
	q.numPrompt = len(q.tokens)
	q.setLimit(s.cfg.MaxModelLen)
	if seg.Rows != nil {
		r := *q.req
		r.Rows = seg.Rows
		q.setRequest(&r)
	}
	return nil
}
