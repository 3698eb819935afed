package output

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// step is one output of one request at a core time in ms.
func step(c *clock.Manual, ms int, o request.Output) *request.StepOutputs {
	if o.StopToken == 0 {
		o.StopToken = -1
	}
	return &request.StepOutputs{At: c.At(time.Duration(ms) * time.Millisecond), Outputs: []request.Output{o}}
}

func events(c *clock.Manual, list ...any) (ev []request.Event) {
	for i := 0; i < len(list); i += 2 {
		ev = append(ev, request.Event{Type: list[i].(request.EventType), At: c.At(time.Duration(list[i+1].(int)) * time.Millisecond)})
	}
	return ev
}

func millis(t *testing.T, s clock.Span) float64 {
	t.Helper()
	v, ok := s.Milliseconds()
	require.True(t, ok, "the interval was observed")
	return v
}

func next(t *testing.T, s *Stream) Update {
	t.Helper()
	u, err := s.Next(context.Background())
	require.NoError(t, err)
	return u
}

func TestFinishedRequestIsToldOnceToSinkAndStream(t *testing.T) {
	c, k := clock.NewManual(0), &sink{}
	var aborted []request.ID
	p := New(Config{Tokenizer: bytesTokenizer{}, Sink: k, Abort: func(ids ...request.ID) { aborted = append(aborted, ids...) }})
	s, err := p.Add(newRequest("a"))
	require.NoError(t, err)
	_, err = p.Add(newRequest("a"))
	require.ErrorIs(t, err, ErrDuplicate)

	p.Process(step(c, 5, request.Output{ID: "a", NewTokens: ids("h"), Events: events(c, request.Queued, 1, request.Scheduled, 2)}))
	require.Equal(t, "h", next(t, s).Text)
	p.Process(step(c, 9, request.Output{ID: "a", NewTokens: ids("i"), Finish: request.FinishLength}))
	p.Process(step(c, 10, request.Output{ID: "a", NewTokens: ids("x"), Finish: request.FinishLength}))
	u := next(t, s)
	require.Equal(t, "i", u.Text)
	require.True(t, u.Done())
	require.Same(t, k.finished[0], u.Record)
	require.Len(t, k.finished, 1)
	require.Equal(t, [][2]int{{1, 2}}, k.parents)
	require.Equal(t, 2, k.prompt)
	require.Equal(t, 2, k.tokens)
	require.Equal(t, []float64{1, 3, 4}, []float64{millis(t, u.Record.QueuedTime()), millis(t, u.Record.PrefillTime()), millis(t, u.Record.DecodeTime())})
	_, err = s.Next(context.Background())
	require.ErrorIs(t, err, io.EOF)
	require.Empty(t, aborted)
	n, tokens := p.Load()
	require.Zero(t, n)
	require.Zero(t, tokens)
}

func TestStopStringEndsWithReasonStopAndAbortsTheCore(t *testing.T) {
	c, k := clock.NewManual(0), &sink{}
	var aborted []request.ID
	p := New(Config{Tokenizer: bytesTokenizer{}, Sink: k, Abort: func(ids ...request.ID) { aborted = append(aborted, ids...) }})
	s, err := p.Add(newRequest("a", "ND"))
	require.NoError(t, err)
	p.Process(step(c, 1, request.Output{ID: "a", NewTokens: ids("EN")}))
	p.Process(step(c, 2, request.Output{ID: "a", NewTokens: ids("Dxx"), Logprobs: []request.TokenLogprobs{{}, {}, {}}}))
	p.Terminal(c.At(3*time.Millisecond), []request.Output{{ID: "a", Finish: request.FinishStop, Terminal: true}})
	u := next(t, s)
	require.Equal(t, "E", u.Text)
	require.Equal(t, ids("END"), u.Output.NewTokens, "the stop string's tokens count, later ones do not")
	require.Len(t, u.Logprobs, 1)
	require.Equal(t, request.FinishStop, u.Output.Finish)
	require.Equal(t, "ND", u.StopText)
	require.Equal(t, "ND", u.Record.StopReason)
	require.Equal(t, []request.ID{"a"}, aborted)
	require.Len(t, k.finished, 1, "the abort that follows in the core is no second end")
	require.Equal(t, request.FinishStop, k.finished[0].Finish)
}

