package main

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/bench/cpu/probe"
)

func TestTheRooflineIsWorkOverTime(t *testing.T) {
	r := &roofline{Level: "avx512-vnni", Instruction: "vpdpbusd, 512 bits", Peak: 1000, Weights: 50, Matrix: 0.8, Peaks: probe.Peaks{Threads: 2, VNNI512: 1000},
		Work: engineReport{TokenMACs: 100e6, Bytes: 100e6}, Bandwidth: map[string]float64{"32 MiB": 60}}
	var b strings.Builder
	r.write(&b, map[string]float64{"prefill": 2000, "decode": 250})
	require.Contains(t, b.String(), "| prefill 512, whole | 400 Gop/s | 1000 Gop/s (vpdpbusd, 512 bits) | 40 % |\n")
	require.Contains(t, b.String(), "matrix phases (80 % of the time) | 500 Gop/s | the same | 50 % |")
	require.Contains(t, b.String(), "| decode behind 128, weights read | 25.0 GB/s | 50.0 GB/s | 50 % |")
	require.Contains(t, b.String(), "tdpbusd –, ")
	r.Matrix = math.NaN()
	b.Reset()
	r.write(&b, map[string]float64{"prefill": 2000})
	require.NotContains(t, b.String(), "matrix phases")
	require.NotContains(t, b.String(), "decode")
}

func TestCyclesByPhaseAreRead(t *testing.T) {
	v, err := shareOfLinear("level x\nnorm  100 Mcycles on all threads\nlinear        600 Mcycles on all threads\nattention  300 Mcycles on all threads\n")
	require.NoError(t, err)
	require.InDelta(t, 0.6, v, 1e-9)
	_, err = shareOfLinear("nothing")
	require.ErrorContains(t, err, "OMNI_PHASE_TIMES")
}
