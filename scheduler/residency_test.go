package scheduler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// residents runs requests over a cache of few blocks, one second a step, and gathers what is evicted.
func residents(t *testing.T, rate float64, caching bool) (all []request.KVEviction) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.BlockSize, cfg.NumBlocks, cfg.MaxModelLen, cfg.MaxNumBatchedTokens, cfg.MaxNumSeqs = 4, 7, 64, 64, 4
	cfg.EnablePrefixCaching, cfg.KVResidencySample = caching, rate
	s, err := New(cfg)
	require.NoError(t, err)
	c := clock.NewManual(0)
	run := func(id string, prompt ...int32) {
		r := &request.Request{ID: request.ID(id), Prompt: prompt, Sampling: request.DefaultSampling()}
		r.Sampling.MaxTokens, r.Sampling.IgnoreEOS = 1, true
		require.NoError(t, s.Add(c.Now(), r))
		d := s.Schedule(c.Now())
		require.Len(t, d.Rows, 1)
		out := s.Update(c.Now(), d, &StepResult{Rows: []RowResult{{Tokens: []int32{9}}}})
		all = append(all, out.Stats.Evicted...)
		c.Advance(time.Second)
	}
	a := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	for range 6 {
		run("a", a...) // at 0: two full blocks and a partial one; then the full ones are used each second
	}
	run("b", 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37) // at 6
	run("c", 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57) // at 7
	return all
}

func seconds(list []clock.Span) (out []float64) {
	for _, s := range list {
		sec, _ := s.Seconds()
		out = append(out, sec)
	}
	return out
}

// A block's life goes from its allocation to the moment when other content takes its place; the gaps are those of its last four uses.
func TestSampledBlocksTellTheirResidency(t *testing.T) {
	evicted := residents(t, 1, true)
	require.NotEmpty(t, evicted)
	shared := 0
	for _, e := range evicted {
		life, ok := e.Lifetime.Seconds()
		require.True(t, ok)
		idle, ok := e.Idle.Seconds()
		require.True(t, ok)
		require.LessOrEqual(t, idle, life)
		if len(e.ReuseGaps) > 0 {
			shared++
			require.Equal(t, []float64{1, 1, 1}, seconds(e.ReuseGaps), "of the last four uses, though there were five")
			require.Greater(t, life, idle)
		}
	}
	require.Equal(t, 2, shared, "the two full blocks of a")
	require.Empty(t, residents(t, 0, true), "off")
	require.Empty(t, residents(t, 1, false), "without prefix caching nothing is evicted")
}

func TestASampleFollowsSomeBlocksOnly(t *testing.T) {
	r := newResidency(0.25)
	c := clock.NewManual(0)
	for b := range int32(4000) {
		r.now = c.Now()
		r.allocated(b)
	}
	require.InDelta(t, 1000, len(r.lives), 100)
	r.reset()
	require.Empty(t, r.lives)
	for _, bad := range []float64{-0.1, 1.1} {
		cfg := DefaultConfig()
		cfg.NumBlocks, cfg.MaxModelLen, cfg.KVResidencySample = 10, 64, bad
		_, err := New(cfg)
		require.ErrorContains(t, err, "kv_cache_metrics_sample")
	}
}

// A reset of the prefix cache is no eviction.
func TestForgottenCacheForgetsItsLives(t *testing.T) {
	cfg := DefaultConfig()
	cfg.BlockSize, cfg.NumBlocks, cfg.MaxModelLen, cfg.KVResidencySample = 4, 8, 64, 1
	s, err := New(cfg)
	require.NoError(t, err)
	c := clock.NewManual(0)
	r := &request.Request{ID: "a", Prompt: []int32{1, 2, 3, 4, 5}, Sampling: request.DefaultSampling()}
	r.Sampling.MaxTokens, r.Sampling.IgnoreEOS = 1, true
	require.NoError(t, s.Add(c.Now(), r))
	s.Update(c.Now(), s.Schedule(c.Now()), &StepResult{Rows: []RowResult{{Tokens: []int32{9}}}})
	require.NotEmpty(t, s.pool.residency.lives)
	ok, err := s.ResetPrefixCache(c.Now(), false)
	require.NoError(t, err)
	require.True(t, ok)
	require.Empty(t, s.pool.residency.lives)
}
