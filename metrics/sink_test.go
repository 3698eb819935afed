package metrics

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

func wall(ms int) clock.Wall {
	return clock.WallAt(time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond))
}

// labels of the first stage's first replica.
const first = `model_name="smollm2",replica="0",stage="0"`

func (e exposition) value(t *testing.T, series string) float64 {
	t.Helper()
	text, ok := e.series[series]
	require.True(t, ok, "no series %s", series)
	f, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return f
}

// run drives one request through a record and the sink: prompt tokens, one token a step, preempted once when asked.
type run struct {
	clock    *clock.Manual
	prompt   int
	tokens   int
	preempt  bool
	schedule bool
	end      request.FinishReason
	trace    string
}

func (r run) drive(sink record.Sink, id record.Identity) *record.Stage {
	at := func(ms int) clock.Time { return r.clock.At(time.Duration(ms) * time.Millisecond) }
	id.TraceID = r.trace
	s := record.Begin(id, wall(0))
	s.PromptTokens, s.MaxTokens = r.prompt, 64
	it := &record.Iteration{}
	step := func(ms int, o request.Output) {
		it.Reset()
		s.ApplyOutput(at(ms), wall(ms), &o, it)
		sink.Step(&request.SchedulerStats{PrefixQueries: 2, PrefixHits: 1}, it)
	}
	events := []request.Event{{Type: request.Queued, At: at(0)}}
	if r.schedule {
		events = append(events, request.Event{Type: request.Scheduled, At: at(400)})
	}
	if r.preempt {
		events = append(events, request.Event{Type: request.Preempted, At: at(450)}, request.Event{Type: request.Scheduled, At: at(460)})
	}
	terminal := request.Output{Terminal: true, Finish: r.end}
	for i := range r.tokens {
		o := request.Output{NewTokens: []int32{1}}
		if i == 0 {
			o.Events, o.Prefill = events, &request.PrefillStats{PromptTokens: r.prompt, Computed: r.prompt - 1, Cached: 1, Local: 1}
		}
		if i == r.tokens-1 && r.end != request.FinishAbort {
			o.Finish = r.end
		}
		step(1000+100*i, o)
	}
	if r.tokens == 0 {
		terminal.Events = events
	}
	if !s.Ended() {
		step(1000+100*r.tokens, terminal)
	}
	sink.Finished(s)
	sink.ParentFinished(1, s.NumGenerationTokens)
	return s
}

func TestPhaseHistogramsAreFedFromTheRecordPS22(t *testing.T) {
	m := newTest(t, func(c *Config) { c.Stages = []StageInfo{{ID: 0}, {ID: 1, Replicas: 2}} })
	c := clock.NewManual(0)
	run{clock: c, prompt: 10, tokens: 5, schedule: true, preempt: true, end: request.FinishLength}.drive(m.Sink(1, 1), record.Identity{StageID: 1, Replica: 1})
	e := parseText(t, scrape(t, m))
	own := `model_name="smollm2",replica="1",stage="1"`
	for name, want := range map[string]float64{"queue_time": 0.4, "prefill_time": 0.6, "decode_time": 0.4, "inference_time": 1.0, "time_per_output_token": 0.1} {
		require.Equal(t, 1.0, e.value(t, "vllm:request_"+name+"_seconds_count{"+own+"}"), name)
		require.InDelta(t, want, e.value(t, "vllm:request_"+name+"_seconds_sum{"+own+"}"), 1e-9, name)
		require.Equal(t, 0.0, e.value(t, "vllm:request_"+name+"_seconds_count{"+first+"}"), "each stage and replica has its own series")
	}
	for series, want := range map[string]float64{
		"vllm:e2e_request_latency_seconds_sum": 1.4, "vllm:time_to_first_token_seconds_sum": 1, "vllm:inter_token_latency_seconds_count": 4,
		"vllm:inter_token_latency_seconds_sum": 0.4, "vllm:request_num_preemptions_sum": 1, "vllm:num_preemptions_total": 1,
		"vllm:request_prompt_tokens_sum": 10, "vllm:prompt_tokens_total": 10, "vllm:prompt_tokens_cached_total": 1,
		"vllm:request_prefill_kv_computed_tokens_sum": 9, "vllm:generation_tokens_total": 5, "vllm:request_generation_tokens_sum": 5,
		"vllm:request_params_max_tokens_sum": 64, "vllm:request_params_n_sum": 1, "vllm:request_max_num_generation_tokens_sum": 5,
		"vllm:iteration_tokens_total_count": 5, "vllm:iteration_tokens_total_sum": 14, "vllm:prefix_cache_queries_total": 10,
		"vllm:prefix_cache_hits_total": 5, "vllm_omni:request_preempted_s_sum": 0.01, "vllm_omni:request_unscheduled_wait_s_count": 0,
	} {
		require.InDelta(t, want, e.value(t, series+"{"+own+"}"), 1e-9, series)
	}
	require.Equal(t, 1.0, e.value(t, `vllm:request_success_total{finished_reason="length",`+own+`}`))
	require.Equal(t, 9.0, e.value(t, `vllm:prompt_tokens_by_source_total{model_name="smollm2",replica="1",source="local_compute",stage="1"}`))
	require.Equal(t, 0.0, e.value(t, `vllm:request_queue_time_seconds_bucket{le="0.3",`+own+`}`))
	require.Equal(t, 1.0, e.value(t, `vllm:request_queue_time_seconds_bucket{le="0.5",`+own+`}`))
}

