package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/metrics/record"
)

func first(s State) ReplicaState { return s.Stages[0].Replicas[0] }

func TestStateSaysWhatTheRecordsSay(t *testing.T) {
	b := newBench(Options{Models: []string{"m"}, Version: "v"})
	_, sink := b.replica(0, 0)
	records := []*record.Stage{
		course{id: "a", start: b.now, queued: 1, scheduled: 11, first: 31, last: 131}.record(),
		course{id: "b", start: b.now, queued: 2, scheduled: 32, first: 72, last: 472, preempted: 100, resumed: 160}.record(),
		course{id: "c", start: b.now, queued: 3, last: 9, never: true}.record(),
	}
	for _, s := range records {
		sink.Finished(s)
	}
	b.pass(time.Second)
	r := first(b.State(60, 0))

	require.Equal(t, 3, r.Recent.Requests)
	require.Equal(t, map[string]int{"length": 2, "abort": 1}, r.Recent.Reasons)
	require.Equal(t, 1, r.Recent.Preemptions)
	require.InDelta(t, 3.0/60, *r.Rates.Requests, 1e-9)
	require.False(t, r.Recent.Dropped)
	want := map[string]float64{}
	for _, s := range records {
		for st := request.State(0); st < request.NumStates; st++ {
			if d, _ := s.Ledger.Part(st).Get(); d > 0 {
				want[st.String()] += float64(d) / 1e6
			}
		}
	}
	got, sum := map[string]float64{}, 0.0
	for _, st := range r.Recent.States {
		got[st.State] = st.MS
		sum += st.MS
	}
	require.Equal(t, want, got)
	require.Equal(t, map[string]float64{"queued": 46, "prefill": 60, "decode": 128, "preempted": 60, "recompute": 312}, got)
	require.InDelta(t, 130+470+6, sum, 1e-9, "the states sum to the ledgers' totals")

	require.Equal(t, 2, r.Latency.Queued.N, "a request that was never scheduled has no queue time")
	require.InDelta(t, 20, *r.Latency.Queued.P50, 1e-9)
	require.InDelta(t, 28, *r.Latency.Queued.P90, 1e-9)
	require.InDelta(t, 29.8, *r.Latency.Queued.P99, 1e-9)
	require.InDelta(t, 30, *r.Latency.Queued.Max, 1e-9)
	require.InDelta(t, 250, *r.Latency.Decode.P50, 1e-9)
	require.InDelta(t, 250, *r.Latency.ITL.P50, 1e-9)
	require.Equal(t, 2, r.Latency.TTFT.N)
	require.InDelta(t, 51.5, *r.Latency.TTFT.P50, 1e-9)
	require.Equal(t, 3, r.Latency.E2E.N)
}

func TestAbsentIsNullAndNeverZero(t *testing.T) {
	b := newBench(Options{})
	r, sink := b.replica(0, 0)
	r.Observe(func() record.Snapshot { return record.Snapshot{} })
	sink.Finished(course{id: "c", start: b.now, queued: 3, last: 9, never: true}.record())
	data, err := json.Marshal(b.State(60, 0))
	require.NoError(t, err)
	var v map[string]any
	require.NoError(t, json.Unmarshal(data, &v))
	replica := v["stages"].([]any)[0].(map[string]any)["replicas"].([]any)[0].(map[string]any)
	require.Equal(t, map[string]any{"n": 0.0, "p50": nil, "p90": nil, "p99": nil, "max": nil}, replica["latency"].(map[string]any)["prefill"])
	rates := replica["rates"].(map[string]any)
	require.Nil(t, rates["generation_tokens_per_s"], "one look is no rate")
	require.Nil(t, rates["prefix_hit_ratio"], "no query is no ratio")
	require.Nil(t, replica["core"].(map[string]any)["kv_usage"], "no paged cache has no usage")

	l := b.Requests("", 10)
	require.Nil(t, l.Requests[0].TTFT)
	d, ok := b.Request(l.Requests[0].Key)
	require.True(t, ok)
	require.Nil(t, d.Lanes[0].Scheduled)
	require.Nil(t, d.Lanes[0].First)
	require.False(t, d.Lanes[0].Split.Get(record.VLLMQueuedMS).IsSet())
	require.InDelta(t, 6, d.Lanes[0].Split.Get(record.VLLMUnscheduledWaitMS).Number(), 1e-9)
}

func TestAMeasuredZeroIsZero(t *testing.T) {
	b := newBench(Options{})
	_, sink := b.replica(0, 0)
	sink.Finished(course{id: "a", start: b.now, queued: 5, scheduled: 5, first: 5, last: 5}.record())
	p := first(b.State(60, 0)).Latency
	for _, v := range []Percentiles{p.Queued, p.Prefill, p.Decode} {
		require.Equal(t, 1, v.N)
		require.Zero(t, *v.P99)
	}
}

