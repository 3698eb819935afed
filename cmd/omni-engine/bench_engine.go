package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"

	"omni-engine/cmd/omni-engine/build"
	"omni-engine/engine"
	"omni-engine/engine/models"
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/internal/config"
	"omni-engine/internal/hub"
	"omni-engine/kernels"
	"omni-engine/scheduler"
)

// engineBench is what "bench engine" runs: sequences of random tokens through core, scheduler, runner and device, without
// tokenizer, output processor and HTTP.
type engineBench struct {
	prompt, gen, batch, rounds int
	json                       bool
}

// engineReport is its result; rates are a value a round.
type engineReport struct {
	Model   string `json:"model"`
	Version string `json:"version"`
	Device  string `json:"device"`
	Level   string `json:"level"`
	Threads int    `json:"threads"`
	Prompt  int    `json:"prompt"`
	Gen     int    `json:"gen"`
	Batch   int    `json:"batch"`
	matrixWork
	LoadSeconds float64   `json:"load_seconds"`
	Prefill     []float64 `json:"prefill_tokens_per_second"`
	Decode      []float64 `json:"decode_tokens_per_second"`
}

func benchEngineCommand() *cobra.Command {
	loader, b := config.NewLoader(), &engineBench{}
	cmd := &cobra.Command{
		Use:   "engine [MODEL]",
		Short: "Measure prefill and decode of the engine core, without HTTP",
		Long: "Run sequences of random tokens through scheduler and kernels. Prefill: prompt tokens of all sequences over the time from\n" +
			"their submission to the last one's first token. Decode: tokens from then until the first sequence ends, all sequences\n" +
			"together, behind the prompt. serve's flags set the engine up.",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loader.Load(cmd.Flags(), args, os.Getenv)
			if err != nil {
				return err
			}
			r, err := b.run(cmd.Context(), cfg)
			if err != nil {
				return fmt.Errorf("bench engine: %w", err)
			}
			if b.json {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s on %s (%s, %d threads)\n%d x %d in / %d out: prefill %.1f, decode %.1f tokens/s\n",
				r.Model, r.Device, r.Level, r.Threads, r.Batch, r.Prompt, r.Gen, r.Prefill, r.Decode)
			return nil
		},
	}
	loader.Register(cmd.Flags())
	cmd.Flags().IntVar(&b.prompt, "prompt", 512, "tokens of each prompt")
	cmd.Flags().IntVar(&b.gen, "gen", 128, "tokens that each sequence generates")
	cmd.Flags().IntVar(&b.batch, "batch", 1, "sequences at once")
	cmd.Flags().IntVar(&b.rounds, "rounds", 3, "times to measure")
	cmd.Flags().BoolVar(&b.json, "json", false, "print one JSON object")
	return cmd
}

func (b *engineBench) check(cfg *config.Serve, maxLen int) error {
	if b.prompt < 1 || b.gen < 1 || b.batch < 1 || b.rounds < 1 {
		return errors.New("--prompt, --gen, --batch and --rounds must be at least 1")
	}
	if b.prompt+b.gen > maxLen {
		return fmt.Errorf("%d tokens in and %d out exceed the context of %d", b.prompt, b.gen, maxLen)
	}
	if b.batch > cfg.MaxNumSeqs {
		return fmt.Errorf("%d sequences at once need --max-num-seqs %d or more (it is %d)", b.batch, b.batch, cfg.MaxNumSeqs)
	}
	return nil
}

