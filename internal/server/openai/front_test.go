package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
	"omni-engine/stages"
)

// fronts keeps what the server tells, and opens spans with fixed ids.
type fronts struct {
	mu      sync.Mutex
	callers []record.TraceContext
	ended   []*record.Front
	told    chan struct{}
}

func (f *fronts) Begin(caller record.TraceContext) record.TraceContext {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.callers = append(f.callers, caller)
	return record.TraceContext{TraceID: [16]byte{15: 7}, SpanID: [8]byte{7: 9}, Sampled: true, State: "own=1"}
}

func (f *fronts) FrontFinished(e *record.Front) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, e)
	close(f.told)
	f.told = make(chan struct{})
}

func traced(f *fronts) func(*Options, *Model, *stages.Options) {
	f.told = make(chan struct{})
	return func(o *Options, _ *Model, _ *stages.Options) { o.Tracer, o.Front = f, f }
}

// ended is a record whose core gave its first output.
func ended(core *clock.Manual) *record.Stage {
	s := record.Begin(record.Identity{}, clock.WallNow())
	at := core.Advance(time.Millisecond)
	s.ApplyOutput(at, clock.WallNow(), &request.Output{NewTokens: []int32{1}, Finish: request.FinishStop,
		Events: []request.Event{{Type: request.Queued, At: at}, {Type: request.Scheduled, At: at}}, Changes: []request.StateChange{{To: request.StateQueued, At: at}}}, nil)
	return s
}

func withRecord(u stages.Update, s *record.Stage) stages.Update { u.Record = s; return u }

