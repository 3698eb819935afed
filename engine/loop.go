package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"omni-engine/engine/request"
	"omni-engine/engine/sampling"
	"omni-engine/kernels"
	"omni-engine/scheduler"
)

// flightStep is a started step.
type flightStep struct {
	decision *scheduler.Decision
	ticket   Ticket
	empty    bool // nothing was scheduled: the runner has no part in it
	err      error
}

// run is the core goroutine.
func (c *EngineCore) run() {
	defer close(c.done)
	defer c.cleanup()
	defer c.guard()
	for !c.stop {
		c.receive()
		c.expire()
		switch {
		case c.stop:
		case c.runnable():
			c.step()
		default:
			c.settle()
			c.rest()
		}
	}
}

// runnable reports whether a step would do something.
func (c *EngineCore) runnable() bool {
	return len(c.flights) > 0 || c.sched.HasRequests()
}

// step is one turn of the plain loop, or of the asynchronous one.
func (c *EngineCore) step() {
	c.busy.CompareAndSwap(0, c.clock.Now().Nanos())
	if c.cfg.Depth > 1 {
		c.stepAsync()
	} else {
		c.finish(c.schedule())
	}
	if c.still > c.cfg.Depth {
		// Nothing runs and nothing could be scheduled: only a message can change that.
		c.still = 0
		c.rest()
	}
}

// stepAsync keeps up to Depth steps in flight: step n+1 is planned and started while the device runs step n.
func (c *EngineCore) stepAsync() {
	if c.sched.HasRequests() {
		f := c.schedule()
		c.flights = append(c.flights, f)
		if len(c.flights) < c.cfg.Depth && (!f.empty || c.sched.HasRequests()) {
			return
		}
	}
	c.finish(c.popFlight())
}

func (c *EngineCore) popFlight() flightStep {
	f := c.flights[0]
	n := copy(c.flights, c.flights[1:])
	c.flights[n] = flightStep{}
	c.flights = c.flights[:n]
	return f
}

// schedule decides the next step and starts it.
func (c *EngineCore) schedule() flightStep {
	d := c.sched.Schedule(c.clock.Now())
	if c.log.Enabled(c.ctx, slog.LevelDebug) {
		c.log.Debug("scheduled", "decision", d)
	}
	f := flightStep{decision: d, empty: d.TotalTokens == 0}
	if f.empty {
		return f
	}
	if len(c.flights) > 0 && needsEarlierTokens(d) {
		for len(c.flights) > 0 {
			c.finish(c.popFlight())
		}
	}
	f.ticket, f.err = c.start(d)
	return f
}

// needsEarlierTokens reports whether some row's sampling reads a token that is still in flight (penalties, bad words): then
// the steps before are collected first.
func needsEarlierTokens(d *scheduler.Decision) bool {
	for i := range d.Rows {
		if r := &d.Rows[i]; r.InFlight > 0 && r.Samples && sampling.NeedsHistory(&r.Req.Sampling) {
			return true
		}
	}
	return false
}

// start runs the runner's first half; a panic in it is an error here.
func (c *EngineCore) start(d *scheduler.Decision) (t Ticket, err error) {
	defer c.recovered("starting a step", &err)
	if t, err = c.runner.Start(d); err != nil {
		return t, err
	}
	return t, c.runner.Sample(t, nil)
}

// collect runs the runner's second half.
func (c *EngineCore) collect(f flightStep) (res *scheduler.StepResult, err error) {
	if f.err != nil {
		return nil, f.err
	}
	defer c.recovered("collecting a step", &err)
	return c.runner.Collect(c.ctx, f.ticket)
}

// recovered turns a panic into an error that loses the device: what the runner holds can no longer be trusted. The stack is
// for the log alone.
func (c *EngineCore) recovered(doing string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: panic while %s: %v", ErrDeviceLost, doing, p)
		c.log.Error("panic in the runner", "while", doing, "panic", p, "stack", string(debug.Stack()))
	}
}