func TestOldRequestsLeaveTheWindow(t *testing.T) {
	b := newBench(Options{})
	_, sink := b.replica(0, 0)
	for i := range 20 { // one each 30 s; request i has queued i ms
		sink.Finished(course{id: fmt.Sprint(i), start: b.now, queued: 0, scheduled: i, first: i + 1, last: i + 2}.record())
		b.pass(30 * time.Second)
	}
	for _, c := range []struct{ window, n int }{{60, 2}, {300, 10}, {900, 20}} {
		r := first(b.State(c.window, 0))
		require.Equal(t, c.n, r.Recent.Requests, "%d s", c.window)
		require.InDelta(t, 19, *r.Latency.Queued.Max, 1e-9)
		require.InDelta(t, float64(c.window), r.Recent.Covered, 1e-9)
	}
	b.pass(time.Hour)
	require.Zero(t, first(b.State(900, 0)).Recent.Requests)
	require.Len(t, b.Requests("", 50).Requests, 20, "the list keeps them")
}

func TestAYoungServerCoversItsAge(t *testing.T) {
	b := newBench(Options{})
	_, sink := b.replica(0, 0)
	b.started = b.now.Add(-5 * time.Second)
	sink.Finished(course{id: "a", start: b.now.Add(-time.Second), queued: 1, scheduled: 2, first: 3, last: 4}.record())
	r := first(b.State(60, 0))
	require.InDelta(t, 5, r.Recent.Covered, 1e-9)
	require.InDelta(t, 0.2, *r.Rates.Requests, 1e-9)
}

func TestMemoryIsBounded(t *testing.T) {
	b := newBench(Options{Keep: Keep{Requests: 100, Bytes: 100 * 300}})
	r, sink := b.replica(0, 0)
	for i := range 20_000 {
		sink.Finished(course{id: fmt.Sprint("request-", i), start: b.now, queued: 1, scheduled: 2, first: 3, last: 40, preempted: 10, resumed: 12}.record())
		b.pass(time.Millisecond)
	}
	kept := r.recent.all()
	require.LessOrEqual(t, len(kept), 100)
	require.Greater(t, len(kept), 20)
	require.LessOrEqual(t, r.recent.bytes, 100*300)
	require.Less(t, cap(r.recent.entries), 1000)
	require.Equal(t, "request-19999", kept[len(kept)-1].id.RequestID)
	s := first(b.State(60, 0))
	require.True(t, s.Recent.Dropped)
	require.Less(t, s.Recent.Covered, 0.2, "only the time of what is kept")

	long := course{id: "long", start: b.now, queued: 1, scheduled: 2, first: 3, last: 40}.record()
	many := make([]record.Stay, 5000)
	e := r.entry(long)
	e.stays = many
	r.recent.add(e)
	require.Len(t, r.recent.all(), 1, "one that is larger than all room stays alone")
}

func TestRatesAreBetweenLooks(t *testing.T) {
	b := newBench(Options{})
	r, _ := b.replica(0, 0)
	var totals record.Totals
	looks := 0
	r.Observe(func() record.Snapshot {
		looks++
		s := record.Snapshot{Totals: totals, Cache: &record.CacheConfig{SizeTokens: 640}}
		s.Stats.Usage, s.Stats.Running, s.Stats.Waiting, s.Stats.Skipped = 0.25, 3, 2, 1
		s.Stats.Parked[request.WaitChunk] = 4
		return s
	})
	require.Nil(t, first(b.State(60, 0)).Rates.Generation)
	b.pass(100 * time.Millisecond)
	for range 50 { // viewers of one moment share a look
		b.State(60, 0)
	}
	require.Equal(t, 1, looks)
	b.pass(1900 * time.Millisecond)
	totals.GenerationTokens, totals.PromptTokens, totals.PrefixQueries, totals.PrefixHits = 100, 40, 80, 20
	s := first(b.State(60, 0))
	require.InDelta(t, 50, *s.Rates.Generation, 1e-9)
	require.InDelta(t, 20, *s.Rates.Prompt, 1e-9)
	require.InDelta(t, 0.25, *s.Rates.PrefixHits, 1e-9)
	require.Equal(t, 3, s.Core.Waiting)
	require.Equal(t, 1, s.Core.Deferred)
	require.Equal(t, map[string]int{"chunk": 4}, s.Core.Parked)
	require.InDelta(t, 0.25, *s.Core.KVUsage, 1e-9)
	require.Len(t, s.History, 2)
	require.Len(t, first(b.State(60, s.History[0].At)).History, 1, "since leaves out what the reader has")

	b.pass(6 * time.Second)
	totals.GenerationTokens = 10_000
	require.Nil(t, first(b.State(60, 0)).Rates.Generation, "nobody looked for a while: no average over it")
	b.pass(time.Second)
	totals.GenerationTokens = 5
	require.Nil(t, first(b.State(60, 0)).Rates.Generation, "a core that began anew")
	for range keptLooks + 10 {
		b.pass(time.Second)
		b.State(60, 0)
	}
	require.Len(t, r.history.samples, keptLooks)
	require.Len(t, r.history.totals, keptLooks)
}

