package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"omni-engine/cmd/omni-engine/build"
	"omni-engine/engine"
	"omni-engine/engine/models"
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/internal/config"
	"omni-engine/internal/server/dashboard"
	"omni-engine/internal/server/openai"
	"omni-engine/internal/server/schema"
	"omni-engine/internal/tensor"
	"omni-engine/kernels"
	"omni-engine/metrics"
	"omni-engine/metrics/record"
	"omni-engine/metrics/stagelog"
	"omni-engine/metrics/tracing"
	"omni-engine/output"
	"omni-engine/scheduler"
	"omni-engine/stages"
)

// app is a running server without its socket.
type app struct {
	handler  http.Handler
	pipeline *stages.Orchestrator
	metrics  *metrics.Metrics
	page     *dashboard.Dashboard // nil: --disable-dashboard
	tracer   *tracing.Tracer      // nil: no --otlp-traces-endpoint
	requests context.Context      // parent of every request's context
	abort    context.CancelFunc
	closers  []func(context.Context) error // run last to first
}

// close ends the app's parts in reverse order.
func (a *app) close(ctx context.Context) error {
	a.abort()
	var errs []error
	for i := len(a.closers) - 1; i >= 0; i-- {
		errs = append(errs, a.closers[i](ctx))
	}
	return errors.Join(errs...)
}

// newApp opens model and device, compiles, plans the memory, starts the core, and puts the API in front of it.
func newApp(ctx context.Context, cfg *config.Serve, log *slog.Logger) (*app, error) {
	a := &app{}
	requests, end := context.WithCancelCause(context.Background())
	a.requests, a.abort = requests, func() { end(openai.ErrShutdown) }
	if err := a.start(ctx, cfg, log); err != nil {
		return nil, errors.Join(err, a.close(context.Background()))
	}
	return a, nil
}

func (a *app) start(ctx context.Context, cfg *config.Serve, log *slog.Logger) error {
	begin := time.Now()
	src, err := openSource(ctx, cfg, progress(logWriter{log}))
	if err != nil {
		return err
	}
	a.closers = append(a.closers, func(context.Context) error { return src.Close() })
	m, err := src.load(cfg)
	if err != nil {
		return fmt.Errorf("model %s: %w", src.path, err)
	}
	for _, id := range m.EOS { // of config.json or the GGUF file, beside the tokenizer's and the generation config's
		src.addEOS(id)
	}
	dev, err := openDevice(cfg, log)
	if err != nil {
		return err
	}
	a.closers = append(a.closers, func(context.Context) error { return dev.Close() })
	maxLen, err := contextLength(cfg, m)
	if err != nil {
		return err
	}
	if err := sizeSteps(cfg, dev, maxLen); err != nil {
		return err
	}
	asm, err := assemble(cfg, dev, m, maxLen)
	if err != nil {
		return err
	}
	_ = src.weights.DropPages() // packed: the mapped pages would only count as resident
	logPlan(log, dev.Info(), m, asm, cfg, maxLen, time.Since(begin))
	names := cfg.ServedModelName
	if len(names) == 0 {
		names = []string{servedName(cfg, src)}
	}
	if err := a.startMetrics(cfg, names[0], maxLen, schedulerConfig(cfg, m, asm).NumSpecTokens); err != nil {
		return err
	}
	if err := a.startTracing(ctx, cfg, log); err != nil {
		return err
	}
	a.startDashboard(cfg, names)
	if err := a.startCore(cfg, src, m, asm, names[0], log); err != nil {
		return err
	}
	return a.startServer(cfg, src, m, names, maxLen, log)
}

// load builds the module.
func (s *source) load(cfg *config.Serve) (*models.Model, error) {
	in := models.Source{Config: s.config, Weights: s.weights, MaxModelLen: cfg.MaxModelLen}
	if s.gguf != nil {
		in.Metadata = s.gguf.Meta
	}
	return models.Load(in)
}

