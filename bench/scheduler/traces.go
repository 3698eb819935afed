package main

import (
	"fmt"
	"runtime"
	"time"

	"omni-engine/bench/replaytrace/replay"
	"omni-engine/internal/clock"
	"omni-engine/scheduler"
)

// traceSteps runs a trace's arrivals with a fixed sampled token and returns each step's processor time, without that of reading the clock.
func traceSteps(t *replay.Trace) ([]time.Duration, error) {
	s, err := scheduler.New(t.Config.Scheduler())
	if err != nil {
		return nil, fmt.Errorf("trace %s-%d: %w", t.Family, t.Seed, err)
	}
	clk := clock.NewManual(time.Second)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cost, err := clockCost()
	if err != nil {
		return nil, err
	}
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
		start, err := threadTime()
		if err != nil {
			return nil, err
		}
		d := s.Schedule(clk.Advance(time.Millisecond))
		planned, err := threadTime()
		if err != nil {
			return nil, err
		}
		res.Rows = append(res.Rows[:0], make([]scheduler.RowResult, len(d.Rows))...)
		for j := range d.Rows {
			if d.Rows[j].Samples {
				res.Rows[j].Tokens = one
			}
		}
		ran, err := threadTime()
		if err != nil {
			return nil, err
		}
		s.Update(clk.Now(), d, res)
		end, err := threadTime()
		if err != nil {
			return nil, err
		}
		out = append(out, max(0, planned-start-cost)+max(0, end-ran-cost))
	}
	return out, nil
}
