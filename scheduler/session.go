package scheduler

import (
	"fmt"
	"slices"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// Extend gives a streaming-input session its next segment, or with Last the end marker. A session that is not paused queues it;
// the marker ends a paused one as aborted, with a terminal output in the next Update. A parked request takes the tokens at once and stays
// parked. A segment that does not fit into the maximum model length is refused, or, when it was queued, ends the session with an error.
func (s *Scheduler) Extend(now clock.Time, id request.ID, seg request.Segment) error {
	q := s.requests[id]
	if q == nil {
		return fmt.Errorf("extending request %s: %w", id, ErrUnknownRequest)
	}
	if q.status == parked {
		return s.extendParked(q, seg)
	}
	if !q.resumable {
		return fmt.Errorf("extending request %s: %w", id, ErrNotResumable)
	}
	if n := len(q.segments); n > 0 && q.segments[n-1].Last {
		return fmt.Errorf("extending request %s after its end marker: %w", id, ErrNotResumable)
	}
	switch {
	case q.status != waitingStreaming:
		seg.Tokens = slices.Clone(seg.Tokens)
		q.segments = append(q.segments, seg)
	case seg.Last:
		s.endSession(now, q)
	case !s.fitsSegment(q, seg):
		return fmt.Errorf("extending request %s by %d tokens to more than %d: %w", id, len(seg.Tokens), s.cfg.MaxModelLen, ErrPromptTooLong)
	default:
		s.sessions--
		s.adopt(now, q, seg)
		s.enter(now, q)
	}
	return nil
}

// fitsSegment reports whether a segment leaves room for an output token.
func (s *Scheduler) fitsSegment(q *seq, seg request.Segment) bool {
	return min(q.computed, len(q.tokens))+len(seg.Tokens) < s.cfg.MaxModelLen
}

// endSession ends a paused session at its end marker. Nobody runs it any more, so its end rides on the next Update.
func (s *Scheduler) endSession(now clock.Time, q *seq) {
	s.terminal = append(s.terminal, s.Abort(now, request.FinishAbort, q.id)...)
}

// adopt makes a segment the session's newest prompt part. What was not computed is dropped, normally the last sampled token; the
// other outputs become prompt. A paused session stays where it is queued, even under priority, where its new arrival time may leave the heap
// out of order as in vLLM (spec scheduler rule 57).
func (s *Scheduler) adopt(now clock.Time, q *seq, seg request.Segment) {
	q.tokens = append(q.tokens[:min(q.computed, len(q.tokens))], seg.Tokens...)
	q.hashes = q.hashes[:min(len(q.hashes), q.computed/s.hashSize)]
	q.eventHashes = q.eventHashes[:min(len(q.eventHashes), q.computed/s.hashSize)]
	q.numPrompt = len(q.tokens)
	q.arrival = seg.Order
	if seg.Sampling != nil || seg.Rows != nil {
		r := *q.req
		if seg.Rows != nil {
			r.Rows = seg.Rows
		}
		if seg.Sampling != nil {
			r.Sampling, r.Repetition = *seg.Sampling, seg.Repetition
		}
		q.setRequest(&r)
		q.takeSampling(&r.Sampling, r.Repetition)
	}
	q.setLimit(s.cfg.MaxModelLen)
	q.status = waiting
	q.fresh, q.hasOutput, q.recompute = true, false, false
	s.event(now, q, request.Queued)
}