// contextLength is --max-model-len, which may not exceed what the model was made for.
func contextLength(cfg *config.Serve, m *models.Model) (int, error) {
	if cfg.MaxModelLen == 0 {
		return m.MaxModelLen, nil
	}
	if m.MaxModelLen > 0 && cfg.MaxModelLen > m.MaxModelLen {
		return 0, fmt.Errorf("--max-model-len: user-specified max_model_len (%d) is greater than the derived max_model_len "+
			"(max_position_embeddings=%d); give at most that", cfg.MaxModelLen, m.MaxModelLen)
	}
	return cfg.MaxModelLen, nil
}

func assemble(cfg *config.Serve, dev kernels.Device, m *models.Model, maxLen int) (*engine.Assembly, error) {
	return engine.Assemble(dev, m.Module, settings(cfg, dev, m, maxLen))
}

// settings says how the model is to be run on the device.
func settings(cfg *config.Serve, dev kernels.Device, m *models.Model, maxLen int) engine.Settings {
	bytes := cfg.KVCacheBytes
	if cfg.KVSpaceGiB > 0 {
		bytes = int64(cfg.KVSpaceGiB) << 30
	}
	exact := strings.HasPrefix(cfg.DType, "float")
	kv := map[string]tensor.DType{"float32": tensor.F32, "float16": tensor.F16, "bfloat16": tensor.BF16}[cfg.KVCacheDType]
	if kv == tensor.Invalid && exact {
		kv = tensor.F32
	}
	depth := 1
	if _, own := dev.(kernels.MemoryDevice); cfg.AsyncScheduling == "true" || cfg.AsyncScheduling == "auto" && own {
		depth = 2
	}
	return engine.Settings{MaxModelLen: maxLen, MaxSeqs: cfg.MaxNumSeqs, MaxTokens: cfg.MaxNumBatchedTokens,
		BlockSize: cfg.BlockSize, Depth: depth, Seed: uint64(cfg.Seed), CacheBytes: bytes, Blocks: cfg.NumBlocks, Free: engine.FreeMemory(os.DirFS("/")), KV: kv, Exact: exact,
		Compute: map[string]tensor.DType{"bfloat16": tensor.BF16, "float16": tensor.F16, "half": tensor.F16}[cfg.DType],
		Prefix:  cfg.PrefixCaching && !m.Recurrent, HashAlgo: cfg.PrefixHash, Utilization: cfg.Utilization}
}

func logPlan(log *slog.Logger, dev kernels.DeviceInfo, m *models.Model, asm *engine.Assembly, cfg *config.Serve, maxLen int, took time.Duration) {
	log.Info("model", "architecture", m.Architecture, "vocab", m.Vocab, "max_model_len", maxLen, "load_seconds", took.Seconds())
	log.Info("device", "kind", dev.Kind, "name", dev.Name, "level", dev.Level, "threads", dev.Threads)
	log.Info("memory plan", "weights", bytesText(asm.Memory.Weights), "scratch", bytesText(asm.Memory.Scratch), "kv_cache", bytesText(asm.Cache.Bytes),
		"kv_blocks", asm.Facts.NumBlocks, "block_size", cfg.BlockSize, "kv_tokens", asm.Cache.Tokens, "max_concurrency", fmt.Sprintf("%.2f", asm.Cache.MaxConcurrency),
		"max_num_seqs", cfg.MaxNumSeqs, "max_num_batched_tokens", cfg.MaxNumBatchedTokens)
	log.Debug("program", "explain", asm.Explain)
}

// servedName is the model's name in the API when none is given: what the user typed, as in vLLM; a GGUF file's is its base name.
func servedName(cfg *config.Serve, s *source) string {
	if s.gguf != nil {
		return strings.TrimSuffix(filepath.Base(s.path), ".gguf")
	}
	if cfg.Model != "" {
		return cfg.Model
	}
	return config.DefaultModel
}

