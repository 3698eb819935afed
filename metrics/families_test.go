package metrics

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// everything switches on whatever adds a family.
func everything(c *Config) {
	c.Stages = []StageInfo{{ID: 0, KVConsumer: true}, {ID: 1, Audio: true}, {ID: 2, Type: record.Diffusion}}
	c.SpeculativeK, c.MaxLoRAs = 3, 2
	c.KVCacheMetrics, c.ToolParser, c.ComputeNaNs, c.SleepEndpoints, c.Realtime = true, true, true, true, true
}

// curated is one row of the curated list of families.
type curated struct {
	name, kind string
	labels     map[string][]string // values where they are bounded
	buckets    []string            // as text in the Python client's form, +Inf included
}

func curatedFamilies(t *testing.T, file string) []curated {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	require.NoError(t, err)
	one := regexp.MustCompile(`([a-z_]+)(?:\{([^}]*)\})?`)
	var out []curated
	for line := range strings.Lines(string(data)) {
		cols := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if line[0] == '#' || len(cols) < 6 || cols[0] == "name" {
			continue
		}
		c := curated{name: cols[0], kind: cols[1], labels: map[string][]string{}}
		text, _, _ := strings.Cut(cols[3], " ")
		for _, m := range one.FindAllStringSubmatch(text, -1) {
			c.labels[m[1]] = nil
			if m[2] != "" {
				c.labels[m[1]] = strings.Split(m[2], "|")
			}
		}
		bounds := cols[4]
		if i := strings.Index(bounds, "(2048 => "); i >= 0 {
			bounds = strings.TrimSuffix(bounds[i+len("(2048 => "):], ")")
		}
		bounds = strings.TrimPrefix(bounds, "client default: ")
		if c.kind == "histogram" && !strings.Contains(bounds, "same list") {
			for _, b := range strings.Split(bounds, ",") {
				f, err := strconv.ParseFloat(b, 64)
				require.NoError(t, err, "%s: %s", c.name, bounds)
				c.buckets = append(c.buckets, string(appendFloat(nil, f)))
			}
			c.buckets = append(c.buckets, "+Inf")
		}
		out = append(out, c)
	}
	return out
}

// notApplicable reads the list of docs/metrics.md: families of vLLM that this engine has no counterpart of, and why. A name may end in *.
func notApplicable(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	_, text, ok := strings.Cut(string(data), "## Families of vLLM that do not apply")
	require.True(t, ok)
	text, _, _ = strings.Cut(text, "\n## ")
	out := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\| (.*) \\|$").FindAllStringSubmatch(text, -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			out[name[1]] = row[2]
		}
	}
	return out
}

func whyNot(list map[string]string, name string) (pattern, why string) {
	for p, why := range list {
		if p == name || (strings.HasSuffix(p, "*") && strings.HasPrefix(name, strings.TrimSuffix(p, "*"))) {
			return p, why
		}
	}
	return "", ""
}

// seen is what an exposition says of a family.
type seen struct {
	labels  map[string]map[string]bool // without le
	buckets []string                   // of one series, in order
}

func (e exposition) family(name, kind string) seen {
	out := seen{labels: map[string]map[string]bool{}}
	if kind == "histogram" || kind == "summary" {
		name += map[string]string{"histogram": "_bucket", "summary": "_count"}[kind]
	}
	bounds := map[string]float64{}
	pair := regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
	for s := range e.series {
		rest, ok := strings.CutPrefix(s, name)
		if !ok || (rest != "" && rest[0] != '{') {
			continue
		}
		for _, p := range pair.FindAllStringSubmatch(rest, -1) {
			if p[1] == "le" {
				bounds[p[2]], _ = strconv.ParseFloat(p[2], 64)
				continue
			}
			if out.labels[p[1]] == nil {
				out.labels[p[1]] = map[string]bool{}
			}
			out.labels[p[1]][p[2]] = true
		}
	}
	for b := range bounds {
		out.buckets = append(out.buckets, b)
	}
	sort.Slice(out.buckets, func(i, j int) bool { return bounds[out.buckets[i]] < bounds[out.buckets[j]] })
	return out
}

