package engine

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"omni-engine/engine/request"
	"omni-engine/engine/sampling"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

func checkParameters(r *request.Request) error {
	if err := sampling.Check(&r.Sampling); err != nil {
		return fmt.Errorf("request %s: %w", r.ID, err)
	}
	return nil
}

// receive takes in all messages.
func (c *EngineCore) receive() {
	msgs := c.inbox.take()
	if len(msgs) == 0 {
		return
	}
	for i := range msgs {
		c.handle(&msgs[i])
	}
	c.still = 0
	c.publish()
}

func (c *EngineCore) handle(m *message) {
	now := c.clock.Now()
	switch m.kind {
	case submit:
		c.add(now, m)
	case extend:
		c.extend(now, m)
	case deliver:
		c.deliver(now, m)
	case abort:
		c.end(now, m.why, "", m.ids...)
	case drain:
		c.drained = append(c.drained, m.empty)
	case control:
		m.do()
	case quit:
		c.stop = true
	}
}

func (c *EngineCore) add(now clock.Time, m *message) {
	if c.cfg.InboxWait != nil {
		c.cfg.InboxWait(now.Sub(m.at))
	}
	c.progress++
	if err := c.sched.Add(now, m.req); err != nil {
		c.terminal(now, m.id, request.FinishError, err.Error())
		return
	}
	c.await(now, m.id, m.req.Wait)
}

// terminal reports an end that the scheduler never knew of.
func (c *EngineCore) terminal(now clock.Time, id request.ID, why request.FinishReason, text string) {
	c.cfg.Outputs.Terminal(now, []request.Output{{ID: id, Finish: why, StopToken: -1, Terminal: true, Err: text}})
}

// end aborts requests and reports their ends; what they held is free when it returns.
func (c *EngineCore) end(now clock.Time, why request.FinishReason, text string, ids ...request.ID) {
	outs := c.sched.Abort(now, why, ids...)
	for i := range outs {
		outs[i].Err = text
		delete(c.waits, outs[i].ID)
	}
	if len(outs) > 0 {
		c.cfg.Outputs.Terminal(now, outs)
	}
}

// await starts the clock of a request that waits for an input (PS-36); a session that waits for its user has none.
func (c *EngineCore) await(now clock.Time, id request.ID, w request.Wait) {
	if (w == request.WaitInput || w == request.WaitChunk) && c.cfg.InputWaitTimeout > 0 {
		c.waits[id] = now.Add(c.cfg.InputWaitTimeout)
	}
}

func (c *EngineCore) extend(now clock.Time, m *message) {
	if _, ok := c.waits[m.id]; ok {
		c.waits[m.id] = now.Add(c.cfg.InputWaitTimeout)
	}
	if err := c.sched.Extend(now, m.id, m.segment); err != nil {
		c.log.Debug("segment of an ended session dropped", "request", m.id, "err", err)
	}
}

// deliver gives a parked request its input: token ids extend it, and it may be scheduled again.
func (c *EngineCore) deliver(now clock.Time, m *message) {
	delete(c.waits, m.id)
	if len(m.payload.Data) > 0 {
		c.end(now, request.FinishError, "input rows are not supported by this stage", m.id)
		return
	}
	if len(m.payload.IDs) > 0 {
		if err := c.sched.Extend(now, m.id, request.Segment{Tokens: m.payload.IDs, Last: m.payload.Last}); err != nil {
			c.end(now, request.FinishError, err.Error(), m.id)
			return
		}
	}
	if err := c.sched.Unpark(now, m.id); err != nil {
		c.log.Debug("input of an ended request dropped", "request", m.id, "err", err)
	}
}

// expire ends the requests whose input never came.
func (c *EngineCore) expire() {
	if len(c.waits) == 0 {
		return
	}
	now, ended := c.clock.Now(), false
	for id, at := range c.waits {
		if !now.Before(at) {
			delete(c.waits, id)
			c.end(now, request.FinishError, fmt.Sprintf("no input came within %s", c.cfg.InputWaitTimeout), id)
			ended = true
		}
	}
	if ended {
		c.publish()
	}
}

