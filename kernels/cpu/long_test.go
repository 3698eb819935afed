//go:build cgo && linux && amd64

package cpu_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/kernels/cpu"
)

// A token behind a long context is attended to in parts, by all threads; its logits are those of the one-piece prefill.
func TestLongContextsAreCutWithoutChangingABit(t *testing.T) {
	const n = 700
	for _, level := range cpu.Levels() {
		for i, shape := range shapes()[:2] {
			if level == "scalar" && i != 1 {
				continue
			}
			t.Run(level+"/"+shape.String(), func(t *testing.T) {
				l := limits(false)
				l.Tokens, l.MaxModelLen = n, n
				m := shape.module(uint64(i))
				ids := tokens(rand.New(rand.NewPCG(uint64(i), 9)), shape.vocab, n)
				whole := newSession(t, open(t, cpu.Options{Threads: 2, Level: level}), m, l)
				want := alone(whole, ids)
				require.Zero(t, cpu.Parts(whole.step))
				for _, threads := range []int{1, 3} {
					s := newSession(t, open(t, cpu.Options{Threads: threads, Level: level}), m, l)
					s.run(part{tokens: ids[:n-2], sampling: greedy()})
					s.step.Release()
					s.run(part{from: n - 2, tokens: ids[n-2 : n-1], sampling: greedy()}, part{slot: 1, tokens: ids[:5], sampling: greedy()})
					s.step.Release()
					s.run(part{from: n - 1, tokens: ids[n-1:], logits: 1, sampling: greedy()})
					require.GreaterOrEqual(t, cpu.Parts(s.step), 3)
					require.Equal(t, bits(want), bits(s.logits()[0]), "%d threads", threads)
					s.step.Release()
				}
			})
		}
	}
}