// ours replaces vLLM's engine by the pipeline's labels.
func ours(c curated) map[string][]string {
	out := map[string][]string{}
	for name, values := range c.labels {
		switch {
		case name != "engine":
			out[name] = values
		case c.labels["stage"] != nil: // the family has a label stage of its own
			out["pipeline_stage"], out["replica"] = nil, nil
		default:
			out["stage"], out["replica"] = nil, nil
		}
	}
	return out
}

// differences compares a curated row with the exposition, value by value of each bounded label.
func differences(c curated, got seen) (bad []string) {
	want := ours(c)
	for name, values := range want {
		if got.labels[name] == nil {
			bad = append(bad, "lacks label "+name)
			continue
		}
		if name == "position" {
			values = []string{"0", "1", "2"}
		}
		open := slices.Contains(values, "...")
		for _, v := range values {
			if v != "..." && !got.labels[name][v] {
				bad = append(bad, "lacks "+name+"="+v)
			}
		}
		if values != nil && !open && len(got.labels[name]) > len(values) {
			bad = append(bad, fmt.Sprintf("%s has %d values, not %d", name, len(got.labels[name]), len(values)))
		}
	}
	for name := range got.labels {
		if _, ok := want[name]; !ok {
			bad = append(bad, "has label "+name)
		}
	}
	if !slices.Equal(c.buckets, got.buckets) {
		bad = append(bad, fmt.Sprintf("buckets %v, not %v", got.buckets, c.buckets))
	}
	return bad
}

// TestEveryCuratedFamilyIsHereOrDocumentedPS71 goes through all families of vLLM 0.32 and vLLM-Omni 0.30: name, type, labels with their
// values, buckets as text, before the first request. What is missing must be in the documentation's list, with a reason.
func TestEveryCuratedFamilyIsHereOrDocumentedPS71(t *testing.T) {
	m := newTest(t, everything)
	m.Edge(0, 0, 1, 0)
	m.HTTP().Observe("/v1/models", "GET", 200, 0, 10, time.Second)
	it := record.Iteration{Adapters: record.NewAdapterStates()}
	m.Sink(0, 0).Step(nil, &it)
	e := parseText(t, scrape(t, m))
	skipped, used := notApplicable(t), map[string]bool{}
	var table strings.Builder
	counts := map[string]int{}
	for _, file := range []string{"metrics_vllm.tsv", "metrics_omni.tsv"} {
		for _, c := range curatedFamilies(t, file) {
			pattern, why := whyNot(skipped, c.name)
			verdict := "equal"
			switch {
			case e.types[c.name] == "" && why == "":
				t.Errorf("%s is neither exported nor documented as not applicable", c.name)
				verdict = "MISSING"
			case e.types[c.name] == "":
				used[pattern], verdict = true, "does not apply: "+why
			case why != "":
				t.Errorf("%s is exported, and documented as not applicable", c.name)
			case e.types[c.name] != c.kind:
				t.Errorf("%s is a %s, not a %s", c.name, e.types[c.name], c.kind)
			case c.name == "vllm:cache_config_info": // its labels are compared with a recorded scrape
			default:
				if bad := differences(c, e.family(c.name, c.kind)); len(bad) > 0 {
					t.Errorf("%s: %v", c.name, bad)
					verdict = fmt.Sprint(bad)
				}
			}
			counts[file+" "+strings.SplitN(verdict, ":", 2)[0]]++
			fmt.Fprintf(&table, "%-55s %-9s %s\n", c.name, c.kind, verdict)
		}
	}
	t.Logf("\n%s%v", table.String(), counts)
	require.Equal(t, 42, counts["metrics_omni.tsv equal"], "all of vLLM-Omni's")
	require.Equal(t, 126+6, counts["metrics_vllm.tsv equal"]+counts["metrics_vllm.tsv does not apply"], "126 families, and those of HTTP and the process")
	require.Equal(t, 60, counts["metrics_vllm.tsv equal"])
	for p := range skipped {
		require.True(t, used[p], "%s is documented as not applicable, but no family is called so", p)
	}
}

