package record

import (
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// MaxStays bounds what a ledger remembers of one request's course; its parts go on counting beyond it.
const MaxStays = 256

// Stay is one visit to a ledger state, on the core's clock.
type Stay struct {
	State    request.State
	From, To clock.Time
}

// Length is To − From.
func (s Stay) Length() clock.Span { return s.To.Sub(s.From).NonNegative() }

// timeline keeps the borders between states, so that a view can draw a request's course and not only its sums.
type timeline struct {
	stays   []Stay
	leftOut int
}

// add appends a stay that has an end; one of no length says nothing, and two of one state in a row are one.
func (t *timeline) add(s Stay) {
	last := len(t.stays) - 1
	switch {
	case !s.From.Before(s.To):
	case last >= 0 && t.leftOut == 0 && t.stays[last].State == s.State:
		t.stays[last].To = s.To
	case len(t.stays) == MaxStays:
		t.leftOut++
	default:
		t.stays = append(t.stays, s)
	}
}

// Stays returns the states that the request went through, in order and without gaps, from its first QUEUED; their lengths sum to
// the parts of their states. leftOut counts the stays beyond [MaxStays] that are missing at the end. Both are empty until
// the ledger has ended. The slice is the ledger's own.
func (l *Ledger) Stays() (stays []Stay, leftOut int) {
	if !l.ended || l.broken {
		return nil, 0
	}
	return l.course.stays, l.course.leftOut
}

// Since returns at − first QUEUED; absent when either was not observed.
func (l *Ledger) Since(at clock.Time) clock.Span { return at.Sub(l.first) }
