package stages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine"
	"omni-engine/engine/enginetest"
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics"
	"omni-engine/metrics/record"
	"omni-engine/metrics/stagelog"
	"omni-engine/output"
	"omni-engine/scheduler"
)

// The hops of a payload, of the bubble's time.
const (
	sendTime, flightTime, receiveTime = time.Millisecond, 3 * time.Millisecond, time.Millisecond
	chunkFrames                       = 2400 // samples that a chunk gives, at 24 kHz
)

// stageDef says what a stage of a test pipeline is and what it gets from the one before.
type stageDef struct {
	name     string
	kind     record.StageType
	waits    record.Waits
	wait     request.Wait // how it is submitted: parked for its whole input, or for chunks
	chunk    int          // upstream tokens a chunk
	max      int          // its max_tokens
	replicas int
	options  options
	audio    bool
}

// speaker is a thinker, a talker that needs the thinker's whole text, and a vocoder that gets the talker's tokens in chunks of two.
func speaker() []stageDef {
	return []stageDef{
		{name: "thinker", max: 4},
		{name: "talker", waits: record.CanWaitInput, wait: request.WaitInput, max: 6},
		{name: "vocoder", kind: record.LLMGeneration, waits: record.CanWaitInput | record.CanWaitChunk, wait: request.WaitChunk, chunk: 2, max: 1, audio: true},
	}
}

// chunkRunner is the fake device of a stage that gives a payload for each chunk, and a token (its end) for the last one alone.
type chunkRunner struct {
	*enginetest.Runner
	mu      sync.Mutex
	whole   map[request.ID]bool // the last chunk was delivered
	silent  bool                // a chunk that is not the last gives nothing at all
	started *scheduler.Decision
}

func (r *chunkRunner) Start(d *scheduler.Decision) (engine.Ticket, error) {
	r.started = d
	return r.Runner.Start(d)
}

func (r *chunkRunner) Collect(ctx context.Context, t engine.Ticket) (*scheduler.StepResult, error) {
	res, err := r.Runner.Collect(ctx, t)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.started.Rows {
		if row := &r.started.Rows[i]; row.Samples {
			if !r.silent || r.whole[row.ID] {
				res.Rows[i].Payload = &request.Payload{Name: "audio", Shape: []int{chunkFrames}}
			}
			if !r.whole[row.ID] {
				res.Rows[i].Tokens = nil
			}
		}
	}
	return res, nil
}

// unit is one replica under test.
type unit struct {
	*Local
	runner *enginetest.Runner
	chunks *chunkRunner // nil for an autoregressive stage
	log    *sink        // everything its records say
}

// both passes on to the metrics and keeps the records.
type both struct {
	record.Sink
	log *sink
}

func (b both) Step(st *request.SchedulerStats, it *record.Iteration) {
	b.Sink.Step(st, it)
	b.log.Step(st, it)
}
func (b both) Finished(s *record.Stage) { b.Sink.Finished(s); b.log.Finished(s) }
func (b both) ParentFinished(n, most int) {
	b.Sink.ParentFinished(n, most)
	b.log.ParentFinished(n, most)
}

// pipe is a pipeline of engine cores over fake devices, wired as a live one will be.
type pipe struct {
	t       *testing.T
	defs    []stageDef
	units   [][]*unit
	metrics *metrics.Metrics
	traffic *Traffic
	ends    *endLog
	lines   *lines
}

// endLog keeps what ended, and passes it on.
type endLog struct {
	record.PipelineSink
	mu   sync.Mutex
	list []record.Pipeline
}

func (e *endLog) PipelineFinished(p *record.Pipeline) {
	e.PipelineSink.PipelineFinished(p)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, *p)
}

// lines is a log handler that keeps the messages.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r.Message)
	return nil
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

func newPipe(t *testing.T, defs []stageDef) *pipe {
	t.Helper()
	p := &pipe{t: t, defs: defs, lines: &lines{}}
	var infos []metrics.StageInfo
	for i, d := range defs {
		infos = append(infos, metrics.StageInfo{ID: i, Name: d.name, Type: d.kind, Audio: d.audio, Replicas: d.replicas})
	}
	m, err := metrics.New(metrics.Config{ModelName: "omni", Stages: infos, MaxModelLen: 1024})
	require.NoError(t, err)
	p.metrics = m
	p.ends = &endLog{PipelineSink: stagelog.NewPipelineSink(m.Pipeline(), slog.New(p.lines))}
	p.traffic = NewTraffic(p.ends, m)
	m.SetInFlight(p.traffic.InFlight)
	for i, d := range defs {
		p.units = append(p.units, nil)
		for r := range max(d.replicas, 1) {
			p.add(i, r)
		}
	}
	return p
}

