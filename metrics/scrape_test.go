package metrics

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

func TestGaugesAreTheNewestSnapshotAtScrapePS74(t *testing.T) {
	m := newTest(t, nil)
	e := parseText(t, scrape(t, m))
	require.Zero(t, e.value(t, "vllm:num_requests_running{"+first+"}"))
	require.Equal(t, 1.0, e.value(t, `vllm:engine_sleep_state{model_name="smollm2",replica="0",sleep_state="awake",stage="0"}`))

	snap := record.Snapshot{HeldKV: 7, SleepLevel: 1, Inbox: 2}
	snap.Stats = request.SchedulerStats{Running: 3, Waiting: 4, Skipped: 1, Usage: 0.25}
	snap.Stats.Parked = [request.WaitSession + 1]int{request.WaitInput: 5, request.WaitChunk: 6, request.WaitKV: 7, request.WaitSession: 8}
	snap.InCore = 3 + 5 + 26
	require.NoError(t, m.SetSnapshotSource(0, 0, func() record.Snapshot { return snap }))
	e = parseText(t, scrape(t, m))
	for series, want := range map[string]float64{
		"vllm:num_requests_running{" + first + "}":                                                            3,
		"vllm:num_requests_waiting{" + first + "}":                                                            5,
		"vllm:kv_cache_usage_perc{" + first + "}":                                                             0.25,
		"vllm_omni:kv_held_blocks{" + first + "}":                                                             7,
		`vllm:num_requests_waiting_by_reason{model_name="smollm2",reason="capacity",replica="0",stage="0"}`:   4,
		`vllm:num_requests_waiting_by_reason{model_name="smollm2",reason="deferred",replica="0",stage="0"}`:   1,
		`vllm:engine_sleep_state{model_name="smollm2",replica="0",sleep_state="weights_offloaded",stage="0"}`: 1,
		`vllm:engine_sleep_state{model_name="smollm2",replica="0",sleep_state="awake",stage="0"}`:             0,
		`vllm_omni:num_requests_running{model_name="smollm2"}`:                                                3,
		`vllm_omni:num_requests_waiting{model_name="smollm2"}`:                                                7,
		`vllm_omni:stage_waiting_requests{model_name="smollm2",stage="0"}`:                                    5,
	} {
		require.Equal(t, want, e.value(t, series), series)
	}
	// Running + waiting + parked = requests in the core (PS-37).
	parked := 0.0
	for _, reason := range []string{"input", "chunk", "kv", "session"} {
		parked += e.value(t, `vllm_omni:stage_parked_requests{model_name="smollm2",reason="`+reason+`",replica="0",stage="0"}`)
	}
	require.Equal(t, float64(snap.InCore), 3+5+parked)
	require.Equal(t, 6.0, e.value(t, `vllm_omni:stage_parked_requests{model_name="smollm2",reason="chunk",replica="0",stage="0"}`))
	snap.Stats.Running = 0
	require.Zero(t, parseText(t, scrape(t, m)).value(t, "vllm:num_requests_running{"+first+"}"), "no freezing at the last busy value")
}

func TestEntryStageComesFirstAndStagesAreNumeric(t *testing.T) {
	m := newTest(t, func(c *Config) { c.Stages = []StageInfo{{ID: 10}, {ID: 2, Replicas: 2}, {ID: 0, Name: "thinker"}} })
	var got []string
	for line := range strings.Lines(scrape(t, m)) {
		if rest, ok := strings.CutPrefix(line, "vllm:num_requests_waiting{"); ok {
			got = append(got, strings.TrimSpace(rest))
		}
	}
	require.Equal(t, []string{
		`model_name="smollm2",replica="0",stage="0"} 0.0`, `model_name="smollm2",replica="0",stage="2"} 0.0`,
		`model_name="smollm2",replica="1",stage="2"} 0.0`, `model_name="smollm2",replica="0",stage="10"} 0.0`}, got)
	require.Contains(t, scrape(t, m), `vllm_omni:stage_info{model_name="smollm2",stage="0",stage_name="thinker",stage_type="llm"} 1.0`)
	require.Contains(t, scrape(t, m), `stage_name="stage_10"`)
}

