package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// pair is one round of a figure: both engines, one after the other.
type pair struct {
	A, B   float64
	Round  int
	During [2]disturbance
	Load   float64 // load average of a minute, before the round
}

// result is a figure's rounds.
type result struct {
	Work, Name, What, Unit string
	Cost                   bool
	Pairs                  []pair
	Why                    string // why there are none, or fewer
	Failed                 bool
}

// session is all rounds on one model.
type session struct {
	a, b     engine
	works    []work
	quick    bool
	rounds   int
	quiet    float64
	patience time.Duration
	until    time.Time // begin nothing afterwards; zero: no limit
	log      io.Writer
}

// grace is how long a run that began in time may go on.
const grace = 25 * time.Second

// run does round after round, each over all works that still want one, so that a disturbance hits different works.
func (s *session) run(ctx context.Context) ([]result, error) {
	if !s.until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, s.until.Add(grace))
		defer cancel()
	}
	var results []result
	first := make([]int, len(s.works)) // of each work's results
	took := make([]time.Duration, len(s.works))
	for i, w := range s.works {
		first[i] = len(results)
		for _, f := range w.figures {
			r := result{Work: w.name, Name: f.name, What: w.what, Unit: f.unit, Cost: f.cost}
			if s.wanted(w) == 0 {
				r.Why = "only without -quick"
			}
			results = append(results, r)
		}
	}
	for round := 0; s.more(round); round++ {
		for i, w := range s.works {
			own := results[first[i] : first[i]+len(w.figures)]
			if round >= s.wanted(w) || own[0].Why != "" {
				continue
			}
			if !s.until.IsZero() && time.Now().Add(took[i]).After(s.until) {
				tell(own, "the time limit was reached", false)
				continue
			}
			begin := time.Now()
			if err := s.once(ctx, w, round, own); err != nil {
				if errors.Is(err, context.Canceled) {
					return nil, err
				}
				s.failed(own, err)
			}
			took[i] = time.Since(begin)
		}
	}
	return results, nil
}

func (s *session) failed(own []result, err error) {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		tell(own, "the time limit cut a run off", false)
	case errors.Is(err, errUnsupported):
		tell(own, err.Error(), false)
	default:
		fmt.Fprintf(s.log, "bench/cpu: %s: %v\n", own[0].Work, err)
		tell(own, err.Error(), true)
	}
}

func tell(own []result, why string, failed bool) {
	for i := range own {
		own[i].Why, own[i].Failed = why, failed
	}
}

func (s *session) wanted(w work) int {
	n := w.full
	if s.quick {
		n = w.quick
	}
	if s.rounds > 0 && n > 0 {
		n = s.rounds
	}
	return n
}

func (s *session) more(round int) bool {
	for _, w := range s.works {
		if round < s.wanted(w) {
			return true
		}
	}
	return false
}

// once measures both engines and adds a pair to each figure.
func (s *session) once(ctx context.Context, w work, round int, own []result) error {
	p := pair{Round: round + 1, Load: loadAverage()}
	var values [2][]float64
	for i, e := range []engine{s.a, s.b} {
		var err error
		if values[i], p.During[i], err = s.side(ctx, w, e); err != nil {
			return fmt.Errorf("%s: %w", e.name(), err)
		}
		if len(values[i]) != len(w.figures) {
			return fmt.Errorf("%s: %d values for %d figures", e.name(), len(values[i]), len(w.figures))
		}
	}
	for k := range own {
		p.A, p.B = values[0][k], values[1][k]
		own[k].Pairs = append(own[k].Pairs, p)
	}
	fmt.Fprintf(s.log, "%-12s round %d  %s %s  %s %s  others %.2f %.2f\n", w.name, p.Round, s.a.name(), spell(values[0]), s.b.name(), spell(values[1]),
		p.During[0].Foreign, p.During[1].Foreign)
	return nil
}

func spell(values []float64) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = number(v)
	}
	return strings.Join(words, "/")
}

// side measures one engine and what else ran meanwhile.
func (s *session) side(ctx context.Context, w work, e engine) (values []float64, d disturbance, err error) {
	if err := awaitQuiet(ctx, s.quiet, s.patience); err != nil {
		return nil, d, err
	}
	from, err := readUsage()
	if err != nil {
		return nil, d, err
	}
	if w.busy {
		stop, err := startHog(ctx)
		if err != nil {
			return nil, d, err
		}
		values, err = w.measure(ctx, e, s.quick)
		stop()
		if err != nil {
			return nil, d, err
		}
	} else if values, err = w.measure(ctx, e, s.quick); err != nil {
		return nil, d, err
	}
	to, err := readUsage()
	return values, between(from, to), err
}

func loadAverage() (one float64) {
	raw, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, _ = fmt.Sscan(string(raw), &one)
	}
	return one
}