func TestUnobservedIntervalsGiveNoSamplePS11PS14(t *testing.T) {
	m := newTest(t, nil)
	run{clock: clock.NewManual(0), prompt: 3, end: request.FinishAbort}.drive(m.Sink(0, 0), record.Identity{})
	e := parseText(t, scrape(t, m))
	for _, name := range []string{"vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds", "vllm:request_decode_time_seconds",
		"vllm:request_inference_time_seconds", "vllm:request_num_preemptions", "vllm:request_time_per_output_token_seconds",
		"vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds", "vllm_omni:request_input_wait_s",
		"vllm_omni:request_chunk_wait_s", "vllm_omni:request_kv_wait_s", "vllm_omni:request_preempted_s", "vllm_omni:core_inbox_wait_s"} {
		require.Zero(t, e.value(t, name+"_count{"+first+"}"), name)
		require.Zero(t, e.value(t, name+"_sum{"+first+"}"), name)
	}
	require.Equal(t, 1.0, e.value(t, "vllm_omni:request_unscheduled_wait_s_count{"+first+"}"), "never scheduled (PS-31)")
	require.Equal(t, 1.0, e.value(t, `vllm:request_success_total{finished_reason="abort",`+first+`}`), "a client that goes away counts once (PS-73)")
}

func TestOneTokenGivesNoTimePerOutputToken(t *testing.T) {
	m := newTest(t, nil)
	run{clock: clock.NewManual(0), prompt: 3, tokens: 1, schedule: true, end: request.FinishStop}.drive(m.Sink(0, 0), record.Identity{})
	e := parseText(t, scrape(t, m))
	require.Zero(t, e.value(t, "vllm:request_time_per_output_token_seconds_count{"+first+"}"))
	require.Equal(t, 1.0, e.value(t, "vllm:request_decode_time_seconds_count{"+first+"}"), "a measured 0 is a sample")
}

func TestRecordingOffObservesNothingPS15(t *testing.T) {
	m := newTest(t, nil)
	before := parseText(t, scrape(t, m)).series
	s := record.Begin(record.Identity{}, wall(0))
	s.SetRecording(false)
	it := &record.Iteration{}
	s.ApplyOutput(clock.NewManual(time.Second).Now(), wall(9), &request.Output{NewTokens: []int32{1}, Finish: request.FinishStop}, it)
	m.Sink(0, 0).Step(nil, it)
	m.Sink(0, 0).Finished(s)
	for series, value := range parseText(t, scrape(t, m)).series {
		if strings.HasPrefix(series, "vllm") {
			require.Equal(t, before[series], value, series)
		}
	}
}