const callerContext = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// The caller's context goes to the tracer; the engine gets the context of the request's own span. Nothing of it is in the answer,
// as in vLLM. Only generating requests are traced.
func TestTraceContextGoesFromHeadersToTheEngine(t *testing.T) {
	f := &fronts{}
	core := clock.NewManual(time.Second)
	play := script{updates: []stages.Update{withRecord(last(said("hi", 1), request.FinishStop), ended(core))}}
	r := &scripted{scripts: []script{play, play}}
	h := newTestServer(t, r, spelled{}, traced(f))
	w := post(t, h, "/v1/completions", `{"prompt":"a"}`, "traceparent", callerContext, "tracestate", "vendor=1")
	require.Equal(t, http.StatusOK, w.Code)
	require.Empty(t, w.Header().Get("traceparent"))
	w = post(t, h, "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}]}`, "traceparent", "nonsense")
	require.Equal(t, http.StatusOK, w.Code)
	for _, path := range []string{"/health", "/metrics", "/v1/models", "/version"} {
		q := httptest.NewRequest(http.MethodGet, path, nil)
		q.Header.Set("traceparent", callerContext)
		h.ServeHTTP(httptest.NewRecorder(), q)
	}
	require.Equal(t, http.StatusBadRequest, post(t, h, "/v1/completions", `{"prompt":"a","temperature":9}`, "traceparent", callerContext).Code)
	want := record.ParseTraceParent(callerContext)
	want.State = "vendor=1"
	require.Equal(t, []record.TraceContext{want, {}}, f.callers)
	for _, q := range r.requests() {
		require.Equal(t, "00-00000000000000000000000000000007-0000000000000009-01", q.TraceParent)
		require.Equal(t, "own=1", q.TraceState)
	}
	require.Len(t, f.ended, 2)
	require.Equal(t, "text_completion", f.ended[0].Operation)
	require.Equal(t, "chat", f.ended[1].Operation)
	require.Equal(t, 1, f.ended[0].Records)
	require.Equal(t, 1, f.ended[0].PromptTokens)
	require.Equal(t, http.StatusOK, f.ended[0].Status)
	require.Equal(t, "smollm2", f.ended[0].Model)
}

// Without a tracer the caller's context goes on as it came, for exemplars, and it is said once that nothing traces.
func TestTraceContextWithTracingOffIsPassedOnAndWarnedOnce(t *testing.T) {
	var log bytes.Buffer
	play := script{updates: []stages.Update{last(said("hi", 1), request.FinishStop)}}
	r := &scripted{scripts: []script{play, play}}
	s := newTestServer(t, r, spelled{}, nil)
	o, err := stages.New(stages.Options{}, r)
	require.NoError(t, err)
	s = New(Options{}, &Model{Names: []string{"m"}, Tokenizer: spelled{}, Limits: Limits{MaxModelLen: 2048, VocabSize: 49152}}, o, s, nil,
		slog.New(slog.NewTextHandler(&log, nil))).Handler()
	for range 2 {
		require.Equal(t, http.StatusOK, post(t, s, "/v1/completions", `{"prompt":"a"}`, "traceparent", callerContext).Code)
	}
	require.Equal(t, callerContext, r.requests()[1].TraceParent)
	require.Equal(t, 1, strings.Count(log.String(), "tracing is off"))
}

// First and last byte of a stream are those that the client could read: the first is told before the second update exists.
func TestStreamEdgeBytesAreMeasuredInTheWriter(t *testing.T) {
	f := &fronts{}
	pause := make(chan struct{})
	core := clock.NewManual(time.Second)
	r := &scripted{scripts: []script{{updates: []stages.Update{said("a", 1), withRecord(last(said("b", 2), request.FinishStop), ended(core))}, pause: pause}}}
	server := httptest.NewServer(newTestServer(t, r, spelled{}, traced(f)))
	defer server.Close()
	told := f.told
	begin := time.Now()
	resp, err := http.Post(server.URL+"/v1/completions", "application/json",
		strings.NewReader(`{"prompt":"a","stream":true,"stream_options":{"include_usage":true},"return_stage_metrics":true}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	_, err = in.ReadString('\n')
	require.NoError(t, err)
	read := time.Now()
	time.Sleep(20 * time.Millisecond)
	between := time.Now()
	close(pause)
	rest, err := io.ReadAll(in)
	require.NoError(t, err)
	<-told
	require.Len(t, f.ended[0].Edges, 1)
	e := f.ended[0].Edges[0]
	wall := func(i record.Instant) time.Time { return i.Wall(nil).Time() }
	require.Equal(t, []string{"core 0/0", "server", "server", ""}, []string{e.FirstOutput.Clock(), e.FirstByte.Clock(), e.LastByte.Clock(), e.FirstInput.Clock()})
	require.True(t, wall(e.FirstByte).After(begin))
	require.True(t, wall(e.FirstByte).Before(between), "the first byte left before the second update was there, at %v of %v", wall(e.FirstByte), read)
	require.True(t, wall(e.LastByte).After(between))
	sent, ok := e.SendTime().Get()
	require.True(t, ok)
	require.GreaterOrEqual(t, sent, 20*time.Millisecond)
	require.False(t, e.OutputLag().IsSet(), "two clocks")

	var usage struct {
		Metrics struct {
			Edges []map[string]any `json:"stream_edges"`
		} `json:"metrics"`
	}
	for _, line := range strings.Split(string(rest), "\n") {
		if data, ok := strings.CutPrefix(line, "data: {"); ok && strings.Contains(data, "stream_edges") {
			require.NoError(t, json.Unmarshal([]byte("{"+data), &usage))
		}
	}
	require.Len(t, usage.Metrics.Edges, 1)
	got := usage.Metrics.Edges[0]
	require.Nil(t, got["to_stage"])
	require.Nil(t, got["first_input_chunk"])
	require.Equal(t, map[string]any{"clock": "core 0/0", "ms": 0.0}, got["first_output_chunk"])
	require.Equal(t, "server", got["first_byte_sent"].(map[string]any)["clock"])
	require.Nil(t, got["last_byte_sent"], "it has not been sent yet")
	require.Nil(t, got["send_ms"])
}

// A whole answer keeps its length and is flushed, so that its last byte is a fact; before that its own metrics say null.
func TestWholeAnswersBytesAreMeasured(t *testing.T) {
	f := &fronts{}
	core := clock.NewManual(time.Second)
	text := strings.Repeat("long ", 2000)
	r := &scripted{scripts: []script{{updates: []stages.Update{withRecord(last(said(text, 1), request.FinishStop), ended(core))}}}}
	server := httptest.NewServer(newTestServer(t, r, spelled{}, traced(f)))
	defer server.Close()
	told := f.told
	resp, err := http.Post(server.URL+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"a","return_stage_metrics":true}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, int64(len(body)), resp.ContentLength)
	<-told
	e := f.ended[0].Edges[0]
	require.True(t, e.FirstByte.IsSet() && e.LastByte.IsSet())
	require.Contains(t, string(body), `"first_byte_sent":null`)
}

// A client that goes away ends its answer: the front is told, with the bytes that left until then.
func TestFrontOfAClientThatGoesAway(t *testing.T) {
	f := &fronts{}
	r := &scripted{scripts: []script{{updates: []stages.Update{said("a", 1)}, open: true}}}
	server := httptest.NewServer(newTestServer(t, r, spelled{}, traced(f)))
	defer server.Close()
	told := f.told
	resp, err := http.Post(server.URL+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"a","stream":true}`))
	require.NoError(t, err)
	_, err = bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	<-told
	require.Equal(t, 1, f.ended[0].Records, "its record is on its way to the sinks")
	require.Empty(t, f.ended[0].Failure)
	require.True(t, f.ended[0].Edges[0].FirstByte.IsSet())
	require.False(t, f.ended[0].Edges[0].FirstOutput.IsSet(), "no record was read")
}

// Keep-alive comments are no bytes of the answer.
func TestKeepAliveIsNoFirstByte(t *testing.T) {
	s := &sent{ResponseWriter: httptest.NewRecorder()}
	e := &events{w: s, ctl: http.NewResponseController(s), stop: func() {}}
	require.NoError(t, e.comment())
	require.False(t, s.first.IsSet())
	require.NoError(t, e.raw([]byte("{}")))
	require.True(t, s.first.IsSet())
	first := s.last
	require.NoError(t, e.comment())
	require.Equal(t, first, s.last)
}
