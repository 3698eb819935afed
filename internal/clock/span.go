package clock

import (
	"strconv"
	"time"
)

// Span is maybe a duration: its zero value is absent, and an absent span is never shown as a zero (PS-11).
type Span struct {
	ns int64
	ok bool
}

// SpanOf returns a present span of d.
func SpanOf(d time.Duration) Span { return Span{ns: int64(d), ok: true} }

// Get returns the duration and whether it was observed.
func (s Span) Get() (time.Duration, bool) { return time.Duration(s.ns), s.ok }

// IsSet reports whether the span was observed.
func (s Span) IsSet() bool { return s.ok }

// Milliseconds returns the span in milliseconds and whether it was observed.
func (s Span) Milliseconds() (float64, bool) { return float64(s.ns) / 1e6, s.ok }

// Seconds returns the span in seconds and whether it was observed.
func (s Span) Seconds() (float64, bool) { return float64(s.ns) / 1e9, s.ok }

// NonNegative returns s, or absent when s is negative: a negative interval was not observed (PS-11).
func (s Span) NonNegative() Span {
	if s.ns < 0 {
		return Span{}
	}
	return s
}

// MarshalJSON writes milliseconds as a number, or null when absent.
func (s Span) MarshalJSON() ([]byte, error) {
	if !s.ok {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(s.ns)/1e6, 'f', -1, 64), nil
}