// TestCountsAreExactUnderConcurrencyPS72 finishes requests of every kind on two replicas at once while scrapes run.
func TestCountsAreExactUnderConcurrencyPS72(t *testing.T) {
	m := newTest(t, func(c *Config) { c.Stages = []StageInfo{{Replicas: 2}} })
	const workers, each = 8, 150
	var finished, scraping sync.WaitGroup
	stop := make(chan struct{})
	scraping.Add(1)
	go func() {
		defer scraping.Done()
		for {
			select {
			case <-stop:
				return
			default:
				body, err := m.encode(textFormat(), false)
				if err != nil || !consistent(string(body)) {
					t.Errorf("a scrape in the middle: %v", err)
					return
				}
			}
		}
	}()
	var mu sync.Mutex
	preempted := [2]int{}
	prompt, generated := [2]int{}, [2]int{}
	for w := range workers {
		finished.Add(1)
		go func() {
			defer finished.Done()
			replica := w % 2
			sink := m.Sink(0, replica)
			for i := range each {
				r := run{clock: clock.NewManual(0), prompt: 1 + i%7, tokens: i % 4, schedule: i%5 != 0, preempt: i%5 != 0 && i%3 == 0,
					end: []request.FinishReason{request.FinishStop, request.FinishLength, request.FinishAbort, request.FinishError}[i%4]}
				if i%11 == 0 { // the replica is lost: the orchestrator writes the record
					s := record.Begin(record.Identity{Replica: replica}, wall(0))
					it := &record.Iteration{}
					s.PromptTokens = r.prompt
					s.End(clock.Time{}, wall(5), request.FinishError, it)
					sink.Step(nil, it)
					sink.Finished(s)
					mu.Lock()
					prompt[replica] += r.prompt
					mu.Unlock()
					continue
				}
				s := r.drive(sink, record.Identity{Replica: replica})
				mu.Lock()
				prompt[replica] += r.prompt
				generated[replica] += s.NumGenerationTokens
				preempted[replica] += s.NumPreemptions
				mu.Unlock()
			}
		}()
	}
	finished.Wait()
	close(stop)
	scraping.Wait()
	e := parseText(t, scrape(t, m))
	n := float64(workers / 2 * each)
	for replica := range 2 {
		own := fmt.Sprintf(`model_name="smollm2",replica="%d",stage="0"`, replica)
		for _, name := range []string{"vllm:e2e_request_latency_seconds", "vllm:request_prompt_tokens", "vllm:request_generation_tokens"} {
			require.Equal(t, n, e.value(t, name+"_count{"+own+"}"), name)
		}
		sum := 0.0
		for _, reason := range reasons() {
			sum += e.value(t, fmt.Sprintf(`vllm:request_success_total{finished_reason="%s",%s}`, reason, own))
		}
		require.Equal(t, n, sum, "request_success over reasons")
		require.Equal(t, float64(preempted[replica]), e.value(t, "vllm:num_preemptions_total{"+own+"}"))
		require.Positive(t, preempted[replica])
		// The token counters equal the per-request sums when idle.
		require.Equal(t, float64(prompt[replica]), e.value(t, "vllm:prompt_tokens_total{"+own+"}"))
		require.Equal(t, float64(prompt[replica]), e.value(t, "vllm:request_prompt_tokens_sum{"+own+"}"))
		require.Equal(t, float64(generated[replica]), e.value(t, "vllm:generation_tokens_total{"+own+"}"))
		require.Equal(t, float64(generated[replica]), e.value(t, "vllm:request_generation_tokens_sum{"+own+"}"))
		bySource := 0.0
		for _, source := range []string{"local_compute", "local_cache_hit", "external_kv_transfer"} {
			bySource += e.value(t, fmt.Sprintf(`vllm:prompt_tokens_by_source_total{model_name="smollm2",replica="%d",source="%s",stage="0"}`, replica, source))
		}
		require.Equal(t, float64(prompt[replica]), bySource)
	}
	require.Equal(t, 2*n, e.value(t, `vllm_omni:requests_success_total{finished_reason="stop",model_name="smollm2"}`)+
		e.value(t, `vllm_omni:requests_success_total{finished_reason="length",model_name="smollm2"}`)+
		e.value(t, `vllm_omni:requests_success_total{finished_reason="abort",model_name="smollm2"}`)+
		e.value(t, `vllm_omni:requests_success_total{finished_reason="error",model_name="smollm2"}`), "one stage is the pipeline")
}