// add starts a replica of a stage.
func (p *pipe) add(stage, replica int) {
	d := p.defs[stage]
	o := d.options.defaults()
	u := &unit{runner: o.runner, log: &sink{}}
	if u.runner == nil {
		u.runner = &enginetest.Runner{StepTime: stepTime}
	}
	u.runner.InFlight = o.depth
	var runner engine.Runner = u.runner
	if d.chunk > 0 {
		u.chunks = &chunkRunner{Runner: u.runner, whole: map[request.ID]bool{}}
		runner = u.chunks
	}
	out := output.Config{Tokenizer: letters{}, Sink: both{p.metrics.Sink(stage, replica), u.log}, NoRecord: o.noRecord,
		Identity: record.Identity{Model: "omni", StageID: stage, StageName: d.name, Type: d.kind, Replica: replica, Waits: d.waits}}
	if stage == 0 {
		out.FinalOutputType = "text"
	}
	if d.audio {
		out.FinalOutputType = "audio"
		out.Modality = func(s *record.Stage, p *request.Payload) {
			s.AudioFrames += p.Shape[0]
			s.AudioSampleRate, s.Units = 24000, s.AudioFrames
		}
	}
	l, err := NewLocal(LocalConfig{Output: out, Core: engine.Config{Name: fmt.Sprintf("%d/%d", stage, replica), Scheduler: schedulerConfig(o),
		Depth: o.depth, NoRecord: o.noRecord, InputWaitTimeout: o.inputWait}}, runner)
	require.NoError(p.t, err)
	u.Local = l
	require.NoError(p.t, p.metrics.SetSnapshotSource(stage, replica, l.Snapshot))
	p.units[stage] = append(p.units[stage], u)
}

func (p *pipe) close() {
	for _, us := range p.units {
		for _, u := range us {
			_ = u.Close(context.Background())
		}
	}
}

// travel is one request on its way.
type travel struct {
	p       *pipe
	id      request.ID
	journey *Journey
	at      []int // replica of each stage
	cores   []request.ID
	done    sync.WaitGroup
	mu      sync.Mutex
	records []*record.Stage // by stage
	fails   []error
	why     request.FinishReason
}

// piece is what a stage's reader hands to the edge after it.
type piece struct {
	tokens  []int32
	payload bool
	last    bool
	failed  bool
}

// start submits a request to all stages at once; those after the first are parked, and edges carry what each gives to the next.
func (p *pipe) start(ctx context.Context, id request.ID, prompt int, at ...int) *travel {
	tr := &travel{p: p, id: id, at: make([]int, len(p.defs)), records: make([]*record.Stage, len(p.defs))}
	copy(tr.at, at)
	arrival := clock.WallNow()
	tr.journey = p.traffic.Begin("req-"+string(id), arrival, len(p.defs)-1)
	tr.journey.Dispatched(clock.WallNow())
	toEdge := make([]chan piece, len(p.defs)) // what stage k says, for the edge from it
	answered := make([]chan piece, len(p.defs))
	for k, d := range p.defs {
		r := ask(id, prompt, d.max)
		if k > 0 {
			r.Prompt, r.Wait = nil, d.wait
		}
		r.Arrival, r.External = arrival, "req-"+string(id)
		tr.cores = append(tr.cores, r.ID)
		toEdge[k], answered[k] = make(chan piece, 4096), make(chan piece, 4096)
		s, err := p.units[k][tr.at[k]].Submit(ctx, r)
		if err != nil {
			tr.fail(fmt.Errorf("stage %d: %w", k, err))
			toEdge[k] <- piece{failed: true}
			answered[k] <- piece{failed: true}
			continue
		}
		tr.done.Go(func() { tr.read(k, s, toEdge[k], answered[k]) })
	}
	for k := 1; k < len(p.defs); k++ {
		tr.done.Go(func() { tr.edge(ctx, k, toEdge[k-1], answered[k]) })
	}
	return tr
}

func (tr *travel) fail(err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.fails = append(tr.fails, err)
}

