package tracing

import (
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"omni-engine/engine/request"
	"omni-engine/metrics/record"
)

// receiver is an OTLP endpoint over gRPC and HTTP/protobuf.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	mu      sync.Mutex
	got     []*collector.ExportTraceServiceRequest
	headers []string
	paths   []string
}

func (r *receiver) Export(ctx context.Context, in *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	r.keep(in, strings.Join(md.Get("x-tenant"), ","), "grpc")
	return &collector.ExportTraceServiceResponse{}, nil
}

func (r *receiver) keep(in *collector.ExportTraceServiceRequest, header, path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got, r.headers, r.paths = append(r.got, in), append(r.headers, header), append(r.paths, path)
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body := io.Reader(q.Body)
	if q.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(q.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = z
	}
	b, err := io.ReadAll(body)
	in := &collector.ExportTraceServiceRequest{}
	if err != nil || q.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(b, in) != nil {
		http.Error(w, "no protobuf", http.StatusBadRequest)
		return
	}
	r.keep(in, q.Header.Get("X-Tenant"), q.URL.Path)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (r *receiver) serveGRPC(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	collector.RegisterTraceServiceServer(s, r)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return l.Addr().String()
}

func (r *receiver) spans() (out []*otlp.Span) {
	for _, in := range r.got {
		for _, rs := range in.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				out = append(out, ss.Spans...)
			}
		}
	}
	return out
}

// Both protocols over the wire: what arrives is the tree, its ids and nanoseconds; OTEL_* headers and service name go with it.
func TestExportOverBothProtocols(t *testing.T) {
	for name, c := range map[string]struct {
		protocol, path string
		endpoint       func(*testing.T, *receiver) string
	}{
		"grpc, host:port": {"", "grpc", func(t *testing.T, r *receiver) string { return r.serveGRPC(t) }},
		"grpc, URL":       {"grpc", "grpc", func(t *testing.T, r *receiver) string { return "http://" + r.serveGRPC(t) }},
		"http, full URL": {"http/protobuf", "/custom/path", func(t *testing.T, r *receiver) string {
			s := httptest.NewServer(r)
			t.Cleanup(s.Close)
			return s.URL + "/custom/path"
		}},
		"http, host alone": {"http/protobuf", "/v1/traces", func(t *testing.T, r *receiver) string {
			s := httptest.NewServer(r)
			t.Cleanup(s.Close)
			return strings.TrimPrefix(s.URL, "http://")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, l := &receiver{}, newLife()
			t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a")
			t.Setenv("OTEL_SERVICE_NAME", "fleet")
			t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "region=eu")
			t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
			tr, err := New(t.Context(), Options{Endpoint: c.endpoint(t, r), Getenv: environment("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", c.protocol), Version: "1"})
			require.NoError(t, err)
			tr.Core(0, 0, l.pair)
			own := tr.Begin(record.ParseTraceParent(caller))
			tr.finished(l.usual(l.begin(record.Identity{Trace: own}), request.FinishError))
			tr.FrontFinished(front(own, l, 1))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			require.NoError(t, tr.Shutdown(ctx), "it flushes")
			require.Equal(t, Counts{Exported: 1}, tr.Counts())
			require.Equal(t, []string{"a"}, r.headers)
			require.Equal(t, []string{c.path}, r.paths)
			resource := map[string]string{}
			for _, kv := range r.got[0].ResourceSpans[0].Resource.Attributes {
				resource[kv.Key] = kv.Value.GetStringValue()
			}
			require.Equal(t, "fleet", resource["service.name"])
			require.Equal(t, "eu", resource["region"])
			byName := map[string]*otlp.Span{}
			for _, s := range r.spans() {
				byName[s.Name] = s
			}
			require.Len(t, byName, 6)
			root, stage := byName[requestSpan], byName["stage_0"]
			require.Equal(t, otlp.Span_SPAN_KIND_SERVER, root.Kind)
			require.Equal(t, otlp.Status_STATUS_CODE_ERROR, root.Status.Code)
			require.Equal(t, uint64(l.base.UnixNano()), root.StartTimeUnixNano)
			require.Equal(t, root.SpanId, stage.ParentSpanId)
			for _, phase := range []string{"queue", "prefill", "decode", "preempted"} {
				require.Equal(t, stage.SpanId, byName[phase].ParentSpanId, phase)
				require.Equal(t, root.TraceId, byName[phase].TraceId, phase)
			}
			require.Equal(t, uint64(l.base.Add(20*time.Millisecond).UnixNano()), byName["decode"].StartTimeUnixNano)
			require.Equal(t, uint64(l.base.Add(80*time.Millisecond).UnixNano()), byName["decode"].EndTimeUnixNano)
		})
	}
}

// Nobody listens: requests go on, one warning, and the end comes within its limit.
func TestNobodyListens(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			address := l.Addr().String()
			require.NoError(t, l.Close())
			var mu sync.Mutex
			var log strings.Builder
			life := newLife()
			tr, err := New(t.Context(), Options{Endpoint: address, Log: slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil)),
				Getenv: environment("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol, "OTEL_BSP_SCHEDULE_DELAY", "1", "OTEL_BSP_EXPORT_TIMEOUT", "50")})
			require.NoError(t, err, "a collector that is not there yet is no error")
			for range 3 {
				own := tr.Begin(record.TraceContext{})
				tr.FrontFinished(front(own, life, 0))
				require.Eventually(t, func() bool { return tr.Counts().Failed > 0 }, 10*time.Second, time.Millisecond)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			begin := time.Now()
			_ = tr.Shutdown(ctx)
			require.Less(t, time.Since(begin), 5*time.Second)
			c := tr.Counts()
			require.Equal(t, int64(3), c.Failed+c.Dropped)
			require.Equal(t, 1, strings.Count(log.String(), "traces cannot be exported"))
		})
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
