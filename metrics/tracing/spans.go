package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// requestSpan is vLLM's name.
const requestSpan = "llm_request"

// make ends every span of a request, with the times that its records hold.
func (t *Tracer) make(g *gathering) {
	f := g.front
	ctx := context.WithValue(context.Background(), chosenKey{}, g.own)
	if g.parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, spanContext(g.parent))
	}
	begin, end := f.Arrival, f.End
	for _, s := range g.records {
		end = later(end, s.FinishedAt)
	}
	_, span := t.tracer.Start(ctx, requestSpan, trace.WithTimestamp(begin.Time()), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(requestAttributes(f, g.records)...))
	t.edgeEvents(span, f.Edges)
	status(span, f, g.records)
	under := trace.ContextWithSpan(context.Background(), span)
	for _, s := range g.records {
		t.stage(under, s)
	}
	span.End(trace.WithTimestamp(end.Time()))
}

func later(a, b clock.Wall) clock.Wall {
	if a.Time().Before(b.Time()) {
		return b
	}
	return a
}

// wall maps a core's reading; absent without that core's pair, and for another core's reading.
func (t *Tracer) wall(stage, replica int, at clock.Time) clock.Wall {
	t.mu.Lock()
	pair := t.pairs[[2]int{stage, replica}]
	t.mu.Unlock()
	return pair.Map(at)
}

// edgeEvents adds the events of the request's streams, each with the clock that it was read on.
func (t *Tracer) edgeEvents(span trace.Span, edges []record.StreamEdge) {
	for i := range edges {
		e := &edges[i]
		to := attribute.String("omni.edge.to", "client")
		if e.To != record.Client {
			to = attribute.Int("omni.edge.to", e.To)
		}
		for _, v := range []struct {
			name string
			at   record.Instant
		}{
			{"first_output_chunk", e.FirstOutput}, {"first_byte_sent", e.FirstByte}, {"first_input_chunk", e.FirstInput}, {"last_byte_sent", e.LastByte},
		} {
			if at := v.at.Wall(t.wall); at.IsSet() {
				span.AddEvent(v.name, trace.WithTimestamp(at.Time()),
					trace.WithAttributes(attribute.Int("omni.edge.from", e.From), to, attribute.String("omni.clock", v.at.Clock())))
			}
		}
	}
}

// status is an error's when the answer or a stage failed; a client that went away is none.
func status(span trace.Span, f *record.Front, records []*record.Stage) {
	failure := f.Failure
	for _, s := range records {
		if s.Finish == request.FinishError && failure == "" {
			failure = s.Name() + " failed"
		}
	}
	if failure != "" {
		span.SetStatus(codes.Error, failure)
	}
}

// stage makes a stage's span and its phases'.
func (t *Tracer) stage(ctx context.Context, s *record.Stage) {
	at := func(c clock.Time) clock.Wall { return t.wall(s.StageID, s.Replica, c) }
	begin, end := firstSet(at(s.SubmitTS), at(s.QueuedTS), s.Arrival), firstSet(at(s.EndTS), s.FinishedAt)
	ctx, span := t.tracer.Start(ctx, s.Name(), trace.WithTimestamp(begin.Time()), trace.WithAttributes(stageAttributes(s)...))
	phase := func(name string, from, to clock.Time, set clock.Span) {
		if a, b := at(from), at(to); set.IsSet() && a.IsSet() && b.IsSet() {
			_, p := t.tracer.Start(ctx, name, trace.WithTimestamp(a.Time()), trace.WithAttributes(attribute.Int("vllm_omni.stage.id", s.StageID)))
			p.End(trace.WithTimestamp(b.Time()))
		}
	}
	phase("queue", s.QueuedTS, s.ScheduledTS, s.QueuedTime())
	phase("prefill", s.ScheduledTS, s.FirstTokenTS, s.PrefillTime())
	phase("decode", s.FirstTokenTS, s.LastTokenTS, s.DecodeTime())
	phase("unscheduled_wait", s.QueuedTS, s.EndTS, s.UnscheduledWait())
	for _, w := range s.WaitStays() {
		phase(w.Name, w.From, w.To, w.Length())
	}
	if s.Finish == request.FinishError {
		span.SetStatus(codes.Error, s.Finish.String())
	}
	span.End(trace.WithTimestamp(end.Time()))
}

func firstSet(times ...clock.Wall) clock.Wall {
	for _, w := range times {
		if w.IsSet() {
			return w
		}
	}
	return clock.WallAt(time.Unix(0, 0))
}
