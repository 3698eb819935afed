package engine

import (
	"context"

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
	return c.do(ctx, func() {
		c.sched.SetPause(c.clock.Now(), to)
		c.paused = to != scheduler.Unpaused
	})
}

// ResetPrefixCache forgets all cached blocks. It reports false when blocks are in use and preemptRunning is not set; with it
// running requests are preempted first and recompute.
func (c *EngineCore) ResetPrefixCache(ctx context.Context, preemptRunning bool) (ok bool, err error) {
	var failed error
	err = c.do(ctx, func() { ok, failed = c.sched.ResetPrefixCache(c.clock.Now(), preemptRunning) })
	if err == nil {
		err = failed
	}
	return ok, err
}
