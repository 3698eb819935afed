package stages

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/enginetest"
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/scheduler"
)

// PS-01, PS-03, PS-10: the four fields are exactly the steps that they span.
func TestPhaseSplitOfOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{tokens: 8})
		defer b.stop(t)
		u := all(t, b.submit(t, ask("a", 20, 5))) // three prefill chunks, then four steps
		require.Equal(t, []any{0.0, 30.0, 40.0, 0}, fields(u.Record), "a measured zero is a zero")
		require.Equal(t, request.FinishLength, u.Record.Finish)
		require.Equal(t, 5, u.Record.NumGenerationTokens)
		ledgerExact(t, u.Record)
	})
}

func TestQueuedTimeIsTheSchedulersQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inbox []clock.Span
		b := start(t, options{seqs: 1, inboxWait: func(s clock.Span) { inbox = append(inbox, s) }})
		defer b.stop(t)
		first := b.submit(t, ask("a", 4, 10))
		time.Sleep(5 * time.Millisecond) // into the first step: the second lies 5 ms in the inbox
		second := b.submit(t, ask("b", 4, 1))
		all(t, first)
		u := all(t, second)
		require.Equal(t, []any{90.0, 10.0, 0.0, 0}, fields(u.Record), "queued from when the core added it")
		d, ok := inbox[1].Get()
		require.True(t, ok)
		require.Equal(t, 5*time.Millisecond, d, "the inbox is measured apart")
		d, ok = u.Record.InboxWait().Get()
		require.True(t, ok)
		require.Equal(t, 5*time.Millisecond, d)
		ledgerExact(t, u.Record)
	})
}

// PS-40: one output at the stop is all prefill and a measured zero of decode.
func TestPS40OneOutputIsPrefillAndZeroDecode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{})
		defer b.stop(t)
		require.Equal(t, []any{0.0, 10.0, 0.0, 0}, fields(all(t, b.submit(t, ask("a", 4, 1))).Record))
	})
}

// PS-15: recording off leaves every field absent, on every path.
func TestPS15RecordingOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{noRecord: true})
		defer b.stop(t)
		u := all(t, b.submit(t, ask("a", 4, 3)))
		require.Equal(t, []any{nil, nil, nil, nil}, fields(u.Record))
		require.Len(t, u.Output.NewTokens, 3)
		synctest.Wait()
		require.Zero(t, b.sink.tokens)
	})
}

// PS-12, and "a tiny KV cache gives the same tokens as an ample one".
func TestPreemptionStaysInsideItsIntervalAndChangesNoToken(t *testing.T) {
	run := func(blocks int) (tokens [][]int32, preempted int) {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, options{blocks: blocks})
			defer b.stop(t)
			var streams []Stream
			for i := range 6 {
				streams = append(streams, b.submit(t, ask(request.ID(fmt.Sprint("r", i)), 20, 40)))
			}
			for _, s := range streams {
				u := all(t, s)
				tokens = append(tokens, u.Output.NewTokens)
				n, ok := u.Record.Preemptions()
				require.True(t, ok)
				preempted += n
				ledgerExact(t, u.Record)
				d, _ := u.Record.DecodeTime().Get()
				if p, _ := u.Record.PreemptedTime().Get(); n > 0 {
					require.Positive(t, p)
					require.Less(t, p, d, "the preemption is inside decode")
				}
			}
			synctest.Wait()
			require.Equal(t, preempted, b.sink.preemptions, "PREEMPTED events over all requests (PS-72)")
			require.EqualValues(t, preempted, b.Snapshot().Totals.Preemptions)
			require.Zero(t, b.Snapshot().Stats.Usage)
		})
		return tokens, preempted
	}
	ample, none := run(1000)
	tiny, some := run(10)
	require.Zero(t, none)
	require.Positive(t, some)
	require.Equal(t, ample, tiny)
}

