package record

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// core drives one record on a manual clock; times are milliseconds of the core's clock.
type core struct {
	clock *clock.Manual
	*Stage
	it Iteration
}

func newCore(id Identity) *core {
	return &core{clock: clock.NewManual(0), Stage: Begin(id, wall(0))}
}

func wall(ms int) clock.Wall {
	return clock.WallAt(time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond))
}

func (c *core) at(ms int) clock.Time { return c.clock.At(time.Duration(ms) * time.Millisecond) }

func (c *core) queued(ms int) request.Event { return request.Event{Type: request.Queued, At: c.at(ms)} }
func (c *core) scheduled(ms int) request.Event {
	return request.Event{Type: request.Scheduled, At: c.at(ms)}
}
func (c *core) preempted(ms int) request.Event {
	return request.Event{Type: request.Preempted, At: c.at(ms)}
}
func (c *core) to(s request.State, ms int) request.StateChange {
	return request.StateChange{To: s, At: c.at(ms)}
}

// step applies one output of n tokens that left the core at ms.
func (c *core) step(ms, n int, events ...request.Event) {
	c.ApplyOutput(c.at(ms), wall(ms), &request.Output{NewTokens: make([]int32, n), Events: events}, &c.it)
}

func (c *core) last(ms, n int, events ...request.Event) {
	c.ApplyOutput(c.at(ms), wall(ms), &request.Output{NewTokens: make([]int32, n), Events: events, Finish: request.FinishStop}, &c.it)
}

// terminal applies a record that the engine makes itself.
func (c *core) terminal(ms int, why request.FinishReason, events ...request.Event) {
	c.ApplyOutput(c.at(ms), wall(ms), &request.Output{Terminal: true, Finish: why, Events: events}, &c.it)
}

// none says that a span must be absent.
const none = -1

func wantMS(t *testing.T, want int, got clock.Span, what string) {
	t.Helper()
	ms, ok := got.Milliseconds()
	if want == none {
		require.False(t, ok, "%s must be absent, is %v ms", what, ms)
		return
	}
	require.True(t, ok, "%s is absent", what)
	require.Equal(t, float64(want), ms, what)
}

func (c *core) wantSplit(t *testing.T, queued, prefill, decode, preemptions int) {
	t.Helper()
	wantMS(t, queued, c.QueuedTime(), "queued")
	wantMS(t, prefill, c.PrefillTime(), "prefill")
	wantMS(t, decode, c.DecodeTime(), "decode")
	n, ok := c.Preemptions()
	require.Equal(t, preemptions != none, ok, "preemptions known")
	if ok {
		require.Equal(t, preemptions, n)
	}
	// The row says the same: null for absent, never 0.
	for i, name := range []string{VLLMQueuedMS, VLLMPrefillMS, VLLMDecodeMS, VLLMNumPreemptions} {
		want := []int{queued, prefill, decode, preemptions}[i]
		v := NewRow(c.Stage).Get(name)
		require.Equal(t, want != none, v.IsSet(), name)
		require.Equal(t, float64(max(want, 0)), v.Number(), name)
	}
}

func TestLaterQueuedOverwritesAndResumeDoesNotMoveScheduledPS01(t *testing.T) {
	c := newCore(Identity{})
	c.step(30, 1, c.queued(5), c.queued(10), c.scheduled(20))
	c.step(40, 1, c.preempted(32), c.scheduled(35))
	c.last(50, 1)
	c.wantSplit(t, 10, 10, 20, 1)
}

func TestEventsApplyBeforeTheOutputsOwnTimesPS02(t *testing.T) {
	c := newCore(Identity{})
	c.last(30, 1, c.queued(10), c.scheduled(25))
	c.wantSplit(t, 15, 5, 0, 0)
	require.Equal(t, c.at(30), c.FirstTokenTS)
}

func TestFirstOutputEndsPrefillWithoutATokenPS03(t *testing.T) {
	c := newCore(Identity{})
	c.step(30, 0, c.queued(10), c.scheduled(20))
	c.step(40, 1)
	c.last(70, 0)
	c.wantSplit(t, 10, 10, 40, 0)
	require.Equal(t, 1, c.NumGenerationTokens)
}

