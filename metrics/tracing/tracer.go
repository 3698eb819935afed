package tracing

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

const scopeName = "omni-engine"

// Tracer follows sampled requests from their begin to their export. Its methods may be called from any goroutine and never wait.
type Tracer struct {
	set     settings
	tracer  trace.Tracer
	exports *exports

	mu    sync.Mutex
	open  map[[8]byte]*gathering // by the id of the request's own span
	pairs map[[2]int]clock.Pair  // by stage and replica
	shut  bool

	queue    chan *gathering
	stop     context.CancelFunc // ends the export that runs
	ended    chan struct{}
	dropped  atomic.Int64
	exported atomic.Int64
	failed   atomic.Int64
}

// gathering is a sampled request whose parts come from its front and from its stages.
type gathering struct {
	parent, own record.TraceContext
	front       *record.Front
	records     []*record.Stage
	timer       *time.Timer
}

// New opens the exporter and starts the goroutine that exports.
func New(ctx context.Context, o Options) (*Tracer, error) {
	s, err := read(o)
	if err != nil {
		return nil, err
	}
	exporter, err := newExporter(ctx, &s)
	if err != nil {
		return nil, err
	}
	res, err := newResource(ctx, &s)
	if err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.Background())
	t := &Tracer{set: s, open: map[[8]byte]*gathering{}, pairs: map[[2]int]clock.Pair{}, queue: make(chan *gathering, s.queue),
		stop: stop, ended: make(chan struct{})}
	t.exports = &exports{t: t, exporter: exporter}
	provider := sdk.NewTracerProvider(sdk.WithSampler(sdk.AlwaysSample()), sdk.WithResource(res), sdk.WithIDGenerator(ids{}), sdk.WithSpanProcessor(t.exports))
	t.tracer = provider.Tracer(scopeName, trace.WithInstrumentationVersion(s.Version))
	go t.run(run)
	return t, nil
}

// Core gives a core's (core, wall) reading, by which its times become wall times. Without it a stage has no phase spans.
func (t *Tracer) Core(stage, replica int, pair clock.Pair) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pairs[[2]int{stage, replica}] = pair
}

// Begin opens a request's span under its caller's, or a new trace without one, and decides whether it is sampled. The context that it
// returns goes to the engine, so that the records carry it; [Tracer.FrontFinished] must follow.
func (t *Tracer) Begin(parent record.TraceContext) record.TraceContext {
	own := record.TraceContext{TraceID: parent.TraceID, SpanID: randomSpanID()}
	if !parent.IsValid() {
		parent = record.TraceContext{}
		_, _ = rand.Read(own.TraceID[:]) // never fails (crypto/rand)
	}
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), spanContext(parent))
	d := t.set.sampler.ShouldSample(sdk.SamplingParameters{ParentContext: ctx, TraceID: own.TraceID, Name: requestSpan, Kind: trace.SpanKindServer})
	own.State = d.Tracestate.String()
	if own.Sampled = d.Decision == sdk.RecordAndSample; !own.Sampled {
		return own
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.shut {
		t.open[own.SpanID] = &gathering{parent: parent, own: own}
	}
	return own
}

// Sink returns next with each record that ends passed to the tracer as well.
func (t *Tracer) Sink(next record.Sink) record.Sink { return sink{next, t} }

type sink struct {
	record.Sink
	t *Tracer
}

func (s sink) Finished(r *record.Stage) {
	s.Sink.Finished(r)
	s.t.finished(r)
}

func (t *Tracer) finished(r *record.Stage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.open[r.Trace.SpanID]; g != nil && r.Recorded() {
		g.records = append(g.records, r)
		t.enqueue(g, false)
	}
}

// FrontFinished takes in the end of a request's answer. Its spans are made when the last of its records is there, which for a client that
// went away may come later.
func (t *Tracer) FrontFinished(f *record.Front) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.open[f.Trace.SpanID]
	if g == nil || g.front != nil {
		return
	}
	g.front = f
	t.enqueue(g, false)
	if t.open[g.own.SpanID] != nil { // records are missing
		g.timer = time.AfterFunc(t.set.Grace, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.enqueue(g, true)
		})
	}
}

// PipelineFinished takes in the end of a request that went through several stages.
func (t *Tracer) PipelineFinished(p *record.Pipeline) { t.FrontFinished(record.FrontOf(p)) }

// enqueue passes a request on when it is complete, or when it has to end now. The caller holds the lock.
func (t *Tracer) enqueue(g *gathering, now bool) {
	if t.open[g.own.SpanID] != g || !now && (g.front == nil || len(g.records) < g.front.Records) {
		return
	}
	delete(t.open, g.own.SpanID)
	if g.timer != nil {
		g.timer.Stop()
	}
	if t.shut {
		t.dropped.Add(1)
		return
	}
	select {
	case t.queue <- g:
	default:
		t.dropped.Add(1)
	}
}

// Counts are requests: exported, dropped because the queue was full or the server ended, lost because an export failed.
type Counts struct{ Exported, Dropped, Failed int64 }

// Counts returns how many traces went where so far.
func (t *Tracer) Counts() Counts {
	return Counts{t.exported.Load(), t.dropped.Load(), t.failed.Load()}
}

// Shutdown exports what waits, for as long as ctx allows, and ends the goroutine. Requests that are still open are exported as far as
// they are known when their answer has ended, and forgotten otherwise.
func (t *Tracer) Shutdown(ctx context.Context) error {
	t.mu.Lock()
	if t.shut {
		t.mu.Unlock()
		return nil
	}
	for _, g := range t.open {
		if g.front != nil {
			t.enqueue(g, true)
		}
	}
	t.shut = true
	close(t.queue)
	t.mu.Unlock()
	defer t.stop()
	select {
	case <-t.ended:
	case <-ctx.Done():
		t.stop() // the export that runs ends, the rest is dropped
		<-t.ended
	}
	return t.exports.exporter.Shutdown(ctx)
}

func randomSpanID() (id [8]byte) {
	for id == [8]byte{} {
		_, _ = rand.Read(id[:])
	}
	return id
}

// ids gives the request's span the id that was chosen at its begin, and others random ones.
type ids struct{}

type chosenKey struct{}

func (ids) NewIDs(ctx context.Context) (tid trace.TraceID, sid trace.SpanID) {
	if own, ok := ctx.Value(chosenKey{}).(record.TraceContext); ok {
		return own.TraceID, own.SpanID
	}
	_, _ = rand.Read(tid[:])
	return tid, randomSpanID()
}

func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if own, ok := ctx.Value(chosenKey{}).(record.TraceContext); ok {
		return own.SpanID
	}
	return randomSpanID()
}

// spanContext is the same context in the SDK's type; a tracestate that does not parse is left out, as the recommendation says.
func spanContext(t record.TraceContext) trace.SpanContext {
	c := trace.SpanContextConfig{TraceID: t.TraceID, SpanID: t.SpanID, Remote: true}
	if t.Sampled {
		c.TraceFlags = trace.FlagsSampled
	}
	if state, err := trace.ParseTraceState(t.State); err == nil {
		c.TraceState = state
	}
	return trace.NewSpanContext(c)
}