// read follows one stage's stream. A stage that ends badly ends the others.
func (tr *travel) read(k int, s Stream, down, own chan<- piece) {
	for {
		u, err := s.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return
		}
		if u.Segment != nil {
			tr.journey.Stage(u.Segment, clock.WallNow())
		}
		bad := u.Done() && (u.Output.Finish == request.FinishAbort || u.Output.Finish == request.FinishError)
		out := piece{tokens: u.Output.NewTokens, payload: u.Output.Payload != nil, last: u.Done(), failed: bad}
		if u.Done() {
			tr.journey.Stage(u.Record, clock.WallNow())
			tr.mu.Lock()
			tr.records[k] = u.Record
			if bad || tr.why == request.NotFinished || tr.why == request.FinishLength || tr.why == request.FinishStop {
				tr.why = u.Output.Finish
			}
			tr.mu.Unlock()
		}
		down <- out
		own <- out
		if bad {
			for j := range tr.cores {
				if j != k {
					_ = tr.p.units[j][tr.at[j]].Abort(u.Output.Finish, tr.cores[j])
				}
			}
		}
	}
}

// edge carries stage k-1's tokens to stage k: all at its end, or in chunks.
func (tr *travel) edge(ctx context.Context, k int, up, own <-chan piece) {
	d, u := tr.p.defs[k], tr.p.units[k][tr.at[k]]
	var held []int32
	for {
		in := <-up
		if in.failed {
			return
		}
		held = append(held, in.tokens...)
		for (d.chunk > 0 && len(held) >= d.chunk && (!in.last || len(held) > d.chunk)) || in.last {
			n := len(held)
			if d.chunk > 0 {
				n = min(n, d.chunk)
			}
			last := in.last && n == len(held)
			tr.carry(k, u, held[:n], last)
			held = held[n:]
			if last {
				return
			}
			for {
				out := <-own
				if out.failed || out.last {
					return
				}
				if out.payload {
					break
				}
			}
			if err := u.Core().Park(ctx, tr.cores[k], request.WaitChunk); err != nil {
				return // it ended meanwhile
			}
		}
	}
}

// carry sends a payload over the hop and delivers it.
func (tr *travel) carry(k int, u *unit, tokens []int32, last bool) {
	time.Sleep(sendTime + flightTime + receiveTime)
	if u.chunks != nil && last {
		u.chunks.mu.Lock()
		u.chunks.whole[tr.cores[k]] = true
		u.chunks.mu.Unlock()
	}
	tr.journey.Transferred(record.Transfer{From: k - 1, FromReplica: tr.at[k-1], To: k, ToReplica: tr.at[k], Bytes: 4 * len(tokens),
		TX: clock.SpanOf(sendTime), InFlight: clock.SpanOf(flightTime), RX: clock.SpanOf(receiveTime)})
	_ = u.Core().Deliver(tr.cores[k], request.Payload{IDs: tokens, Last: last})
}

// wait returns when every stage has ended, and closes the account.
func (tr *travel) wait() []*record.Stage {
	tr.done.Wait()
	if len(tr.fails) > 0 {
		tr.why = request.FinishError
	}
	tr.journey.End(tr.why, "", clock.WallNow())
	return tr.records
}

// samples parses a scrape.
func (p *pipe) samples() map[string]float64 {
	p.t.Helper()
	families, err := p.metrics.Gather()
	require.NoError(p.t, err)
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetName() != "model_name" {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			key := f.GetName() + "{" + strings.Join(labels, ",") + "}"
			switch {
			case m.Histogram != nil:
				out[strings.Replace(key, "{", "_count{", 1)] = float64(m.Histogram.GetSampleCount())
				out[strings.Replace(key, "{", "_sum{", 1)] = m.Histogram.GetSampleSum()
			case m.Counter != nil:
				out[key] = m.Counter.GetValue()
			case m.Gauge != nil:
				out[key] = m.Gauge.GetValue()
			}
		}
	}
	return out
}

// millis returns a span in ms, nil when it is absent.
func millis(s clock.Span) any {
	if v, ok := s.Milliseconds(); ok {
		return v
	}
	return nil
}

// waited returns the waits in ms: input, chunk, KV, preempted, unscheduled.
func waited(s *record.Stage) []any {
	return []any{millis(s.InputWait()), millis(s.ChunkWait()), millis(s.KVWait()), millis(s.PreemptedTime()), millis(s.UnscheduledWait())}
}