func (a *app) startMetrics(cfg *config.Serve, model string, maxLen, specTokens int) error {
	var buckets map[string][]float64
	if cfg.CustomBuckets != "" {
		if err := json.Unmarshal([]byte(cfg.CustomBuckets), &buckets); err != nil {
			return fmt.Errorf("--custom-histogram-buckets: %w", err)
		}
	}
	b := build.Read()
	m, err := metrics.New(metrics.Config{ModelName: model, Stages: []metrics.StageInfo{{ID: 0, Type: record.LLMAutoregressive}}, MaxModelLen: maxLen,
		EngineLabel: cfg.MetricsEngineLabel, KVCacheMetrics: cfg.KVCacheMetrics, SpeculativeK: specTokens, ComputeNaNs: cfg.ComputeNaNs, DisableVLLM: cfg.DisableLogStats, CustomBuckets: buckets, Version: b.Version, Commit: b.Commit})
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	a.metrics = m
	return nil
}

// schedulerConfig is what the flags say, over which the assembly sets what it decided: sizes, KV groups, steps in flight.
func schedulerConfig(cfg *config.Serve, m *models.Model, asm *engine.Assembly) scheduler.Config {
	c := scheduler.DefaultConfig()
	c.MaxNumScheduledTokens, c.MaxNumActiveSeqs = cfg.MaxNumScheduled, cfg.MaxNumActiveSeqs
	c.MaxPrefillTokensBesideDecode = cfg.PrefillBesideDecode
	c.LongPrefillTokenThreshold, c.EnableChunkedPrefill = cfg.LongPrefillThreshold, cfg.ChunkedPrefill
	c.Policy, c.ReserveFullISL, c.Watermark = scheduler.Policy(cfg.Policy), cfg.ReserveFullISL, cfg.Watermark
	c.EnablePrefixCaching, c.NoRecord = cfg.PrefixCaching, !cfg.Recording()
	c.HashAlgo = scheduler.HashAlgo(cfg.PrefixHash)
	if cfg.KVCacheMetrics && cfg.Recording() {
		c.KVResidencySample = cfg.KVCacheMetricsSample
	}
	return asm.Scheduler(c, m.Module)
}

// stallAfter is how long a busy core may finish no step before /health says so. A step of a large prefill on few cores takes
// seconds, not a minute.
const stallAfter = time.Minute

// startCore starts the engine core and the pipeline around it.
func (a *app) startCore(cfg *config.Serve, src *source, m *models.Model, asm *engine.Assembly, name string, log *slog.Logger) error {
	sink := a.metrics.Sink(0, 0)
	switch {
	case !cfg.Recording():
		sink = record.Discard{}
	case cfg.LogStats:
		sink = stagelog.NewSink(sink, log)
	}
	look := a.lookAt(record.LLMAutoregressive)
	if cfg.Recording() {
		sink = look.sink(sink)
	}
	coreClock := clock.NewMonotonic()
	pair := coreClock.Pair()
	sink = a.traceSink(sink, 0, 0, pair)
	var observe func(*request.StepOutputs)
	if cfg.TraceFile != "" {
		trace, err := openTrace(cfg.TraceFile, "stage 0 replica 0", pair, cfg.MaxNumBatchedTokens)
		if err != nil {
			return err
		}
		a.closers = append(a.closers, func(context.Context) error { return trace.close() })
		observe = trace.observe
	}
	replica, err := stages.NewLocal(stages.LocalConfig{
		Observe: observe,
		Core: engine.Config{Clock: coreClock, Name: "stage 0 replica 0", Scheduler: schedulerConfig(cfg, m, asm), Depth: asm.Limits.InFlight,
			InputWaitTimeout: time.Duration(cfg.InputWaitTimeout * float64(time.Second)), StallAfter: stallAfter, NoRecord: !cfg.Recording(),
			Cache: asm.Facts, Log: log},
		Output: output.Config{Tokenizer: streamTokenizer{src.tokenizer}, Sink: sink, StreamInterval: cfg.StreamInterval, FinalOutputType: "text",
			Identity: record.Identity{Model: name, Type: record.LLMAutoregressive}},
	}, asm.Runner)
	if err != nil {
		return err
	}
	a.closers = append(a.closers, replica.Close)
	look.observe(replica.Snapshot)
	if err := a.metrics.SetSnapshotSource(0, 0, replica.Snapshot); err != nil {
		return err
	}
	a.pipeline, err = stages.New(stages.Options{MaxQueuedRequests: cfg.MaxNumQueuedReqs, MaxQueuedTokens: cfg.MaxNumQueuedTokens,
		OnReject: a.metrics.AdmissionRejected}, replica)
	if err != nil {
		return err
	}
	if cfg.Recording() {
		a.closers = append(a.closers, logThroughput(replica, log))
	}
	return nil
}

