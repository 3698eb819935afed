package record

import (
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
)

// segmentEnd applies the last output of a segment that does not end the request; payload makes it a multimodal one.
func (c *core) segmentEnd(ms, n int, payload bool, events ...request.Event) *Stage {
	o := &request.Output{NewTokens: make([]int32, n), Events: events, Finish: request.FinishStop, Segment: true}
	if payload {
		o.NewTokens, o.Payload = nil, &request.Payload{Name: "audio"}
	}
	c.ApplyOutput(c.at(ms), wall(ms), o, &c.it)
	return c.SegmentRecord(wall(ms), request.FinishStop)
}

func TestUpdateRestartsTheSegmentPS50(t *testing.T) {
	c := newCore(Identity{Waits: CanWaitChunk})
	c.segmentEnd(30, 2, false, c.queued(0), c.scheduled(10), c.preempted(12), c.scheduled(15))
	c.Restart(wall(100), 4)
	require.Equal(t, Times{}, c.Times)
	require.Equal(t, wall(100), c.Arrival)
	c.step(150, 1, c.queued(110), c.scheduled(120))
	c.last(170, 1)
	c.wantSplit(t, 10, 30, 20, 0)
	wantMS(t, 50, c.TTFT(), "the update's arrival to its first output")
	require.Equal(t, 2, c.NumGenerationTokens)
	require.Len(t, c.ITLs(), 1)
	require.Equal(t, 4, c.PromptTokens)
}

func TestOnlyTheTerminalEventCarriesTheSplitPS51(t *testing.T) {
	for _, multimodal := range []bool{false, true} {
		c := newCore(Identity{})
		seg := c.segmentEnd(30, 2, multimodal, c.queued(0), c.scheduled(10))
		require.False(t, c.Ended(), "the session lives on")
		for _, s := range []*Stage{seg, c.Stage} {
			for _, f := range SplitFields() {
				require.False(t, f.Value(s).IsSet(), "%s at a segment's end", f.Name)
			}
		}
		require.Equal(t, request.FinishStop, seg.Finish)
	}
}

func TestQueuedWithThePreviousSegmentsLastOutputIsAbsentPS52(t *testing.T) {
	c := newCore(Identity{})
	c.step(20, 1, c.queued(0), c.scheduled(10))
	seg := c.segmentEnd(30, 1, false, c.queued(25)) // the next segment's QUEUED arrives early
	require.False(t, NewRow(seg).Get(VLLMPrefillMS).IsSet())
	c.Restart(wall(30), 3)
	c.step(60, 1, c.scheduled(40))
	c.last(90, 1, c.preempted(65), c.scheduled(70))
	c.wantSplit(t, none, 20, 30, 1)
}

// TestEndMarkerCarriesTheLastSegmentOncePS53 puts the end marker before, with and after the last segment's output.
func TestEndMarkerCarriesTheLastSegmentOncePS53(t *testing.T) {
	for _, multimodal := range []bool{false, true} {
		end := func(c *core, segment bool) {
			o := &request.Output{NewTokens: []int32{1}, Finish: request.FinishStop, Segment: segment}
			if multimodal {
				o.NewTokens, o.Payload = nil, &request.Payload{}
			}
			c.ApplyOutput(c.at(50), wall(50), o, &c.it)
		}
		// Before, or with: the core's verdict on that output is terminal.
		c := newCore(Identity{})
		c.step(30, 1, c.queued(10), c.scheduled(20))
		end(c, false)
		c.wantSplit(t, 10, 10, 20, 0)
		c.terminal(80, request.FinishStop) // a late record changes nothing
		c.wantSplit(t, 10, 10, 20, 0)

		// After: the session is parked, the engine makes the record.
		c = newCore(Identity{})
		c.step(30, 1, c.queued(10), c.scheduled(20))
		end(c, true)
		c.wantSplit(t, none, none, none, none)
		c.terminal(80, request.FinishStop)
		c.wantSplit(t, 10, 10, 20, 0)
		require.Equal(t, c.at(80), c.EndTS)
	}
}

func TestLedgerGoesOnOverSegmentsPS32PS50(t *testing.T) {
	c := newCore(Identity{})
	apply := func(ms int, o request.Output) { c.ApplyOutput(c.at(ms), wall(ms), &o, &c.it) }
	apply(30, request.Output{NewTokens: []int32{1}, Finish: request.FinishStop, Segment: true, Changes: []request.StateChange{
		c.to(request.StateQueued, 0), c.to(request.StatePrefill, 10), c.to(request.StateDecode, 30)}})
	c.Restart(wall(60), 1)
	apply(90, request.Output{NewTokens: []int32{1}, Finish: request.FinishStop, Changes: []request.StateChange{
		c.to(request.StateWaitingSession, 32), c.to(request.StateQueued, 60), c.to(request.StatePrefill, 75), c.to(request.StateNone, 90)}})
	wantMS(t, 90, c.Ledger.Total(), "end − first QUEUED, over all segments")
	wantMS(t, 25, c.Ledger.Part(request.StateQueued), "queued")
	wantMS(t, 28, c.Ledger.Part(request.StateWaitingSession), "waiting for the user")
	wantMS(t, 35, c.Ledger.Part(request.StatePrefill), "prefill")
	wantMS(t, 2, c.Ledger.Part(request.StateDecode), "decode")
}