func TestEngineMadeEndSetsNoOutputTimesPS04PS73(t *testing.T) {
	c := newCore(Identity{})
	c.terminal(90, request.FinishAbort, c.queued(10), c.scheduled(20), c.preempted(30))
	c.wantSplit(t, 10, none, none, 1)
	require.False(t, c.LastTokenTS.IsSet())
	wantMS(t, none, c.UnscheduledWait(), "it was scheduled")

	c = newCore(Identity{})
	c.step(30, 1, c.queued(10), c.scheduled(20))
	c.step(50, 1)
	c.terminal(90, request.FinishAbort, c.preempted(60))
	c.wantSplit(t, 10, 10, 20, 1)

	c = newCore(Identity{}) // timed out before it was scheduled
	c.terminal(90, request.FinishError, c.queued(10))
	c.wantSplit(t, none, none, none, none)
	wantMS(t, 80, c.UnscheduledWait(), "unscheduled wait")
}

func TestPreemptionsStayInsideTheIntervalsPS10(t *testing.T) {
	c := newCore(Identity{})
	c.step(60, 1, c.queued(0), c.scheduled(10), c.preempted(20), c.scheduled(50))
	c.last(160, 1, c.preempted(70), c.scheduled(150))
	c.wantSplit(t, 10, 50, 100, 2)
	wantMS(t, 150, c.InferenceTime(), "inference")
	wantMS(t, 110, c.PreemptedTime(), "preempted")
}

func TestMissingIsNotZeroAndMeasuredZeroIsPS11(t *testing.T) {
	c := newCore(Identity{})
	c.last(10, 1, c.queued(10), c.scheduled(10))
	c.wantSplit(t, 0, 0, 0, 0)

	c = newCore(Identity{}) // QUEUED never seen
	c.last(10, 1, c.scheduled(5))
	c.wantSplit(t, none, 5, 0, 0)

	c = newCore(Identity{}) // a negative interval was not observed
	c.last(30, 1, c.scheduled(10), c.queued(20))
	c.wantSplit(t, none, 20, 0, 0)

	c = newCore(Identity{}) // no SCHEDULED
	c.last(30, 2, c.queued(20))
	c.wantSplit(t, none, none, 0, none)
}

func TestReadingsOfTwoClocksAreNeverSubtractedPS11(t *testing.T) {
	c, other := newCore(Identity{}), clock.NewManual(0)
	c.last(30, 1, request.Event{Type: request.Queued, At: other.At(time.Millisecond)}, c.scheduled(20))
	c.wantSplit(t, none, 10, 0, 0)
}

func TestFirstOutputWhileNotRecordingIsNeverReplacedByALaterOnePS11PS15(t *testing.T) {
	c := newCore(Identity{})
	c.SetRecording(false)
	c.step(30, 1, c.queued(10), c.scheduled(20))
	c.SetRecording(true)
	c.step(50, 1)
	c.last(60, 1)
	c.wantSplit(t, none, none, none, none)
	require.False(t, c.FirstTokenTS.IsSet())
	require.Equal(t, 3, c.NumGenerationTokens)

	c = newCore(Identity{}) // a resume seen after the gap is not the first SCHEDULED
	c.SetRecording(false)
	c.step(30, 1)
	c.SetRecording(true)
	c.last(60, 1, c.preempted(40), c.scheduled(50))
	c.wantSplit(t, none, none, none, none)
}

func TestPreemptionsAreKnownOnlyWithAScheduledPS12(t *testing.T) {
	c := newCore(Identity{})
	c.terminal(30, request.FinishAbort, c.queued(10))
	c.wantSplit(t, none, none, none, none)

	c = newCore(Identity{})
	c.terminal(30, request.FinishAbort, c.scheduled(10))
	c.wantSplit(t, none, none, none, 0)
}

func TestNotRecordingKeepsOnlyTheTokenCountPS15(t *testing.T) {
	c := newCore(Identity{})
	c.SetRecording(false)
	out := request.Output{NewTokens: []int32{1}, Events: []request.Event{c.queued(1)}, Changes: []request.StateChange{c.to(request.StateQueued, 1)}}
	at, now := c.at(5), wall(5)
	require.Zero(t, testing.AllocsPerRun(1000, func() { c.ApplyOutput(at, now, &out, &c.it) }), "recording off allocates nothing a step")
	c.last(10, 1)
	require.False(t, c.Recorded())
	c.wantSplit(t, none, none, none, none)
	require.Equal(t, Iteration{}, c.it)
	require.False(t, c.TTFT().IsSet() || c.E2E().IsSet() || c.TPOT().IsSet() || c.ITL().IsSet() || c.Ledger.Total().IsSet())
	require.Equal(t, 1002, c.NumGenerationTokens)
}

