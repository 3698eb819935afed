//go:build cgo && linux && amd64

package cpu_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/kernels"
	"omni-engine/kernels/cpu"
)

// A steady decode step leaves nothing for the garbage collector, greedy or sampled, with penalties or without.
func TestADecodeStepAllocatesNothing(t *testing.T) {
	shape := shapes()[0]
	s := newSession(t, open(t, cpu.Options{Threads: 2}), shape.module(1), limits(false))
	ids := tokens(rand.New(rand.NewPCG(1, 13)), shape.vocab, 8)
	var parts []part
	for slot, q := range []kernels.RowSampling{
		{Logprobs: -1},
		{Logprobs: -1, Temperature: 0.8, TopK: 20, TopP: 0.9, Seed: 3},
		{Logprobs: -1, Temperature: 1, Repetition: 1.2, Prompt: ids, Output: ids},
	} {
		s.run(part{slot: slot, tokens: ids, sampling: greedy()})
		s.step.Release()
		parts = append(parts, part{slot: slot, from: len(ids), tokens: ids[:1], logits: 1, sampling: q})
	}
	s.run(parts...)
	require.Zero(t, testing.AllocsPerRun(50, func() {
		s.step.Release()
		if s.step.Submit(s.calls...) != nil {
			t.Fatal("submit")
		}
		if res, err := s.step.Wait(context.Background()); err != nil || len(res.Tokens) != 3 {
			t.Fatal("wait")
		}
	}))
}
