package load

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Report is a run's figures under vllm bench serve's names.
type Report struct {
	values map[string]any
	rows   []row
}

type row struct {
	label string
	value float64
	whole bool
}

// Summary are the options of a report.
type Summary struct {
	Label       string
	Metrics     []string // of ttft, tpot, itl, e2el
	Percentiles []float64
	Detailed    bool // --save-detailed: per-request lists
}

// Make computes the figures of a run.
func Make(cfg Config, s Summary, out []Outcome, took time.Duration) *Report {
	r := &Report{values: map[string]any{}}
	series := map[string][]float64{}
	var completed, failed, in, gen int
	for _, o := range out {
		if !o.Success {
			failed++
			continue
		}
		completed++
		in += o.InputLen
		gen += o.OutputLen
		add := func(name string, d time.Duration) { series[name] = append(series[name], float64(d)/1e6) }
		add("ttft", o.TTFT)
		add("e2el", o.Latency)
		for _, d := range o.ITL {
			add("itl", d)
		}
		if o.OutputLen > 1 {
			add("tpot", (o.Latency-o.TTFT)/time.Duration(o.OutputLen-1))
		}
	}
	sec := took.Seconds()
	set := func(key, label string, v float64, whole bool) {
		r.rows = append(r.rows, row{label, v, whole})
		if r.values[key] = v; whole {
			r.values[key] = int(v)
		}
	}
	set("completed", "Successful requests:", float64(completed), true)
	set("failed", "Failed requests:", float64(failed), true)
	set("duration", "Benchmark duration (s):", sec, false)
	set("total_input_tokens", "Total input tokens:", float64(in), true)
	set("total_output_tokens", "Total generated tokens:", float64(gen), true)
	set("request_throughput", "Request throughput (req/s):", float64(completed)/sec, false)
	set("output_throughput", "Output token throughput (tok/s):", float64(gen)/sec, false)
	set("total_token_throughput", "Total Token throughput (tok/s):", float64(in+gen)/sec, false)
	r.values["max_concurrent_requests"] = overlap(out)
	r.latencies(s, series)
	r.identity(cfg, s)
	if s.Detailed {
		r.details(out)
	}
	return r
}

func (r *Report) latencies(s Summary, series map[string][]float64) {
	names := map[string]string{"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2EL"}
	for _, m := range s.Metrics {
		v := series[m]
		slices.Sort(v)
		mean, std := moments(v)
		put := func(stat, label string, x float64) {
			r.values[stat+"_"+m+"_ms"] = x
			r.rows = append(r.rows, row{label + " " + names[m] + " (ms):", x, false})
		}
		put("mean", "Mean", mean)
		put("median", "Median", percentile(v, 50))
		r.values["std_"+m+"_ms"] = std
		for _, p := range s.Percentiles {
			text := strconv.FormatFloat(p, 'f', -1, 64)
			put("p"+text, "P"+text, percentile(v, p))
		}
	}
}

func (r *Report) identity(cfg Config, s Summary) {
	r.values["date"], r.values["backend"], r.values["endpoint_type"] = time.Now().Format("20060102-150405"), cfg.Backend, cfg.Backend
	r.values["model_id"], r.values["num_prompts"], r.values["burstiness"] = cfg.Model, cfg.NumPrompts, cfg.Burstiness
	r.values["label"], r.values["max_concurrency"], r.values["request_rate"] = nil, nil, any("inf")
	if s.Label != "" {
		r.values["label"] = s.Label
	}
	if cfg.MaxConcurrency > 0 {
		r.values["max_concurrency"] = cfg.MaxConcurrency
	}
	if cfg.RequestRate > 0 {
		r.values["request_rate"] = cfg.RequestRate
	}
}

// details are lists that run along the requests; stage_metrics is {} where a request has none.
func (r *Report) details(out []Outcome) {
	n := len(out)
	inputs, outputs, ttfts, latencies := make([]int, n), make([]int, n), make([]float64, n), make([]float64, n)
	starts, queues, itls := make([]float64, n), make([]float64, n), make([][]float64, n)
	texts, errs, stages := make([]string, n), make([]string, n), make([]map[string]any, n)
	for i, o := range out {
		inputs[i], outputs[i], ttfts[i], latencies[i] = o.InputLen, o.OutputLen, o.TTFT.Seconds(), o.Latency.Seconds()
		starts[i], queues[i], texts[i], errs[i], itls[i] = o.Start.Seconds(), o.QueueTime.Seconds(), o.Text, o.Error, []float64{}
		for _, d := range o.ITL {
			itls[i] = append(itls[i], d.Seconds())
		}
		if stages[i] = o.StageMetrics; stages[i] == nil {
			stages[i] = map[string]any{}
		}
	}
	for k, v := range map[string]any{"input_lens": inputs, "output_lens": outputs, "ttfts": ttfts, "itls": itls, "latencies": latencies,
		"start_times": starts, "queue_times": queues, "generated_texts": texts, "errors": errs, "stage_metrics": stages} {
		r.values[k] = v
	}
}

// Values are the figures for a JSON file.
func (r *Report) Values() map[string]any { return r.values }

// WriteTo prints the table.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	b.WriteString("============ Serving Benchmark Result ============\n")
	for _, x := range r.rows {
		if x.whole {
			fmt.Fprintf(&b, "%-40s %-10d\n", x.label, int(x.value))
		} else {
			fmt.Fprintf(&b, "%-40s %-10.2f\n", x.label, x.value)
		}
	}
	b.WriteString(strings.Repeat("=", 50) + "\n")
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// overlap is the most requests that were in flight at once.
func overlap(out []Outcome) (most int) {
	type edge struct {
		at time.Duration
		by int
	}
	var edges []edge
	for _, o := range out {
		if o.Success {
			edges = append(edges, edge{o.Start, 1}, edge{o.Start + o.Latency, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return a.by - b.by
	})
	now := 0
	for _, e := range edges {
		now += e.by
		most = max(most, now)
	}
	return most
}

func moments(v []float64) (mean, std float64) {
	if len(v) == 0 {
		return 0, 0
	}
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		std += (x - mean) * (x - mean) / float64(len(v))
	}
	return mean, math.Sqrt(std)
}

// percentile interpolates linearly in sorted values, as numpy does.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := p / 100 * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
