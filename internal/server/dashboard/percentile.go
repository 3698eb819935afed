package dashboard

import (
	"math"
	"slices"

	"omni-engine/internal/clock"
)

// Percentiles are of the values that were observed, in milliseconds, interpolated linearly between ranks (as vLLM's benchmark does).
// N = 0 leaves the others absent: nothing observed is not zero (PS-11).
type Percentiles struct {
	N   int      `json:"n"`
	P50 *float64 `json:"p50"`
	P90 *float64 `json:"p90"`
	P99 *float64 `json:"p99"`
	Max *float64 `json:"max"`
}

// percentiles sorts ns, nanoseconds, in place.
func percentiles(ns []int64) Percentiles {
	if len(ns) == 0 {
		return Percentiles{}
	}
	slices.Sort(ns)
	at := func(p float64) *float64 {
		rank := p * float64(len(ns)-1)
		low := int(rank)
		high := min(low+1, len(ns)-1)
		v := float64(ns[low]) + (rank-float64(low))*float64(ns[high]-ns[low])
		v /= 1e6
		return &v
	}
	return Percentiles{N: len(ns), P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: at(1)}
}

// millis is a span for JSON: null when absent.
func millis(s clock.Span) *float64 {
	if ms, ok := s.Milliseconds(); ok {
		return &ms
	}
	return nil
}

// ratio is a/b, absent when b is 0.
func ratio(a, b float64) *float64 { return finite(a / b) }

// finite leaves out what is no number: 0/0 is nothing observed.
func finite(f float64) *float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	return &f
}
