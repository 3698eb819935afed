package output

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// Config of a [Processor].
type Config struct {
	Tokenizer Tokenizer       // nil: token ids only
	Sink      record.Sink     // nil: none
	Identity  record.Identity // model, stage, replica; the request's ids are filled in
	NoRecord  bool            // recording off (PS-15)
	// Abort asks the core to end requests whose stop string was found; called without the processor's lock.
	Abort func(ids ...request.ID)
	// StreamInterval is how many tokens gather before a reader is woken; the first and the last come at once. 0 means 1.
	StreamInterval int
	// AdapterName names a request's LoRA adapter; nil: no adapters are served.
	AdapterName func(id int) string
	// Modality fills in what an output's payload is (audio frames and rate, units), before the record goes to anyone; nil: text only.
	Modality        func(*record.Stage, *request.Payload)
	FinalOutputType string // "text" for a stage whose output the user sees
	Now             func() clock.Wall
	// CoreNow reads the core's clock, for the time that a request lies in its inbox; nil leaves that absent.
	CoreNow func() clock.Time
}

// Processor follows the requests of one core. Add, Extend and the readers may be any goroutine's; Process and Terminal are called
// by one goroutine, in the core's order.
type Processor struct {
	cfg Config

	mu       sync.Mutex
	states   map[request.ID]*state
	prefill  int // prompt tokens of requests without output yet
	finished int
	failed   error

	// Of the step being processed; reused.
	it         record.Iteration
	deliveries []delivery
	aborts     []request.ID
}

type delivery struct {
	s *state
	u Update
}

// state is one request's.
type state struct {
	req     *request.Request
	stream  *Stream
	rec     *record.Stage
	text    text
	sampled logprobs
	prompt  logprobs
	waiting int // prompt tokens counted in Processor.prefill
	session session
}

// New returns a processor.
func New(cfg Config) *Processor {
	if cfg.Sink == nil {
		cfg.Sink = record.Discard{}
	}
	if cfg.Abort == nil {
		cfg.Abort = func(...request.ID) {}
	}
	if cfg.Now == nil {
		cfg.Now = clock.WallNow
	}
	p := &Processor{cfg: cfg, states: make(map[request.ID]*state)}
	if cfg.AdapterName != nil {
		p.it.Adapters = record.NewAdapterStates()
	}
	return p
}

// ErrDuplicate refuses a request whose id lives already.
var ErrDuplicate = errors.New("a request of this id is running")

// ErrUnknown says that no request of an id lives here.
var ErrUnknown = errors.New("no such request")

// Add begins to follow a request; call it before the core gets it.
func (p *Processor) Add(r *request.Request) (*Stream, error) {
	if r.Resumable && len(r.Sampling.Stop) > 0 {
		return nil, errors.New("streaming input does not support stop strings")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return nil, p.failed
	}
	if _, dup := p.states[r.ID]; dup {
		return nil, ErrDuplicate
	}
	st := &state{req: r, stream: newStream(p.cfg.StreamInterval), rec: p.begin(r), waiting: len(r.Prompt)}
	var d Detokenizer
	if tok := p.cfg.Tokenizer; tok != nil && r.Sampling.Detokenize {
		d = tok.NewStream(r.Prompt, r.Sampling.SkipSpecial, r.Sampling.SpacesBetween)
		st.sampled.tok, st.prompt.tok = tok, tok
	}
	st.text = newText(d, &r.Sampling)
	p.states[r.ID] = st
	p.prefill += st.waiting
	return st.stream, nil
}

func (p *Processor) begin(r *request.Request) *record.Stage {
	id := p.cfg.Identity
	id.RequestID, id.CoreID, id.Trace = r.External, r.ID, record.ParseTraceParent(r.TraceParent)
	id.TraceID, id.Trace.State = id.Trace.Exemplar(), r.TraceState
	if id.RequestID == "" {
		id.RequestID = string(r.ID)
	}
	rec := record.Begin(id, r.Arrival)
	rec.PromptTokens, rec.MaxTokens = len(r.Prompt), r.Sampling.MaxTokens
	rec.FinalOutputType, rec.Params = p.cfg.FinalOutputType, params(r)
	if r.Adapter != 0 && p.cfg.AdapterName != nil {
		rec.Adapter = p.cfg.AdapterName(r.Adapter)
	}
	if p.cfg.NoRecord || r.NoRecord {
		rec.SetRecording(false)
	} else if p.cfg.CoreNow != nil {
		rec.SubmitTS = p.cfg.CoreNow()
	}
	return rec
}

// params are the request's sampling as the client wrote it: 0.7, not the nearest float32's digits.
func params(r *request.Request) record.Params {
	n := 1
	if r.Parent != nil {
		n = r.Parent.N()
	}
	return record.Params{Temperature: decimal(r.Sampling.Temperature), TopP: decimal(r.Sampling.TopP), N: n}
}

func decimal(f float32) float64 {
	d, _ := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64)
	return d
}

// Forget drops a request that the core refused.
func (p *Processor) Forget(id request.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if st := p.states[id]; st != nil {
		p.remove(st)
	}
}

func (p *Processor) remove(st *state) {
	delete(p.states, st.req.ID)
	p.prefill -= st.waiting
	st.waiting = 0
}

