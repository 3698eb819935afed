package main

import (
	"fmt"
	"time"

	"omni-engine/bench/replaytrace/replay"
	"omni-engine/internal/clock"
	"omni-engine/scheduler"
)

// traceSteps runs a trace's arrivals with a fixed sampled token and returns each step's duration.
func traceSteps(t *replay.Trace) ([]time.Duration, error) {
	s, err := scheduler.New(t.Config.Scheduler())
	if err != nil {
		return nil, fmt.Errorf("trace %s-%d: %w", t.Family, t.Seed, err)
	}
	clk := clock.NewManual(time.Second)
	var out []time.Duration
	res := &scheduler.StepResult{}
	one := []int32{7}
	for i := range t.Steps {
		st := &t.Steps[i]
		for _, a := range st.Pre {
			if a.Op != "add" {
				continue
			}
			r := t.Requests[a.R].Request(t.EOS)
			r.Sampling.IgnoreEOS, r.Sampling.StopTokenIDs, r.Repetition = true, nil, nil
			if err := s.Add(clk.Now(), r); err != nil {
				return nil, fmt.Errorf("trace %s-%d: %w", t.Family, t.Seed, err)
			}
		}
		if st.Sched == nil {
			continue
		}
		start := time.Now()
		d := s.Schedule(clk.Advance(time.Millisecond))
		took := time.Since(start)
		res.Rows = append(res.Rows[:0], make([]scheduler.RowResult, len(d.Rows))...)
		for j := range d.Rows {
			if d.Rows[j].Samples {
				res.Rows[j].Tokens = one
			}
		}
		start = time.Now()
		s.Update(clk.Now(), d, res)
		out = append(out, took+time.Since(start))
	}
	return out, nil
}
