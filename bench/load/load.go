// Package load drives an OpenAI-compatible server as `vllm bench serve` does and reports the same figures under the same
// names. It knows the server only through HTTP.
package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Config is one run.
type Config struct {
	BaseURL        string
	Backend        string // openai (completions) or openai-chat
	Endpoint       string // default by backend
	Model          string // default: the server's first
	APIKey         string
	NumPrompts     int
	InputLen       int
	OutputLen      int
	PrefixLen      int     // tokens that all prompts share
	RangeRatio     float64 // lengths vary in [n(1-r), n(1+r)]
	VocabSize      int     // random token ids stay below
	RequestRate    float64 // a second; 0: all at once
	Burstiness     float64 // 1: Poisson arrivals
	MaxConcurrency int     // 0: no limit
	Warmups        int
	Seed           uint64
	IgnoreEOS      bool
	Temperature    *float64
	StageMetrics   bool // ask for stage_metrics
	RequestID      string
	Extra          map[string]any
}

// Outcome is one request's.
type Outcome struct {
	Success      bool
	Error        string
	Text         string
	InputLen     int
	OutputLen    int
	Start        time.Duration // since the run's start
	QueueTime    time.Duration // in the generator, for a free place
	TTFT         time.Duration
	ITL          []time.Duration
	Latency      time.Duration
	StageMetrics map[string]any // nil when the server gave none
}

// Run sends the requests and returns their outcomes in order, with the duration of the whole. It stops early when ctx ends.
func Run(ctx context.Context, cfg Config) ([]Outcome, time.Duration, error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: max(cfg.NumPrompts, 16)}}
	defer client.CloseIdleConnections()
	if err := cfg.complete(ctx, client); err != nil {
		return nil, 0, err
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x6f6d6e69))
	requests := cfg.requests(rng)
	for i := range cfg.Warmups {
		if o := cfg.send(ctx, client, requests[i%len(requests)], time.Now()); !o.Success {
			return nil, 0, fmt.Errorf("warm-up request: %s", o.Error)
		}
	}
	out := make([]Outcome, len(requests))
	places := make(chan struct{}, max(1, cfg.limit(len(requests))))
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range requests {
		if err := pause(ctx, cfg.gap(rng, i)); err != nil {
			break
		}
		asked := time.Now()
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			start := time.Now()
			o := cfg.send(ctx, client, requests[i], start)
			o.Start, o.QueueTime = start.Sub(begin), start.Sub(asked)
			out[i] = o
		})
	}
	wg.Wait()
	return out, time.Since(begin), ctx.Err()
}

func (c *Config) limit(n int) int {
	if c.MaxConcurrency > 0 {
		return c.MaxConcurrency
	}
	return n
}

// gap is the time before request i: gamma-distributed with shape Burstiness and mean 1/rate (exponential at 1).
func (c *Config) gap(rng *rand.Rand, i int) time.Duration {
	if c.RequestRate <= 0 || i == 0 {
		return 0
	}
	shape := c.Burstiness
	if shape <= 0 {
		shape = 1
	}
	return time.Duration(gamma(rng, shape) / (shape * c.RequestRate) * float64(time.Second))
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Config) complete(ctx context.Context, client *http.Client) error {
	var errs []error
	if c.NumPrompts < 1 || c.InputLen < 1 || c.OutputLen < 1 {
		errs = append(errs, errors.New("the number of prompts and their lengths must be at least 1"))
	}
	for what, n := range map[string]int{"shared prefix": c.PrefixLen, "vocabulary": c.VocabSize, "concurrency": c.MaxConcurrency, "number of warm-ups": c.Warmups} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("the %s must not be negative, got %d", what, n))
		}
	}
	if c.Burstiness < 0 || math.IsNaN(c.Burstiness) {
		errs = append(errs, fmt.Errorf("the burstiness must be a positive number, got %v", c.Burstiness))
	}
	if !(c.RangeRatio >= 0 && c.RangeRatio < 1) {
		errs = append(errs, errors.New("the range ratio must be in [0, 1)"))
	}
	switch c.Backend {
	case "openai", "":
		c.Backend = "openai"
		if c.Endpoint == "" {
			c.Endpoint = "/v1/completions"
		}
	case "openai-chat":
		if c.Endpoint == "" {
			c.Endpoint = "/v1/chat/completions"
		}
	default:
		errs = append(errs, fmt.Errorf("unknown backend %q: openai or openai-chat", c.Backend))
	}
	if c.VocabSize == 0 {
		c.VocabSize = 32000
	}
	if len(errs) == 0 && c.Model == "" {
		name, err := c.firstModel(ctx, client)
		if err != nil {
			errs = append(errs, err)
		}
		c.Model = name
	}
	return errors.Join(errs...)
}
