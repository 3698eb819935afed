package metrics

import (
	"fmt"
	"os"
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

// BenchmarkRequestOf64Tokens is a request's whole recording: its record, and the sink's part of its steps and its end.
func BenchmarkRequestOf64Tokens(b *testing.B) {
	_, sink := decodeStep()
	c := clock.NewManual(time.Second)
	it, stats, now := &record.Iteration{}, &request.SchedulerStats{Running: 1}, wall(5)
	token := request.Output{NewTokens: []int32{1}}
	b.ReportAllocs()
	for b.Loop() {
		s := record.Begin(record.Identity{}, wall(0))
		at := c.Advance(time.Millisecond)
		s.ApplyOutput(at, now, &request.Output{NewTokens: []int32{1}, Events: []request.Event{{Type: request.Queued, At: at}, {Type: request.Scheduled, At: at}},
			Changes: []request.StateChange{{To: request.StateQueued, At: at}, {To: request.StatePrefill, At: at}}}, it)
		for range 62 {
			it.Reset()
			s.ApplyOutput(c.Advance(time.Millisecond), now, &token, it)
			sink.Step(stats, it)
		}
		s.ApplyOutput(c.Advance(time.Millisecond), now, &request.Output{NewTokens: []int32{1}, Finish: request.FinishStop}, it)
		sink.Finished(s)
	}
}

// scraped returns the families of a pipeline with so many pairs of stage and replica, a language model, a speaking and an image stage
// among them, each of which has seen a request.
func scraped(tb testing.TB, stages, replicas int) *Metrics {
	tb.Helper()
	c := Config{ModelName: "m", MaxModelLen: 2048, KVCacheMetrics: true}
	for id := range stages {
		info := StageInfo{ID: id, Replicas: replicas, Audio: id%4 == 2}
		if id%4 == 3 {
			info.Type = record.Diffusion
		}
		c.Stages = append(c.Stages, info)
	}
	m, err := New(c)
	require.NoError(tb, err)
	for id := range stages {
		for r := range replicas {
			m.Sink(id, r).Finished(finishedRecord())
			if id > 0 {
				m.Edge(id-1, r, id, r).Sent(100, clock.SpanOf(time.Millisecond))
			}
		}
	}
	return m
}

func BenchmarkScrape(b *testing.B) {
	for _, n := range [][2]int{{1, 1}, {4, 4}, {8, 16}} {
		b.Run(fmt.Sprintf("pairs=%d", n[0]*n[1]), func(b *testing.B) {
			m := scraped(b, n[0], n[1])
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.encode(textFormat(), false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestScrapesAreQuick: at most 10 ms for 16 pairs of stage and replica, 100 ms for 128; the best of twenty, since others use the machine.
func TestScrapesAreQuick(t *testing.T) {
	if os.Getenv("OMNI_LONG") != "1" {
		t.Skip("OMNI_LONG=1 measures a scrape")
	}
	for _, c := range []struct {
		stages, replicas int
		limit            time.Duration
	}{{4, 4, 10 * time.Millisecond}, {8, 16, 100 * time.Millisecond}} {
		m, best, size := scraped(t, c.stages, c.replicas), time.Hour, 0
		for range 20 {
			begin := time.Now()
			body, err := m.encode(textFormat(), false)
			require.NoError(t, err)
			best, size = min(best, time.Since(begin)), len(body)
		}
		t.Logf("%d pairs: %v for %d KiB", c.stages*c.replicas, best, size>>10)
		require.LessOrEqual(t, best, c.limit)
	}
}
