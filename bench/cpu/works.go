package main

import (
	"context"
	"fmt"
	"time"

	"omni-engine/bench/load"
)

// figure is one number that a work yields.
type figure struct {
	name, unit string
	cost       bool // smaller is better
}

// work is one thing to measure on both engines.
type work struct {
	name, what string
	figures    []figure
	quick      int // rounds in the short form; 0: not in it
	full       int
	busy       bool // beside a process that never sleeps
	// measure returns a value for each figure.
	measure func(ctx context.Context, e engine, quick bool) ([]float64, error)
}

func rate(name string) []figure { return []figure{{name: name, unit: "tokens/s"}} }

// single makes a work of one rate.
func single(name, what string, quick, full int, f func(context.Context, engine) (float64, error)) work {
	return work{name: name, what: what, figures: rate(name), quick: quick, full: full,
		measure: func(ctx context.Context, e engine, _ bool) ([]float64, error) {
			v, err := f(ctx, e)
			return []float64{v}, err
		}}
}

// beside makes the work that runs next to a busy process.
func beside(w work) work {
	w.name, w.what, w.busy = "busy_"+w.name, w.what+", beside one busy process", true
	w.figures = rate(w.name)
	w.quick = 0
	return w
}

// works are all works in the order in which a round does them: what is short and matters most comes first, since a time limit
// cuts from the end.
func works() []work {
	prefill := func(n int) func(context.Context, engine) (float64, error) {
		return func(ctx context.Context, e engine) (float64, error) { return e.prefill(ctx, n) }
	}
	decode := func(behind, n int) func(context.Context, engine) (float64, error) {
		return func(ctx context.Context, e engine) (float64, error) { return e.decode(ctx, behind, n) }
	}
	parallel := func(n, in, out int) func(context.Context, engine) (float64, error) {
		return func(ctx context.Context, e engine) (float64, error) { return e.parallel(ctx, n, in, out) }
	}
	one := single("decode", "one sequence behind 128 tokens, 128 generated", 5, 7, decode(128, 128))
	pre := single("prefill", "one prompt of 512 tokens", 5, 7, prefill(512))
	p16 := single("par16", "16 sequences, 128 in / 64 out, generation", 3, 5, parallel(16, 128, 64))
	return []work{
		one, pre,
		{name: "start", what: "process start to first token, 8 in, file in the page cache", figures: []figure{{"start", "ms", true}}, quick: 3, full: 7, measure: startTime},
		p16,
		{name: "http16", what: "HTTP, 16 clients, 128 in / 128 out", quick: 2, full: 5, measure: overHTTP(16, 0),
			figures: []figure{{"http16", "tokens/s", false}, {"http16_p99_itl", "ms", true}, {"memory16", "MiB", true}}},
		{name: "http1", what: "HTTP, 1 client, 128 in / 128 out", quick: 2, full: 5, measure: overHTTP(1, 0),
			figures: []figure{{"http1", "tokens/s", false}, {"http1_p99_itl", "ms", true}}},
		single("decode2048", "one sequence behind 2,048 tokens, 64 generated", 2, 5, decode(2048, 64)),
		single("prefill2048", "one prompt of 2,048 tokens", 2, 5, prefill(2048)),
		single("par64", "64 sequences, 128 in / 64 out, generation", 1, 5, parallel(64, 128, 64)),
		{name: "prefix64", what: "HTTP, 64 requests that share 1,500 tokens, 64 in / 64 out, 16 at a time", full: 3, measure: overHTTP(16, 1500),
			figures: []figure{{"prefix64", "tokens/s", false}, {"prefix64_p99_itl", "ms", true}}},
		{name: "perplexity", what: "the fixed text in windows of 512 tokens, as llama-perplexity scores it", quick: 1, full: 1, measure: perplexities,
			figures: []figure{{"perplexity", "PPL", true}}},
		beside(one), beside(pre), beside(p16),
	}
}

