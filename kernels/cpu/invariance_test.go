//go:build cgo && linux && amd64

package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
	"omni-engine/kernels/cpu"
	"omni-engine/kernels/ref"
)

func tokens(r *rand.Rand, vocab, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = r.Int32N(int32(vocab))
	}
	return ids
}

func limits(exact bool) kernels.Limits {
	return kernels.Limits{Tokens: 640, Rows: 64, LogitRows: 64, MaxModelLen: 640, BlockSize: 32, InFlight: 1, Exact: exact}
}

func shapes() []tiny {
	return []tiny{
		{layers: 2, hidden: 64, heads: 9, kvHeads: 3, dim: 32, ffn: 96, vocab: 77, dtype: tensor.Q4_1, pair: true},
		{layers: 2, hidden: 256, heads: 4, kvHeads: 1, dim: 64, ffn: 512, vocab: 101, dtype: tensor.Q6_K, gemma: true, window: 40},
		{layers: 2, hidden: 256, heads: 14, kvHeads: 2, dim: 128, ffn: 256, vocab: 65, dtype: tensor.Q4_K, bias: true},
		{layers: 1, hidden: 256, heads: 2, kvHeads: 2, dim: 256, ffn: 256, vocab: 64, dtype: tensor.Q5_K, gemma: true},
		{layers: 1, hidden: 96, heads: 6, kvHeads: 2, dim: 16, ffn: 64, vocab: 33, dtype: tensor.Q5_0},
		{layers: 1, hidden: 96, heads: 16, kvHeads: 1, dim: 16, ffn: 160, vocab: 33, dtype: tensor.Q5_1},
		{layers: 1, hidden: 64, heads: 2, kvHeads: 1, dim: 32, ffn: 64, vocab: 33, dtype: tensor.Q4_0},
		{layers: 1, hidden: 64, heads: 2, kvHeads: 1, dim: 32, ffn: 64, vocab: 1000, dtype: tensor.Q8_0},
		{layers: 2, hidden: 40, heads: 3, kvHeads: 3, dim: 16, ffn: 50, vocab: 35, dtype: tensor.F32, pair: true},
		{layers: 1, hidden: 48, heads: 4, kvHeads: 2, dim: 32, ffn: 40, vocab: 35, dtype: tensor.BF16, bias: true},
		{layers: 1, hidden: 48, heads: 4, kvHeads: 2, dim: 32, ffn: 40, vocab: 35, dtype: tensor.F16, window: 24},
	}
}

func (t tiny) String() string {
	return fmt.Sprintf("%s hidden=%d heads=%d,%d dim=%d window=%d gemma=%v", t.dtype, t.hidden, t.heads, t.kvHeads, t.dim, t.window, t.gemma)
}

// alone computes one sequence by itself and returns the logits of its last token.
func alone(s *session, ids []int32) []float32 {
	s.run(part{tokens: ids, logits: 1, sampling: greedy()})
	defer s.step.Release()
	return s.logits()[0]
}

func bits(f []float32) []uint32 {
	b := make([]uint32, len(f))
	for i := range f {
		b[i] = math.Float32bits(f[i])
	}
	return b
}

func TestLogitsDoNotDependOnBatchChunksOrThreads(t *testing.T) {
	for _, level := range cpu.Levels() {
		for i, shape := range shapes() {
			if level == "scalar" && i != 1 && i != 4 {
				continue
			}
			t.Run(level+"/"+shape.String(), func(t *testing.T) {
				m := shape.module(uint64(i))
				r := rand.New(rand.NewPCG(uint64(i), 3))
				one := newSession(t, open(t, cpu.Options{Threads: 1, Level: level}), m, limits(false))
				three := newSession(t, open(t, cpu.Options{Threads: 3, Level: level}), m, limits(false))
				require.NotContains(t, one.program.Explain(), "reference:")
				lengths := []int{1, 2, 17, 33, 64, 65, 100, 270, 290}
				seqs := make([][]int32, len(lengths))
				want := make([][]float32, len(lengths))
				for k, n := range lengths {
					seqs[k] = tokens(r, shape.vocab, n)
					want[k] = alone(one, seqs[k])
				}
				for round := range 2 {
					s := three
					if round == 1 {
						s = one
					}
					chunked(t, s, r, seqs, want, round)
				}
			})
		}
	}
}

// chunked computes all sequences together, each cut into chunks of a random size of its own, and compares the last logits.
func chunked(t *testing.T, s *session, r *rand.Rand, seqs [][]int32, want [][]float32, round int) {
	done := make([]int, len(seqs))
	for {
		var parts []part
		var ends []int
		budget := 600
		for _, k := range r.Perm(len(seqs)) {
			left := len(seqs[k]) - done[k]
			if left == 0 || budget == 0 {
				continue
			}
			n := min(left, budget, []int{1, 7, 1 + r.IntN(64), 512}[r.IntN(4)])
			p := part{slot: k, from: done[k], tokens: seqs[k][done[k] : done[k]+n], sampling: greedy()}
			done[k] += n
			budget -= n
			if done[k] == len(seqs[k]) {
				p.logits = 1
				ends = append(ends, k)
			}
			parts = append(parts, p)
		}
		if len(parts) == 0 {
			return
		}
		s.run(parts...)
		for i, row := range s.logits() {
			require.Equal(t, bits(want[ends[i]]), bits(row), "round %d: sequence of %d tokens", round, len(seqs[ends[i]]))
		}
		s.step.Release()
	}
}

func relative(got, want []float32) float64 {
	var d, n float64
	for i := range want {
		d += (float64(got[i]) - float64(want[i])) * (float64(got[i]) - float64(want[i]))
		n += float64(want[i]) * float64(want[i])
	}
	return math.Sqrt(d / n)
}

func TestFusedDecodersAgreeWithTheReference(t *testing.T) {
	for i, shape := range shapes() {
		m := shape.module(uint64(i))
		r := rand.New(rand.NewPCG(uint64(i), 4))
		ids := tokens(r, shape.vocab, 70)
		reference := newSession(t, ref.Open(ref.Options{Threads: 2}), m, limits(true))
		want := alone(reference, ids)
		for _, level := range cpu.Levels() {
			for _, exact := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/exact=%v", level, shape, exact), func(t *testing.T) {
					s := newSession(t, open(t, cpu.Options{Threads: 2, Level: level}), m, limits(exact))
					limit := 1e-4
					if !exact {
						limit = 0.05 // int8 activations and float16 caches
					}
					require.Less(t, relative(alone(s, ids), want), limit)
					require.Equal(t, 1, strings.Count(s.program.Explain(), "entry forward"))
				})
			}
		}
	}
}