func TestAsynchronousLoopGivesTheSameTokens(t *testing.T) {
	run := func(depth, blocks int) (tokens [][]int32, took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, options{depth: depth, blocks: blocks})
			defer b.stop(t)
			begin := time.Now()
			var streams []Stream
			for i := range 8 {
				r := ask(request.ID(fmt.Sprint("r", i)), 10+i, 30)
				r.Sampling.Stop = []string{"zzzzzz"}
				streams = append(streams, b.submit(t, r))
			}
			for _, s := range streams {
				u := all(t, s)
				tokens = append(tokens, u.Output.NewTokens)
				ledgerExact(t, u.Record)
			}
			took = time.Since(begin)
		})
		return tokens, took
	}
	plain, _ := run(1, 1000)
	for _, depth := range []int{2, 3} {
		async, _ := run(depth, 1000)
		require.Equal(t, plain, async)
		async, _ = run(depth, 12)
		require.Equal(t, plain, async, "with preemptions")
	}
}

// PS-73: whatever state a request is in, an abort ends it with what was observed, and its blocks are free within a step.
func TestAbortInEveryStateFreesBlocksWithinAStep(t *testing.T) {
	cases := []struct {
		name  string
		opt   options
		after time.Duration
		want  []any
		setup func(t *testing.T, b *bench)
		req   func() *request.Request
	}{
		{name: "in the inbox", after: 0, want: []any{nil, nil, nil, nil},
			setup: func(t *testing.T, b *bench) { b.submit(t, ask("other", 4, 500)); time.Sleep(15 * time.Millisecond) }},
		{name: "prefill", opt: options{tokens: 8}, after: 15 * time.Millisecond, want: []any{0.0, nil, nil, 0},
			req: func() *request.Request { return ask("a", 100, 10) }},
		{name: "decode", after: 35 * time.Millisecond, want: []any{0.0, 10.0, 20.0, 0}},
		{name: "queued", opt: options{seqs: 1}, after: 25 * time.Millisecond, want: []any{nil, nil, nil, nil},
			setup: func(t *testing.T, b *bench) { b.submit(t, ask("other", 4, 500)); time.Sleep(time.Millisecond) }},
		{name: "parked", after: 25 * time.Millisecond, want: []any{nil, nil, nil, nil},
			req: func() *request.Request { r := ask("a", 4, 10); r.Wait = request.WaitInput; return r }},
		{name: "asynchronous decode", opt: options{depth: 2}, after: 35 * time.Millisecond, want: []any{0.0, 10.0, 20.0, 0}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t, c.opt)
				defer b.stop(t)
				if c.setup != nil {
					c.setup(t, b)
				}
				r := ask("a", 4, 100)
				if c.req != nil {
					r = c.req()
				}
				ctx, gone := context.WithCancel(context.Background())
				s, err := b.Submit(ctx, r)
				require.NoError(t, err)
				time.Sleep(c.after)
				gone()
				time.Sleep(stepTime + time.Nanosecond) // one step
				synctest.Wait()
				others := b.Snapshot().InCore
				u := all(t, s)
				require.Equal(t, request.FinishAbort, u.Record.Finish)
				require.Equal(t, c.want, fields(u.Record))
				if c.after > 0 {
					ledgerExact(t, u.Record)
				}
				if c.setup == nil {
					require.Zero(t, others)
					require.Zero(t, b.Snapshot().Stats.Usage, "all blocks are free")
				}
				require.Len(t, b.sink.finished, 1)
			})
		})
	}
}

func TestAbortWhilePreemptedFreesBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{blocks: 8})
		defer b.stop(t)
		first := b.submit(t, ask("a", 40, 60))
		second := b.submit(t, ask("b", 40, 60))
		for b.Snapshot().Totals.Preemptions == 0 {
			time.Sleep(stepTime)
		}
		require.NoError(t, b.Abort(request.FinishAbort, "b"))
		u := all(t, second)
		require.Equal(t, request.FinishAbort, u.Record.Finish)
		n, ok := u.Record.Preemptions()
		require.True(t, ok)
		require.Equal(t, 1, n)
		require.False(t, u.Record.PreemptedTime().IsSet(), "that interval has no end")
		ledgerExact(t, u.Record)
		require.Equal(t, request.FinishLength, all(t, first).Record.Finish)
		require.Zero(t, b.Snapshot().Stats.Usage)
	})
}

func TestStopStringEndsTheRequestInTheCore(t *testing.T) {
	for _, depth := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, options{depth: depth, runner: &enginetest.Runner{StepTime: stepTime,
				Next: func(_ *request.Request, pos int) int32 { return int32(pos) }}})
			defer b.stop(t)
			r := ask("a", 4, 500)
			r.Sampling.Stop = []string{"hi"}
			u := all(t, b.submit(t, r)) // e f g h i
			require.Equal(t, "efg", u.Text)
			require.Equal(t, "hi", u.StopText)
			require.Equal(t, []int32{4, 5, 6, 7, 8}, u.Output.NewTokens)
			require.Equal(t, request.FinishStop, u.Record.Finish)
			require.Equal(t, []any{0.0, 10.0, 40.0, 0}, fields(u.Record))
			time.Sleep(2 * stepTime)
			synctest.Wait()
			require.Zero(t, b.Snapshot().InCore)
			require.Zero(t, b.Snapshot().Stats.Usage)
			require.Len(t, b.sink.finished, 1)
		})
	}
}

// A reader of one byte a second holds up nobody, and its own decode time is the core's.
func TestSlowReaderDoesNotChangeDecodeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{})
		defer b.stop(t)
		s := b.submit(t, ask("a", 4, 100))
		total := 0
		var last Update
		for {
			u, err := s.Next(context.Background())
			require.NoError(t, err)
			total += len(u.Text)
			last = u
			if u.Done() {
				break
			}
			time.Sleep(time.Second)
		}
		require.Equal(t, 100, total)
		require.Equal(t, []any{0.0, 10.0, 990.0, 0}, fields(last.Record))
	})
}

// PS-36: input that never comes ends the request with reason error; the clock is exact and the blocks are free.
func TestPS36InputThatNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{inputWait: time.Minute})
		defer b.stop(t)
		begin := time.Now()
		r := ask("a", 4, 10)
		r.Wait = request.WaitInput
		s := b.submit(t, r)
		synctest.Wait()
		snap := b.Snapshot()
		require.Equal(t, 1, snap.Parked(request.WaitInput))
		require.Zero(t, snap.Stats.Running+snap.Waiting(), "parked is neither running nor waiting (PS-37)")
		u := all(t, s)
		require.Equal(t, time.Minute, time.Since(begin))
		require.Equal(t, request.FinishError, u.Record.Finish)
		require.Contains(t, u.Output.Err, "no input came within 1m0s")
		require.Equal(t, []any{nil, nil, nil, nil}, fields(u.Record))
		require.Zero(t, b.Snapshot().InCore)
	})
}

func TestDeliveredInputUnparks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{inputWait: 31 * time.Second})
		defer b.stop(t)
		r := ask("a", 4, 201)
		r.Wait = request.WaitInput
		s := b.submit(t, r)
		time.Sleep(30 * time.Second)
		require.NoError(t, b.Core().Deliver("a", request.Payload{Last: true}))
		u := all(t, s)
		require.Equal(t, []any{30000.0, 10.0, 2000.0, 0}, fields(u.Record), "the deadline is over with the delivery; queued includes the wait for the input (PS-30)")
		ledgerExact(t, u.Record)
		d, _ := u.Record.Ledger.Part(request.StateWaitingInput).Get()
		require.Equal(t, 30*time.Second, d)
	})
}

