package stages

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics"
	"omni-engine/metrics/record"
	"omni-engine/metrics/stagelog"
)

// history pushes finished requests of two stages through the records, the histograms, the account of the pipeline and its log.
type history struct {
	m       *metrics.Metrics
	traffic *Traffic
	sinks   [2][4]record.Sink
	its     [2]record.Iteration
	clock   *clock.Manual
	wall    time.Time
	n       int
}

func newHistory(t *testing.T) *history {
	t.Helper()
	m, err := metrics.New(metrics.Config{ModelName: "m", MaxModelLen: 2048, MaxLoRAs: 4, KVCacheMetrics: true, SpeculativeK: 3,
		Stages: []metrics.StageInfo{{ID: 0, Replicas: 4}, {ID: 1, Replicas: 4, Audio: true}}})
	require.NoError(t, err)
	log := slog.New(slog.NewTextHandler(nowhere{}, &slog.HandlerOptions{Level: slog.LevelInfo}))
	h := &history{m: m, traffic: NewTraffic(stagelog.NewPipelineSink(m.Pipeline(), log), m), clock: clock.NewManual(0), wall: time.Unix(1, 0)}
	for stage := range h.sinks {
		h.its[stage].Adapters = record.NewAdapterStates()
		for r := range h.sinks[stage] {
			h.sinks[stage][r] = m.Sink(stage, r)
		}
	}
	return h
}

type nowhere struct{}

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

// request is one request with its own id, trace, adapter and times; every seventh is aborted.
func (h *history) request() {
	h.n++
	id := fmt.Sprintf("req-%d", h.n)
	now := func() clock.Wall { return clock.WallAt(h.wall) }
	tick := func() clock.Time {
		d := time.Duration(1+h.n%97) * time.Millisecond
		h.wall = h.wall.Add(d)
		return h.clock.Advance(d)
	}
	j := h.traffic.Begin(id, now(), 1)
	j.Dispatched(now())
	end := request.FinishStop
	if h.n%7 == 0 {
		end = request.FinishAbort
	}
	for stage := range h.sinks {
		it, sink := &h.its[stage], h.sinks[stage][h.n%4]
		s := record.Begin(record.Identity{RequestID: id, Model: "m", TraceID: fmt.Sprintf("%032x", h.n), StageID: stage, Replica: h.n % 4,
			Waits: record.CanWaitInput | record.CanWaitChunk}, now())
		s.PromptTokens, s.MaxTokens, s.Adapter = 10, 4, fmt.Sprint("adapter", h.n/50%200)
		queued, scheduled := tick(), tick()
		for k := range 3 {
			it.Reset()
			o := request.Output{NewTokens: []int32{1}}
			if k == 0 {
				o.Events = []request.Event{{Type: request.Queued, At: queued}, {Type: request.Scheduled, At: scheduled}}
				o.Changes = []request.StateChange{{To: request.StateQueued, At: queued}, {To: request.StatePrefill, At: scheduled}}
			}
			if k == 2 {
				o.Finish, o.Terminal = end, end == request.FinishAbort
			}
			s.ApplyOutput(tick(), now(), &o, it)
			sink.Step(&request.SchedulerStats{PrefixQueries: 5, PrefixHits: 1, NumDrafts: 1, DraftTokens: 3, Accepted: 1, AcceptedPerPos: []int{1, 0, 0}}, it)
		}
		sink.Finished(s)
		sink.KVBlockEvicted(clock.SpanOf(time.Second), clock.SpanOf(time.Millisecond), nil)
		j.Stage(s, now())
		if stage == 1 {
			j.Transferred(record.Transfer{To: 1, FromReplica: h.n % 4, ToReplica: h.n % 4, Bytes: h.n % 4096, TX: clock.SpanOf(time.Millisecond)})
		}
	}
	j.End(end, "", now())
}

func heap() uint64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// TestMemoryIsBoundedOverManyRequests: what is kept does not grow with the number of requests: 10 million records with OMNI_LONG=1,
// scraped now and then.
func TestMemoryIsBoundedOverManyRequests(t *testing.T) {
	total := 8_000
	if os.Getenv("OMNI_LONG") == "1" {
		total = 5_000_000
	}
	h := newHistory(t)
	begin := time.Now()
	var at []uint64 // heap after each quarter: native histograms grow to their limit in the first
	for i := range total {
		if i%(total/4) == 0 && i > 0 {
			_, err := h.m.Gather()
			require.NoError(t, err)
			at = append(at, heap())
		}
		h.request()
	}
	took := time.Since(begin)
	at = append(at, heap())
	t.Logf("%d requests of two stages, %v each; heap in bytes after each quarter: %d", total, took/time.Duration(total), at)
	for _, later := range at[1:] {
		require.Less(t, int64(later)-int64(at[0]), int64(192<<10), "bytes kept, over %d requests", total/4)
	}
	families, err := h.m.Gather()
	require.NoError(t, err)
	ended, series := 0.0, 0
	for _, f := range families {
		series += len(f.GetMetric())
		if f.GetName() == "vllm_omni:requests_success_total" {
			for _, m := range f.GetMetric() {
				ended += m.GetCounter().GetValue()
			}
		}
	}
	require.Equal(t, float64(total), ended)
	require.Less(t, series, 2000, "series")
	runtime.KeepAlive(h)
}
