package record

import (
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
)

func (c *core) apply(ms int, o request.Output) { c.ApplyOutput(c.at(ms), wall(ms), &o, &c.it) }

func TestQueueIncludesTheFirstInputWaitPS30PS31(t *testing.T) {
	c := newCore(Identity{Waits: CanWaitInput})
	c.apply(100, request.Output{NewTokens: []int32{1}, Finish: request.FinishStop,
		Events: []request.Event{c.queued(10), c.scheduled(80)},
		Changes: []request.StateChange{c.to(request.StateWaitingInput, 10), c.to(request.StateQueued, 60), c.to(request.StatePrefill, 80),
			c.to(request.StateNone, 100)}})
	c.wantSplit(t, 70, 20, 0, 0)
	wantMS(t, 50, c.InputWait(), "input wait")
	wantMS(t, none, c.ChunkWait(), "chunk wait: the stage cannot wait so")
	wantMS(t, none, c.KVWait(), "kv wait: the stage cannot wait so")
	wantMS(t, 0, c.PreemptedTime(), "never preempted is a measured 0")
	wantMS(t, none, c.UnscheduledWait(), "it was scheduled")
	wantMS(t, 20, c.SchedulerWait(), "the scheduler's own")
}

func TestChunkWaitsFallInsidePrefillAndDecodePS30PS31(t *testing.T) {
	c := newCore(Identity{Waits: CanWaitChunk})
	c.apply(100, request.Output{Events: []request.Event{c.queued(0), c.scheduled(30)}, Changes: []request.StateChange{
		c.to(request.StateWaitingChunk, 0), c.to(request.StateQueued, 20), c.to(request.StatePrefill, 30),
		c.to(request.StateWaitingChunk, 40), c.to(request.StatePrefill, 60), c.to(request.StateDecode, 100)}})
	c.apply(200, request.Output{NewTokens: []int32{1}, Changes: []request.StateChange{
		c.to(request.StateWaitingChunk, 110), c.to(request.StateDecode, 150)}})
	c.apply(400, request.Output{Terminal: true, Finish: request.FinishError, Changes: []request.StateChange{c.to(request.StateWaitingChunk, 250)}})
	c.wantSplit(t, 30, 70, 100, 0)
	wantMS(t, 20, c.InputWait(), "the first chunk's")
	wantMS(t, 60, c.ChunkWait(), "20 in prefill and 40 in decode; what follows the last output is outside")
	require.Equal(t, clipped(c), true)
}

// clipped is PS-31's inequality.
func clipped(c *core) bool {
	in, _ := c.InputWait().Get()
	kv, _ := c.KVWait().Get()
	q, _ := c.QueuedTime().Get()
	chunk, _ := c.ChunkWait().Get()
	p, _ := c.PrefillTime().Get()
	d, _ := c.DecodeTime().Get()
	return in+kv <= q && chunk <= p+d
}

func TestReceiversAndSendersKVWaitPS31PS33(t *testing.T) {
	c := newCore(Identity{Waits: CanReceiveKV})
	c.apply(100, request.Output{NewTokens: []int32{1}, Finish: request.FinishStop, Events: []request.Event{c.queued(10), c.scheduled(70)},
		Changes: []request.StateChange{c.to(request.StateWaitingKVLoad, 10), c.to(request.StateQueued, 50), c.to(request.StatePrefill, 70)}})
	wantMS(t, 40, c.KVWait(), "receiver")
	wantMS(t, 20, c.SchedulerWait(), "queue without the KV wait")

	// A deferred stop: the token-less kv_ready output moves the last timestamp, so decode includes the wait.
	c = newCore(Identity{Waits: CanSendKV})
	c.apply(40, request.Output{NewTokens: []int32{1}, Events: []request.Event{c.queued(10), c.scheduled(20)},
		Changes: []request.StateChange{c.to(request.StateQueued, 10), c.to(request.StatePrefill, 20), c.to(request.StateDecode, 40)}})
	c.apply(90, request.Output{KVReady: true, Finish: request.FinishLength,
		Changes: []request.StateChange{c.to(request.StateWaitingKVAck, 40), c.to(request.StateNone, 90)}})
	c.wantSplit(t, 10, 20, 50, 0)
	wantMS(t, 50, c.KVWait(), "sender")
	wantMS(t, 50, c.Ledger.Part(request.StateWaitingKVAck), "ledger")
}

func TestWaitsBeforeALaterQueuedAreOutsidePS01PS31(t *testing.T) {
	c := newCore(Identity{Waits: CanWaitInput})
	c.apply(100, request.Output{NewTokens: []int32{1}, Finish: request.FinishStop,
		Events:  []request.Event{c.queued(0), c.queued(50), c.scheduled(80)},
		Changes: []request.StateChange{c.to(request.StateWaitingInput, 0), c.to(request.StateQueued, 70), c.to(request.StatePrefill, 80)}})
	wantMS(t, 20, c.InputWait(), "clipped to [QUEUED, SCHEDULED]")
	require.True(t, clipped(c))
}