// finish waits for a step, commits it to the scheduler and sends what it said. All its outputs carry one time, taken once,
// after sampling.
func (c *EngineCore) finish(f flightStep) {
	res := &scheduler.StepResult{}
	news := !f.empty || len(f.decision.Finished) > 0 || len(f.decision.Preempted) > 0
	if !f.empty {
		got, err := c.collect(f)
		if err != nil {
			got = c.failed(f.decision, err)
		} else {
			c.failures = 0
		}
		res = got
		c.steps++
		c.progress++
		c.abortsMeanwhile()
	}
	out := c.sched.Update(c.clock.Now(), f.decision, res)
	c.account(out)
	c.publish()
	if news || len(out.Outputs) > 0 {
		c.still = 0
		c.busy.Store(c.clock.Now().Nanos())
		c.cfg.Outputs.Step(out)
	} else {
		c.still++
	}
	if c.failures >= maxFailures {
		panic(fmt.Errorf("%d steps failed in a row, the last: %w", c.failures, c.cause))
	}
}

// abortsMeanwhile ends the requests whose abort came while the device ran, before the step is committed, as vLLM does: what they
// sampled is dropped. The messages stay in the inbox, where a second look at them changes nothing; so an abort that follows its
// own submit is not lost.
func (c *EngineCore) abortsMeanwhile() {
	ids := c.inbox.aborts(c.early[:0])
	for _, m := range ids {
		c.end(c.clock.Now(), m.why, "", m.ids...)
	}
	clear(ids)
	c.early = ids[:0]
}

// failed makes a result that ends each request of a failed step with an error, alone: the others are served on.
func (c *EngineCore) failed(d *scheduler.Decision, err error) *scheduler.StepResult {
	c.failures++
	c.cause = err
	if errors.Is(err, ErrDeviceLost) || errors.Is(err, kernels.ErrLost) {
		c.failures = maxFailures
	}
	c.log.Error("step failed", "step", d.Seq, "requests", len(d.Rows), "err", err)
	res := &scheduler.StepResult{Rows: make([]scheduler.RowResult, len(d.Rows))}
	for i := range res.Rows {
		res.Rows[i].Fault = err.Error()
	}
	return res
}

// rest blocks until a message comes or a parked request's time is over. An idle core does nothing.
func (c *EngineCore) rest() {
	c.busy.Store(0)
	var timeout <-chan time.Time
	if d, ok := c.nextDeadline(); ok {
		t := time.NewTimer(d)
		defer t.Stop()
		timeout = t.C
	}
	select {
	case <-c.inbox.wake:
	case <-timeout:
	}
}

// account adds a step to the core's totals.
func (c *EngineCore) account(so *request.StepOutputs) {
	t, s := &c.totals, &so.Stats
	for i := range so.Outputs {
		o := &so.Outputs[i]
		t.GenerationTokens += uint64(len(o.NewTokens))
		if o.Prefill != nil {
			t.PromptTokens += uint64(o.Prefill.Computed)
		}
	}
	t.PrefixQueries += uint64(s.PrefixQueries)
	t.PrefixHits += uint64(s.PrefixHits)
	t.Preemptions += uint64(s.Preemptions)
	t.DraftTokens += uint64(s.DraftTokens)
	t.AcceptedTokens += uint64(s.Accepted)
	t.Drafts += uint64(s.NumDrafts)
	if s.NumDrafts > 0 {
		t.AcceptedPerPos = plus(t.AcceptedPerPos, s.AcceptedPerPos)
	}
	c.recent.Observe(s.PrefixRequests, s.PrefixQueries, s.PrefixHits, s.PrefixReset)
}

// plus returns the sums by position in new memory: the old is published.
func plus(sum []uint64, n []int) []uint64 {
	out := make([]uint64, max(len(sum), len(n)))
	copy(out, sum)
	for i := range n {
		out[i] += uint64(n[i])
	}
	return out
}
