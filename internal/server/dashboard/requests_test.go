package dashboard

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/metrics/record"
)

func TestWaterfallIsTheLedgersCourse(t *testing.T) {
	b := newBench(Options{})
	_, sink := b.replica(0, 0)
	s := course{id: "b", start: b.now, queued: 2, scheduled: 32, first: 72, last: 472, preempted: 100, resumed: 160}.record()
	sink.Finished(s)
	d, ok := b.Request(b.Requests("", 1).Requests[0].Key)
	require.True(t, ok)
	require.Len(t, d.Lanes, 1)
	l := d.Lanes[0]
	require.Equal(t, []StayView{{"queued", 0, 30}, {"prefill", 30, 40}, {"decode", 70, 28}, {"preempted", 98, 60}, {"recompute", 158, 312}}, l.Stays)
	require.InDelta(t, 470, *l.Total, 1e-9)
	require.Equal(t, []float64{30, 70, 470, 470}, []float64{*l.Scheduled, *l.First, *l.Last, *l.End})
	for _, c := range l.Split {
		want := record.NewRow(s).Get(c.Name)
		require.Equal(t, want, c.Value, c.Name)
	}
	require.InDelta(t, 60, l.Split.Get(record.VLLMPreemptedMS).Number(), 1e-9)
	require.Equal(t, "engine core of stage 0, replica 0", l.Clock)
}

// PS-35: a lane a stage, each on its own clock from its own QUEUED; no state of two stages is added.
func TestStagesAreLanesOnTheirOwnClocks(t *testing.T) {
	b := newBench(Options{})
	_, talker := b.replica(0, 0)
	_, vocoder := b.replica(1, 0)
	start := b.now
	vocoder.Finished(course{id: "x", stage: 1, start: start, queued: 500, scheduled: 600, first: 900, last: 900}.record())
	talker.Finished(course{id: "x", trace: "4bf92f3577b34da6a3ce929d0e0e4736", start: start, queued: 10, scheduled: 20, first: 40, last: 700}.record())
	l := b.Requests("x", 10)
	require.Len(t, l.Requests, 1)
	sum := l.Requests[0]
	require.Equal(t, 2, sum.Stages)
	require.Nil(t, sum.States, "states of two stages are not stacked")
	require.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", sum.TraceID)
	require.InDelta(t, 900, *sum.E2E, 1e-9, "front end's clock: arrival to the last end, not a sum of stages")
	require.InDelta(t, 40, *sum.TTFT, 1e-9, "the entry stage's")
	d, ok := b.Request(sum.Key)
	require.True(t, ok)
	require.Len(t, d.Lanes, 2)
	require.NotEqual(t, d.Lanes[0].Clock, d.Lanes[1].Clock)
	for i, total := range []float64{690, 400} {
		require.Equal(t, i, d.Lanes[i].Stage)
		require.Zero(t, d.Lanes[i].Stays[0].Start)
		require.InDelta(t, total, *d.Lanes[i].Total, 1e-9)
	}
}

func TestSequencesOfARequestAreOneRowAndRepeatedIdsAreTwo(t *testing.T) {
	b := newBench(Options{})
	_, sink := b.replica(0, 0)
	for range 3 {
		sink.Finished(course{id: "n3", start: b.now, queued: 1, scheduled: 2, first: 3, last: 4}.record())
	}
	b.pass(time.Second)
	sink.Finished(course{id: "n3", start: b.now, queued: 1, scheduled: 2, first: 3, last: 9, aborted: true}.record())
	l := b.Requests("", 10)
	require.Len(t, l.Requests, 2)
	require.Equal(t, []int{1, 3}, []int{l.Requests[0].Sequences, l.Requests[1].Sequences})
	require.Equal(t, []string{"abort", "length"}, []string{l.Requests[0].Finish, l.Requests[1].Finish})
	require.Equal(t, 6, l.Requests[1].Output)
	require.InDelta(t, 3, l.Requests[1].States[0].MS, 1e-9, "of three sequences in one stage")
	r := first(b.State(60, 0))
	require.Equal(t, 2, r.Recent.Requests)
	require.Equal(t, 4, r.Recent.Sequences)
}

func TestSearchFindsEachFieldWhateverTheCase(t *testing.T) {
	b := newBench(Options{})
	_, sink := b.replica(0, 0)
	for i := range 30 {
		sink.Finished(course{id: fmt.Sprintf("cmpl-%02d", i), trace: fmt.Sprintf("ABCDEF%026d", i), start: b.now.Add(time.Duration(i)), queued: 1, scheduled: 2,
			first: 3, last: 4, aborted: i == 5}.record())
	}
	for query, n := range map[string]int{"": 30, "cmpl-07": 1, "CMPL-07": 1, "abcdef": 30, "-0-1": 30, "abort": 1, " abort ": 1, "nothing": 0, "<script>": 0} {
		l := b.Requests(query, 10)
		require.Equal(t, n, l.Matched, query)
		require.Len(t, l.Requests, min(n, 10), query)
		require.Equal(t, 30, l.Kept)
	}
	require.Equal(t, "cmpl-29", b.Requests("", 1).Requests[0].ID, "the last to end comes first")
}

func TestDroppedRequestsAreGone(t *testing.T) {
	b := newBench(Options{Keep: Keep{Requests: 1}})
	_, sink := b.replica(0, 0)
	sink.Finished(course{id: "a", start: b.now, queued: 1, scheduled: 2, first: 3, last: 4}.record())
	key := b.Requests("", 1).Requests[0].Key
	sink.Finished(course{id: "b", start: b.now, queued: 1, scheduled: 2, first: 3, last: 4}.record())
	_, ok := b.Request(key)
	require.False(t, ok)
}
