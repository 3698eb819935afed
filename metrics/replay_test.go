package metrics

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// recorded is a scrape of vLLM at the end of a run. Its histograms of whole numbers say what the run's requests were like, up to the
// order of the values: values rebuilds them.
type recorded struct {
	exposition
	t *testing.T
}

const engine0 = `engine="0",model_name="smollm2"`

func (r recorded) get(name string) int {
	r.t.Helper()
	return int(r.value(r.t, name+"{"+engine0+"}"))
}

// values returns whole numbers with the histogram's buckets and sum: each bucket at its lower end, then raised as far as the sum wants.
func (r recorded) values(name string) (out []int) {
	r.t.Helper()
	type bucket struct {
		le float64
		n  int
	}
	var buckets []bucket
	for s := range r.series {
		rest, ok := strings.CutPrefix(s, name+`_bucket{engine="0",le="`)
		if !ok {
			continue
		}
		text, _, _ := strings.Cut(rest, `"`)
		le, err := strconv.ParseFloat(text, 64)
		require.NoError(r.t, err)
		buckets = append(buckets, bucket{le, int(r.value(r.t, s))})
	}
	sort.Slice(buckets, func(i, j int) bool { return buckets[i].le < buckets[j].le })
	sum := r.get(name + "_sum")
	low, seen := 0, 0
	var roof []int
	for _, b := range buckets {
		for ; seen < b.n; seen++ {
			out, roof = append(out, low), append(roof, int(min(b.le, 1<<30)))
			sum -= low
		}
		low = int(min(b.le, 1<<29)) + 1
	}
	for i := range out {
		up := min(sum, roof[i]-out[i])
		out[i], sum = out[i]+up, sum-up
	}
	require.Zero(r.t, sum, "%s: values for its sum", name)
	return out
}

// replayRun pushes a run like the recorded one through records and sink: the same lengths, limits, reasons, steps and drafts. gone are
// the requests whose client went away, each with its prompt and its tokens: vLLM counts those nowhere but in the token counters.
func (r recorded) replayRun(m *Metrics, gone [][2]int) {
	sink, c := m.Sink(0, 0), clock.NewManual(0)
	prompts, outputs := r.values("vllm:request_prompt_tokens"), r.values("vllm:request_generation_tokens")
	limits, computed := r.values("vllm:request_params_max_tokens"), r.values("vllm:request_prefill_kv_computed_tokens")
	for _, list := range [][]int{prompts, computed} { // the longest prompt computes the most, so that none computes more than it has
		slices.Sort(list)
	}
	slices.Sort(outputs)
	var reasons []request.FinishReason
	for i, why := range []string{"stop", "length", "abort", "error", "repetition"} {
		n := int(r.value(r.t, `vllm:request_success_total{engine="0",finished_reason="`+why+`",model_name="smollm2"}`))
		reasons = append(reasons, slices.Repeat([]request.FinishReason{request.FinishStop + request.FinishReason(i)}, n)...)
	}
	require.Len(r.t, reasons, len(prompts))
	for i := range prompts {
		one := &replayed{clock: c, prompt: prompts[i], cached: prompts[i] - computed[i], tokens: outputs[i], limit: limits[i], why: reasons[i]}
		sink.Finished(one.record(nil))
	}
	for _, g := range gone {
		one := &replayed{clock: c, prompt: g[0], tokens: g[1], why: request.FinishAbort}
		sink.Finished(one.record(nil))
	}
	longest := r.values("vllm:request_max_num_generation_tokens")
	for i, n := range r.values("vllm:request_params_n") {
		sink.ParentFinished(n, longest[i])
	}
	r.steps(sink)
	for _, why := range []string{"max_num_queued_reqs", "max_num_queued_tokens"} {
		for range int(r.value(r.t, `vllm:admission_rejections_total{model_name="smollm2",reason="`+why+`"}`)) {
			m.AdmissionRejected(why)
		}
	}
}

// steps gives the sink steps with the recorded numbers of tokens. The prompts' tokens come first, as far as a step holds them.
func (r recorded) steps(sink record.Sink) {
	prompt, cached := r.get("vllm:prompt_tokens_total"), r.get("vllm:prompt_tokens_cached_total")
	toCompute := prompt - cached
	steps := r.values("vllm:iteration_tokens_total")
	sort.Sort(sort.Reverse(sort.IntSlice(steps)))
	for i, n := range steps {
		it := &record.Iteration{Outputs: 1, LocalCompute: min(n, toCompute)}
		it.GenerationTokens = n - it.LocalCompute
		toCompute -= it.LocalCompute
		it.PromptTokens = it.LocalCompute
		stats := &request.SchedulerStats{}
		if i == 0 {
			it.PromptTokens, it.LocalCacheHit = it.PromptTokens+cached, cached
			stats.PrefixQueries, stats.PrefixHits = r.get("vllm:prefix_cache_queries_total"), r.get("vllm:prefix_cache_hits_total")
			r.drafts(stats)
		}
		sink.Step(stats, it)
	}
}

