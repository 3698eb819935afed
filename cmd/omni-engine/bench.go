package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"omni-engine/bench/load"
)

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "bench", Short: "Measure a server"}
	cmd.AddCommand(benchServeCommand(), benchEngineCommand())
	return cmd
}

// benchFlags are vllm bench serve's, as far as they are served.
type benchFlags struct {
	cfg                              load.Config
	host, rate, metrics, percentiles string
	dataset, extra, dir, file, label string
	port                             int
	temperature                      float64
	save, detailed                   bool
}

func benchServeCommand() *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Load an OpenAI-compatible server, as vllm bench serve does",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *benchFlags) register(fs *pflag.FlagSet) {
	c := &f.cfg
	fs.StringVar(&c.Backend, "backend", "openai", "openai (completions) or openai-chat")
	fs.StringVar(&c.BaseURL, "base-url", "", "server; default http://HOST:PORT")
	fs.StringVar(&f.host, "host", "127.0.0.1", "server's host")
	fs.IntVar(&f.port, "port", 8000, "server's port")
	fs.StringVar(&c.Endpoint, "endpoint", "", "path; default by backend")
	fs.StringVar(&c.Model, "model", "", "model name; default: the server's first")
	fs.StringVar(&f.dataset, "dataset-name", "random", "only random is built in")
	fs.IntVar(&c.NumPrompts, "num-prompts", 1000, "requests")
	fs.IntVar(&c.Warmups, "num-warmups", 0, "requests before the clock starts")
	fs.IntVar(&c.InputLen, "random-input-len", 1024, "tokens a prompt")
	fs.IntVar(&c.OutputLen, "random-output-len", 128, "tokens an answer")
	fs.IntVar(&c.PrefixLen, "random-prefix-len", 0, "tokens that all prompts share")
	fs.Float64Var(&c.RangeRatio, "random-range-ratio", 0, "lengths vary by this share")
	fs.IntVar(&c.VocabSize, "vocab-size", 32000, "random token ids stay below")
	fs.StringVar(&f.rate, "request-rate", "inf", "requests a second")
	fs.Float64Var(&c.Burstiness, "burstiness", 1, "1: Poisson arrivals; smaller: burstier")
	fs.IntVar(&c.MaxConcurrency, "max-concurrency", 0, "most requests in flight; 0: no limit")
	fs.Uint64Var(&c.Seed, "seed", 0, "of prompts and arrivals")
	fs.BoolVar(&c.IgnoreEOS, "ignore-eos", false, "generate to the full length")
	fs.Float64Var(&f.temperature, "temperature", 0, "sampling temperature")
	fs.StringVar(&f.extra, "extra-body", "", "JSON object that is added to each request")
	fs.StringVar(&c.RequestID, "request-id-prefix", "", "X-Request-Id is this and the request's number")
	fs.StringVar(&f.metrics, "percentile-metrics", "ttft,tpot,itl", "of ttft, tpot, itl, e2el")
	fs.StringVar(&f.percentiles, "metric-percentiles", "99", "comma list")
	fs.BoolVar(&f.save, "save-result", false, "write a JSON file")
	fs.BoolVar(&f.detailed, "save-detailed", false, "with every request's figures and stage_metrics")
	fs.StringVar(&f.dir, "result-dir", ".", "where the file goes")
	fs.StringVar(&f.file, "result-filename", "", "its name; default from backend and date")
	fs.StringVar(&f.label, "label", "", "written into the file")
}

func (f *benchFlags) run(cmd *cobra.Command) error {
	summary, err := f.complete(cmd.Flags())
	if err != nil {
		return err
	}
	out, took, err := load.Run(cmd.Context(), f.cfg)
	if err != nil {
		return fmt.Errorf("benchmark: %w", err)
	}
	r := load.Make(f.cfg, summary, out, took)
	if _, err := r.WriteTo(cmd.OutOrStdout()); err != nil {
		return err
	}
	if f.save || f.detailed {
		if err := f.write(r); err != nil {
			return fmt.Errorf("writing the result: %w", err)
		}
	}
	return judge(out, cmd.ErrOrStderr())
}

// judge tells of failures; a run in which nothing succeeded has measured nothing and is an error.
func judge(out []load.Outcome, log io.Writer) error {
	failed, first := 0, ""
	for _, o := range out {
		if o.Success {
			continue
		}
		if failed++; failed == 1 {
			first = o.Error
		}
	}
	switch {
	case failed == 0:
		return nil
	case failed == len(out):
		return fmt.Errorf("benchmark: all %d requests failed; the first: %s", failed, first)
	}
	_, err := fmt.Fprintf(log, "%d of %d requests failed; the first: %s\n", failed, len(out), first)
	return err
}

func (f *benchFlags) complete(fs *pflag.FlagSet) (s load.Summary, err error) {
	if f.dataset != "random" {
		return s, fmt.Errorf("--dataset-name %s is not supported: only random is", f.dataset)
	}
	if f.cfg.BaseURL == "" {
		f.cfg.BaseURL = fmt.Sprintf("http://%s:%d", f.host, f.port)
	}
	f.cfg.BaseURL = strings.TrimSuffix(f.cfg.BaseURL, "/")
	if f.cfg.APIKey = os.Getenv("OPENAI_API_KEY"); f.rate != "inf" {
		if f.cfg.RequestRate, err = strconv.ParseFloat(f.rate, 64); err != nil || f.cfg.RequestRate <= 0 {
			return s, fmt.Errorf("--request-rate must be a positive number or inf, got %q", f.rate)
		}
	}
	if fs.Changed("temperature") {
		f.cfg.Temperature = &f.temperature
	}
	if f.extra != "" {
		if err := json.Unmarshal([]byte(f.extra), &f.cfg.Extra); err != nil {
			return s, fmt.Errorf("--extra-body must be a JSON object: %w", err)
		}
	}
	f.cfg.StageMetrics = f.detailed
	s = load.Summary{Label: f.label, Detailed: f.detailed, Metrics: strings.Split(f.metrics, ",")}
	for _, m := range s.Metrics {
		if !slices.Contains([]string{"ttft", "tpot", "itl", "e2el"}, m) {
			return s, fmt.Errorf("--percentile-metrics: %q is none of ttft, tpot, itl, e2el", m)
		}
	}
	for p := range strings.SplitSeq(f.percentiles, ",") {
		v, err := strconv.ParseFloat(strings.TrimSpace(p), 64)
		if err != nil || v < 0 || v > 100 {
			return s, fmt.Errorf("--metric-percentiles: %q is no percentile", p)
		}
		s.Percentiles = append(s.Percentiles, v)
	}
	return s, nil
}

func (f *benchFlags) write(r *load.Report) error {
	name := f.file
	if name == "" {
		name = f.cfg.Backend + "-" + time.Now().Format("20060102-150405") + ".json"
	}
	b, err := json.Marshal(r.Values())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(f.dir, name), b, 0o644)
}
