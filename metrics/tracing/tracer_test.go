package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kept is an exporter that keeps the spans; it can fail, and it can hang.
type kept struct {
	mu    sync.Mutex
	spans []sdk.ReadOnlySpan
	fail  error
	hang  bool
	shut  bool
}

func (k *kept) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if k.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail != nil {
		return k.fail
	}
	k.spans = append(k.spans, spans...)
	return nil
}

func (k *kept) Shutdown(context.Context) error { k.shut = true; return nil }

// environment is what Getenv reads.
func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func newTracer(t *testing.T, k *kept, log *slog.Logger, env ...string) *Tracer {
	t.Helper()
	tr, err := New(t.Context(), Options{Endpoint: "localhost:4317", Getenv: environment(env...), Version: "1", Exporter: k, Log: log})
	require.NoError(t, err)
	return tr
}

// tree prints spans with their parents, times in ms since base, and attributes: exact.
func (k *kept) tree(base time.Time, attributes bool) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var b strings.Builder
	var walk func(parent trace.SpanID, depth int)
	walk = func(parent trace.SpanID, depth int) {
		var level []sdk.ReadOnlySpan
		for _, s := range k.spans {
			if s.Parent().SpanID() == parent {
				level = append(level, s)
			}
		}
		slices.SortStableFunc(level, func(a, b sdk.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
		for _, s := range level {
			ms := func(t time.Time) float64 { return float64(t.Sub(base).Microseconds()) / 1000 }
			fmt.Fprintf(&b, "%s%s %v-%v\n", strings.Repeat("  ", depth), s.Name(), ms(s.StartTime()), ms(s.EndTime()))
			for _, e := range s.Events() {
				fmt.Fprintf(&b, "%s! %s %v", strings.Repeat("  ", depth), e.Name, ms(e.Time))
				for _, kv := range e.Attributes {
					fmt.Fprintf(&b, " %s=%s", kv.Key, kv.Value.String())
				}
				b.WriteByte('\n')
			}
			for _, kv := range s.Attributes() {
				if attributes {
					fmt.Fprintf(&b, "%s. %s=%s\n", strings.Repeat("  ", depth), kv.Key, kv.Value.String())
				}
			}
			walk(s.SpanContext().SpanID(), depth+1)
		}
	}
	root := trace.SpanID{}
	for _, s := range k.spans {
		if s.Name() == requestSpan {
			root = s.Parent().SpanID()
		}
	}
	walk(root, 0)
	return b.String()
}

func (k *kept) named(name string) []sdk.ReadOnlySpan {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []sdk.ReadOnlySpan
	for _, s := range k.spans {
		if s.Name() == name {
			out = append(out, s)
		}
	}
	return out
}

// life builds a record event by event: a core whose clock reads an hour when the wall reads base.
type life struct {
	core *clock.Manual
	pair clock.Pair
	base time.Time
}

func newLife() *life {
	m := clock.NewManual(time.Hour)
	base := time.Unix(1_700_000_000, 0).UTC()
	return &life{core: m, base: base, pair: clock.Pair{Core: m.Now(), Wall: clock.WallAt(base)}}
}

func (l *life) at(ms int) clock.Time {
	return l.core.At(time.Hour + time.Duration(ms)*time.Millisecond)
}
func (l *life) wall(ms int) clock.Wall {
	return clock.WallAt(l.base.Add(time.Duration(ms) * time.Millisecond))
}

func (l *life) begin(id record.Identity) *record.Stage {
	s := record.Begin(id, l.wall(0))
	s.PromptTokens, s.MaxTokens, s.Params = 12, 32, record.Params{Temperature: 0.7, TopP: 0.9, N: 1}
	s.SubmitTS = l.at(1)
	return s
}

type step struct {
	ms     int
	event  request.EventType
	state  request.State
	tokens int
	finish request.FinishReason
	made   bool // a record that the engine makes (PS-04)
	quiet  bool // state or event alone
}

const none request.EventType = 255

func (l *life) play(s *record.Stage, steps ...step) *record.Stage {
	for _, st := range steps {
		o := &request.Output{Finish: st.finish, Terminal: st.made || st.quiet, NewTokens: make([]int32, st.tokens)}
		if st.event != none {
			o.Events = []request.Event{{Type: st.event, At: l.at(st.ms)}}
		}
		if st.state != request.StateNone {
			o.Changes = []request.StateChange{{To: st.state, At: l.at(st.ms)}}
		}
		s.ApplyOutput(l.at(st.ms), l.wall(st.ms+1), o, nil)
	}
	return s
}

// usual is queued 2-5, prefill 5-20, decode 20-80 with a preemption 40-60.
func (l *life) usual(s *record.Stage, why request.FinishReason) *record.Stage {
	return l.play(s,
		step{ms: 2, event: request.Queued, state: request.StateQueued, quiet: true},
		step{ms: 5, event: request.Scheduled, state: request.StatePrefill, quiet: true},
		step{ms: 20, event: none, state: request.StateDecode, tokens: 1},
		step{ms: 40, event: request.Preempted, state: request.StatePreempted, quiet: true},
		step{ms: 60, event: request.Scheduled, state: request.StateRecompute, quiet: true},
		step{ms: 70, event: none, state: request.StateDecode, tokens: 1},
		step{ms: 80, event: none, tokens: 1, finish: why})
}

const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func front(own record.TraceContext, l *life, records int, edges ...record.StreamEdge) *record.Front {
	return &record.Front{RequestID: "cmpl-1", Trace: own, Operation: "text_completion", Model: "smollm2", Arrival: l.wall(0), End: l.wall(90),
		Records: records, PromptTokens: 12, Status: 200, Edges: edges}
}

// The whole tree of a request that was preempted, with vLLM's attributes in its units (seconds), the record's in milliseconds, and
// the core's times as wall times. The caller's context is the parent.
func TestRequestSpansAreTheRecordPS23(t *testing.T) {
	l, k := newLife(), &kept{}
	tr := newTracer(t, k, nil)
	tr.Core(0, 0, l.pair)
	parent := record.ParseTraceParent(caller)
	parent.State = "vendor=1"
	own := tr.Begin(parent)
	s := l.usual(l.begin(record.Identity{RequestID: "cmpl-1", CoreID: "cmpl-1-0", Model: "smollm2", Trace: own}), request.FinishLength)
	tr.Sink(record.Discard{}).Finished(s)
	tr.FrontFinished(front(own, l, 1, record.ClientEdge(s, l.wall(25), l.wall(88))))
	require.NoError(t, tr.Shutdown(t.Context()))
	require.True(t, k.shut)
	require.Equal(t, strings.TrimLeft(`
llm_request 0-90
! first_output_chunk 20 omni.edge.from=0 omni.edge.to=client omni.clock=core 0/0
! first_byte_sent 25 omni.edge.from=0 omni.edge.to=client omni.clock=server
! last_byte_sent 88 omni.edge.from=0 omni.edge.to=client omni.clock=server
. gen_ai.operation.name=text_completion
. gen_ai.provider.name=vllm
. gen_ai.request.model=smollm2
. gen_ai.request.id=cmpl-1
. http.response.status_code=200
. gen_ai.request.top_p=0.9
. gen_ai.request.max_tokens=32
. gen_ai.request.temperature=0.7
. gen_ai.request.n=1
. gen_ai.usage.prompt_tokens=12
. gen_ai.usage.completion_tokens=3
. gen_ai.usage.input_tokens=12
. gen_ai.usage.output_tokens=3
. gen_ai.response.finish_reasons=["length"]
. gen_ai.latency.e2e=0.081
. gen_ai.latency.time_to_first_token=0.021
. gen_ai.latency.time_in_queue=0.003
. gen_ai.latency.time_in_model_prefill=0.015
. gen_ai.latency.time_in_model_decode=0.06
. gen_ai.latency.time_in_model_inference=0.075
  stage_0 1-80
  . vllm_omni.stage.id=0
  . vllm_omni.stage.name=stage_0
  . vllm_omni.stage.replica_id=0
  . vllm_omni.stage.type=llm_ar
  . gen_ai.request.id=cmpl-1-0
  . finish_reason=length
  . num_tokens_out=3
  . gen_ai.usage.cached_tokens=0
  . vllm_queued_ms=3
  . vllm_prefill_ms=15
  . vllm_decode_ms=60
  . vllm_num_preemptions=1
  . vllm_preempted_ms=20
  . gen_ai.latency.time_to_first_token=0.021
  . gen_ai.latency.time_in_queue=0.003
  . gen_ai.latency.time_in_model_prefill=0.015
  . gen_ai.latency.time_in_model_decode=0.06
  . gen_ai.latency.time_in_model_inference=0.075
    queue 2-5
    . vllm_omni.stage.id=0
    prefill 5-20
    . vllm_omni.stage.id=0
    decode 20-80
    . vllm_omni.stage.id=0
    preempted 40-60
    . vllm_omni.stage.id=0
`, "\n"), k.tree(l.base, true))
	root := k.named(requestSpan)[0]
	require.Equal(t, trace.SpanKindServer, root.SpanKind())
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", root.SpanContext().TraceID().String())
	require.Equal(t, "b7ad6b7169203331", root.Parent().SpanID().String())
	require.Equal(t, "vendor=1", root.SpanContext().TraceState().String())
	require.Equal(t, own.SpanID, [8]byte(root.SpanContext().SpanID()), "what the engine was given is the span that its stages hang under")
	require.Equal(t, codes.Unset, root.Status().Code)
	require.Equal(t, Counts{Exported: 1}, tr.Counts())
}

// PS-11, PS-14: what was not observed gives neither a span nor an attribute, and never a zero.
func TestAbsentPhasesGiveNoSpanPS11PS14(t *testing.T) {
	for name, c := range map[string]struct {
		steps []step
		want  string
		code  codes.Code
		lacks []string
	}{
		"aborted while prefilled": {[]step{
			{ms: 2, event: request.Queued, state: request.StateQueued, quiet: true},
			{ms: 5, event: request.Scheduled, state: request.StatePrefill, quiet: true},
			{ms: 9, event: none, finish: request.FinishAbort, made: true},
		}, "llm_request 0-90\n  stage_0 1-9\n    queue 2-5\n", codes.Unset, []string{"time_to_first_token", "prefill", "decode", "inference"}},
		"timed out before it was scheduled": {[]step{
			{ms: 2, event: request.Queued, state: request.StateQueued, quiet: true},
			{ms: 9, event: none, finish: request.FinishError, made: true},
		}, "llm_request 0-90\n  stage_0 1-9\n    unscheduled_wait 2-9\n", codes.Error, []string{"time_in", "time_to", "vllm_queued", "preempt"}},
		"one token: a measured zero decode": {[]step{
			{ms: 2, event: request.Queued, state: request.StateQueued, quiet: true},
			{ms: 5, event: request.Scheduled, state: request.StatePrefill, quiet: true},
			{ms: 9, event: none, tokens: 1, finish: request.FinishStop},
		}, "llm_request 0-90\n  stage_0 1-9\n    queue 2-5\n    prefill 5-9\n    decode 9-9\n", codes.Unset, nil},
		"ended while preempted": {[]step{
			{ms: 2, event: request.Queued, state: request.StateQueued, quiet: true},
			{ms: 5, event: request.Scheduled, state: request.StatePrefill, quiet: true},
			{ms: 9, event: request.Preempted, state: request.StatePreempted, quiet: true},
			{ms: 12, event: none, finish: request.FinishAbort, made: true},
		}, "llm_request 0-90\n  stage_0 1-12\n    queue 2-5\n", codes.Unset, []string{"vllm_preempted_ms"}},
	} {
		t.Run(name, func(t *testing.T) {
			l, k := newLife(), &kept{}
			tr := newTracer(t, k, nil)
			tr.Core(0, 0, l.pair)
			own := tr.Begin(record.TraceContext{})
			tr.finished(l.play(l.begin(record.Identity{Trace: own}), c.steps...))
			tr.FrontFinished(front(own, l, 1))
			require.NoError(t, tr.Shutdown(t.Context()))
			require.Equal(t, c.want, k.tree(l.base, false))
			require.Equal(t, c.code, k.named(requestSpan)[0].Status().Code)
			for _, part := range c.lacks {
				require.NotContains(t, k.tree(l.base, true), part)
			}
		})
	}
}

// A downstream stage's waits are spans of their own, clipped as in the record; each stage's core has its own pair, and the times of
// a core without a pair cannot be drawn.
func TestWaitsOfAPipelineAreSpansPS31(t *testing.T) {
	l, other := newLife(), newLife()
	other.base, other.pair = l.base, clock.Pair{Core: other.core.Now(), Wall: clock.WallAt(l.base)}
	k := &kept{}
	tr := newTracer(t, k, nil)
	tr.Core(0, 0, l.pair)
	tr.Core(1, 2, other.pair)
	own := tr.Begin(record.TraceContext{})
	first := l.usual(l.begin(record.Identity{StageName: "thinker", Trace: own}), request.FinishStop)
	second := other.play(other.begin(record.Identity{StageID: 1, StageName: "vocoder", Type: record.LLMGeneration, Replica: 2, Trace: own,
		Waits: record.CanWaitInput | record.CanWaitChunk}),
		step{ms: 2, event: request.Queued, state: request.StateWaitingChunk, quiet: true},
		step{ms: 30, event: none, state: request.StateQueued, quiet: true},
		step{ms: 31, event: request.Scheduled, state: request.StatePrefill, quiet: true},
		step{ms: 40, event: none, state: request.StateWaitingChunk, tokens: 1},
		step{ms: 75, event: none, state: request.StateDecode, quiet: true},
		step{ms: 85, event: none, tokens: 1, finish: request.FinishStop})
	third := l.usual(l.begin(record.Identity{StageID: 2, Trace: own}), request.FinishStop) // no pair for this one
	for _, s := range []*record.Stage{first, second, third} {
		tr.finished(s)
	}
	p := &record.Pipeline{RequestID: "a", Trace: own, Arrival: l.wall(0), FinishedAt: l.wall(90), TokensIn: 12,
		Ends: []record.StageEnd{{Stage: first}, {Stage: second}, {Stage: third}}, Edges: []record.StreamEdge{{To: 1, ToReplica: 2}}}
	p.Edges[0].Observe(first)
	p.Edges[0].Observe(second)
	tr.PipelineFinished(p)
	require.NoError(t, tr.Shutdown(t.Context()))
	require.Equal(t, strings.TrimLeft(`
llm_request 0-90
! first_output_chunk 20 omni.edge.from=0 omni.edge.to=1 omni.clock=core 0/0
! first_input_chunk 30 omni.edge.from=0 omni.edge.to=1 omni.clock=core 1/2
  stage_2 0-81
  thinker 1-80
    queue 2-5
    prefill 5-20
    decode 20-80
    preempted 40-60
  vocoder 1-85
    queue 2-31
    input_wait 2-30
    prefill 31-40
    decode 40-85
    chunk_wait 40-75
`, "\n"), k.tree(l.base, false))
	text := k.tree(l.base, true)
	require.NotContains(t, strings.Split(text, "stage_2")[0], "time_in_queue", "the request has no queue time of its own: stages do not add up (PS-35)")
	require.Contains(t, text, "vllm_chunk_wait_ms=35")
}

// The caller's flag decides, unless OTEL_TRACES_SAMPLER says otherwise; what is not sampled gives no span and no exemplar.
func TestSamplingRespectsTheCallersFlag(t *testing.T) {
	unsampled := strings.TrimSuffix(caller, "01") + "00"
	for name, c := range map[string]struct {
		env    []string
		parent string
		want   bool
	}{
		"default, sampled":         {nil, caller, true},
		"default, not sampled":     {nil, unsampled, false},
		"default, no caller":       {nil, "", true},
		"always_on overrides":      {[]string{"OTEL_TRACES_SAMPLER", "always_on"}, unsampled, true},
		"always_off overrides":     {[]string{"OTEL_TRACES_SAMPLER", "always_off"}, caller, false},
		"parentbased_always_off":   {[]string{"OTEL_TRACES_SAMPLER", "parentbased_always_off"}, "", false},
		"parentbased, with caller": {[]string{"OTEL_TRACES_SAMPLER", "parentbased_always_off"}, caller, true},
		"ratio 0":                  {[]string{"OTEL_TRACES_SAMPLER", "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG", "0"}, "", false},
		"ratio 0, sampled caller":  {[]string{"OTEL_TRACES_SAMPLER", "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG", "0"}, caller, true},
		"ratio 1, traceidratio":    {[]string{"OTEL_TRACES_SAMPLER", "traceidratio", "OTEL_TRACES_SAMPLER_ARG", "1"}, unsampled, true},
	} {
		t.Run(name, func(t *testing.T) {
			l, k := newLife(), &kept{}
			tr := newTracer(t, k, nil, c.env...)
			own := tr.Begin(record.ParseTraceParent(c.parent))
			require.True(t, own.IsValid())
			require.Equal(t, c.want, own.Sampled)
			require.Equal(t, c.want, own.Exemplar() != "")
			if c.parent != "" {
				require.Equal(t, record.ParseTraceParent(c.parent).ID(), own.ID(), "the trace goes on either way")
			}
			tr.finished(l.usual(l.begin(record.Identity{Trace: own}), request.FinishStop))
			tr.FrontFinished(front(own, l, 1))
			require.NoError(t, tr.Shutdown(t.Context()))
			require.Equal(t, c.want, len(k.spans) > 0)
		})
	}
}

// A client that goes away ends the answer before the engine's record is there: the spans wait for it, and for a record that never
// comes they wait ten seconds.
func TestSpansWaitForTheLastRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := newLife(), &kept{}
		tr := newTracer(t, k, nil, "OTEL_BSP_SCHEDULE_DELAY", "100")
		a, b := tr.Begin(record.TraceContext{}), tr.Begin(record.TraceContext{})
		tr.FrontFinished(front(a, l, 1))
		tr.FrontFinished(front(b, l, 1))
		time.Sleep(time.Second)
		tr.finished(l.usual(l.begin(record.Identity{Trace: a}), request.FinishAbort))
		time.Sleep(200 * time.Millisecond)
		require.Len(t, k.named(requestSpan), 1, "complete: exported after the delay")
		require.Len(t, k.named("stage_0"), 1)
		time.Sleep(9 * time.Second)
		require.Len(t, k.named(requestSpan), 2)
		require.Len(t, k.named("stage_0"), 1, "of the second only the front is known")
		tr.finished(l.usual(l.begin(record.Identity{Trace: b}), request.FinishAbort)) // too late
		require.NoError(t, tr.Shutdown(t.Context()))
		require.Len(t, k.named(requestSpan), 2)
	})
}

