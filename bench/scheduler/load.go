package main

import (
	"fmt"
	"time"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/scheduler"
)

// steady is n requests that decode, each with a 512-token prompt: the load of the comparison.
type steady struct {
	s   *scheduler.Scheduler
	clk *clock.Manual
	res scheduler.StepResult
	one []int32
}

const promptTokens = 512

// newSteady admits n requests over a pool of n*80+16 blocks times poolFactor and runs their prefills.
func newSteady(n, poolFactor int) (*steady, error) {
	cfg := scheduler.DefaultConfig()
	cfg.MaxNumBatchedTokens, cfg.MaxNumSeqs, cfg.MaxModelLen = 8192, n, 2048
	cfg.NumBlocks = (n*80 + 16) * poolFactor
	s, err := scheduler.New(cfg)
	if err != nil {
		return nil, err
	}
	l := &steady{s: s, clk: clock.NewManual(time.Second), one: []int32{7}}
	for i := range n {
		prompt := make([]int32, promptTokens)
		for j := range prompt {
			prompt[j] = int32(i*promptTokens + j)
		}
		p := request.DefaultSampling()
		p.MaxTokens, p.IgnoreEOS = 700, true
		if err := s.Add(l.clk.Now(), &request.Request{ID: request.ID(fmt.Sprintf("r%d", i)), Prompt: prompt, Sampling: p, ArrivalOrder: float64(i)}); err != nil {
			return nil, err
		}
	}
	for {
		if d := l.step(); d.TotalTokens == n && d.Waiting == 0 {
			return l, nil
		}
	}
}

// step is one Schedule and Update.
func (l *steady) step() *scheduler.Decision {
	d := l.s.Schedule(l.clk.Advance(time.Millisecond))
	for len(l.res.Rows) < len(d.Rows) {
		l.res.Rows = append(l.res.Rows, scheduler.RowResult{})
	}
	for i := range d.Rows {
		l.res.Rows[i].Tokens = nil
		if d.Rows[i].Samples {
			l.res.Rows[i].Tokens = l.one
		}
	}
	l.s.Update(l.clk.Now(), d, &l.res)
	return d
}

// measure times steps of a steady decode, each alone, and returns their durations.
func (l *steady) measure(steps int) []time.Duration {
	out := make([]time.Duration, steps)
	for i := range out {
		d := l.s.Schedule(l.clk.Advance(time.Millisecond)) // planned here only for its size
		for j := range d.Rows {
			l.res.Rows[j].Tokens = l.one
		}
		l.s.Update(l.clk.Now(), d, &l.res)
		start := time.Now()
		d = l.s.Schedule(l.clk.Now())
		l.s.Update(l.clk.Now(), d, &l.res)
		out[i] = time.Since(start)
	}
	return out
}