func (r recorded) drafts(stats *request.SchedulerStats) {
	if r.types["vllm:spec_decode_num_drafts_total"] == "" {
		return
	}
	stats.NumDrafts, stats.DraftTokens = r.get("vllm:spec_decode_num_drafts_total"), r.get("vllm:spec_decode_num_draft_tokens_total")
	stats.Accepted = r.get("vllm:spec_decode_num_accepted_tokens_total")
	for k := range 3 {
		stats.AcceptedPerPos = append(stats.AcceptedPerPos, int(r.value(r.t,
			fmt.Sprintf(`vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="smollm2",position="%d"}`, k))))
	}
}

// replayed is one request of a replayed run.
type replayed struct {
	clock                         *clock.Manual
	prompt, cached, tokens, limit int
	why                           request.FinishReason
}

func (q *replayed) record(it *record.Iteration) *record.Stage {
	at := func() clock.Time { return q.clock.Advance(time.Millisecond) }
	s := record.Begin(record.Identity{}, wall(0))
	s.PromptTokens, s.MaxTokens = q.prompt, q.limit
	events := []request.Event{{Type: request.Queued, At: at()}, {Type: request.Scheduled, At: at()}}
	for k := range max(q.tokens, 1) {
		o := request.Output{NewTokens: make([]int32, min(1, q.tokens))}
		if k == 0 {
			o.Events, o.Prefill = events, &request.PrefillStats{PromptTokens: q.prompt, Cached: q.cached, Local: q.cached}
		}
		if k == max(q.tokens, 1)-1 {
			o.Finish = q.why
		}
		s.ApplyOutput(at(), wall(k), &o, it)
	}
	return s
}

// untimed are the recorded families whose values do not depend on the machine's speed.
func untimed(series string) bool {
	if !strings.HasPrefix(series, "vllm:") {
		return false
	}
	for _, timed := range []string{"_seconds", "_created", "kv_cache_usage", "cache_config_info", "lora_requests_info", "num_requests_", "sleep_state", "tool_call_parser", "estimated_"} {
		if strings.Contains(series, timed) {
			return strings.HasSuffix(strings.SplitN(series, "{", 2)[0], "_seconds_count") && !strings.Contains(series, "kv_block") &&
				!strings.Contains(series, "inter_token") && !strings.Contains(series, "time_to_first") && !strings.Contains(series, "per_output_token")
		}
	}
	return true
}

// TestRecordedRunsGiveTheRecordedValues replays four recorded runs of vLLM and compares every untimed value, bucket by bucket: counters,
// histograms of tokens, counts. What differs on purpose is listed, with the reason of docs/differences.md.
func TestRecordedRunsGiveTheRecordedValues(t *testing.T) {
	for _, run := range []struct {
		golden string
		change func(*Config)
		gone   [][2]int // clients that went away: prompt tokens, tokens
	}{
		// One client went away: its 1 prompt token and 37 tokens are in vLLM's counters, and in no histogram and no finished_reason.
		{golden: "metrics_f32.txt", gone: [][2]int{{1, 37}}},
		{golden: "metrics_full.txt", change: func(c *Config) { c.SpeculativeK, c.KVCacheMetrics, c.ToolParser = 3, true, true }},
		{golden: "metrics_misc.txt", change: func(c *Config) { c.MaxLoRAs = 1 }},
	} {
		t.Run(run.golden, func(t *testing.T) {
			r := recorded{goldenText(t, run.golden), t}
			m := newTest(t, run.change)
			r.replayRun(m, run.gone)
			got := parseText(t, scrape(t, m))
			equal, families, differ := 0, map[string]bool{}, map[string]bool{}
			for series, want := range r.series {
				if !untimed(series) {
					continue
				}
				have, ok := got.series[relabel(series)]
				require.True(t, ok, series)
				family := regexpFamily(series)
				if have != want {
					require.NotEmpty(t, run.gone, "%s: %s, recorded %s", series, have, want)
					differ[family] = true
					more := got.value(t, relabel(series)) - r.value(t, series)
					require.True(t, family == "vllm:request_generation_tokens" || more >= 0 && more <= 1, "%s: an end more, as abort: %v", series, more)
					continue
				}
				families[family] = true
				equal++
			}
			t.Logf("%d series of %d families have the recorded values; with the client that went away counted: %v", equal, len(families), sortedKeys(differ))
			require.Greater(t, equal, 80)
			require.GreaterOrEqual(t, len(families), 20)
			if run.gone != nil {
				require.Contains(t, sortedKeys(differ), "vllm:request_success")
				require.Equal(t, got.value(t, "vllm:generation_tokens_total{"+first+"}"), got.value(t, "vllm:request_generation_tokens_sum{"+first+"}"), "idle: the counters are the sums")
			}
		})
	}
}

func regexpFamily(series string) string {
	name, _, _ := strings.Cut(series, "{")
	for _, suffix := range []string{"_bucket", "_count", "_sum", "_total"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}
