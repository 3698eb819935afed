package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/kernels"
)

const gb = int64(1) << 30

func TestKVCacheIsWhatUtilizationLeaves(t *testing.T) {
	plan := kernels.MemoryPlan{Weights: 16 * gb, Scratch: 2 * gb, BlockBytes: []int64{1 << 21}}
	d := planDevice("NVIDIA H100", 79*gb, 80*gb, plan, Settings{Utilization: 0.9})
	require.NoError(t, d.check())
	require.Equal(t, 72*gb, d.Requested)
	require.Equal(t, 54*gb, d.KV)
	require.False(t, d.Fixed)

	// The profiling step shows what driver and libraries took beside weights and scratch.
	p := d.profiled(79*gb - 16*gb - 2*gb - gb)
	require.Equal(t, gb, p.Other)
	require.Equal(t, 53*gb, p.KV)
	require.NoError(t, p.check())
	require.Contains(t, p.String(), "context and libraries        1.00 GiB")

	// What others use is not ours: the share is of the whole device, but never more than is free.
	all := planDevice("d", 79*gb, 80*gb, plan, Settings{Utilization: 1})
	require.Equal(t, 10*gb, all.profiled(10*gb).KV)
	require.InDelta(t, 73.6, float64(planDevice("d", 80*gb, 80*gb, plan, Settings{}).Requested)/float64(gb), 1e-6, "vLLM's default")
}

func TestKVCacheAsSet(t *testing.T) {
	plan := kernels.MemoryPlan{Weights: 16 * gb, Scratch: 2 * gb, BlockBytes: []int64{1 << 19, 1 << 20}}
	d := planDevice("d", 40*gb, 80*gb, plan, Settings{CacheBytes: 20 * gb})
	require.NoError(t, d.check(), "what others hold does not matter when the cache is set by hand")
	require.Equal(t, 20*gb, d.profiled(20*gb).KV)
	require.Equal(t, 4*gb, planDevice("d", 40*gb, 80*gb, plan, Settings{Blocks: 4096}).KV)
	require.ErrorContains(t, planDevice("d", 40*gb, 80*gb, plan, Settings{CacheBytes: 23 * gb}).check(), "take 41.00 GiB, device d has 40.00 GiB free")
}

func TestDeviceThatIsTooSmallIsRefusedWithThePlan(t *testing.T) {
	cases := []struct {
		name        string
		free, total int64
		weights     int64
		s           Settings
		want        string
	}{
		{"others use it", 40 * gb, 80 * gb, 16 * gb, Settings{},
			"Free memory on device GPU (40.00/80.00 GiB) on startup is less than desired GPU memory utilization (0.92, 73.60 GiB)."},
		{"weights do not fit", 8 * gb, 8 * gb, 16 * gb, Settings{}, "take 17.00 GiB, device GPU has 8.00 GiB free"},
		{"nothing is left", 20 * gb, 20 * gb, 18 * gb, Settings{Utilization: 0.9}, "nothing is left for the KV cache"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := planDevice("GPU", c.free, c.total, kernels.MemoryPlan{Weights: c.weights, Scratch: gb}, c.s).check()
			require.ErrorContains(t, err, c.want)
			require.Regexp(t, "device memory +"+gib(c.total)+" GiB  GPU", err.Error())
			require.ErrorContains(t, err, "--gpu-memory-utilization")
		})
	}
}

func TestOutOfMemoryLaterCarriesThePlan(t *testing.T) {
	d := planDevice("GPU", 80*gb, 80*gb, kernels.MemoryPlan{Weights: gb}, Settings{})
	a := &Assembly{Device: &d}
	err := a.outOfMemory(fmt.Errorf("allocating: %w", kernels.ErrOutOfMemory))
	require.ErrorIs(t, err, kernels.ErrOutOfMemory)
	require.ErrorContains(t, err, "The memory plan:")
	other := errors.New("else")
	require.Equal(t, other, a.outOfMemory(other))
}