func TestRecordingTurnedOffBeforeTheEndLeavesNothingPS15(t *testing.T) {
	c := newCore(Identity{})
	c.step(30, 1, c.queued(10), c.scheduled(20))
	c.step(40, 1)
	c.SetRecording(false)
	c.last(50, 1)
	c.wantSplit(t, none, none, none, none)
	require.False(t, c.TTFT().IsSet() || c.TPOT().IsSet() || c.ITL().IsSet() || c.E2E().IsSet())
}

func TestOutputGapsAreTheFrontsAndSkipEmptyOutputs(t *testing.T) {
	c := newCore(Identity{})
	for _, o := range []struct{ at, wall, tokens int }{{10, 100, 0}, {20, 110, 1}, {30, 150, 0}, {40, 153, 1}, {50, 160, 1}} {
		c.ApplyOutput(c.at(o.at), wall(o.wall), &request.Output{NewTokens: make([]int32, o.tokens)}, &c.it)
	}
	require.Equal(t, []time.Duration{43 * time.Millisecond, 7 * time.Millisecond}, c.OutputGaps())
	wantMS(t, 110, c.FirstOutput(), "request start to the first output that holds something")
	require.Equal(t, 25.0, NewRow(c.Stage).Get(InterOutputMS).Number())
}

func TestArrivalAndEndAreTheFrontsClockPS22(t *testing.T) {
	c := newCore(Identity{})
	c.ApplyOutput(c.at(30), wall(130), &request.Output{NewTokens: []int32{1}, Events: []request.Event{c.queued(10), c.scheduled(20)}}, &c.it)
	c.ApplyOutput(c.at(70), wall(270), &request.Output{NewTokens: []int32{1, 2}, Finish: request.FinishLength}, &c.it)
	wantMS(t, 130, c.TTFT(), "ttft")
	wantMS(t, 270, c.E2E(), "e2e")
	wantMS(t, 20, c.TPOT(), "tpot: token weighted")
	wantMS(t, 40, c.ITL(), "itl: one sample a step")
	wantMS(t, 20, c.MeanTimePerOutputToken(), "mean")
	require.Equal(t, []time.Duration{40 * time.Millisecond}, c.ITLs())
}

func TestOneTokenHasNoTimePerOutputToken(t *testing.T) {
	c := newCore(Identity{})
	c.last(30, 1, c.queued(10), c.scheduled(20))
	require.False(t, c.MeanTimePerOutputToken().IsSet() || c.TPOT().IsSet() || c.ITL().IsSet())
}

func TestGenerationStageIsAllPrefillPS40(t *testing.T) {
	c := newCore(Identity{Type: LLMGeneration})
	c.last(500, 0, c.queued(0), c.scheduled(100))
	c.wantSplit(t, 100, 400, 0, 0)
}

func TestDiffusionStageHasNoSplitPS41(t *testing.T) {
	c := newCore(Identity{Type: Diffusion})
	c.last(500, 0, c.queued(0), c.scheduled(100))
	c.wantSplit(t, none, none, none, none)
}

func TestAFinishedRecordEndsOncePS24(t *testing.T) {
	c := newCore(Identity{})
	c.last(30, 1, c.queued(10), c.scheduled(20))
	c.terminal(90, request.FinishAbort, c.preempted(60))
	require.Equal(t, request.FinishStop, c.Finish)
	require.False(t, c.End(c.at(99), wall(99), request.FinishError, &c.it))
	c.wantSplit(t, 10, 10, 0, 0)
	require.Zero(t, c.it.Preemptions)
}

func TestPromptTokensCountAtTheFirstOutputElseAtTheEnd(t *testing.T) {
	c := newCore(Identity{})
	c.PromptTokens = 10
	c.ApplyOutput(c.at(1), wall(1), &request.Output{NewTokens: []int32{1}, Prefill: &request.PrefillStats{PromptTokens: 10, Computed: 4, Cached: 6, Local: 4, External: 2}}, &c.it)
	require.Equal(t, [5]int{10, 4, 4, 2, 1}, [5]int{c.it.PromptTokens, c.it.LocalCompute, c.it.LocalCacheHit, c.it.External, c.it.GenerationTokens})
	c.it.Reset()
	c.last(2, 1)
	require.Zero(t, c.it.PromptTokens)

	c = newCore(Identity{})
	c.PromptTokens = 7
	c.terminal(5, request.FinishAbort)
	require.Equal(t, 7, c.it.PromptTokens, "or the counter would differ from the per-request sum")
	require.Zero(t, c.it.Outputs)
}
