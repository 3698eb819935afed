package stages

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
)

func openSession(t *testing.T, b *bench, n int) Stream {
	t.Helper()
	r := ask("s", 4, n)
	r.Resumable = true
	return b.submit(t, r)
}

func more(n int) request.Segment {
	s := request.DefaultSampling()
	s.MaxTokens, s.IgnoreEOS, s.Temperature = n, true, 0
	return request.Segment{Tokens: []int32{100, 101, 102}, Sampling: &s}
}

var marker = request.Segment{Last: true}

// PS-52: the second segment is queued while the first runs, so its QUEUED arrives together with the first's final output,
// before the restart: queued is absent, prefill, decode and preemptions are present. Segment 1 reports nothing (PS-51).
func TestPS52QueuedTogetherWithThePreviousFinalOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{})
		defer b.stop(t)
		s := openSession(t, b, 3)
		time.Sleep(5 * time.Millisecond)
		require.NoError(t, b.Extend("s", more(4)))
		require.NoError(t, b.Extend("s", marker))
		segments := 0
		var last Update
		for !last.Done() {
			u, err := s.Next(t.Context())
			require.NoError(t, err)
			if u.Output.Segment {
				segments++
				require.Nil(t, u.Record)
				synctest.Wait()
				require.Empty(t, b.sink.finished)
			}
			last = u
		}
		require.Equal(t, 1, segments)
		require.Equal(t, []any{nil, 10.0, 30.0, 0}, fields(last.Record))
		require.Equal(t, 4, last.Record.NumGenerationTokens)
		synctest.Wait()
		require.Len(t, b.sink.finished, 1)
		ledgerExact(t, last.Record)
	})
}

// PS-50: an update that finds the session parked is applied at once.
func TestPS50UpdateOfAParkedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{})
		defer b.stop(t)
		s := openSession(t, b, 3)
		time.Sleep(time.Second)
		synctest.Wait()
		snap := b.Snapshot()
		require.Equal(t, 1, snap.Parked(request.WaitSession))
		require.Equal(t, 1, snap.InCore)
		require.Zero(t, snap.Stats.Running+snap.Waiting())
		require.NoError(t, b.Extend("s", more(2)))
		require.NoError(t, b.Extend("s", marker))
		u := all(t, s)
		require.Equal(t, []any{0.0, 10.0, 10.0, 0}, fields(u.Record))
		require.Len(t, u.Output.NewTokens, 5)
		require.Equal(t, request.FinishLength, u.Record.Finish)
		ledgerExact(t, u.Record)
		idle, _ := u.Record.Ledger.Part(request.StateWaitingSession).Get()
		require.Equal(t, 970*time.Millisecond, idle)
	})
}

// PS-53: the marker before, with and after the last segment's output: the split comes once, of the last completed segment.
func TestPS53EndMarkerBeforeWithAndAfterTheLastOutput(t *testing.T) {
	for name, at := range map[string]time.Duration{
		"before any output": 5 * time.Millisecond, "with the last output": 25 * time.Millisecond, "after it, parked": time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t, options{})
				defer b.stop(t)
				s := openSession(t, b, 3)
				time.Sleep(at)
				require.NoError(t, b.Extend("s", marker))
				u := all(t, s)
				require.Equal(t, []any{0.0, 10.0, 20.0, 0}, fields(u.Record))
				require.Equal(t, request.FinishLength, u.Record.Finish)
				require.Len(t, u.Output.NewTokens, 3)
				synctest.Wait()
				require.Len(t, b.sink.finished, 1)
				require.Zero(t, b.Snapshot().InCore)
				require.Zero(t, b.Snapshot().Stats.Usage)
				ledgerExact(t, u.Record)
			})
		})
	}
}

func TestAbortedSessionFreesItsBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{})
		defer b.stop(t)
		s := openSession(t, b, 3)
		time.Sleep(time.Second)
		require.Positive(t, b.Snapshot().Stats.Usage, "a parked session keeps its blocks")
		require.NoError(t, b.Abort(request.FinishAbort, "s"))
		require.Equal(t, request.FinishAbort, all(t, s).Record.Finish)
		require.Zero(t, b.Snapshot().Stats.Usage)
		require.ErrorIs(t, b.Extend("s", more(2)), ErrUnknownRequest)
	})
}
