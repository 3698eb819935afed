//go:build cgo && linux && amd64

package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/internal/tensor"
	"omni-engine/kernels/cpu"
)

// A program of a higher priority, submitted again and again while another one's prefill runs, passes it each time: no thread begins
// more than the piece of the prefill that it had in hand.
func TestHigherPriorityOvertakesALongPrefill(t *testing.T) {
	const threads = 2
	dev := open(t, cpu.Options{Threads: threads})
	big := tiny{layers: 6, hidden: 512, heads: 8, kvHeads: 2, dim: 64, ffn: 1024, vocab: 512, dtype: tensor.Q4_1}
	small := tiny{layers: 2, hidden: 64, heads: 2, kvHeads: 1, dim: 32, ffn: 64, vocab: 64, dtype: tensor.Q4_1}
	low := newSession(t, dev, big.module(1), limits(false))
	l := limits(false)
	l.Priority = 1
	high := newSession(t, dev, small.module(2), l)
	ids := tokens(rand.New(rand.NewPCG(1, 1)), 512, 600)

	var prefill atomic.Int64 // odd while one runs
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			prefill.Add(1)
			low.run(part{tokens: ids, logits: 1, sampling: greedy()})
			prefill.Add(1)
			low.step.Release()
		}
	}()
	defer func() { close(stop); <-done }()
	most := 0
	for prefill.Load() < 5 || most < 3 {
		require.Less(t, prefill.Load(), int64(100), "no three steps of the higher priority end within a prefill")
		within, at := 0, prefill.Load()
		for at%2 == 1 && prefill.Load() == at && within < 20 {
			before := cpu.Overtakes(dev)
			high.run(part{tokens: []int32{7}, logits: 1, sampling: greedy()})
			high.step.Release()
			require.LessOrEqual(t, cpu.Overtakes(dev)-before, int64(threads))
			if prefill.Load() == at {
				within++
			}
		}
		most = max(most, within)
	}
}

// Programs that share a pool at once, on more threads than there are processors, compute what each computes alone.
func TestProgramsThatShareAPoolDoNotDisturbEachOther(t *testing.T) {
	for _, threads := range []int{1, 3} {
		t.Run(fmt.Sprint(threads, " threads"), func(t *testing.T) {
			dev := open(t, cpu.Options{Threads: threads})
			var wg sync.WaitGroup
			for i, shape := range shapes()[:6] {
				l := limits(false)
				l.Priority = i % 3
				m := shape.module(uint64(i))
				s := newSession(t, dev, m, l)
				ids := tokens(rand.New(rand.NewPCG(uint64(i), 2)), shape.vocab, 90)
				want := bits(alone(s, ids))
				wg.Add(1)
				go func() {
					defer wg.Done()
					for k := range 12 {
						if got := bits(alone(s, ids)); fmt.Sprint(got) != fmt.Sprint(want) {
							t.Errorf("%s: other logits in round %d", shape, k)
							return
						}
					}
				}()
			}
			wg.Wait()
		})
	}
}