// consistent reports whether every histogram's +Inf bucket is its count and buckets never fall.
func consistent(text string) bool {
	inf, prev := 0.0, 0.0
	for line := range strings.Lines(text) {
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || line[0] == '#' {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[i:]), 64)
		if err != nil {
			return false
		}
		switch name, _, _ := strings.Cut(line, "{"); {
		case strings.HasSuffix(name, "_bucket"):
			if value < prev {
				return false
			}
			prev = value
			if strings.Contains(line, `le="+Inf"`) {
				inf, prev = value, 0
			}
		case strings.HasSuffix(name, "_count") && strings.HasPrefix(name, "vllm"):
			if value != inf {
				return false
			}
		}
	}
	return true
}

func TestPipelineCountsComeFromTheOrchestratorWithSeveralStages(t *testing.T) {
	m := newTest(t, func(c *Config) { c.Stages = []StageInfo{{ID: 0}, {ID: 1, Audio: true}} })
	run{clock: clock.NewManual(0), prompt: 3, tokens: 2, schedule: true, end: request.FinishStop}.drive(m.Sink(0, 0), record.Identity{})
	done := `vllm_omni:requests_success_total{finished_reason="stop",model_name="smollm2"}`
	require.Zero(t, parseText(t, scrape(t, m)).value(t, done), "a stage's end is not the pipeline's")
	m.Pipeline().PipelineFinished(&record.Pipeline{Arrival: wall(0), FinishedAt: wall(700), Reason: request.FinishStop, TokensIn: 3, TokensOut: 9})
	m.Pipeline().PipelineFinished(&record.Pipeline{Arrival: wall(0), FinishedAt: wall(700), Reason: request.FinishAbort, Failure: "client_disconnect"})
	m.Pipeline().PipelineFinished(&record.Pipeline{Arrival: wall(0), FinishedAt: wall(700), Reason: request.FinishError})
	m.Pipeline().PipelineFinished(&record.Pipeline{Reason: request.FinishError, Failure: "what a client said"})
	e := parseText(t, scrape(t, m))
	require.Equal(t, 1.0, e.value(t, done))
	for series, want := range map[string]float64{
		`vllm_omni:requests_failed_total{model_name="smollm2",reason="client_disconnect"}`: 1,
		`vllm_omni:requests_failed_total{model_name="smollm2",reason="stage_error"}`:       1,
		`vllm_omni:requests_failed_total{model_name="smollm2",reason="unknown"}`:           1,
		`vllm_omni:requests_failed_total{model_name="smollm2",reason="client_abort"}`:      0,
		`vllm_omni:e2e_request_latency_s_count{model_name="smollm2"}`:                      1,
		`vllm_omni:e2e_request_latency_s_sum{model_name="smollm2"}`:                        0.7,
		`vllm_omni:prompt_tokens_total{model_name="smollm2"}`:                              3,
		`vllm_omni:generation_tokens_total{model_name="smollm2"}`:                          9,
	} {
		require.Equal(t, want, e.value(t, series), series)
	}
}

func TestSpeculationCountsByPosition(t *testing.T) {
	m := newTest(t, func(c *Config) { c.SpeculativeK = 2 })
	m.Sink(0, 0).Step(&request.SchedulerStats{NumDrafts: 2, DraftTokens: 4, Accepted: 3, AcceptedPerPos: []int{2, 1, 9}}, nil)
	e := parseText(t, scrape(t, m))
	require.Equal(t, 3.0, e.value(t, "vllm:spec_decode_num_accepted_tokens_total{"+first+"}"))
	require.Equal(t, 2.0, e.value(t, `vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name="smollm2",position="0",replica="0",stage="0"}`))
	require.Equal(t, 1.0, e.value(t, `vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name="smollm2",position="1",replica="0",stage="0"}`))
}
