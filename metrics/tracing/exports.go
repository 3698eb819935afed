package tracing

import (
	"context"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// exports gathers ended spans and sends them. Only the tracer's goroutine uses it.
type exports struct {
	t        *Tracer
	exporter sdk.SpanExporter
	spans    []sdk.ReadOnlySpan
	requests int64 // of spans
	failing  bool
}

// run makes spans of what was queued and exports them by number or time, until the queue is closed.
func (t *Tracer) run(ctx context.Context) {
	defer close(t.ended)
	timer := time.NewTimer(t.set.delay)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case g, more := <-t.queue:
			if !more {
				t.exports.flush(ctx)
				return
			}
			if ctx.Err() != nil {
				t.dropped.Add(1)
				continue
			}
			if len(t.exports.spans) == 0 {
				timer.Reset(t.set.delay)
			}
			t.make(g)
			t.exports.requests++
			if len(t.exports.spans) >= t.set.batch {
				timer.Stop()
				t.exports.flush(ctx)
			}
		case <-timer.C:
			t.exports.flush(ctx)
		}
	}
}

// flush exports; an export that fails is told once until one succeeds again.
func (e *exports) flush(ctx context.Context) {
	if len(e.spans) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.t.set.timeLimit)
	defer cancel()
	err := e.exporter.ExportSpans(ctx, e.spans)
	log := e.t.set.Log
	switch {
	case err != nil:
		e.t.failed.Add(e.requests)
		if !e.failing {
			log.Warn("traces cannot be exported; requests are served on, and this is not repeated", "endpoint", e.t.set.Endpoint,
				"protocol", e.t.set.protocol, "error", err)
		}
	default:
		e.t.exported.Add(e.requests)
		if e.failing {
			log.Info("traces are exported again", "endpoint", e.t.set.Endpoint, "lost", e.t.failed.Load())
		}
	}
	e.failing = err != nil
	e.spans, e.requests = nil, 0 // a new slice: an exporter may have kept the old one
}

// OnStart does nothing.
func (e *exports) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd keeps the span for the next export.
func (e *exports) OnEnd(s sdk.ReadOnlySpan) { e.spans = append(e.spans, s) }

// Shutdown does nothing: [Tracer.Shutdown] ends the exporter.
func (e *exports) Shutdown(context.Context) error { return nil }

// ForceFlush does nothing: the tracer's goroutine alone exports.
func (e *exports) ForceFlush(context.Context) error { return nil }
