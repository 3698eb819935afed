package stages

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine"
	"omni-engine/engine/enginetest"
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
	"omni-engine/output"
	"omni-engine/scheduler"
)

// steady drives the output side alone: n running requests, one token each a step.
func steady(b *testing.B, n int, noRecord bool) (step func()) {
	var readers sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	b.Cleanup(func() { stop(); readers.Wait() })
	q := newOutputQueue()
	proc := output.New(output.Config{NoRecord: noRecord, Sink: record.Discard{}})
	so := &request.StepOutputs{Outputs: make([]request.Output, n)}
	for i := range n {
		r := ask(request.ID(fmt.Sprint("r", i)), 4, 1<<30)
		s, err := proc.Add(r)
		if err != nil {
			panic(err)
		}
		readers.Go(func() { // a reader that keeps up
			for {
				if _, err := s.Next(ctx); err != nil {
					return
				}
			}
		})
		so.Outputs[i] = request.Output{ID: r.ID, NewTokens: []int32{7}, StopToken: -1}
	}
	c := clock.NewManual(time.Second)
	return func() {
		so.At = c.Advance(10 * time.Millisecond)
		q.Step(so)
		q.mu.Lock()
		p := q.full[0]
		q.full = q.full[:0]
		q.mu.Unlock()
		proc.Process(&p.so)
		q.mu.Lock()
		q.free = append(q.free, p)
		q.mu.Unlock()
	}
}

// PS-15, PS-70: with recording off nothing is allocated for it a step; what remains is the readers' own updates.
func TestRecordingOffAllocatesNothingPerStep(t *testing.T) {
	proc := output.New(output.Config{NoRecord: true})
	const n = 64
	so := &request.StepOutputs{}
	for i := range n {
		r := ask(request.ID(fmt.Sprint("r", i)), 4, 1<<30)
		_, err := proc.Add(r)
		require.NoError(t, err)
		so.Outputs = append(so.Outputs, request.Output{ID: r.ID, StopToken: -1, KVReady: true}) // no token: nothing for a reader to keep
	}
	c := clock.NewManual(time.Second)
	step := func() { so.At = c.Advance(time.Millisecond); proc.Process(so) }
	step()
	require.Zero(t, testing.AllocsPerRun(200, step))
}

func BenchmarkOutputSideStep(b *testing.B) {
	for _, off := range []bool{false, true} {
		b.Run(fmt.Sprintf("recording=%t/64", !off), func(b *testing.B) {
			step := steady(b, 64, off)
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
		})
	}
}

// BenchmarkCoreStep is everything of a steady step that is not the device's: inbox, schedule, update, snapshot, output side.
func BenchmarkCoreStep(b *testing.B) {
	for _, off := range []bool{false, true} {
		for _, n := range []int{1, 64} {
			b.Run(fmt.Sprintf("recording=%t/%d", !off, n), func(b *testing.B) {
				gate := make(chan struct{})
				var steps atomic.Int64
				r := &enginetest.Runner{Fail: func(int, *scheduler.Decision) error { <-gate; steps.Add(1); return nil }}
				l, err := NewLocal(LocalConfig{
					Core:   engine.Config{Scheduler: schedulerConfig(options{blocks: 1 << 17, seqs: 64, tokens: 2048, maxLen: 1 << 20}), NoRecord: off},
					Output: output.Config{},
				}, r)
				if err != nil {
					b.Fatal(err)
				}
				for i := range n {
					q := ask(request.ID(fmt.Sprint("r", i)), 4, 1<<14)
					if _, err := l.Submit(context.Background(), q); err != nil {
						b.Fatal(err)
					}
				}
				for l.Snapshot().Stats.Running < n {
					select {
					case gate <- struct{}{}:
					default:
						runtime.Gosched()
					}
				}
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					gate <- struct{}{}
				}
				b.StopTimer()
				close(gate)
				if err := l.Close(context.Background()); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