// Every series that can be known exists at zero before the first request, so that rates are right from the first one on.
func TestSeriesAreZeroBeforeTheFirstRequest(t *testing.T) {
	e := parseText(t, scrape(t, newTest(t, everything)))
	skip := regexp.MustCompile(`_created|_info\{|sleep_state="awake"|^vllm_omni:stage_info|^omni_engine`)
	n := 0
	for s, v := range e.series {
		if !strings.HasPrefix(s, "vllm") || skip.MatchString(s) {
			continue
		}
		n++
		require.Equal(t, "0.0", v, s)
	}
	require.Greater(t, n, 2000)
	require.Contains(t, e.types, "vllm:lora_requests_info", "registered; its series are combinations of adapters")
	require.Contains(t, e.types, "vllm_omni:transfer_size_bytes", "registered; its series are edges")
}

func TestTypedEventsFillTheirFamilies(t *testing.T) {
	m := newTest(t, everything)
	ms := func(n int) clock.Span { return clock.SpanOf(time.Duration(n) * time.Millisecond) }
	m.AudioFirstPacket(1, 0, ms(300))
	m.AudioFirstPacket(1, 0, clock.Span{}) // not observed
	m.AudioFirstPacket(0, 0, ms(300))      // no audio stage
	m.AudioFirstPacket(9, 9, ms(300))
	smooth, broken := &record.Playout{}, &record.Playout{}
	for i := range 4 {
		smooth.Chunk(wall(100*i), 2400, 24000)
		broken.Chunk(wall(500*i), 2400, 24000)
	}
	m.AudioStreamEnded(1, 0, smooth)
	m.AudioStreamEnded(1, 0, broken)
	m.AudioStreamEnded(1, 0, &record.Playout{})
	m.SpeechStreamCompleted()
	m.SpeechStreamAborted("closed")
	m.SpeechStreamAborted("what the client said")
	done := m.VADSessionStarted()
	m.VADSessionStarted()()
	m.VADInference(ms(20))
	m.VADEndpoint(ms(500))
	m.VADError("overflow")
	m.VADError("text of a client")
	m.KVWaited("what is it", ms(30))
	m.MMCacheLookup(0, 0, 3, 2)
	over := m.SleepOperation("sleep")
	m.SleepOperation("dance")()
	closed := m.WebSocketAccepted()
	e := parseText(t, scrape(t, m))
	audio := `model_name="smollm2",replica="0",stage="1"`
	for series, want := range map[string]float64{
		"vllm_omni:audio_ttfp_s_count{" + audio + "}": 1, "vllm_omni:audio_ttfp_s_sum{" + audio + "}": 0.3,
		"vllm_omni:audio_underrun_s_count{" + audio + "}": 2, "vllm_omni:audio_underrun_s_sum{" + audio + "}": 1.2,
		`vllm_omni:audio_continuity_ok_total{model_name="smollm2",replica="0",stage="1",threshold_ms="100"}`: 1,
		`vllm_omni:speech_stream_completed_total{model_name="smollm2"}`:                                      1,
		`vllm_omni:speech_stream_aborted_total{model_name="smollm2",reason="closed"}`:                        1,
		`vllm_omni:speech_stream_aborted_total{model_name="smollm2",reason="error"}`:                         1,
		`vllm_omni:realtime_vad_active_sessions{model_name="smollm2"}`:                                       1,
		`vllm_omni:realtime_vad_inference_latency_s_sum{model_name="smollm2"}`:                               0.02,
		`vllm_omni:realtime_vad_endpoint_delay_s_sum{model_name="smollm2"}`:                                  0.5,
		`vllm_omni:realtime_vad_errors_total{model_name="smollm2",reason="overflow"}`:                        1,
		`vllm_omni:realtime_vad_errors_total{model_name="smollm2",reason="unknown"}`:                         1,
		`vllm_omni:kv_wait_s_sum{connector_type="unknown",model_name="smollm2"}`:                             0.03,
		"vllm:mm_cache_queries_total{" + first + "}":                                                         3, "vllm:mm_cache_hits_total{" + first + "}": 2,
		`vllm:sleep_mode_operations_in_flight{operation="sleep"}`:                          1,
		`vllm:sleep_mode_operation_duration_seconds_count{operation="sleep"}`:              0,
		"vllm:websocket_connections_active":                                                1,
		"vllm:websocket_connections_total":                                                 1,
		"vllm:websocket_connection_duration_seconds_count":                                 0,
		`vllm_omni:requests_failed_total{model_name="smollm2",reason="unknown"}`:           0,
		`vllm:sleep_mode_operation_duration_seconds_count{operation="wake"}`:               0,
		`vllm_omni:speech_stream_aborted_total{model_name="smollm2",reason="engine_dead"}`: 0,
	} {
		require.InDelta(t, want, e.value(t, series), 1e-9, series)
	}
	for range 2 { // a second end of the same thing counts nothing
		done()
		closed()
	}
	over()
	e = parseText(t, scrape(t, m))
	require.Zero(t, e.value(t, `vllm_omni:realtime_vad_active_sessions{model_name="smollm2"}`))
	require.Zero(t, e.value(t, "vllm:websocket_connections_active"))
	require.Zero(t, e.value(t, `vllm:sleep_mode_operations_in_flight{operation="sleep"}`))
	require.Equal(t, 1.0, e.value(t, `vllm:sleep_mode_operation_duration_seconds_count{operation="sleep"}`))
	require.NotContains(t, scrape(t, m), "client said")
}

