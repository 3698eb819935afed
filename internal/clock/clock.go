// Package clock holds the times of the product. There are two kinds that never mix: a [Time] comes from one engine core's
// monotonic clock, a [Wall] from the front end's wall clock. Subtracting gives a [Span], which may be absent: a missing
// interval is never a zero (spec PS-11).
package clock

import (
	"sync/atomic"
	"time"
)

// Time is an instant of one core's monotonic clock. It carries that clock's id and never leaves its process.
// The zero value is absent.
type Time struct {
	ns int64
	id uint32 // 0: absent
}

// Clock gives the current time of one engine core.
type Clock interface{ Now() Time }

// IsSet reports whether the instant was observed.
func (t Time) IsSet() bool { return t.id != 0 }

// Sub returns t-u. It is absent when either is absent or when they come from different clocks.
func (t Time) Sub(u Time) Span {
	if t.id == 0 || t.id != u.id {
		return Span{}
	}
	return Span{ns: t.ns - u.ns, ok: true}
}

// Add returns the instant d later, on the same clock; an absent time stays absent.
func (t Time) Add(d time.Duration) Time {
	if t.id == 0 {
		return t
	}
	t.ns += int64(d)
	return t
}

// Before reports whether t is observed, u is observed on the same clock, and t is earlier.
func (t Time) Before(u Time) bool { return t.id != 0 && t.id == u.id && t.ns < u.ns }

// Nanos returns the raw reading, for trace files of this clock only; 0 when absent.
func (t Time) Nanos() int64 { return t.ns }

// lastID hands out clock ids; it is a counter, not state that a caller can observe or configure.
var lastID atomic.Uint32

// Monotonic is a core's real clock.
type Monotonic struct {
	id   uint32
	base time.Time
}

// NewMonotonic returns a clock with an id of its own.
func NewMonotonic() *Monotonic { return &Monotonic{id: lastID.Add(1), base: time.Now()} }

// Now returns nanoseconds since the clock was made, plus one so that a reading is never the zero number.
func (m *Monotonic) Now() Time { return Time{ns: int64(time.Since(m.base)) + 1, id: m.id} }

// Pair returns one (core, wall) reading, for mapping this core's times to wall time in spans and trace files.
func (m *Monotonic) Pair() Pair {
	w := time.Now()
	return Pair{Core: Time{ns: int64(w.Sub(m.base)) + 1, id: m.id}, Wall: Wall{t: w.Round(0)}}
}

// Manual is a clock for tests and replays: it stands still until it is moved.
type Manual struct {
	id uint32
	ns int64
}

// NewManual returns a manual clock that reads start.
func NewManual(start time.Duration) *Manual { return &Manual{id: lastID.Add(1), ns: int64(start)} }

// Now returns the current reading.
func (m *Manual) Now() Time { return Time{ns: m.ns, id: m.id} }

// Advance moves the clock and returns the new reading.
func (m *Manual) Advance(d time.Duration) Time { m.ns += int64(d); return m.Now() }

// At returns the instant d after the clock's origin, whatever the clock reads now.
func (m *Manual) At(d time.Duration) Time { return Time{ns: int64(d), id: m.id} }

// Pair is one reading of both clocks, taken together once at a core's start.
type Pair struct {
	Core Time
	Wall Wall
}

// Map returns the wall time of a core instant; absent when t is absent or of another clock.
func (p Pair) Map(t Time) Wall {
	s := t.Sub(p.Core)
	if !s.ok {
		return Wall{}
	}
	return p.Wall.Add(time.Duration(s.ns))
}