func TestChildrenCountOnceEachAndTheParentOnce(t *testing.T) {
	c, k := clock.NewManual(0), &sink{}
	p := New(Config{Sink: k})
	parent := request.NewParent(2)
	for _, id := range []request.ID{"0_a", "1_a"} {
		r := newRequest(id)
		r.Parent = parent
		_, err := p.Add(r)
		require.NoError(t, err)
	}
	p.Process(step(c, 1, request.Output{ID: "0_a", NewTokens: []int32{1, 2, 3}, Finish: request.FinishLength}))
	require.Empty(t, k.parents)
	p.Terminal(c.At(2), []request.Output{{ID: "1_a", Finish: request.FinishAbort, Terminal: true}})
	require.Len(t, k.finished, 2)
	require.Equal(t, [][2]int{{2, 3}}, k.parents)
}

func TestLostCoreEndsEveryRequestWithError(t *testing.T) {
	k := &sink{}
	p := New(Config{Sink: k})
	s, err := p.Add(newRequest("a"))
	require.NoError(t, err)
	lost := errors.New("device lost")
	p.Fail(lost)
	u := next(t, s)
	require.Equal(t, request.FinishError, u.Output.Finish)
	require.Equal(t, "device lost", u.Output.Err)
	require.Equal(t, request.FinishError, k.finished[0].Finish)
	_, err = p.Add(newRequest("b"))
	require.ErrorIs(t, err, lost)
}

