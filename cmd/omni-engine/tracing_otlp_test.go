package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"omni-engine/internal/config"
	"omni-engine/metrics/record"
)

// seenSpan is a span as it arrived.
type seenSpan struct {
	TraceID, SpanID, Parent, Name string
	Begin, End                    int64
	Text                          map[string]string
	Number                        map[string]float64
	Events                        []string
}

// spanReceiver takes OTLP over HTTP, as protobuf (our exporter) and as JSON (a collector that passes it on).
type spanReceiver struct {
	mu    sync.Mutex
	spans []seenSpan
}

// otlpJSON is the part of OTLP's JSON that the tests read.
type otlpJSON struct {
	ResourceSpans []struct {
		ScopeSpans []struct {
			Spans []struct {
				TraceID      string `json:"traceId"`
				SpanID       string `json:"spanId"`
				ParentSpanID string `json:"parentSpanId"`
				Name         string
				Begin        string `json:"startTimeUnixNano"`
				End          string `json:"endTimeUnixNano"`
				Attributes   []struct {
					Key   string
					Value struct {
						StringValue *string
						IntValue    *string
						DoubleValue *float64
					}
				}
				Events []struct{ Name string }
			}
		}
	}
}

func (r *spanReceiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	b, err := io.ReadAll(q.Body)
	if err == nil && q.Header.Get("Content-Type") == "application/json" {
		err = r.json(b)
	} else if err == nil {
		err = r.protobuf(b)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (r *spanReceiver) json(b []byte) error {
	var in otlpJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	for _, rs := range in.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				out := seenSpan{TraceID: s.TraceID, SpanID: s.SpanID, Parent: s.ParentSpanID, Name: s.Name, Text: map[string]string{}, Number: map[string]float64{}}
				out.Begin, _ = strconv.ParseInt(s.Begin, 10, 64)
				out.End, _ = strconv.ParseInt(s.End, 10, 64)
				for _, a := range s.Attributes {
					switch v := a.Value; {
					case v.StringValue != nil:
						out.Text[a.Key] = *v.StringValue
					case v.IntValue != nil:
						out.Number[a.Key], _ = strconv.ParseFloat(*v.IntValue, 64)
					case v.DoubleValue != nil:
						out.Number[a.Key] = *v.DoubleValue
					}
				}
				for _, e := range s.Events {
					out.Events = append(out.Events, e.Name)
				}
				r.keep(out)
			}
		}
	}
	return nil
}

func (r *spanReceiver) protobuf(b []byte) error {
	in := &collector.ExportTraceServiceRequest{}
	if err := proto.Unmarshal(b, in); err != nil {
		return err
	}
	for _, rs := range in.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				out := seenSpan{TraceID: hex.EncodeToString(s.TraceId), SpanID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId), Name: s.Name,
					Begin: int64(s.StartTimeUnixNano), End: int64(s.EndTimeUnixNano), Text: map[string]string{}, Number: map[string]float64{}}
				for _, a := range s.Attributes {
					out.Text[a.Key] = a.Value.GetStringValue()
					out.Number[a.Key] = a.Value.GetDoubleValue() + float64(a.Value.GetIntValue())
				}
				for _, e := range s.Events {
					out.Events = append(out.Events, e.Name)
				}
				r.keep(out)
			}
		}
	}
	return nil
}

func (r *spanReceiver) keep(s seenSpan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, s)
}

// trace returns a trace's spans by name.
func (r *spanReceiver) trace(id string) map[string][]seenSpan {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string][]seenSpan{}
	for _, s := range r.spans {
		if s.TraceID == id {
			out[s.Name] = append(out[s.Name], s)
		}
	}
	return out
}

// callAPI posts a completion under a caller's context; its answer has begun.
func callAPI(ctx context.Context, t *testing.T, url, body, traceparent string) *http.Response {
	t.Helper()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", strings.NewReader(body))
	require.NoError(t, err)
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Traceparent", traceparent)
	resp, err := http.DefaultClient.Do(q)
	require.NoError(t, err)
	return resp
}

// ask returns a completion's body.
func ask(t *testing.T, url, body, traceparent string) []byte {
	t.Helper()
	resp := callAPI(t.Context(), t, url, body, traceparent)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, string(b))
	return b
}

