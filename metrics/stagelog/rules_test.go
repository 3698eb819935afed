package stagelog

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// finished returns a record whose split is queued, prefill, decode milliseconds; observed false leaves every endpoint out.
func finished(stageID int, observed bool, queued, prefill, decode int) *record.Stage {
	c := clock.NewManual(0)
	at := func(ms int) clock.Time { return c.At(time.Duration(ms) * time.Millisecond) }
	s := record.Begin(record.Identity{RequestID: "r", StageID: stageID}, wall(0))
	first := request.Output{NewTokens: []int32{1}}
	if observed {
		first.Events = []request.Event{{Type: request.Queued, At: at(0)}, {Type: request.Scheduled, At: at(queued)}}
	}
	if !observed {
		s.ApplyOutput(clock.Time{}, wall(50), &request.Output{Terminal: true, Finish: request.FinishAbort}, nil)
		return s
	}
	s.ApplyOutput(at(queued+prefill), wall(float64(queued+prefill)), &first, nil)
	s.ApplyOutput(at(queued+prefill+decode), wall(float64(queued+prefill+decode)), &request.Output{NewTokens: []int32{1}, Finish: request.FinishStop}, nil)
	return s
}

func stageTable(t *testing.T, records ...*record.Stage) string {
	t.Helper()
	a := NewAggregator("r", wall(0), 0)
	for _, s := range records {
		a.OnStage(s, s.FinishedAt)
	}
	return a.stageTable()
}

func line(table, field string) string {
	for l := range strings.Lines(table) {
		if strings.HasPrefix(l, "| "+field+" ") {
			return strings.Join(strings.Fields(strings.Trim(l, "|\n")), " ")
		}
	}
	return ""
}

func TestSplitRowsAreDroppedOnlyWhenAbsentEverywherePS20(t *testing.T) {
	one := stageTable(t, finished(0, true, 0, 20, 5))
	require.Equal(t, record.VLLMQueuedMS+" | 0.000", line(one, record.VLLMQueuedMS), "a measured 0 is shown")
	require.Equal(t, record.VLLMPrefillMS+" | 20.000", line(one, record.VLLMPrefillMS))
	require.Equal(t, record.VLLMNumPreemptions+" | 0", line(one, record.VLLMNumPreemptions))
	require.Equal(t, record.VLLMPreemptedMS+" | 0.000", line(one, record.VLLMPreemptedMS))
	require.Empty(t, line(one, record.VLLMInputWaitMS), "the stage cannot wait so")

	two := stageTable(t, finished(0, true, 10, 20, 5), finished(1, false, 0, 0, 0))
	require.Equal(t, record.VLLMQueuedMS+" | 10.000 | None", line(two, record.VLLMQueuedMS), "an absent cell beside a value")

	never := stageTable(t, finished(0, false, 0, 0, 0))
	for _, f := range record.SplitFields() {
		require.Empty(t, line(never, f.Name), f.Name)
	}
	require.Empty(t, line(never, record.ReplicaID), "vLLM-Omni's rule for the others: all 0 is dropped")
}

func TestARepeatedStageGetsANumberedColumn(t *testing.T) {
	table := stageTable(t, finished(0, true, 1, 1, 1), finished(0, true, 1, 1, 1), finished(1, true, 1, 1, 1))
	require.Equal(t, "Field | 0 | 0_2 | 1", line(table, "Field"))
}

func TestDuplexTableLeavesTheSplitOutAndFoldedRowsKeepItPS60PS61(t *testing.T) {
	a := NewDuplexAggregator("r", wall(0), 0)
	for _, s := range []*record.Stage{finished(0, false, 0, 0, 0), finished(0, true, 10, 20, 6), finished(0, false, 0, 0, 0)} {
		a.OnStage(s, s.FinishedAt)
	}
	a.OnFinalize(wall(100))
	row := a.Build().Stages[0].Stages
	require.Len(t, row, 1, "one column a stage")
	leftOut := []string{record.ServingFirstMS}
	for _, f := range record.SplitFields() {
		leftOut = append(leftOut, f.Name)
	}
	require.Len(t, record.DuplexStageTableExclude(), len(leftOut))
	for _, name := range leftOut {
		_, ok := (&column{cells: row[0]}).has(name)
		require.False(t, ok, "%s in stage_table", name)
		require.Empty(t, line(a.stageTable(), name), "%s in the table", name)
	}
	folded := a.Folded()[0]
	require.Equal(t, 10.0, folded.Get(record.VLLMQueuedMS).Number())
	require.Equal(t, 20.0, folded.Get(record.VLLMPrefillMS).Number(), "absence of the first and the last never hides it")
	require.Equal(t, 2, folded.Get(record.NumTokensOut).Int())
}