func TestRequestsThatLoadKVAreSplitByStage(t *testing.T) {
	m := newTest(t, everything)
	require.NoError(t, m.SetSnapshotSource(0, 0, func() record.Snapshot { return record.Snapshot{KVFetch: [3]int{2, 3, 4}} }))
	e := parseText(t, scrape(t, m))
	for stage, want := range map[string]float64{"waiting_to_start": 2, "in_progress": 3, "completed_waiting": 4} {
		require.Equal(t, want, e.value(t, `vllm:num_requests_kv_fetch_by_stage{model_name="smollm2",pipeline_stage="0",replica="0",stage="`+stage+`"}`))
	}
	require.NotContains(t, scrape(t, m), `num_requests_kv_fetch_by_stage{model_name="smollm2",pipeline_stage="1"`, "it is no consumer")
	require.NotContains(t, parseText(t, scrape(t, newTest(t, nil))).types, "vllm:num_requests_kv_fetch_by_stage")
}

// The gauges of a pipeline count requests, not stages: one that is in two stages at once is one.
func TestPipelineGaugesCountARequestOnce(t *testing.T) {
	m := newTest(t, everything)
	snap := record.Snapshot{}
	snap.Stats.Running, snap.Stats.Waiting = 2, 1
	for stage := range 3 {
		require.NoError(t, m.SetSnapshotSource(stage, 0, func() record.Snapshot { return snap }))
	}
	m.SetInFlight(func() (total, dispatched int) { return 7, 5 })
	e := parseText(t, scrape(t, m))
	require.Equal(t, 2.0, e.value(t, `vllm_omni:num_requests_running{model_name="smollm2"}`), "dispatched, less what waits in a scheduler")
	require.Equal(t, 5.0, e.value(t, `vllm_omni:num_requests_waiting{model_name="smollm2"}`))
	snap.Stats.Waiting = 9
	e = parseText(t, scrape(t, m))
	require.Zero(t, e.value(t, `vllm_omni:num_requests_running{model_name="smollm2"}`), "never negative")
	require.Equal(t, 7.0, e.value(t, `vllm_omni:num_requests_waiting{model_name="smollm2"}`))
}
