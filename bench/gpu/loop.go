package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"omni-engine/engine"
	"omni-engine/engine/models"
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/kernels"
	"omni-engine/scheduler"
)

// loop is the engine core's asynchronous loop with clocks in it: schedule, start, sample; then collect and update the step before.
type loop struct {
	sched   *scheduler.Scheduler
	runner  *engine.DeviceRunner
	clk     *clock.Manual
	pending *scheduler.Decision
	ticket  engine.Ticket
	cost    phases
}

// phases is the processor time of one step's parts.
type phases struct{ schedule, launch, collect, update time.Duration }

func (p phases) sum() time.Duration { return p.schedule + p.launch + p.collect + p.update }

// newLoop admits n requests of a prompt's length that generate most tokens.
func newLoop(dev kernels.Device, m *models.Model, n, prompt, generate, budget int) (*loop, *engine.Assembly, error) {
	length := prompt + generate + 16
	asm, err := engine.Assemble(dev, m.Module, engine.Settings{MaxModelLen: length, MaxSeqs: n, MaxTokens: max(budget, n), BlockSize: 16, Depth: 2,
		Blocks: n*((length+15)/16) + 16, Prefix: false})
	if err != nil {
		return nil, nil, err
	}
	cfg := scheduler.DefaultConfig()
	cfg.EnablePrefixCaching = false
	l := &loop{runner: asm.Runner, clk: clock.NewManual(time.Second)}
	if l.sched, err = scheduler.New(asm.Scheduler(cfg, m.Module)); err != nil {
		return nil, nil, err
	}
	for i := range n {
		p := request.DefaultSampling()
		p.MaxTokens, p.IgnoreEOS, p.Temperature = generate, true, 0
		ids := make([]int32, prompt)
		for k := range ids {
			ids[k] = int32((i*31 + k*7) % m.Vocab)
		}
		if err := l.sched.Add(l.clk.Now(), &request.Request{ID: request.ID(fmt.Sprint("r", i)), Prompt: ids, Sampling: p, ArrivalOrder: float64(i)}); err != nil {
			return nil, nil, err
		}
	}
	return l, asm, nil
}

// step runs one turn and notes what its parts cost this thread.
func (l *loop) step() (tokens int, err error) {
	t0 := threadTime()
	d := l.sched.Schedule(l.clk.Advance(time.Millisecond))
	t1 := threadTime()
	var ticket engine.Ticket
	if d.TotalTokens > 0 {
		if ticket, err = l.runner.Start(d); err == nil {
			err = l.runner.Sample(ticket, nil)
		}
		if err != nil {
			return 0, err
		}
	}
	t2 := threadTime()
	l.cost = phases{schedule: t1 - t0, launch: t2 - t1}
	if l.pending != nil {
		if err := l.finish(t2); err != nil {
			return 0, err
		}
	}
	l.pending, l.ticket = nil, ticket
	if d.TotalTokens > 0 {
		l.pending = d
	} else {
		l.sched.Update(l.clk.Now(), d, &scheduler.StepResult{})
	}
	return d.TotalTokens, nil
}

func (l *loop) finish(from time.Duration) error {
	res, err := l.runner.Collect(context.Background(), l.ticket)
	if err != nil {
		return err
	}
	t := threadTime()
	l.sched.Update(l.clk.Now(), l.pending, res)
	l.cost.collect, l.cost.update = t-from, threadTime()-t
	return nil
}

// prefill steps until n requests decode together, and returns how long that took by the wall.
func (l *loop) prefill(n int) (time.Duration, error) {
	begin := time.Now()
	for steady := 0; steady < 4; {
		t, err := l.step()
		if err != nil {
			return 0, err
		}
		if t == 0 {
			return 0, fmt.Errorf("the requests ended before %d decoded together", n)
		}
		if t == n {
			steady++
		} else {
			steady = 0
		}
	}
	return time.Since(begin), nil
}

// measure runs decode steps and returns the median of each part, and the wall time of a step.
func (l *loop) measure(steps int) (phases, time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all := make([]phases, 0, steps)
	begin := time.Now()
	for range steps {
		if _, err := l.step(); err != nil {
			return phases{}, 0, err
		}
		all = append(all, l.cost)
	}
	wall := time.Since(begin) / time.Duration(steps)
	median := func(part func(phases) time.Duration) time.Duration {
		v := make([]time.Duration, len(all))
		for i, p := range all {
			v[i] = part(p)
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	return phases{
		schedule: median(func(p phases) time.Duration { return p.schedule }), launch: median(func(p phases) time.Duration { return p.launch }),
		collect: median(func(p phases) time.Duration { return p.collect }), update: median(func(p phases) time.Duration { return p.update }),
	}, wall, nil
}

// threadTime is the processor time of the calling thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
