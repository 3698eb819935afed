package record

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// TestLedgerPartsSumExactlyPS32 holds for random schedules in integer nanoseconds, whatever the split over outputs, segments
// and ends; readings that go back add nothing.
func TestLedgerPartsSumExactlyPS32(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := clock.NewManual(time.Duration(rapid.Int64Range(0, 1<<50).Draw(t, "start")))
		s := Begin(Identity{}, clock.WallAt(time.Unix(1, 0)))
		var want [request.NumStates]int64
		var state request.State
		var first, last clock.Time
		at := m.Now()
		for range rapid.IntRange(1, 8).Draw(t, "outputs") {
			var o request.Output
			for range rapid.IntRange(0, 6).Draw(t, "changes") {
				next := at.Add(time.Duration(rapid.Int64Range(-5, 1<<40).Draw(t, "gap")))
				to := request.State(rapid.IntRange(1, int(request.NumStates)-1).Draw(t, "state"))
				o.Changes = append(o.Changes, request.StateChange{To: to, At: next})
				if at.Before(next) {
					at = next
				}
				if !first.IsSet() {
					first, last = next, next
					at = next
				} else if d, _ := next.Sub(last).Get(); d > 0 {
					want[state] += int64(d)
					last = next
				}
				state = to
			}
			at = at.Add(time.Duration(rapid.Int64Range(0, 1000).Draw(t, "step")))
			o.Segment = rapid.Bool().Draw(t, "segment")
			if o.Segment {
				o.Finish = request.FinishStop
			}
			s.ApplyOutput(at, clock.Wall{}, &o, nil)
			if o.Segment {
				s.Restart(clock.Wall{}, 0)
			}
		}
		s.End(at, clock.Wall{}, request.FinishAbort, nil)
		if !first.IsSet() {
			require.False(t, s.Ledger.Total().IsSet(), "never queued: nothing was observed")
			return
		}
		if d, _ := at.Sub(last).Get(); d > 0 {
			want[state] += int64(d)
			last = at
		}
		total, ok := s.Ledger.Total().Get()
		require.True(t, ok)
		end, _ := last.Sub(first).Get()
		require.Equal(t, end, total, "end − first QUEUED")
		sum := time.Duration(0)
		for st := request.State(0); st < request.NumStates; st++ {
			part, _ := s.Ledger.Part(st).Get()
			require.Equal(t, want[st], int64(part), "%v", st)
			sum += part
		}
		require.Equal(t, total, sum, "the parts sum to the whole")
		stays, leftOut := s.Ledger.Stays()
		require.Zero(t, leftOut)
		var drawn [request.NumStates]int64
		border := first
		for i, stay := range stays {
			require.Equal(t, border, stay.From, "the course has no gap")
			require.True(t, i == 0 || stays[i-1].State != stay.State, "equal neighbours are one")
			length, _ := stay.Length().Get()
			drawn[stay.State] += int64(length)
			border = stay.To
		}
		require.Equal(t, want, drawn, "the course has the parts' lengths")
	})
}

func TestLedgerOfALostReplicaIsAbsentPS32PS72(t *testing.T) {
	c := newCore(Identity{})
	c.apply(10, request.Output{NewTokens: []int32{1}, Changes: []request.StateChange{c.to(request.StateQueued, 0)}})
	parts, ok := c.Ledger.Running(c.at(25))
	require.True(t, ok)
	require.Equal(t, 25*time.Millisecond, parts[request.StateQueued], "a live view")
	require.False(t, c.Ledger.Total().IsSet(), "it lives on")
	require.True(t, c.End(clock.Time{}, wall(30), request.FinishError, nil))
	require.False(t, c.Ledger.Total().IsSet() || c.Ledger.Part(request.StateQueued).IsSet())
	wantMS(t, 30, c.E2E(), "the front's clock still knows")
}

func TestLedgerKeepsABoundedCourse(t *testing.T) {
	m := clock.NewManual(time.Second)
	var l Ledger
	for i := range MaxStays + 10 {
		l.Enter([]request.State{request.StateDecode, request.StateWaitingChunk}[i%2], m.Advance(time.Millisecond))
	}
	stays, _ := l.Stays()
	require.Empty(t, stays, "it lives on")
	l.End(m.Advance(time.Millisecond))
	stays, leftOut := l.Stays()
	require.Len(t, stays, MaxStays)
	require.Equal(t, 10, leftOut)
	since, _ := l.Since(stays[1].From).Get()
	require.Equal(t, time.Millisecond, since)
	total, _ := l.Total().Get()
	require.Equal(t, (MaxStays+10)*time.Millisecond, total, "the parts go on")
}
