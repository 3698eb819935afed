//go:build cgo && linux && amd64

package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
	"omni-engine/kernels/cpu"
	"omni-engine/kernels/ref"
)

// randomSampling draws a row's parameters; every step of sampling is off for some rows and on for others.
func randomSampling(r *rand.Rand, vocab int) kernels.RowSampling {
	s := kernels.RowSampling{Seed: r.Uint64(), Position: r.Uint64N(1000), Logprobs: int32(r.IntN(8)) - 1}
	maybe := func(f func()) {
		if r.IntN(2) == 0 {
			f()
		}
	}
	maybe(func() { s.Temperature = 0.2 + 2*r.Float32() })
	maybe(func() { s.TopK = 1 + r.Int32N(60) })
	maybe(func() { s.TopP = 0.05 + 0.9*r.Float32() })
	maybe(func() { s.MinP = 0.2 * r.Float32() })
	maybe(func() { s.Repetition = 0.8 + r.Float32() })
	maybe(func() { s.Presence, s.Frequency = r.Float32(), r.Float32() })
	maybe(func() { s.Prompt, s.Output = tokens(r, vocab, 30), tokens(r, vocab, 40) })
	maybe(func() { s.Banned = tokens(r, vocab, 20) })
	maybe(func() { s.BiasIDs, s.Bias = []int32{3, 5}, []float32{4, -100} })
	if r.IntN(8) == 0 {
		s.Allowed = tokens(r, vocab, 10)
	}
	if r.IntN(8) == 0 {
		s.Skip, s.Target, s.Logprobs = true, r.Int32N(int32(vocab)), 5
	}
	return s
}

func TestSamplingAgreesWithTheReference(t *testing.T) {
	for _, vocab := range []int{50, 1000, 4999} {
		shape := tiny{layers: 1, hidden: 64, heads: 2, kvHeads: 1, dim: 32, ffn: 64, vocab: vocab, dtype: tensor.F32}
		m := shape.module(1)
		reference := newSession(t, ref.Open(ref.Options{Threads: 2}), m, limits(true))
		for _, level := range cpu.Levels() {
			t.Run(fmt.Sprint(level, "/", vocab), func(t *testing.T) {
				s := newSession(t, open(t, cpu.Options{Threads: 2, Level: level}), m, limits(true))
				r := rand.New(rand.NewPCG(uint64(vocab), 5))
				for range 10 {
					var parts []part
					for slot := range 24 {
						parts = append(parts, part{slot: slot, tokens: tokens(r, vocab, 3), logits: 1, sampling: randomSampling(r, vocab)})
					}
					want, got := reference.run(parts...), s.run(parts...)
					require.Equal(t, want.Tokens, got.Tokens)
					require.Equal(t, want.Faults, got.Faults)
					require.Equal(t, len(want.Logprobs), len(got.Logprobs))
					for i := range want.Logprobs {
						require.Equal(t, want.Logprobs[i].IDs, got.Logprobs[i].IDs, "row %d", i)
						require.Equal(t, want.Logprobs[i].Rank, got.Logprobs[i].Rank, "row %d", i)
						require.InDeltaSlice(t, want.Logprobs[i].Values, got.Logprobs[i].Values, 1e-4)
					}
					reference.step.Release()
					s.step.Release()
				}
			})
		}
	}
}

func TestNaNEndsOneRowAlone(t *testing.T) {
	shape := tiny{layers: 1, hidden: 64, heads: 2, kvHeads: 1, dim: 32, ffn: 64, vocab: 50, dtype: tensor.F32}
	m := shape.module(1)
	m.Weights[0].View.Data[4*(64*7)+3] = 0x7f // token 7's embedding and output row hold a NaN
	m.Weights[0].View.Data[4*(64*7)+2] = 0xc0
	s := newSession(t, open(t, cpu.Options{Threads: 2}), m, limits(true))
	m2 := shape.module(1)
	clean := newSession(t, open(t, cpu.Options{Threads: 2}), m2, limits(true))
	require.Empty(t, clean.run(part{tokens: []int32{7}, logits: 1, sampling: greedy()}).Faults)
	res := s.run(part{slot: 0, tokens: []int32{7}, logits: 1, sampling: greedy()})
	require.Len(t, res.Faults, 1)
	require.Equal(t, int32(-1), res.Tokens[0])
}