// throughputEvery is vLLM's interval.
const throughputEvery = 10 * time.Second

// logThroughput writes vLLM's periodic line until it is closed.
func logThroughput(replica stages.Replica, log *slog.Logger) func(context.Context) error {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(throughputEvery)
		defer t.Stop()
		var lines stagelog.Throughput
		for {
			select {
			case <-done:
				return
			case <-t.C:
				if line, level, ok := lines.Next(replica.Snapshot()); ok {
					log.Log(context.Background(), level, line)
				}
			}
		}
	}()
	return func(context.Context) error { close(done); <-ended; return nil }
}

// startServer puts the API in front of the pipeline.
func (a *app) startServer(cfg *config.Serve, src *source, m *models.Model, names []string, maxLen int, log *slog.Logger) error {
	model := &openai.Model{Names: names, Root: src.path, Tokenizer: apiTokenizer{src.tokenizer}, EOS: src.eos,
		Limits: openai.Limits{MaxModelLen: maxLen, VocabSize: m.Vocab, MaxLogprobs: cfg.MaxLogprobs, Defaults: src.defaults()}}
	if src.template != "" {
		r, err := openai.NewRenderer(src.template, src.special, cfg.ChatTemplateContentFormat)
		if err != nil {
			return err
		}
		model.Chat = r
	}
	var kwargs *schema.Dict
	if cfg.DefaultChatTemplateKwargs != "" {
		v, err := schema.Parse([]byte(cfg.DefaultChatTemplateKwargs))
		if err != nil {
			return fmt.Errorf("--default-chat-template-kwargs: %w", err)
		}
		kwargs, _ = v.(*schema.Dict)
	}
	s := openai.New(a.watch(cfg, openai.Options{Version: build.VLLM, APIKeys: cfg.APIKeys, RequestIDHeaders: cfg.RequestIDHeaders,
		CORS:      openai.CORS{Origins: cfg.AllowedOrigins, Methods: cfg.AllowedMethods, Headers: cfg.AllowedHeaders, Credentials: cfg.AllowCredentials},
		KeepAlive: time.Duration(cfg.SSEKeepAlive) * time.Second, ResponseRole: cfg.ResponseRole, TrustTemplate: cfg.TrustRequestChatTemplate,
		TemplateKwargs: kwargs, TokensAsIDs: cfg.ReturnTokensAsTokenIDs, PromptTokensDetails: cfg.EnablePromptTokensDetails,
		PerRequestMetrics: cfg.EnablePerRequestMetrics, ForceUsage: cfg.ForceIncludeUsage, LoadTracking: cfg.EnableServerLoadTracking,
		PriorityPolicy: cfg.Policy == "priority", LogRequests: cfg.LogRequests, LogOutputs: cfg.LogOutputs, MaxLogLen: cfg.MaxLogLen, Fingerprint: fingerprint(cfg), AccessLog: !cfg.DisableAccessLog,
		QuietEndpoints: cfg.QuietEndpoints, RootPath: cfg.RootPath, Pages: a.pages()}), model, a.pipeline, a.metrics.Handler(), a.metrics.HTTP(), log)
	a.handler = s.Handler()
	return nil
}