// nextDeadline is the time until the first parked request expires.
func (c *EngineCore) nextDeadline() (time.Duration, bool) {
	first, ok := time.Duration(0), false
	now := c.clock.Now()
	for _, at := range c.waits {
		if d, _ := at.Sub(now).Get(); !ok || d < first {
			first, ok = d, true
		}
	}
	return max(first, 0), ok
}

// settle tells those who wait for the core to be empty.
func (c *EngineCore) settle() {
	if len(c.drained) == 0 || c.sched.NumRequests() > 0 || c.inbox.submits() > 0 {
		return
	}
	for _, w := range c.drained {
		close(w)
	}
	c.drained = nil
}

// publish makes the core's state visible (PS-74).
func (c *EngineCore) publish() {
	st := c.sched.Stats()
	st.Skipped = max(0, st.Skipped-st.Parked[request.WaitSession]) // a paused session is parked, not waiting (PS-37)
	s := &record.Snapshot{
		Stats: st, At: c.clock.Now(), Wall: clock.WallNow(), Progress: c.progress, Step: c.steps,
		InCore: c.sched.NumRequests(), Paused: c.paused, SleepLevel: c.sleep, Totals: c.totals, RecentPrefix: c.recent.Sum(), Cache: c.cfg.Cache,
	}
	s.KVFetch[record.KVFetchInProgress] = st.Parked[request.WaitKV] // a load starts when its request is parked
	c.snapshot.Store(s)
}

// guard makes a panic on the core goroutine an end that everybody hears of.
func (c *EngineCore) guard() {
	p := recover()
	if p == nil {
		return
	}
	err, ok := p.(error)
	if !ok {
		err = fmt.Errorf("panic in the engine core: %v", p)
	}
	c.advance(func(s *coreState) { s.dead = err })
	c.log.Error("engine core died", "err", err, "stack", string(debug.Stack()))
}

// cleanup ends what is left, tells the output side, and closes the runner.
func (c *EngineCore) cleanup() {
	dead := c.state.Load().dead
	c.advance(func(s *coreState) { s.closed = true })
	left := c.inbox.close()
	c.endAll(dead, left)
	for i := range left {
		if left[i].empty != nil {
			close(left[i].empty)
		}
	}
	for _, w := range c.drained {
		close(w)
	}
	c.busy.Store(0)
	c.cancel()
	func() {
		defer func() { _ = recover() }() // a lost device may not even close
		if err := c.runner.Close(); err != nil {
			c.log.Error("closing the runner", "err", err)
		}
	}()
	if dead != nil {
		c.cfg.Outputs.Lost(fmt.Errorf("%w: %w", ErrDead, dead))
	}
}

// endAll ends every request of the core and of the inbox. A scheduler that panicked may do so again: then [Outputs.Lost]
// ends them on the output side.
func (c *EngineCore) endAll(dead error, left []message) {
	defer func() { _ = recover() }()
	why, text := request.FinishAbort, ""
	if dead != nil {
		why, text = request.FinishError, dead.Error()
	}
	if dead == nil {
		for len(c.flights) > 0 { // the device must be done with the blocks
			c.finish(c.popFlight())
		}
	}
	now := c.clock.Now()
	c.end(now, why, text, c.sched.IDs()...)
	for i := range left {
		if left[i].kind == submit {
			c.terminal(now, left[i].id, why, text)
		}
	}
	c.publish()
}

// do runs f on the core goroutine between two steps and returns what it returns. When ctx ends first f may still run later: what it
// sets must not be read then.
func (c *EngineCore) do(ctx context.Context, f func() error) error {
	ran := make(chan error, 1)
	if err := c.send(message{kind: control, do: func() { ran <- f() }}); err != nil {
		return err
	}
	select {
	case err := <-ran:
		return err
	case <-c.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}
