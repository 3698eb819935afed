package stages

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
	"omni-engine/output"
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