// An end that the tracer does not know of, twice told, or of a record that was not kept, is nothing.
func TestForeignAndUnrecordedEndsAreIgnored(t *testing.T) {
	l, k := newLife(), &kept{}
	tr := newTracer(t, k, nil)
	tr.FrontFinished(front(record.ParseTraceParent(caller), l, 0))
	tr.finished(l.usual(l.begin(record.Identity{}), request.FinishStop))
	own := tr.Begin(record.TraceContext{})
	off := l.begin(record.Identity{Trace: own})
	off.SetRecording(false)
	tr.finished(l.usual(off, request.FinishStop))
	tr.FrontFinished(front(own, l, 0))
	tr.FrontFinished(front(own, l, 0))
	require.NoError(t, tr.Shutdown(t.Context()))
	require.NoError(t, tr.Shutdown(t.Context()), "a second time is nothing")
	require.Equal(t, "llm_request 0-90\n", k.tree(l.base, false))
	require.False(t, tr.Begin(record.TraceContext{}).SpanID == [8]byte{}, "after the end requests still get a context")
}

// A collector that is away costs nobody anything: one warning, everything counted, and one line when it is back.
func TestFailingExportWarnsOnceAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		l, k := newLife(), &kept{fail: errors.New("connection refused")}
		tr := newTracer(t, k, slog.New(slog.NewTextHandler(&log, nil)), "OTEL_BSP_SCHEDULE_DELAY", "10")
		one := func() {
			own := tr.Begin(record.TraceContext{})
			tr.FrontFinished(front(own, l, 0))
			time.Sleep(50 * time.Millisecond)
			synctest.Wait() // the log is the exporter's until it rests
		}
		for range 5 {
			one()
		}
		require.Equal(t, Counts{Failed: 5}, tr.Counts())
		require.Equal(t, 1, strings.Count(log.String(), "traces cannot be exported"))
		k.mu.Lock()
		k.fail = nil
		k.mu.Unlock()
		one()
		require.Contains(t, log.String(), "traces are exported again")
		require.Equal(t, Counts{Failed: 5, Exported: 1}, tr.Counts())
		require.NoError(t, tr.Shutdown(t.Context()))
	})
}