func TestSlowReaderGetsStepsInOneUpdateAndOneWakeAStep(t *testing.T) {
	c := clock.NewManual(0)
	p := New(Config{Tokenizer: bytesTokenizer{}})
	s, err := p.Add(newRequest("a"))
	require.NoError(t, err)
	for i := range 1000 {
		p.Process(step(c, i, request.Output{ID: "a", NewTokens: ids("x")}))
		require.LessOrEqual(t, len(s.wake), 1)
	}
	u := next(t, s)
	require.Len(t, u.Text, 1000)
	require.Len(t, u.Output.NewTokens, 1000)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = s.Next(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestStreamIntervalGathersTokens(t *testing.T) {
	c := clock.NewManual(0)
	p := New(Config{Tokenizer: bytesTokenizer{}, StreamInterval: 3})
	s, _ := p.Add(newRequest("a"))
	var got []string
	for i := range 8 {
		o := request.Output{ID: "a", NewTokens: ids("x")}
		if i == 7 {
			o.Finish = request.FinishLength
		}
		p.Process(step(c, i, o))
		if u, ok, _ := s.take(); ok {
			got = append(got, u.Text)
		}
	}
	require.Equal(t, []string{"x", "xxx", "xxx", "x"}, got)
}

func TestRecordingOffKeepsNothing(t *testing.T) {
	c, k := clock.NewManual(0), &sink{}
	p := New(Config{Sink: k, NoRecord: true})
	s, _ := p.Add(newRequest("a"))
	p.Process(step(c, 5, request.Output{ID: "a", NewTokens: []int32{1}, Events: events(c, request.Queued, 1, request.Scheduled, 2), Finish: request.FinishLength}))
	r := next(t, s).Record
	require.False(t, r.Recorded())
	for _, span := range []clock.Span{r.QueuedTime(), r.PrefillTime(), r.DecodeTime(), r.TTFT(), r.E2E()} {
		require.False(t, span.IsSet())
	}
	_, ok := r.Preemptions()
	require.False(t, ok)
	require.Len(t, k.finished, 1)
}

// split returns the four fields; nil is absent.
func split(r *record.Stage) []any {
	show := func(s clock.Span) any {
		if v, ok := s.Milliseconds(); ok {
			return v
		}
		return nil
	}
	var n any
	if v, ok := r.Preemptions(); ok {
		n = v
	}
	return []any{show(r.QueuedTime()), show(r.PrefillTime()), show(r.DecodeTime()), n}
}

func addSession(t *testing.T, p *Processor) *Stream {
	t.Helper()
	r := newRequest("s")
	r.Resumable = true
	s, err := p.Add(r)
	require.NoError(t, err)
	return s
}

// PS-51, PS-52: segment 1 finishes with events and reports nothing; update; segment 2 reports prefill, decode and
// preemptions, queued absent, because its QUEUED came together with segment 1's final output.
func TestPS52LastSegmentQueuedWithThePreviousFinalOutput(t *testing.T) {
	c, k := clock.NewManual(0), &sink{}
	p := New(Config{Sink: k})
	s := addSession(t, p)
	require.NoError(t, p.Extend("s", request.Segment{Tokens: []int32{7}}))
	p.Process(step(c, 5, request.Output{ID: "s", NewTokens: []int32{1}, Finish: request.FinishLength, Segment: true,
		Events: events(c, request.Queued, 1, request.Scheduled, 2, request.Queued, 5)}))
	u := next(t, s)
	require.True(t, u.Output.Segment)
	require.Nil(t, u.Record, "a segment's end carries no split")
	require.Empty(t, k.finished)
	require.NoError(t, p.Extend("s", request.Segment{Last: true}))
	p.Process(step(c, 8, request.Output{ID: "s", NewTokens: []int32{2}, Events: events(c, request.Scheduled, 6, request.Preempted, 7, request.Scheduled, 7)}))
	p.Process(step(c, 12, request.Output{ID: "s", NewTokens: []int32{3}, Finish: request.FinishLength}))
	u = next(t, s)
	require.Equal(t, []any{nil, 2.0, 4.0, 1}, split(u.Record))
	require.Len(t, k.finished, 1)
	require.Equal(t, 3, u.Record.PromptTokens)
}

// PS-50: an update that finds the session parked is applied at once, so its QUEUED is seen after the restart.
func TestPS50UpdateOfAParkedSessionRestartsAtOnce(t *testing.T) {
	c, k := clock.NewManual(0), &sink{}
	p := New(Config{Sink: k})
	s := addSession(t, p)
	p.Process(step(c, 5, request.Output{ID: "s", NewTokens: []int32{1, 9}, Finish: request.FinishLength, Segment: true,
		Events: events(c, request.Queued, 1, request.Scheduled, 2)}))
	require.NoError(t, p.Extend("s", request.Segment{Tokens: []int32{7}}))
	require.NoError(t, p.Extend("s", request.Segment{Last: true}))
	p.Process(step(c, 30, request.Output{ID: "s", NewTokens: []int32{3}, Finish: request.FinishStop, Events: events(c, request.Queued, 10, request.Scheduled, 20)}))
	next(t, s)
	u := next(t, s)
	require.Equal(t, []any{10.0, 10.0, 0.0, 0}, split(u.Record))
	require.Equal(t, 1, u.Record.NumGenerationTokens, "counts restart too")
}

// PS-53: an end marker that finds the session parked: the engine's terminal record carries the last segment's split, once.
func TestPS53MarkerAfterTheLastSegment(t *testing.T) {
	c, k := clock.NewManual(0), &sink{}
	p := New(Config{Sink: k})
	s := addSession(t, p)
	p.Process(step(c, 5, request.Output{ID: "s", NewTokens: []int32{1}, Events: events(c, request.Queued, 1, request.Scheduled, 2)}))
	p.Process(step(c, 9, request.Output{ID: "s", NewTokens: []int32{1}, Finish: request.FinishLength, Segment: true}))
	require.NoError(t, p.Extend("s", request.Segment{Last: true}))
	p.Terminal(c.At(100*time.Millisecond), []request.Output{{ID: "s", Finish: request.FinishAbort, Terminal: true}})
	require.False(t, func() bool { u := next(t, s); return u.Done() }())
	u := next(t, s)
	require.Equal(t, []any{1.0, 3.0, 4.0, 0}, split(u.Record))
	require.Equal(t, request.FinishLength, u.Record.Finish, "the session ended as its last segment did")
	require.Len(t, k.finished, 1)
}

func TestPS53MarkerBeforeAndWithTheLastSegmentsOutput(t *testing.T) {
	for _, when := range []int{0, 1} { // before any output; before the final one
		c, k := clock.NewManual(0), &sink{}
		p := New(Config{Sink: k})
		s := addSession(t, p)
		for i := range 2 {
			if i == when {
				require.NoError(t, p.Extend("s", request.Segment{Last: true}))
			}
			o := request.Output{ID: "s", NewTokens: []int32{1}}
			if i == 0 {
				o.Events = events(c, request.Queued, 1, request.Scheduled, 2)
			} else {
				o.Finish = request.FinishLength
			}
			p.Process(step(c, 5+4*i, o))
		}
		u := next(t, s)
		require.True(t, u.Done())
		require.Equal(t, []any{1.0, 3.0, 4.0, 0}, split(u.Record))
		require.Len(t, k.finished, 1)
	}
}

func TestSessionWithStopStringsIsRefused(t *testing.T) {
	r := newRequest("s", "x")
	r.Resumable = true
	_, err := New(Config{}).Add(r)
	require.ErrorContains(t, err, "stop strings")
}

func TestSegmentsThatNobodyTakesAreRefused(t *testing.T) {
	p := New(Config{})
	require.ErrorIs(t, p.Extend("s", request.Segment{}), ErrUnknown)
	_, err := p.Add(newRequest("a"))
	require.NoError(t, err)
	require.ErrorIs(t, p.Extend("a", request.Segment{}), ErrNoSession)
	addSession(t, p)
	require.NoError(t, p.Extend("s", request.Segment{Last: true}))
	require.ErrorIs(t, p.Extend("s", request.Segment{Tokens: []int32{1}}), ErrMarked)
}