func TestSinkLogsAfterPassingOn(t *testing.T) {
	log, got := logTo(slog.LevelDebug)
	s := finished(0, true, 10, 20, 5)
	NewSink(record.Discard{}, log).Finished(s)
	require.Len(t, *got, 4, "overall, e2e, timing, stages")
	require.Contains(t, strings.Join(*got, "\n"), "[OmniTiming] req=r total=0.04s stages=[0:0.04s]")
	require.Equal(t, record.Discard{}, NewSink(record.Discard{}, nil))

	*got = nil
	off := record.Begin(record.Identity{}, wall(0))
	off.SetRecording(false)
	off.ApplyOutput(clock.Time{}, wall(1), &request.Output{Finish: request.FinishStop}, nil)
	NewSink(record.Discard{}, log).Finished(off)
	require.Empty(t, *got, "recording off: no log (PS-15)")
}

func TestThroughputLineIsVLLMs(t *testing.T) {
	th := Throughput{Device: "CPU"}
	at := func(sec float64) record.Snapshot { return record.Snapshot{Wall: wall(sec * 1000)} }
	_, _, ok := th.Next(at(0))
	require.False(t, ok)
	s := at(10)
	s.Stats.Running, s.Stats.Usage = 1, 0.003
	s.Totals = record.Totals{PromptTokens: 4, GenerationTokens: 2}
	s.RecentPrefix = record.CacheLookups{Requests: 1, Queries: 4}
	text, level, ok := th.Next(s)
	require.True(t, ok)
	require.Equal(t, slog.LevelInfo, level)
	require.Equal(t, "Engine 000: Avg prompt throughput: 0.4 tokens/s, Avg generation throughput: 0.2 tokens/s, Running: 1 reqs, Waiting: 0 reqs, CPU KV cache usage: 0.3%, Prefix cache hit rate: 0.0%", text)
	for i, want := range []slog.Level{slog.LevelInfo, slog.LevelDebug} { // the first idle line, then its repetition
		idle := at(20 + 10*float64(i))
		idle.Totals = s.Totals
		text, level, _ = th.Next(idle)
		require.Equal(t, want, level)
		require.NotContains(t, text, "Prefix cache", "nothing was looked up yet")
	}
	s = at(40)
	s.Stats.Skipped, s.KVFetch, s.Totals.Preemptions = 2, [3]int{1, 2, 3}, 5
	s.Totals.PromptTokens, s.Totals.GenerationTokens = 4, 2
	s.RecentPrefix = record.CacheLookups{Requests: 2, Queries: 8, Hits: 2}
	text, _, _ = th.Next(s)
	require.Equal(t, "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 2 reqs, Deferred: 2 reqs, "+
		"KV fetch: 1 waiting to start, 2 in progress, 3 completed waiting, Preemptions: 5, CPU KV cache usage: 0.0%, Prefix cache hit rate: 25.0%", text)
}

func TestSpeculationLineIsVLLMs(t *testing.T) {
	prev := record.Snapshot{Wall: wall(0)}
	s := record.Snapshot{Wall: wall(10000), Totals: record.Totals{Drafts: 3, DraftTokens: 9, AcceptedTokens: 1, AcceptedPerPos: []uint64{1, 0, 0}}}
	text, ok := Speculation(prev, s)
	require.True(t, ok)
	require.Equal(t, "SpecDecoding metrics: Mean acceptance length: 1.33, Accepted throughput: 0.10 tokens/s, Drafted throughput: 0.90 tokens/s, Accepted: 1 tokens, Drafted: 9 tokens, Per-position acceptance rate: 0.333, 0.000, 0.000, Avg Draft acceptance rate: 11.1%", text)
}