// slowPeerWorks stand in for prefill and the 64 sequences where a peer is measured over HTTP only.
func slowPeerWorks() []work {
	return []work{
		{name: "http_prefill", what: "HTTP, 1 client, 512 in / 1 out, tokens of the prompt", figures: rate("http_prefill"), full: 3, measure: prefillOverHTTP},
		{name: "http64", what: "HTTP, 64 clients, 128 in / 128 out", full: 3, measure: overHTTP(64, 0),
			figures: []figure{{"http64", "tokens/s", false}, {"http64_p99_itl", "ms", true}, {"memory64", "MiB", true}}},
	}
}

func prefillOverHTTP(ctx context.Context, e engine, _ bool) ([]float64, error) {
	s, err := e.serve(ctx, 1, 576)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	if _, err := s.firstToken(ctx); err != nil {
		return nil, err
	}
	cfg := load.Config{NumPrompts: 8, InputLen: 512, OutputLen: 1, MaxConcurrency: 1, IgnoreEOS: true, Seed: 2}
	values, err := drive(ctx, s.base, cfg)
	if err != nil {
		return nil, err
	}
	return []float64{values[0] * float64(cfg.InputLen)}, nil // a token out is a prompt of 512
}

// overHTTP loads a fresh server with the given number of clients at once.
func overHTTP(clients, shared int) func(context.Context, engine, bool) ([]float64, error) {
	return func(ctx context.Context, e engine, quick bool) ([]float64, error) {
		cfg := load.Config{NumPrompts: 3 * clients, InputLen: 128, OutputLen: 128, MaxConcurrency: clients, IgnoreEOS: true, Seed: 1}
		if clients > 16 || quick && clients > 1 {
			cfg.NumPrompts = clients
		}
		if shared > 0 {
			cfg.NumPrompts, cfg.InputLen, cfg.OutputLen, cfg.PrefixLen = 64, 64, 64, shared
		}
		// Slots that would hold a request exactly overflow with a begin-of-text token: some room is left.
		s, err := e.serve(ctx, clients, cfg.PrefixLen+cfg.InputLen+cfg.OutputLen+32)
		if err != nil {
			return nil, err
		}
		defer s.stop()
		if _, err := s.firstToken(ctx); err != nil {
			return nil, err
		}
		watch := watchMemory(s.cmd.Process.Pid)
		values, err := drive(ctx, s.base, cfg)
		memory := watch()
		if err != nil {
			return nil, err
		}
		if clients > 1 && shared == 0 {
			values = append(values, memory)
		}
		return values, nil
	}
}

// drive runs the load generator: output tokens a second, 99th percentile of the time between tokens in ms.
func drive(ctx context.Context, base string, cfg load.Config) ([]float64, error) {
	zero := 0.0
	cfg.BaseURL, cfg.Temperature = base, &zero
	out, took, err := load.Run(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", base, err)
	}
	for _, o := range out {
		if !o.Success {
			return nil, fmt.Errorf("a request to %s failed: %s", base, o.Error)
		}
		if o.OutputLen != cfg.OutputLen {
			return nil, fmt.Errorf("%s generated %d tokens where %d were asked for: its rate cannot be compared", base, o.OutputLen, cfg.OutputLen)
		}
	}
	v := load.Make(cfg, load.Summary{Metrics: []string{"itl"}, Percentiles: []float64{99}}, out, took).Values()
	rate, _ := v["output_throughput"].(float64)
	p99, _ := v["p99_itl_ms"].(float64)
	return []float64{rate, p99}, nil
}

// startTokens is the room of the server that "start" measures.
const startTokens = 512

func startTime(ctx context.Context, e engine, _ bool) ([]float64, error) {
	s, err := e.serve(ctx, 1, startTokens)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	took, err := s.firstToken(ctx)
	return []float64{float64(took) / float64(time.Millisecond)}, err
}