// A hanging collector fills the queue; the rest is dropped and counted, no call waits, and shutdown keeps its time limit.
func TestHangingExportNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := newLife(), &kept{hang: true}
		tr := newTracer(t, k, nil, "OTEL_BSP_MAX_QUEUE_SIZE", "4", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
		begin := time.Now()
		for range 20 {
			own := tr.Begin(record.TraceContext{})
			tr.FrontFinished(front(own, l, 0))
			synctest.Wait()
		}
		require.Zero(t, time.Since(begin), "the clock of the bubble moves only when everybody waits")
		require.Equal(t, int64(15), tr.Counts().Dropped, "one is being exported, four wait")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		require.NoError(t, tr.Shutdown(ctx))
		require.Equal(t, 2*time.Second, time.Since(begin))
		require.Equal(t, Counts{Dropped: 19, Failed: 1}, tr.Counts(), "every request is accounted for")
	})
}

func TestWrongSettingsAreToldAtStart(t *testing.T) {
	for _, c := range []struct{ endpoint, name, value, want string }{
		{"localhost:4317", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "unsupported OTLP protocol"},
		{"localhost:4317", "OTEL_EXPORTER_OTLP_PROTOCOL", "thrift", "unsupported OTLP protocol"},
		{"http://[::1", "", "", "--otlp-traces-endpoint"},
		{"ftp://host:1", "", "", "--otlp-traces-endpoint must be host:port or a URL"},
		{"", "", "", "--otlp-traces-endpoint must be"},
		{"localhost:4317", "OTEL_TRACES_SAMPLER", "jaeger_remote", "unknown sampler"},
		{"localhost:4317", "OTEL_TRACES_SAMPLER", "parentbased_", "unknown sampler"},
		{"localhost:4317", "OTEL_BSP_MAX_QUEUE_SIZE", "none", "OTEL_BSP_MAX_QUEUE_SIZE must be"},
	} {
		require.ErrorContains(t, Check(c.endpoint, environment(c.name, c.value)), c.want)
	}
	require.ErrorContains(t, Check("a:1", environment("OTEL_TRACES_SAMPLER", "traceidratio", "OTEL_TRACES_SAMPLER_ARG", "2")), "between 0 and 1")
	for _, ok := range []string{"localhost:4317", "http://localhost:4318/v1/traces", "https://collector.example", "grpc://localhost:4317", "[::1]:4317"} {
		require.NoError(t, Check(ok, environment()), ok)
	}
	require.True(t, Disabled(environment("OTEL_SDK_DISABLED", "TRUE")))
	require.False(t, Disabled(environment("OTEL_SDK_DISABLED", "1")), "the specification knows only true")
}
