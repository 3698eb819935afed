package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine"
	"omni-engine/engine/enginetest"
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/scheduler"
)

// counted ends when n requests did.
type counted struct {
	left int
	done chan struct{}
}

func (c *counted) Step(o *request.StepOutputs) {
	for i := range o.Outputs {
		if o.Outputs[i].Finish != request.NotFinished {
			if c.left--; c.left == 0 {
				close(c.done)
			}
		}
	}
}
func (*counted) Terminal(clock.Time, []request.Output) {}
func (*counted) Lost(error)                            {}

// period is the time a step takes when the host needs one time and the device another.
func period(t *testing.T, depth int, host, device time.Duration) (step time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const steps = 100
		c := scheduler.DefaultConfig()
		c.NumBlocks, c.MaxModelLen, c.Async, c.MaxConcurrentBatches = 64, 512, depth > 1, depth
		runner := &enginetest.Runner{InFlight: depth, StepTime: device, OnStart: func(*scheduler.Decision) { time.Sleep(host) }}
		out := &counted{left: 1, done: make(chan struct{})}
		core, err := engine.New(engine.Config{Name: "0", Scheduler: c, Outputs: out, Depth: depth}, runner)
		require.NoError(t, err)
		p := request.DefaultSampling()
		p.MaxTokens, p.IgnoreEOS = steps, true
		begin := time.Now()
		require.NoError(t, core.Submit(&request.Request{ID: "a", Prompt: []int32{1, 2, 3}, Sampling: p}))
		<-out.done
		step = time.Since(begin) / steps
		require.NoError(t, core.Close())
	})
	return step
}

func TestAsynchronousStepTakesTheLongerOfHostAndDevice(t *testing.T) {
	const short, long = 3 * time.Millisecond, 5 * time.Millisecond
	for _, c := range []struct {
		depth        int
		host, device time.Duration
		want         time.Duration
	}{{1, short, long, short + long}, {2, short, long, long}, {2, long, short, long}, {3, short, long, long}} {
		got := period(t, c.depth, c.host, c.device)
		require.InDelta(t, c.want.Seconds(), got.Seconds(), 0.0001, "depth %d, host %s, device %s: %s a step", c.depth, c.host, c.device, got)
	}
}
