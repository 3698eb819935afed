package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/cuda"
	"omni-engine/cuda/sim"
	"omni-engine/kernels/gpu"
)

// Every kernel that is measured on a GPU runs, and whole steps do, on the software device at sizes that it can bear. The times mean nothing.
func TestTheGPUsTablesAreFilledOnTheSoftwareDevice(t *testing.T) {
	if os.Getenv("OMNI_SIM") != "require" {
		t.Skip("make test-sim runs this on the software device")
	}
	b := sim.Require(t, "driver", "kernels-plain")
	driver, _, err := cuda.OpenDriver(cuda.Options{Driver: b.Driver()})
	require.NoError(t, err)
	dev, err := gpu.Open(driver, gpu.Options{BLAS: b.BLAS()})
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	tiny := shape{Name: "tiny", Layers: 1, Hidden: 256, Heads: 4, KVHeads: 2, Dim: 64, FFN: 128, Vocab: 512, Context: 512}
	before, _, err := dev.Memory()
	require.NoError(t, err)
	table, err := singleKernels(driver, dev, tiny.sizes(20, 2, 1, 40, 600), 0)
	require.NoError(t, err)
	for _, kernel := range []string{"gemm_bf16_128", "cuBLASLt", "gemv_bf16_1", "gemm_bf16_16", "gemm_bf16_64", "gemv_q4_0_1", "gemv_q6_k_1", "mmq_q4_k_bf16", "mmq_q8_0_bf16",
		"attn_prefill_bf16_64", "attn_decode_bf16_64 | 2 x context 600, 3 splits", "norm_bf16", "gated_bf16", "logits_process, sample"} {
		require.Contains(t, table, "\n| "+kernel+" |", table)
	}
	require.NotContains(t, table, "NaN")
	after, _, err := dev.Memory()
	require.NoError(t, err)
	require.Equal(t, before, after, "all memory is given back")
	steps, err := stepTimes(driver, dev, tiny, []int{1, 3}, 24, 64, options{steps: 3})
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(steps, " tokens/s |")-1, steps)
}

func TestPeaksAreTheDataSheets(t *testing.T) {
	for name, c := range map[string]struct {
		i      cuda.DeviceInfo
		tflops float64
	}{
		"A100 SXM": {cuda.DeviceInfo{Capability: cuda.ComputeCapability{Major: 8}, Multiprocessors: 108, ClockKHz: 1410000}, 312},
		"L4":       {cuda.DeviceInfo{Capability: cuda.ComputeCapability{Major: 8, Minor: 9}, Multiprocessors: 58, ClockKHz: 2040000}, 121},
		"H100 SXM": {cuda.DeviceInfo{Capability: cuda.ComputeCapability{Major: 9}, Multiprocessors: 132, ClockKHz: 1830000}, 989},
	} {
		require.InEpsilon(t, c.tflops, tensorPeak(c.i)/1e12, 0.01, name)
	}
	require.Equal(t, "?", share(1, tensorPeak(cuda.DeviceInfo{})))
}
