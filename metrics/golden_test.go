package metrics

import (
	"os"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"omni-engine/metrics/record"
)

func textFormat() expfmt.Format { return expfmt.NewFormat(expfmt.TypeTextPlain) }

// scrape returns the text exposition.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	body, err := m.encode(textFormat(), false)
	require.NoError(t, err)
	return string(body)
}

// exposition is a parsed text scrape: each series (name and label text) with its value text, and each family's type.
type exposition struct {
	series map[string]string
	types  map[string]string
	order  []string // families
}

func parseText(t *testing.T, text string) exposition {
	t.Helper()
	out := exposition{series: map[string]string{}, types: map[string]string{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			if out.types[name] != "" {
				t.Fatalf("family %s is declared twice", name)
			}
			out.types[name] = kind
			out.order = append(out.order, name)
		}
		if line == "" || line[0] == '#' {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		if _, twice := out.series[line[:i]]; twice {
			t.Fatalf("series %s is written twice", line[:i])
		}
		out.series[line[:i]] = line[i+1:]
	}
	return out
}

// relabel turns a recorded series of plain vLLM into ours: stage and replica in place of engine, labels sorted.
func relabel(series string) string {
	name, labels, ok := strings.Cut(series, "{")
	if !ok || !strings.HasPrefix(name, "vllm:") {
		return series
	}
	pairs := regexp.MustCompile(`[a-z_]+="[^"]*"`).FindAllString(strings.TrimSuffix(labels, "}"), -1)
	var out []string
	for _, p := range pairs {
		if p == `engine="0"` {
			out = append(out, `replica="0"`, `stage="0"`)
		} else {
			out = append(out, p)
		}
	}
	sort.Strings(out)
	if name == "vllm:cache_config_info" { // its values are the machine's; the label names must be vLLM's
		for i := range out {
			out[i], _, _ = strings.Cut(out[i], "=")
		}
	}
	return name + "{" + strings.Join(out, ",") + "}"
}

func goldenText(t *testing.T, name string) exposition {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return parseText(t, string(data))
}

func cacheConfig() *record.CacheConfig {
	return &record.CacheConfig{BlockSize: 128, NumBlocks: 364, DType: "auto", MemoryBytes: 2147483648, SizeTokens: 46592,
		MaxConcurrency: 22.75, PrefixCaching: true, HashAlgo: "sha256", MemoryUtilization: 0.92}
}

func newTest(t *testing.T, change func(*Config)) *Metrics {
	t.Helper()
	cfg := Config{ModelName: "smollm2", Stages: []StageInfo{{}}, MaxModelLen: 2048}
	if change != nil {
		change(&cfg)
	}
	m, err := New(cfg)
	require.NoError(t, err)
	cache := cacheConfig()
	for _, s := range cfg.Stages {
		require.NoError(t, m.SetSnapshotSource(s.ID, 0, func() record.Snapshot { return record.Snapshot{Cache: cache} }))
	}
	return m
}

func only(e exposition, prefix string, skip ...string) (series, types []string) {
	left := func(name string) bool {
		for _, s := range skip {
			if strings.HasPrefix(name, s) {
				return false
			}
		}
		return strings.HasPrefix(name, prefix)
	}
	for s := range e.series {
		if left(s) {
			series = append(series, relabel(s))
		}
	}
	for name, kind := range e.types {
		if left(name) {
			types = append(types, name+" "+kind)
		}
	}
	sort.Strings(series)
	sort.Strings(types)
	return series, types
}

// sameSet fails with what one list lacks and the other has too much.
func sameSet(t *testing.T, want, got []string) {
	t.Helper()
	count := map[string]int{}
	for _, w := range want {
		count[w]++
	}
	for _, g := range got {
		count[g]--
	}
	for name, n := range count {
		switch {
		case n > 0:
			t.Errorf("missing: %s", name)
		case n < 0:
			t.Errorf("too much: %s", name)
		}
	}
	require.NotEmpty(t, want, "the golden holds something")
}

// TestFamiliesAreVLLMsExactlyPS71 compares every vllm:* series of a start without requests with recorded answers: family
// names, types, label names and values, bucket bounds as text, and nothing else.
func TestFamiliesAreVLLMsExactlyPS71(t *testing.T) {
	for _, c := range []struct {
		golden string
		change func(*Config)
		skip   []string
	}{
		{golden: "metrics_f32.txt"},
		{golden: "metrics_full.txt", change: func(c *Config) { c.SpeculativeK, c.KVCacheMetrics, c.ToolParser = 3, true, true }},
		{golden: "metrics_misc.txt", change: func(c *Config) { c.MaxLoRAs = 1 }, skip: []string{"vllm:lora_requests_info{"}}, // its series come with requests
		{golden: "metrics_disable_log_stats.txt", change: func(c *Config) { c.DisableVLLM = true }},
	} {
		t.Run(c.golden, func(t *testing.T) {
			wantSeries, wantTypes := only(goldenText(t, c.golden), "vllm:", c.skip...)
			gotSeries, gotTypes := only(parseText(t, scrape(t, newTest(t, c.change))), "vllm:")
			if c.golden == "metrics_disable_log_stats.txt" {
				require.Empty(t, append(append(wantTypes, wantSeries...), append(gotTypes, gotSeries...)...))
				return
			}
			sameSet(t, wantTypes, gotTypes)
			sameSet(t, wantSeries, gotSeries)
		})
	}
}

func TestFamiliesComeInVLLMsOrder(t *testing.T) {
	got := parseText(t, scrape(t, newTest(t, func(c *Config) { c.KVCacheMetrics = true }))).order
	var want []string
	for _, name := range goldenText(t, "metrics_f32.txt").order {
		if strings.HasPrefix(name, "vllm:") && name != "vllm:cache_config_info" {
			want = append(want, name)
		}
	}
	var seen []string
	for _, name := range got {
		if strings.HasPrefix(name, "vllm:") && !strings.HasPrefix(name, "vllm:kv_block") && name != "vllm:cache_config_info" {
			seen = append(seen, name)
		}
	}
	require.Equal(t, want, seen)
}

func TestCacheConfigInfoHasVLLMsValues(t *testing.T) {
	m := newTest(t, func(c *Config) { c.EngineLabel = true })
	for s := range goldenText(t, "metrics_f32.txt").series {
		if strings.HasPrefix(s, "vllm:cache_config_info") {
			want := regexp.MustCompile(`prefix_match_unit="None",`).ReplaceAllString(s, `prefix_match_unit="None",replayXX`)
			want = strings.Replace(want, `replayXXreplayssm_buffer_len="16",`, `replayssm_buffer_len="16",replica="0",`, 1)
			want = strings.Replace(want, `sliding_window="None",`, `sliding_window="None",stage="0",`, 1)
			require.Contains(t, parseText(t, scrape(t, m)).series, want)
			return
		}
	}
	t.Fatal("the golden has no cache_config_info")
}

// TestHTTPFamiliesAreTheInstrumentators replays one request a recorded series and compares the series sets.
func TestHTTPFamiliesAreTheInstrumentators(t *testing.T) {
	golden := goldenText(t, "metrics_f32.txt")
	m := newTest(t, nil)
	line := regexp.MustCompile(`^http_requests_total\{handler="([^"]*)",method="([^"]*)",status="(.)xx"\}$`)
	for s := range golden.series {
		if g := line.FindStringSubmatch(s); g != nil {
			m.HTTP().Observe(g[1], g[2], int(g[3][0]-'0')*100, 10, 20, 1)
		}
	}
	for _, excluded := range []string{"/metrics", "/health", "/load", "/ping", "/version", "/server_info"} {
		m.HTTP().Observe(excluded, "GET", 200, 0, 0, 1)
	}
	wantSeries, wantTypes := only(golden, "http_")
	gotSeries, gotTypes := only(parseText(t, scrape(t, m)), "http_")
	sameSet(t, wantTypes, gotTypes)
	sameSet(t, wantSeries, gotSeries)
}

// TestClientTextNeverBecomesALabelPS71 sends a method and a route that no server knows.
func TestClientTextNeverBecomesALabelPS71(t *testing.T) {
	m := newTest(t, nil)
	m.HTTP().Observe("", "BREW\"\n", 404, -1, 5, 1)
	require.Equal(t, "1.0", parseText(t, scrape(t, m)).series[`http_requests_total{handler="none",method="OTHER",status="4xx"}`])
	m.AdmissionRejected("whatever the client said")
	require.NotContains(t, scrape(t, m), "BREW")
	require.NotContains(t, scrape(t, m), "whatever")
}