func TestPipelineScopeHasOneSeriesAGauge(t *testing.T) {
	m := newTest(t, func(c *Config) { c.Stages = []StageInfo{{ID: 0}, {ID: 1, Replicas: 2}} })
	for i, at := range [][2]int{{0, 0}, {1, 0}, {1, 1}} {
		snap := record.Snapshot{Cache: cacheConfig()}
		snap.Stats.Running, snap.Stats.Usage = i+1, float64(i)/10
		require.NoError(t, m.SetSnapshotSource(at[0], at[1], func() record.Snapshot { return snap }))
	}
	body, err := m.encode(textFormat(), true)
	require.NoError(t, err)
	e := parseText(t, string(body))
	require.Equal(t, 6.0, e.value(t, `vllm:num_requests_running{model_name="smollm2"}`))
	require.Equal(t, 0.2, e.value(t, `vllm:kv_cache_usage_perc{model_name="smollm2"}`))
	require.Equal(t, 1.0, e.value(t, `vllm:engine_sleep_state{model_name="smollm2",sleep_state="awake"}`))
	count := map[string]int{}
	for s := range e.series {
		count[strings.SplitN(s, "{", 2)[0]]++
	}
	for _, name := range []string{"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:cache_config_info"} {
		require.Equal(t, 1, count[name], name)
	}
}

func TestEngineLabelIsKeptWhenAskedFor(t *testing.T) {
	m := newTest(t, func(c *Config) { c.EngineLabel, c.Stages = true, []StageInfo{{ID: 0}, {ID: 1, Replicas: 2}} })
	e := parseText(t, scrape(t, m))
	require.Zero(t, e.value(t, `vllm:num_requests_running{engine="2",model_name="smollm2",replica="1",stage="1"}`))
	require.Zero(t, e.value(t, `vllm:e2e_request_latency_seconds_bucket{engine="0",le="1.0",model_name="smollm2",replica="0",stage="0"}`))
}

func TestAReplicaThatLeavesAndComesBackResetsNothing(t *testing.T) {
	m := newTest(t, func(c *Config) { c.Stages = []StageInfo{{Replicas: 2}} })
	one := run{clock: clock.NewManual(0), prompt: 3, tokens: 2, schedule: true, end: request.FinishStop}
	one.drive(m.Sink(0, 1), record.Identity{Replica: 1})
	own := `model_name="smollm2",replica="1",stage="0"`
	m.RemoveReplica(0, 1)
	e := parseText(t, scrape(t, m))
	require.NotContains(t, e.series, "vllm:num_requests_running{"+own+"}")
	require.Contains(t, e.series, "vllm:num_requests_running{"+first+"}")
	require.Equal(t, 2.0, e.value(t, "vllm:generation_tokens_total{"+own+"}"))
	require.NoError(t, m.AddReplica(0, 1))
	require.NoError(t, m.AddReplica(0, 2))
	one.drive(m.Sink(0, 1), record.Identity{Replica: 1})
	e = parseText(t, scrape(t, m))
	require.Equal(t, 4.0, e.value(t, "vllm:generation_tokens_total{"+own+"}"))
	require.Contains(t, e.series, "vllm:num_requests_running{"+own+"}")
	require.Zero(t, e.value(t, `vllm:generation_tokens_total{model_name="smollm2",replica="2",stage="0"}`))
	require.Error(t, m.AddReplica(9, 0))
	require.Equal(t, record.Discard{}, m.Sink(9, 0))
	require.Error(t, m.SetSnapshotSource(9, 0, nil))
}

func TestWaitFamiliesHaveTheirBucketsPS31(t *testing.T) {
	e := parseText(t, scrape(t, newTest(t, nil)))
	for _, name := range []string{"input_wait", "chunk_wait", "kv_wait", "preempted", "unscheduled_wait"} {
		for _, le := range []string{"0.001", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "60.0", "300.0", "600.0", "+Inf"} {
			require.Contains(t, e.series, `vllm_omni:request_`+name+`_s_bucket{le="`+le+`",`+first+`}`)
		}
	}
}

