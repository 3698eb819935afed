//go:build !nocuda && linux && amd64

package gpu

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/cuda/sim"
)

// The kernels whose time is shared memory's take no turn of its banks twice, as the software device counts them.
func TestKernelBanksMeetNoConflict(t *testing.T) {
	if sim.Variant(os.Getenv(variantEnv)) != sim.Check {
		t.Skip("bank conflicts are counted where the kernels are compiled for checking: TestKernelsUnderEveryChecker")
	}
	x := newLab(t)
	e := halves()[0]
	for tile, b := range map[string][2]int{"16": {16, 32}, "64": {64, 64}, "128": {128, 128}} {
		s := shape{b[0], b[1], 128}
		checkProduct(t, x, "gemm_bf16_"+tile, e, s, outF32, false, func() []int { return []int{1, 1} })
	}
	checkProduct(t, x, "gemm_f32", elements()[0], shape{64, 64, 32}, outF32, false, func() []int { return []int{1, 1} })
	for name, d := range blockTypes() {
		raw, _ := randomBlocks(t, d, 64, 256)
		pa, _ := putT(x, e, randoms(1, 64*256, 1))
		launchKernel(x, "mmq_"+name+"_bf16", gemmParams{Out: x.alloc(64 * 64 * 4), A: pa, B: put(x, raw, 256), M: 64, N: 64, K: 256, LDA: 256, LDC: 64, OutKind: outF32}, 1, 1)
	}
	for _, dim := range []int{64, 128, 256} {
		checkAttention(t, x, e, attnCase{heads: 4, kv: 1, dim: dim, size: 16, lens: []int{96}, queries: []int{32}}, func(p attnParams, c attnCase) {
			work := tilesOf(c, tileQueries(4))
			p.Work, p.N = put(x, work, 0), int32(len(work)/2)
			launchKernel(x, fmt.Sprint("attn_prefill_bf16_", dim), p, len(work)/2, 1)
		})
		checkAttention(t, x, e, attnCase{heads: 8, kv: 1, dim: dim, size: 16, lens: []int{160}, queries: []int{1}}, func(p attnParams, c attnCase) {
			p.N = 1
			launchKernel(x, fmt.Sprint("attn_decode_bf16_", dim), p, 1, 1, 1)
		})
	}
	for name := range launches() {
		turns, extra := x.probe.Conflicts(name)
		if turns > 0 {
			t.Logf("%s: %d turns, %d extra", name, turns, extra)
		}
	}
	for _, name := range []string{"gemm_bf16_16", "gemm_bf16_64", "gemm_bf16_128", "gemm_f32", "mmq_q4_0_bf16", "mmq_q4_k_bf16", "mmq_q6_k_bf16",
		"attn_prefill_bf16_64", "attn_prefill_bf16_128", "attn_prefill_bf16_256", "attn_decode_bf16_64", "attn_decode_bf16_128", "attn_decode_bf16_256"} {
		turns, extra := x.probe.Conflicts(name)
		require.Positive(t, turns, name)
		require.Zero(t, extra, name)
	}
}