// traceRequests runs a server with its real engine, whose spans go to the endpoint, through one request of each kind, and ends it. What
// the receiver has then is compared with what the answers said.
func traceRequests(t *testing.T, endpoint string, seen *spanReceiver) {
	t.Helper()
	cfg := config.Default()
	cfg.Model, cfg.Device, cfg.MaxNumSeqs, cfg.KVCacheBytes, cfg.Threads = tinyModel(t, "qwen3"), "ref", 8, 4<<20, 1 // the slow device: whoever leaves, leaves a running request
	cfg.ServedModelName, cfg.OTLPEndpoint = []string{"tiny"}, endpoint
	require.NoError(t, checkTracing(&cfg))
	a, err := newApp(t.Context(), &cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
	require.NoError(t, err)
	server := httptest.NewServer(a.handler)
	parent := func(trace byte, flags string) string {
		return fmt.Sprintf("00-%032x-00000000000000aa-%s", trace, flags)
	}
	id := func(trace byte) string { return fmt.Sprintf("%032x", trace) }

	var whole struct {
		Metrics struct {
			Stages map[string]map[string]any `json:"stage_metrics"`
		}
	}
	require.NoError(t, json.Unmarshal(ask(t, server.URL, `{"prompt":"abc","max_tokens":6,"ignore_eos":true,"temperature":0.5,"return_stage_metrics":true}`, parent(1, "01")), &whole))
	ask(t, server.URL, `{"prompt":"abc","max_tokens":4,"ignore_eos":true}`, parent(2, "00")) // the caller does not sample
	ask(t, server.URL, `{"prompt":"abc","max_tokens":4,"ignore_eos":true,"n":2,"temperature":1}`, parent(3, "01"))
	for k := range leaving {
		leave(t, server.URL, parent(firstLeaving+k, "01"))
	}
	m, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/metrics", nil)
	require.NoError(t, err)
	m.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	m.Header.Set("Traceparent", parent(5, "01"))
	scrape, err := http.DefaultClient.Do(m)
	require.NoError(t, err)
	text, err := io.ReadAll(scrape.Body)
	require.NoError(t, err)
	_ = scrape.Body.Close()
	// A bucket keeps the newest exemplar: which request's it is depends on how long each took.
	require.Regexp(t, `trace_id="0{30}(01|03|1[0-9])"`, string(text), "an exemplar leads to the trace")
	require.NotContains(t, string(text), id(2), "nobody keeps that trace")
	server.Close()
	require.NoError(t, a.close(t.Context()), "it flushes")
	for k := range leaving {
		require.Eventually(t, func() bool { return len(seen.trace(id(firstLeaving + k))["llm_request"]) == 1 }, 20*time.Second, 10*time.Millisecond)
	}

	one := seen.trace(id(1))
	require.Len(t, one, 5)
	root, stage := one["llm_request"][0], one["stage_0"][0]
	require.Equal(t, "00000000000000aa", root.Parent)
	require.Equal(t, root.SpanID, stage.Parent)
	require.Equal(t, []string{"first_output_chunk", "first_byte_sent", "last_byte_sent"}, root.Events)
	require.Equal(t, 3.0, root.Number["gen_ai.usage.prompt_tokens"])
	require.Equal(t, 6.0, root.Number["gen_ai.usage.completion_tokens"])
	require.Equal(t, 0.5, root.Number["gen_ai.request.temperature"])
	require.Equal(t, "tiny", root.Text["gen_ai.request.model"])
	said := whole.Metrics.Stages["0"]
	for phase, field := range map[string]string{"queue": record.VLLMQueuedMS, "prefill": record.VLLMPrefillMS, "decode": record.VLLMDecodeMS} {
		s := one[phase][0]
		require.Equal(t, stage.SpanID, s.Parent)
		require.InDelta(t, said[field], float64(s.End-s.Begin)/1e6, 1e-9, "%s in the answer and in the trace are one measurement", phase)
		require.InDelta(t, said[field], stage.Number[field], 1e-9)
		require.InDelta(t, time.Now().UnixNano(), s.Begin, float64(10*time.Minute), "a core's time is wall time now")
	}
	require.InDelta(t, said[record.VLLMQueuedMS].(float64)/1000, root.Number["gen_ai.latency.time_in_queue"], 1e-12)
	require.Empty(t, seen.trace(id(2)))
	require.Empty(t, seen.trace(id(5)), "/metrics is not traced")
	two := seen.trace(id(3))
	require.Len(t, two["llm_request"], 1)
	require.Len(t, two["stage_0"], 2, "one a sequence")
	require.Equal(t, 8.0, two["llm_request"][0].Number["gen_ai.usage.completion_tokens"])
	require.Equal(t, 3.0, two["llm_request"][0].Number["gen_ai.usage.prompt_tokens"], "the prompt counts once")
	ends := map[string]int{}
	for k := range leaving {
		gone := seen.trace(id(firstLeaving + k))
		require.Len(t, gone["stage_0"], 1)
		ends[gone["stage_0"][0].Text[record.FinishReasonField]]++
	}
	require.Positive(t, ends["abort"], "%v", ends)
	require.Equal(t, int(leaving), ends["abort"]+ends["length"])
}

// Several clients leave: the tiny model may be at its end before a client's leaving is seen.
const firstLeaving, leaving byte = 0x10, 10

// leave asks for a stream and goes after its first line.
func leave(t *testing.T, url, traceparent string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp := callAPI(ctx, t, url, `{"prompt":"abc","max_tokens":240,"ignore_eos":true,"stream":true}`, traceparent)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	_, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
}

func TestRequestsAreTracedOverOTLP(t *testing.T) {
	seen := &spanReceiver{}
	server := httptest.NewServer(seen)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
	traceRequests(t, server.URL, seen)
}

// The same through a real OpenTelemetry collector, in both protocols: what it decoded, batched and passed on is the same tree.
// scripts/test-collector.sh builds the collector and names it.
func TestRequestsAreTracedThroughARealCollector(t *testing.T) {
	binary := os.Getenv("OMNI_OTELCOL")
	if binary == "" {
		t.Skip("OMNI_OTELCOL names no collector; scripts/test-collector.sh builds one")
	}
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			seen := &spanReceiver{}
			server := httptest.NewServer(seen)
			defer server.Close()
			ports := freePorts(t, 2)
			file := filepath.Join(t.TempDir(), "collector.yaml")
			require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
receivers: {otlp: {protocols: {grpc: {endpoint: "127.0.0.1:%d"}, http: {endpoint: "127.0.0.1:%d"}}}}
exporters: {otlphttp: {endpoint: "%s", encoding: json, compression: none}, debug: {verbosity: detailed}}
service: {telemetry: {metrics: {level: none}}, pipelines: {traces: {receivers: [otlp], exporters: [otlphttp, debug]}}}
`, ports[0], ports[1], server.URL), 0o600))
			cmd := exec.Command(binary, "--config", file)
			out := &lockedText{}
			cmd.Stdout, cmd.Stderr = out, out
			require.NoError(t, cmd.Start())
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			require.Eventually(t, func() bool { return strings.Contains(out.String(), "Everything is ready") }, 30*time.Second, 20*time.Millisecond)
			t.Setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol)
			endpoint := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
			if protocol != "grpc" {
				endpoint = fmt.Sprintf("http://127.0.0.1:%d/v1/traces", ports[1])
			}
			traceRequests(t, endpoint, seen)
			require.Eventually(t, func() bool { return strings.Contains(out.String(), "gen_ai.latency.time_in_model_prefill: Double(") }, 10*time.Second, 20*time.Millisecond,
				"the collector's own print")
		})
	}
}

// lockedText is what a process printed so far.
type lockedText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		cfg := config.Default()
		cfg.Host, cfg.Port = "127.0.0.1", 0
		l, err := listen(&cfg)
		require.NoError(t, err)
		_, port, _ := strings.Cut(l.Addr().String(), ":")
		p, err := strconv.Atoi(port)
		require.NoError(t, err)
		ports = append(ports, p)
		require.NoError(t, l.Close())
	}
	return ports
}

func TestWrongTracingIsToldBeforeTheModelIsOpened(t *testing.T) {
	cfg := config.Default()
	cfg.Model, cfg.Port, cfg.OTLPEndpoint = filepath.Join(t.TempDir(), "absent.gguf"), 0, "ftp://collector"
	require.ErrorContains(t, serve(t.Context(), &cfg, io.Discard), "--otlp-traces-endpoint")
	cfg.OTLPEndpoint = "collector:4317"
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json")
	require.ErrorContains(t, serve(t.Context(), &cfg, io.Discard), "unsupported OTLP protocol")
	t.Setenv("OTEL_SDK_DISABLED", "true")
	require.NoError(t, checkTracing(&cfg), "nothing is read then")
	cmd := root()
	cmd.SetArgs([]string{"serve", "--collect-detailed-traces", "all"})
	require.Contains(t, explain(cmd.ExecuteContext(t.Context())), "remove it")
}
