package main

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

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

// measure runs steps of a steady decode and returns the processor time of one. Processor time, since other programs on the machine
// lengthen a wall-clock reading, and a long step more than a short one.
func (l *steady) measure(steps int) (time.Duration, error) {
	l.step() // fills the results, which stay the same from here on
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start, err := threadTime()
	if err != nil {
		return 0, err
	}
	for range steps {
		d := l.s.Schedule(l.clk.Now())
		l.s.Update(l.clk.Now(), d, &l.res)
	}
	end, err := threadTime()
	return (end - start) / time.Duration(steps), err
}

// clockCost is what two readings in a row differ by, the least of many: an interval is that much too long.
func clockCost() (least time.Duration, err error) {
	for range 1000 {
		a, err := threadTime()
		if err != nil {
			return 0, err
		}
		b, err := threadTime()
		if err != nil {
			return 0, err
		}
		if least == 0 || b-a < least {
			least = b - a
		}
	}
	return least, nil
}

// threadTime reads the processor time of the calling thread.
func threadTime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0, fmt.Errorf("reading the thread's processor time: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
