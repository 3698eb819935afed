package metrics

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// startPrometheus starts Debian's server, which scrapes target each second, and returns a function that asks it a query.
func startPrometheus(t *testing.T, target string) func(query string) (results int, err error) {
	t.Helper()
	tool, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not installed (Debian's package prometheus)")
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, []byte("global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: omni\n  static_configs: [{targets: ['"+target+"']}]\n"), 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	cmd := exec.Command(tool, "--config.file="+config, "--storage.tsdb.path="+dir, "--web.listen-address="+address, "--log.level=warn",
		"--enable-feature=exemplar-storage")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return func(query string) (int, error) {
		r, err := http.Get("http://" + address + "/api/v1/query?query=" + url.QueryEscape(query))
		if err != nil {
			return 0, err
		}
		defer r.Body.Close()
		var answer struct {
			Status, Error string
			Data          struct{ Result []any }
		}
		if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
			return 0, err
		}
		if answer.Status != "success" {
			return 0, fmt.Errorf("%s: %s", query, answer.Error)
		}
		return len(answer.Data.Result), nil
	}
}

// dashboards reads the expressions of published dashboards, with their variables filled in.
func dashboards(t *testing.T) map[string]bool {
	t.Helper()
	root := os.Getenv("OMNI_TESTDATA")
	if root == "" {
		t.Skip("OMNI_TESTDATA does not name the folder of third-party test data")
	}
	data, err := os.ReadFile(filepath.Join(root, "textdata", "dashboard_queries.tsv"))
	require.NoError(t, err)
	out := map[string]bool{}
	for row := range strings.Lines(string(data)) {
		cols := strings.Split(strings.TrimRight(row, "\n"), "\t")
		if len(cols) != 4 || cols[0] != "vllm-project/vllm" || strings.Contains(cols[3], "label_values(") { // Grafana's own
			continue
		}
		q := strings.NewReplacer("<job>", "omni", "<model_name>", "smollm2", "<__rate_interval>", "5s", "<__range>", "10s",
			"<instance>", ".*", "<engine>", ".*").Replace(cols[3])
		out[q] = true
	}
	require.NotEmpty(t, out)
	return out
}

// TestPublishedDashboardsReadUsThroughARealPrometheus runs the queries of vLLM's own dashboards. Each that reads only
// families that this server exports must return data.
func TestPublishedDashboardsReadUsThroughARealPrometheus(t *testing.T) {
	if os.Getenv("OMNI_LONG") != "1" {
		t.Skip("OMNI_LONG=1 runs a real Prometheus for some seconds")
	}
	queries := dashboards(t)
	m := newTest(t, func(c *Config) {
		c.EngineLabel, c.KVCacheMetrics, c.ToolParser, c.SpeculativeK = true, true, true, 3
	})
	server := httptest.NewServer(m.Handler())
	defer server.Close()
	query := startPrometheus(t, strings.TrimPrefix(server.URL, "http://"))
	busy := record.Snapshot{Cache: cacheConfig()}
	busy.Stats.Running = 1
	require.NoError(t, m.SetSnapshotSource(0, 0, func() record.Snapshot { return busy }))
	c, sink := clock.NewManual(0), m.Sink(0, 0)
	require.Eventually(t, func() bool {
		run{clock: c, prompt: 12, tokens: 6, schedule: true, end: request.FinishLength, trace: "0af7651916cd43dd8448eb211c80319c"}.drive(sink, record.Identity{})
		sink.Step(&request.SchedulerStats{NumDrafts: 1, DraftTokens: 3, Accepted: 2, AcceptedPerPos: []int{1, 1, 0}}, nil)
		sink.KVBlockEvicted(clock.SpanOf(time.Second), clock.SpanOf(time.Second), []clock.Span{clock.SpanOf(time.Second)})
		m.HTTP().Observe("/v1/completions", "POST", 200, 10, 20, time.Second)
		n, err := query(`count_over_time(up{job="omni"}[10s]) >= 7 and up == 1`)
		return err == nil && n == 1
	}, time.Minute, 200*time.Millisecond, "Prometheus reads us")

	exported := parseText(t, scrape(t, m)).types
	name := regexp.MustCompile(`vllm:[a-z0-9_]+`)
	base := regexp.MustCompile(`_(bucket|sum|count)$`)
	ran, skipped := 0, map[string]bool{}
	for q := range queries {
		ours := true
		for _, family := range name.FindAllString(q, -1) {
			if exported[family] == "" && exported[base.ReplaceAllString(family, "")] == "" {
				ours = false
				skipped[family] = true
			}
		}
		// These divide by a rate and ask for more than 0; nothing moves these families without a connector or images.
		still := strings.Contains(q, "> 0") && (strings.Contains(q, "external_prefix_cache") || strings.Contains(q, "mm_cache"))
		if !ours || still || strings.Contains(q, "<") {
			continue
		}
		n, err := query(q)
		require.NoError(t, err)
		if n == 0 {
			t.Errorf("no data: %s", q)
			continue
		}
		ran++
	}
	t.Logf("%d of %d queries ran and returned data; families that others lack: %v", ran, len(queries), sortedKeys(skipped))
	require.Greater(t, ran, len(queries)/2)
}