func TestEndingPreemptedLeavesThePreemptedTimeAbsentPS11PS31(t *testing.T) {
	c := newCore(Identity{})
	c.apply(100, request.Output{Terminal: true, Finish: request.FinishAbort,
		Events: []request.Event{c.queued(0), c.scheduled(10), c.preempted(20), c.scheduled(40), c.preempted(50)}})
	n, ok := c.Preemptions()
	require.True(t, ok)
	require.Equal(t, 2, n)
	wantMS(t, none, c.PreemptedTime(), "the second one has no end")
}

func TestRequeuedIsNoPreemptionPS34(t *testing.T) {
	c := newCore(Identity{})
	c.apply(100, request.Output{NewTokens: []int32{1}, Finish: request.FinishStop, Events: []request.Event{c.queued(0), c.scheduled(10), c.scheduled(60)},
		Changes: []request.StateChange{c.to(request.StateQueued, 0), c.to(request.StatePrefill, 10), c.to(request.StateRequeued, 40),
			c.to(request.StatePrefill, 60), c.to(request.StateNone, 100)}})
	c.wantSplit(t, 10, 90, 0, 0)
	wantMS(t, 20, c.Ledger.Part(request.StateRequeued), "requeued")
	wantMS(t, 0, c.PreemptedTime(), "preempted")
}

func TestUnscheduledWaitOnlyWithoutAScheduledPS31(t *testing.T) {
	c := newCore(Identity{Waits: CanWaitInput})
	c.apply(100, request.Output{Terminal: true, Finish: request.FinishError, Events: []request.Event{c.queued(10)},
		Changes: []request.StateChange{c.to(request.StateWaitingInput, 10), c.to(request.StateNone, 100)}})
	c.wantSplit(t, none, none, none, none)
	wantMS(t, 90, c.UnscheduledWait(), "unscheduled")
	wantMS(t, none, c.InputWait(), "its interval is absent")
}

func TestALaterQueuedOnALaterOutputForgetsEarlierWaitsPS01PS31(t *testing.T) {
	c := newCore(Identity{Waits: CanWaitInput | CanReceiveKV})
	c.apply(40, request.Output{Events: []request.Event{c.queued(0)}, Changes: []request.StateChange{
		c.to(request.StateWaitingInput, 0), c.to(request.StateWaitingKVLoad, 20), c.to(request.StateQueued, 30)}})
	c.apply(100, request.Output{NewTokens: []int32{1}, Finish: request.FinishStop, Events: []request.Event{c.queued(50), c.scheduled(80)}})
	wantMS(t, 30, c.QueuedTime(), "queued")
	wantMS(t, 0, c.InputWait(), "input wait")
	wantMS(t, 0, c.KVWait(), "kv wait")
}

// TestAChangeAfterTheOutputsTimeBelongsToTheNextOne: with asynchronous scheduling the next step's changes may ride along.
func TestAChangeAfterTheOutputsTimeBelongsToTheNextOne(t *testing.T) {
	c := newCore(Identity{Waits: CanWaitChunk})
	c.apply(100, request.Output{NewTokens: []int32{1}, Events: []request.Event{c.queued(0), c.scheduled(30)}, Changes: []request.StateChange{
		c.to(request.StateQueued, 0), c.to(request.StatePrefill, 30), c.to(request.StateWaitingChunk, 110)}})
	c.apply(200, request.Output{NewTokens: []int32{1}, Finish: request.FinishStop, Changes: []request.StateChange{
		c.to(request.StateDecode, 150), c.to(request.StateNone, 200)}})
	wantMS(t, 40, c.ChunkWait(), "from 110, not from the output at 100")
	wantMS(t, 40, c.Ledger.Part(request.StateWaitingChunk), "ledger")
}

func TestARestartedSegmentKeepsTheStateThatItIsInPS50(t *testing.T) {
	c := newCore(Identity{Waits: CanWaitChunk})
	c.apply(30, request.Output{NewTokens: []int32{1}, Finish: request.FinishStop, Segment: true, Changes: []request.StateChange{
		c.to(request.StateQueued, 0), c.to(request.StatePrefill, 10), c.to(request.StateWaitingChunk, 25)}})
	c.Restart(wall(30), 1)
	c.apply(90, request.Output{NewTokens: []int32{1}, Finish: request.FinishStop, Events: []request.Event{c.scheduled(40)},
		Changes: []request.StateChange{c.to(request.StatePrefill, 60)}})
	wantMS(t, 20, c.ChunkWait(), "from the SCHEDULED at 40 to 60")
}

// Each wait has its own enclosing interval: a sender's is [first SCHEDULED, last output], so it does not need QUEUED; a receiver's does.
func TestKVWaitNeedsItsOwnIntervalPS31(t *testing.T) {
	for waits, want := range map[Waits]int{CanSendKV: 50, CanReceiveKV: none, CanSendKV | CanReceiveKV: 50} {
		c := newCore(Identity{Waits: waits})
		c.apply(40, request.Output{NewTokens: []int32{1}, Events: []request.Event{c.scheduled(20)},
			Changes: []request.StateChange{c.to(request.StatePrefill, 20), c.to(request.StateDecode, 40)}})
		c.apply(90, request.Output{KVReady: true, Finish: request.FinishLength,
			Changes: []request.StateChange{c.to(request.StateWaitingKVAck, 40), c.to(request.StateNone, 90)}})
		wantMS(t, want, c.KVWait(), "kv wait")
	}
}