func TestNothingIsReadWhenNobodyLooks(t *testing.T) {
	b := newBench(Options{})
	r, sink := b.replica(0, 0)
	r.Observe(func() record.Snapshot { t.Error("nobody asked"); return record.Snapshot{} })
	sink.Finished(course{id: "a", start: b.now, queued: 1, scheduled: 2, first: 3, last: 4}.record())
	stats, it := &request.SchedulerStats{}, &record.Iteration{}
	require.Zero(t, testing.AllocsPerRun(100, func() { sink.Step(stats, it) }))
}

type counting struct {
	record.Discard
	finished, steps, parents int
}

func (c *counting) Finished(*record.Stage)                          { c.finished++ }
func (c *counting) Step(*request.SchedulerStats, *record.Iteration) { c.steps++ }
func (c *counting) ParentFinished(int, int)                         { c.parents++ }

func TestSinkPassesEverythingOn(t *testing.T) {
	b := newBench(Options{})
	next := &counting{}
	r := b.Replica(ReplicaInfo{})
	k := r.Sink(next)
	k.Finished(course{id: "a", start: b.now, queued: 1, scheduled: 2, first: 3, last: 4}.record())
	k.Finished(course{id: "b", start: b.now, queued: 1, scheduled: 2, first: 3, last: 4, silent: true}.record())
	k.Step(nil, nil)
	k.ParentFinished(1, 2)
	require.Equal(t, counting{finished: 2, steps: 1, parents: 1}, *next)
	require.Len(t, r.recent.all(), 1, "what was not recorded is not kept")
}

func TestReplicasAreOrderedAndTroubleIsTold(t *testing.T) {
	b := newBench(Options{Health: func() error { return errors.New("stalled") }})
	for _, at := range [][2]int{{1, 1}, {0, 1}, {1, 0}, {0, 0}} {
		b.replica(at[0], at[1])
	}
	s := b.State(60, 0)
	require.Equal(t, "stalled", s.Trouble)
	require.Len(t, s.Stages, 2)
	for i, st := range s.Stages {
		require.Equal(t, i, st.ID)
		require.Equal(t, []int{0, 1}, []int{st.Replicas[0].Replica, st.Replicas[1].Replica})
		require.Nil(t, st.Replicas[0].Core, "a core that has not spoken yet")
	}
}

func TestRecordingOffShowsTheCoreAlone(t *testing.T) {
	d := New(Options{})
	r := d.Replica(ReplicaInfo{})
	r.Observe(func() record.Snapshot { return record.Snapshot{Totals: record.Totals{GenerationTokens: 9}} })
	s := d.State(60, 0)
	require.False(t, s.Recording)
	require.EqualValues(t, 9, first(s).Core.GenerationTokens)
	require.Nil(t, first(s).Rates.Requests)
	data, err := json.Marshal(s)
	require.NoError(t, err)
	require.Contains(t, string(data), `"reasons":{}`)
	require.Contains(t, string(data), `"states":[]`)
	require.Contains(t, string(data), `"history":[{`)
}

func TestLooksAndEndsMayCoincide(t *testing.T) {
	d := New(Options{Recording: true, Keep: Keep{Requests: 50}})
	r := d.Replica(ReplicaInfo{})
	r.Observe(func() record.Snapshot { return record.Snapshot{} })
	k := r.Sink(record.Discard{})
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 200 {
				k.Finished(course{id: fmt.Sprint(w, "-", i), start: time.Now(), queued: 1, scheduled: 2, first: 3, last: 4}.record())
			}
		})
		all.Go(func() {
			for range 50 {
				_, err := json.Marshal(d.State(Windows()[w%3], 0))
				require.NoError(t, err)
				for _, s := range d.Requests("", 5).Requests {
					d.Request(s.Key)
				}
			}
		})
	}
	all.Wait()
	require.Len(t, r.recent.all(), 50)
}

func BenchmarkFinished(b *testing.B) {
	d := New(Options{Recording: true})
	k := d.Replica(ReplicaInfo{}).Sink(record.Discard{})
	s := course{id: "a", start: time.Now(), queued: 1, scheduled: 2, first: 3, last: 4}.record()
	b.ReportAllocs()
	for b.Loop() {
		k.Finished(s)
	}
}

func BenchmarkLook(b *testing.B) {
	now := time.Now()
	d := New(Options{Recording: true, Now: func() time.Time { now = now.Add(time.Second); return now }})
	k := d.Replica(ReplicaInfo{}).Sink(record.Discard{})
	for range 2048 {
		k.Finished(course{id: "a", start: now.Add(time.Hour), queued: 1, scheduled: 2, first: 3, last: 4}.record())
	}
	for b.Loop() {
		d.State(900, 0)
	}
}