func TestAudioAndDiffusionRecordsFillTheirFamilies(t *testing.T) {
	m := newTest(t, func(c *Config) { c.Stages = []StageInfo{{ID: 0, Audio: true}, {ID: 1, Type: record.Diffusion}} })
	s := record.Begin(record.Identity{}, wall(0))
	s.AudioFrames, s.AudioSampleRate = 48000, 24000
	s.End(clock.Time{}, wall(1000), request.FinishStop, nil)
	m.Sink(0, 0).Finished(s)
	d := record.Begin(record.Identity{StageID: 1, Type: record.Diffusion}, wall(0))
	d.OutputUnitType, d.Units, d.InferenceSteps, d.ImagePixels = "image", 1, 50, 64
	d.Diffusion = []record.NamedFloat{{Name: "forward_time_s", Value: 1}, {Name: "diffusion_engine_exec_time_s", Value: 2}, {Name: "scheduler_queue_wait_s"}}
	d.End(clock.Time{}, wall(1000), request.FinishStop, nil)
	m.Sink(1, 0).Finished(d)
	e := parseText(t, scrape(t, m))
	diff := `model_name="smollm2",replica="0",stage="1"`
	for series, want := range map[string]float64{
		"vllm_omni:audio_duration_s_sum{" + first + "}": 2, "vllm_omni:audio_rtf_sum{" + first + "}": 0.5, "vllm_omni:audio_frames_total{" + first + "}": 48000,
		"vllm_omni:denoise_step_latency_s_sum{" + diff + "}": 0.02, "vllm_omni:diffusion_exec_per_step_s_sum{" + diff + "}": 0.04,
		`vllm_omni:stage_in_queue_s_count{model_name="smollm2",stage="1"}`: 1, `vllm_omni:image_count_total{model_name="smollm2"}`: 1,
		"vllm:request_queue_time_seconds_count{" + diff + "}":  0, // a diffusion stage has none of the four (PS-41)
		"vllm:e2e_request_latency_seconds_count{" + diff + "}": 1,
	} {
		require.InDelta(t, want, e.value(t, series), 1e-9, series)
	}
}

func TestOpenMetricsHasExemplarsAndEnds(t *testing.T) {
	m := newTest(t, nil)
	run{clock: clock.NewManual(0), prompt: 3, tokens: 2, schedule: true, end: request.FinishStop, trace: "0af7651916cd43dd8448eb211c80319c"}.drive(m.Sink(0, 0), record.Identity{})
	req := httptest.NewRequest("GET", "/metrics", nil)
	req.Header.Set("Accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, req)
	require.Contains(t, w.Header().Get("Content-Type"), "application/openmetrics-text")
	body := w.Body.String()
	require.True(t, strings.HasSuffix(body, "\n# EOF\n"))
	require.Contains(t, body, "# TYPE vllm:prompt_tokens counter\nvllm:prompt_tokens_total{")
	require.Regexp(t, `vllm:e2e_request_latency_seconds_bucket\{le="1.5",.*\} 1.0 # \{trace_id="0af7651916cd43dd8448eb211c80319c"\} 1.1 \d`, body)
	require.Regexp(t, `vllm:time_to_first_token_seconds_bucket\{le="1.0",.*\} 1.0 # \{trace_id=`, body)
	require.NotContains(t, scrape(t, m), "trace_id", "the text format has no exemplars")
}

func TestAClientWithoutAWishGetsPlainText(t *testing.T) {
	m := newTest(t, nil)
	for _, accept := range []string{"", "*/*", "text/html,*/*;q=0.8", "application/json"} {
		req := httptest.NewRequest("GET", "/metrics", nil)
		req.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, req)
		require.Contains(t, w.Header().Get("Content-Type"), "text/plain; version=0.0.4; charset=utf-8", accept)
		require.NotContains(t, w.Body.String(), "# EOF")
	}
}

func TestProtobufHasNativeHistograms(t *testing.T) {
	m := newTest(t, nil)
	run{clock: clock.NewManual(0), prompt: 3, tokens: 2, schedule: true, end: request.FinishStop}.drive(m.Sink(0, 0), record.Identity{})
	req := httptest.NewRequest("GET", "/metrics", nil)
	req.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, req)
	dec := expfmt.NewDecoder(w.Body, expfmt.NewFormat(expfmt.TypeProtoDelim))
	for {
		var f dto.MetricFamily
		err := dec.Decode(&f)
		require.NoError(t, err, "the family is there")
		if f.GetName() == "vllm:e2e_request_latency_seconds" {
			h := f.GetMetric()[0].GetHistogram()
			require.EqualValues(t, 1, h.GetSampleCount())
			require.NotEmpty(t, h.GetPositiveSpan(), "native buckets")
			require.Len(t, h.GetBucket(), 21, "classic buckets beside them")
			return
		}
	}
}

