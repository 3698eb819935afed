package clock

import "time"

// Wall is an instant of the front end's wall clock (arrival, end-to-end latency). The zero value is absent.
type Wall struct{ t time.Time }

// WallNow reads the wall clock (with Go's monotonic part, so that differences survive clock steps).
func WallNow() Wall { return Wall{t: time.Now()} }

// WallAt makes a wall time from t; the zero time.Time is absent.
func WallAt(t time.Time) Wall { return Wall{t: t} }

// IsSet reports whether the instant was observed.
func (w Wall) IsSet() bool { return !w.t.IsZero() }

// Time returns the wall time; the zero time.Time when absent.
func (w Wall) Time() time.Time { return w.t }

// Sub returns w-v, absent when either is absent.
func (w Wall) Sub(v Wall) Span {
	if w.t.IsZero() || v.t.IsZero() {
		return Span{}
	}
	return Span{ns: int64(w.t.Sub(v.t)), ok: true}
}

// Add returns the instant d later; an absent time stays absent.
func (w Wall) Add(d time.Duration) Wall {
	if w.t.IsZero() {
		return w
	}
	return Wall{t: w.t.Add(d)}
}
