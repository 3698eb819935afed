package load

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func server(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func answer(w http.ResponseWriter, tokens int) {
	for i := range tokens {
		fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"t%d\"}]}\n\n", i)
		w.(http.Flusher).Flush()
	}
	fmt.Fprintf(w, ": comment\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":%d},\"metrics\":{\"stage_metrics\":{\"0\":{\"x\":1}}}}\n\ndata: [DONE]\n\n", tokens)
}

func TestFiguresAddUp(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	var inFlight, most atomic.Int64
	url := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			fmt.Fprint(w, `{"data":[{"id":"m"}]}`)
			return
		}
		n := inFlight.Add(1)
		defer inFlight.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		var p map[string]any
		require.NoError(t, json.NewDecoder(r.Body).Decode(&p))
		require.Equal(t, "m", p["model"])
		require.Len(t, p["prompt"], 7)
		answer(w, 3)
	})
	cfg := Config{BaseURL: url, NumPrompts: 20, InputLen: 4, PrefixLen: 3, OutputLen: 3, MaxConcurrency: 5, StageMetrics: true}
	out, took, err := Run(context.Background(), cfg)
	require.NoError(t, err)
	require.LessOrEqual(t, most.Load(), int64(5))
	r := Make(cfg, Summary{Metrics: []string{"ttft", "tpot", "itl", "e2el"}, Percentiles: []float64{50, 99}, Detailed: true}, out, took)
	v := r.Values()
	require.Equal(t, 20, v["completed"])
	require.Equal(t, 0, v["failed"])
	require.Equal(t, 60, v["total_output_tokens"])
	require.Equal(t, 140, v["total_input_tokens"])
	require.Len(t, v["itls"].([][]float64)[0], 2)
	require.Equal(t, "t0t1t2", v["generated_texts"].([]string)[19])
	require.Equal(t, map[string]any{"0": map[string]any{"x": 1.0}}, v["stage_metrics"].([]map[string]any)[3])
	var b strings.Builder
	_, err = r.WriteTo(&b)
	require.NoError(t, err)
	require.Contains(t, b.String(), "P99 ITL (ms):")
}

func TestFailuresAreCountedWithTheirReason(t *testing.T) {
	url := server(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("X-Request-Id") {
		case "b-0":
			http.Error(w, `{"error":{"message":"no"}}`, http.StatusServiceUnavailable)
		case "b-1":
			fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"x\"}]}\n\n")
		case "b-2":
			fmt.Fprint(w, "data: {\"error\":{\"message\":\"broke\"}}\n\ndata: [DONE]\n\n")
		default:
			answer(w, 1)
		}
	})
	cfg := Config{BaseURL: url, Model: "m", NumPrompts: 4, InputLen: 1, OutputLen: 1, RequestID: "b-"}
	out, took, err := Run(context.Background(), cfg)
	require.NoError(t, err)
	require.Contains(t, out[0].Error, "503")
	require.Contains(t, out[1].Error, "before [DONE]")
	require.Equal(t, "broke", out[2].Error)
	require.True(t, out[3].Success)
	v := Make(cfg, Summary{Detailed: true}, out, took).Values()
	require.Equal(t, 3, v["failed"])
	require.Equal(t, map[string]any{}, v["stage_metrics"].([]map[string]any)[0])
}

func TestPercentilesInterpolate(t *testing.T) {
	require.Equal(t, 2.5, percentile([]float64{1, 2, 3, 4}, 50))
	require.Equal(t, 4.0, percentile([]float64{1, 2, 3, 4}, 100))
	require.Zero(t, percentile(nil, 50))
}

func TestOverlapCountsWhatRunsAtOnce(t *testing.T) {
	o := func(at, took time.Duration) Outcome { return Outcome{Success: true, Start: at, Latency: took} }
	require.Equal(t, 2, overlap([]Outcome{o(0, 10), o(5, 10), o(15, 1)}))
}

func FuzzStreamReader(f *testing.F) {
	f.Add("data: {\"choices\":[{\"text\":\"x\"}]}\n\ndata: [DONE]\n\n")
	f.Add("data: {\"usage\":{}}\n\n: c\n")
	f.Fuzz(func(t *testing.T, s string) {
		var o Outcome
		_ = (&Config{}).read(strings.NewReader(s), time.Now(), &o)
	})
}
