package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel"

	"omni-engine/cmd/omni-engine/build"
	"omni-engine/internal/clock"
	"omni-engine/internal/config"
	"omni-engine/internal/server/openai"
	"omni-engine/metrics/record"
	"omni-engine/metrics/tracing"
)

// flushTraces is how long the end waits for a collector.
const flushTraces = 5 * time.Second

// tracesWanted reports whether requests are traced at all.
func tracesWanted(cfg *config.Serve) bool {
	return cfg.OTLPEndpoint != "" && cfg.Recording() && !tracing.Disabled(os.Getenv)
}

// checkTracing tells a wrong endpoint or OTEL_* variable before the model is loaded.
func checkTracing(cfg *config.Serve) error {
	if !tracesWanted(cfg) {
		return nil
	}
	return tracing.Check(cfg.OTLPEndpoint, os.Getenv)
}

// startTracing opens the exporter. Start it before the core, so that it is closed after it and has every record by then.
func (a *app) startTracing(ctx context.Context, cfg *config.Serve, log *slog.Logger) error {
	if !tracesWanted(cfg) {
		if cfg.OTLPEndpoint != "" {
			log.Warn("no traces are exported: spans are made of stage records, which --no-log-stats and --disable-log-stats turn off, "+
				"and OTEL_SDK_DISABLED=true turns the exporter off", "endpoint", cfg.OTLPEndpoint)
		}
		return nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Debug("OpenTelemetry", "error", err) }))
	t, err := tracing.New(ctx, tracing.Options{Endpoint: cfg.OTLPEndpoint, Getenv: os.Getenv, Version: build.Read().Version, Log: log})
	if err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	a.tracer = t
	a.metrics.SetTraces(func() (exported, queueFull, exportFailed int64) {
		c := t.Counts()
		return c.Exported, c.Dropped, c.Failed
	})
	a.closers = append(a.closers, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, flushTraces)
		defer cancel()
		if err := t.Shutdown(ctx); err != nil {
			log.Warn("the last traces may be lost", "error", err)
		}
		return nil
	})
	return nil
}

// traceSink puts the tracer before a core's sink, and tells it the core's clock.
func (a *app) traceSink(next record.Sink, stage, replica int, pair clock.Pair) record.Sink {
	if a.tracer == nil {
		return next
	}
	a.tracer.Core(stage, replica, pair)
	return a.tracer.Sink(next)
}

// fronts is what the server tells of each request's end: to the metrics, and to the tracer when there is one.
type fronts []record.FrontSink

func (f fronts) FrontFinished(e *record.Front) {
	for _, s := range f {
		s.FrontFinished(e)
	}
}

// watch adds what follows requests to the server's options.
func (a *app) watch(cfg *config.Serve, o openai.Options) openai.Options {
	if !cfg.Recording() {
		return o
	}
	sinks := fronts{a.metrics}
	if a.tracer != nil {
		o.Tracer, sinks = a.tracer, append(sinks, a.tracer)
	}
	o.Front = sinks
	return o
}