func TestFailedStepEndsItsRequestsAloneAndServingGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := func(step int, _ *scheduler.Decision) error {
			if step == 3 {
				return errors.New("bad luck")
			}
			return nil
		}
		b := start(t, options{runner: &enginetest.Runner{StepTime: stepTime, Fail: fail}})
		defer b.stop(t)
		u := all(t, b.submit(t, ask("a", 4, 10)))
		require.Equal(t, request.FinishError, u.Record.Finish)
		require.Contains(t, u.Output.Err, "bad luck")
		require.Equal(t, request.FinishLength, all(t, b.submit(t, ask("b", 4, 3))).Record.Finish)
		require.NoError(t, b.Health())
		require.Zero(t, b.Snapshot().Stats.Usage)
	})
}

func TestPanicInTheRunnerLosesNoRequestSilently(t *testing.T) {
	for _, depth := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			fail := func(step int, _ *scheduler.Decision) error {
				if step == 3 {
					panic("index out of range")
				}
				return nil
			}
			b := start(t, options{seqs: 1, depth: depth, runner: &enginetest.Runner{StepTime: stepTime, Fail: fail}})
			defer b.stop(t)
			running, queued := b.submit(t, ask("a", 4, 10)), b.submit(t, ask("b", 4, 10))
			for _, s := range []Stream{running, queued} {
				u := all(t, s)
				require.Equal(t, request.FinishError, u.Record.Finish)
				require.Contains(t, u.Output.Err, "index out of range")
			}
			synctest.Wait()
			require.Len(t, b.sink.finished, 2)
			require.ErrorIs(t, b.Health(), ErrDead)
			_, err := b.Submit(context.Background(), ask("c", 4, 10))
			require.ErrorIs(t, err, ErrDead)
			require.Zero(t, b.Load())
		})
	}
}

func TestHealthIsByProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		fail := func(step int, _ *scheduler.Decision) error {
			if step == 2 {
				<-hang
			}
			return nil
		}
		b := start(t, options{stall: time.Minute, runner: &enginetest.Runner{StepTime: stepTime, Fail: fail}})
		defer b.stop(t)
		time.Sleep(time.Hour)
		require.NoError(t, b.Health(), "idle is healthy")
		s := b.submit(t, ask("a", 4, 3))
		time.Sleep(50 * time.Second)
		require.NoError(t, b.Health())
		time.Sleep(11 * time.Second)
		require.ErrorIs(t, b.Health(), ErrStalled)
		close(hang)
		all(t, s)
		synctest.Wait()
		require.NoError(t, b.Health())
	})
}

// PS-74: the snapshot follows every change, and an idle core does nothing at all.
func TestPS74SnapshotNeverFreezesAndIdleIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := 0
		b := start(t, options{runner: &enginetest.Runner{StepTime: stepTime, OnStart: func(*scheduler.Decision) { steps++ }}})
		defer b.stop(t)
		ctx, gone := context.WithCancel(context.Background())
		for _, id := range []request.ID{"a", "b", "c"} {
			_, err := b.Submit(ctx, ask(id, 4, 1000))
			require.NoError(t, err)
		}
		time.Sleep(25 * time.Millisecond)
		snap := b.Snapshot()
		require.Equal(t, 3, snap.Stats.Running)
		require.Positive(t, snap.Stats.Usage)
		gone() // all clients vanish at once
		time.Sleep(stepTime)
		synctest.Wait()
		snap = b.Snapshot()
		require.Zero(t, snap.Stats.Running+snap.Waiting()+snap.InCore+snap.Inbox)
		require.Zero(t, snap.Stats.Usage)
		before, seen := snap, steps
		time.Sleep(time.Hour)
		require.Equal(t, seen, steps)
		require.Equal(t, before, b.Snapshot())
	})
}

func TestDrainRefusesAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{})
		defer b.stop(t)
		s := b.submit(t, ask("a", 4, 10))
		short, cancel := context.WithTimeout(context.Background(), 35*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, b.Drain(short), context.DeadlineExceeded)
		_, err := b.Submit(context.Background(), ask("b", 4, 10))
		require.ErrorIs(t, err, ErrClosed)
		begin := time.Now()
		require.NoError(t, b.Drain(context.Background()))
		require.Equal(t, 65*time.Millisecond, time.Since(begin))
		require.Equal(t, request.FinishLength, all(t, s).Record.Finish)
	})
}

func TestCloseAbortsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{seqs: 1})
		running, queued := b.submit(t, ask("a", 4, 1000)), b.submit(t, ask("b", 4, 10))
		time.Sleep(25 * time.Millisecond)
		b.stop(t)
		require.Equal(t, request.FinishAbort, all(t, running).Record.Finish)
		require.Equal(t, request.FinishAbort, all(t, queued).Record.Finish)
		require.Len(t, b.sink.finished, 2)
		require.True(t, b.runner.Closed)
		_, err := b.Submit(context.Background(), ask("c", 4, 10))
		require.ErrorIs(t, err, ErrClosed)
		b.stop(t)
	})
}

func TestPauseHoldsRequestsAndResumeGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{})
		defer b.stop(t)
		ctx := context.Background()
		require.NoError(t, b.Pause(ctx, true))
		s := b.submit(t, ask("a", 4, 2))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.True(t, b.Snapshot().Paused)
		require.Equal(t, 1, b.Snapshot().InCore)
		require.NoError(t, b.Resume(ctx))
		u := all(t, s)
		require.Equal(t, []any{60000.0, 10.0, 10.0, 0}, fields(u.Record))
		ledgerExact(t, u.Record)
		ok, err := b.ResetPrefixCache(ctx, false)
		require.NoError(t, err)
		require.True(t, ok)
	})
}

// An aborted request's deadline is no later request's, even under the same id.
func TestDeadlineEndsWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{inputWait: time.Minute})
		defer b.stop(t)
		r := ask("a", 4, 10)
		r.Wait = request.WaitInput
		s := b.submit(t, r)
		time.Sleep(59 * time.Second)
		require.NoError(t, b.Abort(request.FinishAbort, "a"))
		all(t, s)
		require.Equal(t, request.FinishLength, all(t, b.submit(t, ask("a", 4, 200))).Record.Finish)
	})
}

// When nothing runs and the head of the queue does not fit, the core waits for a message; it does not spin (time would stand
// still in the bubble).
func TestBlockedQueueDoesNotSpin(t *testing.T) {
	for _, depth := range []int{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, options{blocks: 8, depth: depth})
			defer b.stop(t)
			r := ask("s", 60, 3)
			r.Resumable = true
			session := b.submit(t, r)
			time.Sleep(time.Second) // parked now, and it keeps four of seven blocks
			big := b.submit(t, ask("big", 90, 2))
			time.Sleep(time.Hour)
			require.Equal(t, 1, b.Snapshot().Stats.Waiting)
			require.NoError(t, b.Health())
			require.NoError(t, b.Extend("s", marker))
			all(t, session)
			require.Equal(t, request.FinishLength, all(t, big).Record.Finish)
		})
	}
}

func TestTotalsOfTheSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{tokens: 8})
		defer b.stop(t)
		for _, id := range []request.ID{"a", "b"} { // the second finds two blocks of its prompt in the cache
			r := ask("x", 40, 5)
			r.ID = id
			all(t, b.submit(t, r))
		}
		synctest.Wait()
		got := b.Snapshot().Totals
		require.EqualValues(t, 10, got.GenerationTokens)
		require.EqualValues(t, 40+40-32, got.PromptTokens, "without those from the cache")
		require.EqualValues(t, 80, got.PrefixQueries)
		require.EqualValues(t, 32, got.PrefixHits)
		require.EqualValues(t, b.Snapshot().Step, got.GenerationTokens+4, "four steps were prefill chunks without output")
	})
}
