package engine

import (
	"context"
	"fmt"

	"omni-engine/engine/request"
	"omni-engine/scheduler"
)

// Pause stops scheduling: of new requests, or with all of running ones too.
func (c *EngineCore) Pause(ctx context.Context, all bool) error {
	to := scheduler.PausedNew
	if all {
		to = scheduler.PausedAll
	}
	return c.pause(ctx, to)
}

// Resume goes on after a Pause.
func (c *EngineCore) Resume(ctx context.Context) error { return c.pause(ctx, scheduler.Unpaused) }

func (c *EngineCore) pause(ctx context.Context, to scheduler.PauseState) error {
	return c.do(ctx, func() error {
		c.sched.SetPause(c.clock.Now(), to)
		c.paused = to != scheduler.Unpaused
		return nil
	})
}

// ResetPrefixCache forgets all cached blocks. It reports false when blocks are in use and preemptRunning is not set; with it
// running requests are preempted first and recompute.
func (c *EngineCore) ResetPrefixCache(ctx context.Context, preemptRunning bool) (ok bool, err error) {
	var reset bool
	err = c.do(ctx, func() (err error) {
		reset, err = c.sched.ResetPrefixCache(c.clock.Now(), preemptRunning)
		return err
	})
	if err != nil {
		return false, err
	}
	return reset, nil
}

// Park takes a running or waiting request out of scheduling until [EngineCore.Deliver]: its next chunk, or its input, is not there
// yet. The clock of InputWaitTimeout starts anew. A request that has ended is an error.
func (c *EngineCore) Park(ctx context.Context, id request.ID, w request.Wait) error {
	return c.do(ctx, func() error {
		now := c.clock.Now()
		if err := c.sched.Park(now, id, w); err != nil {
			return err
		}
		c.await(now, id, w)
		return nil
	})
}

// Sleeper is a runner whose device can give its memory up: level 1 keeps the weights on the host, level 2 discards them.
type Sleeper interface {
	Sleep(level int) error
	Wake() error
}

// Sleep preempts what runs, empties the KV cache and puts the device to sleep; requests wait until [EngineCore.Wake]. It is refused
// when the runner's device cannot sleep, or when parked requests hold blocks.
func (c *EngineCore) Sleep(ctx context.Context, level int) error {
	if level != 1 && level != 2 {
		return fmt.Errorf("engine core %s: sleep level must be 1 or 2, got %d", c.cfg.Name, level)
	}
	device, ok := c.runner.(Sleeper)
	if !ok {
		return fmt.Errorf("engine core %s: sleep: its device has no sleep mode", c.cfg.Name)
	}
	return c.do(ctx, func() error {
		for len(c.flights) > 0 { // the device must be done with the blocks
			c.finish(c.popFlight())
		}
		now := c.clock.Now()
		err := c.sched.Sleep(now)
		if err == nil {
			err = device.Sleep(level)
		}
		if err != nil {
			c.sched.Wake(now)
			return err
		}
		c.sleep = level
		return nil
	})
}

// Wake ends a Sleep; requests go on from where they were.
func (c *EngineCore) Wake(ctx context.Context) error {
	return c.do(ctx, func() error {
		if c.sleep == 0 {
			return nil
		}
		if err := c.runner.(Sleeper).Wake(); err != nil {
			return err
		}
		c.sched.Wake(c.clock.Now())
		c.sleep = 0
		return nil
	})
}
