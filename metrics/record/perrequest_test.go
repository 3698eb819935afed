package record

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// TestRequestMetricsAreVLLMs takes two recorded answers of vLLM: their measured parts give the derived ones.
func TestRequestMetricsAreVLLMs(t *testing.T) {
	for _, c := range []struct {
		ttft, generation, queue, itl, speed float64
		tokens                              int
	}{
		{96.99648600008004, 372.7920380001706, 0.028280999686103314, 124.26401266672353, 8.514469374304822, 4},
		{58.92680199985989, 0, 0.03306400003566523, -1, 16.970206528472016, 1},
	} {
		m := clock.NewManual(0)
		at := func(ms float64) clock.Time { return m.At(time.Duration(ms * 1e6)) }
		start := time.Unix(1000, 0)
		w := func(ms float64) clock.Wall { return clock.WallAt(start.Add(time.Duration(ms * 1e6))) }
		s := Begin(Identity{}, w(0))
		step := func(ms float64, n int, end request.FinishReason, events ...request.Event) {
			s.ApplyOutput(at(ms), w(ms), &request.Output{NewTokens: make([]int32, n), Finish: end, Events: events}, nil)
		}
		events := []request.Event{{Type: request.Queued, At: at(0)}, {Type: request.Scheduled, At: at(c.queue)}}
		if c.tokens == 1 {
			step(c.ttft, 1, request.FinishLength, events...)
		} else {
			step(c.ttft, 1, request.NotFinished, events...)
			step(c.ttft+c.generation, c.tokens-1, request.FinishLength)
		}
		r := RequestMetrics(s)
		require.InDelta(t, c.ttft, r.Get("time_to_first_token_ms").Number(), 1e-5)
		require.InDelta(t, c.generation, r.Get("generation_time_ms").Number(), 1e-5)
		require.True(t, r.Get("generation_time_ms").IsSet(), "a measured 0")
		require.InDelta(t, c.queue, r.Get("queue_time_ms").Number(), 1e-5)
		require.Equal(t, c.itl >= 0, r.Get("mean_itl_ms").IsSet())
		require.InDelta(t, max(c.itl, 0), r.Get("mean_itl_ms").Number(), 1e-5)
		require.InDelta(t, c.speed, r.Get("tokens_per_second").Number(), 1e-5)
	}
	for _, cell := range RequestMetrics(&Stage{}) {
		require.False(t, cell.IsSet(), cell.Name)
	}
}
