package output

import (
	"errors"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// session is the front end's side of a streaming-input request: when each update restarts the record (PS-50).
type session struct {
	parked bool // the last segment's final output was processed, no update is there
	marked bool // the end marker was given
	queue  []segment
	last   request.FinishReason // of the last completed segment
}

// segment is an update that waits for the running segment's final output.
type segment struct {
	arrival clock.Wall
	tokens  int
}

// The reasons why a request takes no further segment.
var (
	ErrNoSession = errors.New("the request is no streaming-input session")
	ErrMarked    = errors.New("the session's end marker was given")
)

// Extend notes a session's next segment, or its end marker. Call it before the core gets the segment.
func (p *Processor) Extend(id request.ID, s request.Segment) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.states[id]
	switch {
	case st == nil:
		return ErrUnknown
	case !st.req.Resumable:
		return ErrNoSession
	}
	if st.session.marked {
		return ErrMarked
	}
	st.session.marked = s.Last
	if s.Last && len(s.Tokens) == 0 {
		return nil
	}
	if !s.Arrival.IsSet() {
		s.Arrival = p.cfg.Now()
	}
	seg := segment{s.Arrival, len(s.Tokens)}
	if st.session.parked {
		st.session.apply(st.rec, seg)
		return nil
	}
	st.session.queue = append(st.session.queue, seg)
	return nil
}

// apply restarts the record for a segment.
func (s *session) apply(rec *record.Stage, seg segment) {
	s.parked = false
	rec.Restart(seg.arrival, rec.PromptTokens+seg.tokens)
}

// ended follows a segment's final output: the next update is applied at once, or the session is parked. The core decides
// whether the request lives on (PS-51); this only follows.
func (s *session) ended(rec *record.Stage, reason request.FinishReason) {
	s.last = reason
	if len(s.queue) == 0 {
		s.parked = true
		return
	}
	seg := s.queue[0]
	s.queue = s.queue[1:]
	s.apply(rec, seg)
}

// terminal adapts the engine's own record: a session that was parked when its end marker came ended as its last segment did
// (PS-53), it was not aborted.
func (s *session) terminal(o *request.Output) {
	if s.parked && s.marked && o.Finish == request.FinishAbort && s.last != request.NotFinished {
		o.Finish = s.last
	}
}