// Load returns the requests that have not ended, and the prompt tokens of those without output.
func (p *Processor) Load() (requests, prefillTokens int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.states), p.prefill
}

// Process takes in what one executed step said. It keeps nothing of so.
func (p *Processor) Process(so *request.StepOutputs) { p.process(so.At, so.Outputs, &so.Stats) }

// Terminal takes in records that the engine made between steps (PS-04).
func (p *Processor) Terminal(at clock.Time, outputs []request.Output) { p.process(at, outputs, nil) }

func (p *Processor) process(at clock.Time, outputs []request.Output, stats *request.SchedulerStats) {
	wall := p.cfg.Now()
	p.mu.Lock()
	it := p.iteration()
	for i := range outputs {
		if st := p.states[outputs[i].ID]; st != nil {
			p.output(st, at, wall, &outputs[i], it)
		}
	}
	p.deliver(stats, it)
	aborts := p.aborts
	p.aborts = nil
	p.mu.Unlock()
	if len(aborts) > 0 {
		p.cfg.Abort(aborts...)
	}
}

func (p *Processor) iteration() *record.Iteration {
	if p.cfg.NoRecord {
		return nil
	}
	p.it.Reset()
	return &p.it
}

// deliver tells the sink first, so that a client that has its last byte finds its request counted.
func (p *Processor) deliver(stats *request.SchedulerStats, it *record.Iteration) {
	if stats != nil || it != nil {
		p.cfg.Sink.Step(stats, it)
	}
	if stats != nil {
		for i := range stats.Evicted {
			e := &stats.Evicted[i]
			p.cfg.Sink.KVBlockEvicted(e.Lifetime, e.Idle, e.ReuseGaps)
		}
	}
	for i := range p.deliveries {
		if d := &p.deliveries[i]; d.u.Record != nil {
			p.cfg.Sink.Finished(d.u.Record)
			p.parent(d.s.req, d.u.Record)
		}
	}
	for i := range p.deliveries {
		d := &p.deliveries[i]
		d.s.stream.put(&d.u)
		*d = delivery{}
	}
	p.deliveries = p.deliveries[:0]
}

func (p *Processor) parent(r *request.Request, rec *record.Stage) {
	n, longest, last := 1, rec.NumGenerationTokens, true
	if r.Parent != nil {
		n, longest, last = r.Parent.ChildEnded(rec.NumGenerationTokens)
	}
	if last {
		p.cfg.Sink.ParentFinished(n, longest)
	}
}

// output takes in what a step, or the engine itself, said about one request.
func (p *Processor) output(st *state, at clock.Time, wall clock.Wall, o *request.Output, it *record.Iteration) {
	u := Update{Output: *o}
	out := &u.Output
	if out.Terminal {
		st.session.terminal(out)
	} else {
		u.StopText = p.detokenise(st, out)
	}
	if out.Payload != nil && p.cfg.Modality != nil {
		p.cfg.Modality(st.rec, out.Payload)
	}
	st.rec.ApplyOutput(at, wall, out, it)
	u.Text = st.text.next(out.Finish != request.NotFinished)
	u.Logprobs = st.sampled.texts(out.Logprobs)
	u.PromptLogprobs = st.prompt.texts(out.PromptLogprobs)
	out.Events, out.Changes, out.Logprobs, out.PromptLogprobs = nil, nil, nil, nil
	p.prefill -= st.waiting
	st.waiting = 0
	switch {
	case u.Done():
		p.end(st, &u)
	case out.Finish != request.NotFinished:
		u.Segment = st.rec.SegmentRecord(wall, out.Finish)
		st.session.ended(st.rec, out.Finish)
	}
	p.deliveries = append(p.deliveries, delivery{st, u})
}

// detokenise adds the step's tokens to the text. A stop string ends the request here; the core is asked to abort it.
func (p *Processor) detokenise(st *state, o *request.Output) (stop string) {
	stop, kept := st.text.push(o.NewTokens, o.Finish == request.FinishStop)
	if stop == "" {
		return ""
	}
	if o.Finish == request.NotFinished {
		p.aborts = append(p.aborts, o.ID)
	}
	o.Finish, o.StopToken = request.FinishStop, -1
	o.NewTokens = o.NewTokens[:kept]
	if len(o.Logprobs) > kept {
		o.Logprobs = o.Logprobs[:kept]
	}
	return stop
}

func (p *Processor) end(st *state, u *Update) {
	p.remove(st)
	p.finished++
	st.rec.BatchID = p.finished
	switch {
	case u.StopText != "":
		st.rec.StopReason = u.StopText
	case u.Output.Finish == request.FinishRepetition:
		st.rec.StopReason = "repetition_detected"
	case u.Output.Finish == request.FinishStop && u.Output.StopToken >= 0:
		st.rec.StopReason = strconv.Itoa(int(u.Output.StopToken))
	}
	u.Record = st.rec
}

// Fail ends every request with reason error because the core is lost: its clock says nothing any more. Later Adds get err.
func (p *Processor) Fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = err
	it, wall := p.iteration(), p.cfg.Now()
	for id, st := range p.states {
		o := request.Output{ID: id, Finish: request.FinishError, StopToken: -1, Terminal: true, Err: fmt.Sprint(err)}
		p.output(st, clock.Time{}, wall, &o, it)
	}
	p.deliver(nil, it)
}