func (b *engineBench) run(ctx context.Context, cfg *config.Serve) (_ *engineReport, err error) {
	begin := time.Now()
	src, err := openSource(ctx, cfg, func(hub.Progress) {})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	m, err := src.load(cfg)
	if err != nil {
		return nil, err
	}
	maxLen, err := contextLength(cfg, m)
	if err != nil {
		return nil, err
	}
	if cfg.PrefillBesideDecode < 0 {
		cfg.PrefillBesideDecode = 0 // prefill and decode are measured one after the other
	}
	dev, err := openDevice(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	if err := errors.Join(sizeSteps(cfg, dev, maxLen), b.check(cfg, maxLen)); err != nil {
		return nil, err
	}
	asm, err := assemble(cfg, dev, m, maxLen)
	if err != nil {
		return nil, err
	}
	_ = src.weights.DropPages() // as serve does
	r := b.report(src, dev.Info())
	r.matrixWork = workOf(m.Module)
	r.LoadSeconds = time.Since(begin).Seconds()
	return r, b.measure(ctx, m, asm, schedulerConfig(cfg, m, asm), r)
}

func (b *engineBench) report(src *source, dev kernels.DeviceInfo) *engineReport {
	return &engineReport{Model: src.path, Version: build.Read().Version, Device: dev.Name, Level: dev.Level, Threads: dev.Threads,
		Prompt: b.prompt, Gen: b.gen, Batch: b.batch, Prefill: []float64{}, Decode: []float64{}}
}

func (b *engineBench) measure(ctx context.Context, m *models.Model, asm *engine.Assembly, plan scheduler.Config, r *engineReport) (err error) {
	watch := newBenchWatch()
	core, err := engine.New(engine.Config{Name: "bench", Scheduler: plan, Outputs: watch, Depth: asm.Limits.InFlight,
		Cache: asm.Facts}, asm.Runner)
	if err != nil {
		return errors.Join(err, asm.Runner.Close())
	}
	defer func() { err = errors.Join(err, core.Close()) }()
	// Threads, caches and the first touch of the memory are not what is measured.
	warm := engineBench{prompt: min(32, b.prompt), gen: min(4, b.gen), batch: 1}
	if _, _, err := warm.round(ctx, core, watch, m.Vocab, 0); err != nil {
		return fmt.Errorf("warming up: %w", err)
	}
	for i := range b.rounds {
		prefill, decode, err := b.round(ctx, core, watch, m.Vocab, i+1)
		if err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		r.Prefill = append(r.Prefill, prefill)
		if b.gen > 1 {
			r.Decode = append(r.Decode, decode)
		}
	}
	return nil
}

// round runs all sequences once. Its prompts are its own, so that the prefix cache finds nothing of earlier rounds.
func (b *engineBench) round(ctx context.Context, core *engine.EngineCore, w *benchWatch, vocab, seed int) (prefill, decode float64, err error) {
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	reqs := make([]*request.Request, b.batch)
	for i := range reqs {
		p := request.DefaultSampling()
		p.Temperature, p.MaxTokens, p.IgnoreEOS, p.Detokenize = 0, b.gen, true, false
		reqs[i] = &request.Request{ID: request.ID(fmt.Sprintf("bench-%d-%d", seed, i)), Prompt: make([]int32, b.prompt), Sampling: p}
		for k := range reqs[i].Prompt {
			reqs[i].Prompt[k] = int32(rng.IntN(vocab))
		}
	}
	w.expect(b.batch, b.gen)
	begin := core.Clock().Now()
	for _, r := range reqs {
		if err := core.Submit(r); err != nil {
			return 0, 0, fmt.Errorf("submitting %s: %w", r.ID, err)
		}
	}
	select {
	case err = <-w.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return 0, 0, err
	}
	return w.rates(begin, b.prompt)
}

// benchWatch follows one round's outputs on the core's goroutine; done hands the round back.
type benchWatch struct {
	done  chan error
	batch int
	gen   int
	count map[request.ID]int

	started, ended    int
	allStarted, first clock.Time // the last first token; the first end
	tokens            int        // after allStarted, up to first
}

func newBenchWatch() *benchWatch { return &benchWatch{done: make(chan error, 1)} }

// expect prepares for a round; the core is idle.
func (w *benchWatch) expect(batch, gen int) {
	*w = benchWatch{done: make(chan error, 1), batch: batch, gen: gen, count: map[request.ID]int{}}
}

// Step counts tokens. A step's outputs share a time: those of the step in which the last sequence starts belong to prefill.
func (w *benchWatch) Step(o *request.StepOutputs) {
	steady := w.started == w.batch && w.ended == 0
	for i := range o.Outputs {
		out := &o.Outputs[i]
		if w.count[out.ID] == 0 && len(out.NewTokens) > 0 {
			if w.started++; w.started == w.batch {
				w.allStarted = o.At
			}
		}
		w.count[out.ID] += len(out.NewTokens)
		if steady {
			w.tokens += len(out.NewTokens)
		}
		if out.Finish != request.NotFinished {
			w.end(o.At, out)
		}
	}
}

func (w *benchWatch) end(at clock.Time, out *request.Output) {
	if w.ended++; w.ended == 1 {
		w.first = at
	}
	switch {
	case out.Finish != request.FinishLength:
		w.tell(fmt.Errorf("request %s ended with %s %s", out.ID, out.Finish, out.Err))
	case w.count[out.ID] != w.gen:
		w.tell(fmt.Errorf("request %s gave %d tokens, not %d", out.ID, w.count[out.ID], w.gen))
	case w.ended == w.batch:
		w.tell(nil)
	}
}

// Terminal tells of requests that ended without a step: none should.
func (w *benchWatch) Terminal(_ clock.Time, outputs []request.Output) {
	for i := range outputs {
		w.tell(fmt.Errorf("request %s ended with %s %s", outputs[i].ID, outputs[i].Finish, outputs[i].Err))
	}
}

// Lost tells of the core's death.
func (w *benchWatch) Lost(err error) { w.tell(err) }

func (w *benchWatch) tell(err error) {
	select {
	case w.done <- err:
	default: // the first word counts
	}
}

func (w *benchWatch) rates(begin clock.Time, prompt int) (prefill, decode float64, err error) {
	took, ok := w.allStarted.Sub(begin).Get()
	if !ok || took <= 0 {
		return 0, 0, errors.New("no time between submission and first token")
	}
	prefill = float64(w.batch*prompt) / took.Seconds()
	if w.gen == 1 {
		return prefill, 0, nil
	}
	steady, ok := w.first.Sub(w.allStarted).Get()
	if !ok || steady <= 0 || w.tokens == 0 {
		return 0, 0, fmt.Errorf("the first sequence ended before the last began: give a --gen well above %d, or a larger --max-num-batched-tokens", w.gen)
	}
	return prefill, float64(w.tokens) / steady.Seconds(), nil
}
