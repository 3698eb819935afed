package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// decodeStep is one step of 32 decoding requests: what the record and the sink cost a step (PS-70).
func decodeStep() (step func(), sink record.Sink) {
	m, err := New(Config{ModelName: "m", Stages: []StageInfo{{}}, MaxModelLen: 2048})
	if err != nil {
		panic(err)
	}
	c := clock.NewManual(time.Second)
	sink = m.Sink(0, 0)
	records := make([]*record.Stage, 32)
	outputs := make([]request.Output, 32)
	for i := range records {
		records[i] = record.Begin(record.Identity{}, wall(0))
		outputs[i].NewTokens = []int32{1}
	}
	it, stats, now := &record.Iteration{}, &request.SchedulerStats{Running: 32}, wall(5)
	return func() {
		it.Reset()
		at := c.Advance(time.Millisecond)
		for i, s := range records {
			s.ApplyOutput(at, now, &outputs[i], it)
		}
		sink.Step(stats, it)
	}, sink
}

func BenchmarkStepOf32Requests(b *testing.B) {
	step, _ := decodeStep()
	step()
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		step()
	}
}

func finishedRecord() *record.Stage {
	c := clock.NewManual(0)
	at := func(ms int) clock.Time { return c.At(time.Duration(ms) * time.Millisecond) }
	s := record.Begin(record.Identity{}, wall(0))
	s.PromptTokens = 10
	s.ApplyOutput(at(30), wall(30), &request.Output{NewTokens: []int32{1}, Events: []request.Event{{Type: request.Queued, At: at(1)}, {Type: request.Scheduled, At: at(2)}}}, nil)
	s.ApplyOutput(at(40), wall(40), &request.Output{NewTokens: []int32{1}, Finish: request.FinishStop}, nil)
	return s
}

func BenchmarkFinishedRequest(b *testing.B) {
	_, sink := decodeStep()
	s := finishedRecord()
	b.ReportAllocs()
	for b.Loop() {
		sink.Finished(s)
	}
}

// TestAStepAllocatesNothingPS70 counts the sink's allocations in a step; the record keeps one number a step and request,
// which grows its list now and then.
func TestAStepAllocatesNothingPS70(t *testing.T) {
	_, sink := decodeStep()
	it := &record.Iteration{Outputs: 32, GenerationTokens: 32}
	for range 32 {
		it.ITL = append(it.ITL, clock.SpanOf(20*time.Millisecond))
	}
	stats := &request.SchedulerStats{PrefixQueries: 3, PrefixHits: 1}
	sink.Step(stats, it)
	require.Zero(t, testing.AllocsPerRun(200, func() { sink.Step(stats, it) }))
	s := finishedRecord()
	sink.Finished(s)
	require.Zero(t, testing.AllocsPerRun(200, func() { sink.Finished(s) }))
}

func BenchmarkScrape(b *testing.B) {
	for _, replicas := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("replicas=%d", replicas), func(b *testing.B) {
			m, err := New(Config{ModelName: "m", Stages: []StageInfo{{Replicas: replicas}}, MaxModelLen: 2048})
			if err != nil {
				b.Fatal(err)
			}
			for r := range replicas {
				m.Sink(0, r).Finished(finishedRecord())
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.encode(textFormat(), false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