func TestTextIsReadableByTheClientLibraryAndGzipped(t *testing.T) {
	m := newTest(t, nil)
	m.HTTP().Observe("/v1/models", "GET", 200, 0, 10, time.Second)
	req := httptest.NewRequest("GET", "/metrics", nil)
	req.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, req)
	z, err := gzip.NewReader(w.Body)
	require.NoError(t, err)
	text, err := io.ReadAll(z)
	require.NoError(t, err)
	dec := expfmt.NewDecoder(bytes.NewReader(text), textFormat())
	n := 0
	for {
		var f dto.MetricFamily
		if err := dec.Decode(&f); err == io.EOF {
			break
		} else {
			require.NoError(t, err)
		}
		n++
	}
	require.Greater(t, n, 80)
	for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds", "process_open_fds",
		"process_max_fds", "process_virtual_memory_bytes", "omni_engine_build_info"} {
		require.Contains(t, string(text), "\n# TYPE "+name+" ")
	}
	bad := httptest.NewRecorder()
	m.Handler().ServeHTTP(bad, httptest.NewRequest("GET", "/metrics?scope=stage", nil))
	require.Equal(t, 400, bad.Code)
}

// TestPromtoolFindsOnlyWhatVLLMsNamesCause runs Prometheus's own linter over a full exposition. What it may say is listed in
// testdata/promtool_expected.txt, one line a kind of finding.
func TestPromtoolFindsOnlyWhatVLLMsNamesCause(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (Debian's package prometheus has it)")
	}
	data, err := os.ReadFile("testdata/promtool_expected.txt")
	require.NoError(t, err)
	expected := strings.Split(strings.TrimSpace(string(data)), "\n")
	m := newTest(t, everything)
	m.Edge(0, 0, 1, 0).Sent(1, clock.Span{})
	m.HTTP().Observe("/v1/models", "GET", 200, 0, 10, time.Second)
	cmd := exec.Command(tool, "check", "metrics")
	cmd.Stdin = strings.NewReader(scrape(t, m))
	out, _ := cmd.CombinedOutput() // its status says whether it found something; the text is what counts
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		matched := false
		for _, pattern := range expected {
			if regexp.MustCompile(pattern).MatchString(strings.TrimSpace(line)) {
				matched, seen[pattern] = true, true
			}
		}
		if !matched {
			t.Errorf("promtool: %s", strings.TrimSpace(line))
		}
	}
	for _, pattern := range expected {
		require.True(t, seen[pattern], "promtool no longer says %q: take it out of the list", pattern)
	}
}

func TestCustomBucketsReplaceAFamilysBounds(t *testing.T) {
	m := newTest(t, func(c *Config) { c.CustomBuckets = map[string][]float64{"request_latency": {0.001, 2}} })
	e := parseText(t, scrape(t, m))
	require.Contains(t, e.series, `vllm:request_queue_time_seconds_bucket{le="0.001",`+first+`}`)
	require.NotContains(t, e.series, `vllm:e2e_request_latency_seconds_bucket{le="0.3",`+first+`}`)
	for _, bad := range []map[string][]float64{{"latency": {1}}, {"request_latency": {}}, {"request_latency": {2, 1}}, {"request_latency": {math.NaN()}}, {"request_tokens": {1, math.Inf(1)}}} {
		_, err := New(Config{ModelName: "m", Stages: []StageInfo{{}}, CustomBuckets: bad})
		require.Error(t, err, "%v", bad)
	}
	_, err := New(Config{})
	require.Error(t, err)
}

func TestFloatsArePrintedAsThePythonClientDoes(t *testing.T) {
	for f, want := range map[float64]string{0: "0.0", 1: "1.0", 0.005: "0.005", 2560: "2560.0", 1e6: "1e+06", 1.5e8: "1.5e+08", 1e-5: "1e-05",
		0.0001: "0.0001", 1.7960967105047007e9: "1.7960967105047007e+09", 67108864: "6.7108864e+07", -2: "-2.0", math.Inf(1): "+Inf"} {
		require.Equal(t, want, string(appendFloat(nil, f)))
	}
}
