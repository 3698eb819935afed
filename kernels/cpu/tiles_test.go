//go:build cgo && linux && amd64

package cpu_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
	"omni-engine/kernels/cpu"
)

// productModule embeds tokens and multiplies them by one matrix, which becomes the output "logits".
func productModule(d tensor.DType, n, k int) *kernels.Module {
	b := &builder{m: &kernels.Module{Name: "product", Vocab: 50, Groups: []kernels.GroupSpec{{Name: "full"}}}, r: rand.New(rand.NewPCG(uint64(n), uint64(k))), t: tiny{dtype: d}}
	b.e.Name = "forward"
	x := b.temp("x", k)
	out := b.buffer("logits", n, kernels.Tokens, kernels.Output)
	b.op(&kernels.Embed{Out: x, Table: b.weight(tensor.F32, 50, k), Scale: 8})
	b.linear(out, x, n, k)
	b.m.Entries = []kernels.Entry{b.e}
	return b.m
}

// TestTilesAndVectorsAgreeBitForBit: the AMX level changes between tiles and vectors by what it measures, so both must make the same
// bits, those of the AVX-512 VNNI level. A new device tries tiles first, and vectors some milliseconds later.
func TestTilesAndVectorsAgreeBitForBit(t *testing.T) {
	if !slices.Contains(cpu.Levels(), "avx512-amx") {
		t.Skip("this processor has no AMX")
	}
	for _, d := range []tensor.DType{tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q5_1, tensor.Q8_0, tensor.Q4_K, tensor.Q5_K, tensor.Q6_K} {
		t.Run(d.String(), func(t *testing.T) {
			m := productModule(d, 83, 768)
			vectors := newSession(t, open(t, cpu.Options{Threads: 1, Level: "avx512-vnni"}), m, limits(false))
			tiles := newSession(t, open(t, cpu.Options{Threads: 1, Level: "avx512-amx"}), m, limits(false))
			ids := tokens(rand.New(rand.NewPCG(1, 2)), 50, 100)
			product := func(s *session, n int) []uint32 {
				s.run(part{tokens: ids[:n]})
				defer s.step.Release()
				var all []uint32
				for _, row := range s.logits() {
					all = append(all, bits(row)...)
				}
				return all
			}
			for _, n := range []int{9, 16, 17, 21, 33, 100, 1, 8} {
				want := product(vectors, n)
				require.Len(t, want, 83*n)
				require.Equal(t, want, product(tiles, n), "%d tokens", n)
			}
			want := product(vectors, 100)
			for end := time.Now().Add(15 * time.Millisecond); time.Now().Before(end); {
				require.Equal(t, want, product(tiles, 100))
			}
		})
	}
}

func TestExplainNamesTheProductsOfALevel(t *testing.T) {
	for _, level := range cpu.Levels() {
		s := newSession(t, open(t, cpu.Options{Threads: 1, Level: level}), productModule(tensor.Q4_0, 32, 32), limits(false))
		require.Contains(t, s.program.Explain(), "cpu "+level)
		require.Equal(t, 1, strings.Count(s.program.Explain(), "products of blocks"))
		require.Equal(t, strings.Contains(level, "amx"), strings.Contains(s.program.Explain(), "AMX tiles"))
	}
}
