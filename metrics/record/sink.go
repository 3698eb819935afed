package record

import (
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// Sink is what the output side and the front end tell the metrics room, for one stage and replica. Its methods may be
// called from several goroutines, never block on a reader, and do not keep their arguments beyond the call.
type Sink interface {
	// Step follows each executed step: the scheduler's counters since the last one, and what the step's outputs added.
	// Either may be nil. The caller reuses both.
	Step(stats *request.SchedulerStats, it *Iteration)
	// Finished follows each request's end, exactly once a request and stage (PS-72). A request with n > 1 has n records.
	Finished(s *Stage)
	// ParentFinished follows the end of the last child of a request: its n, and its longest output in tokens.
	ParentFinished(n, maxGenerationTokens int)
	// KVBlockEvicted follows the eviction of a sampled KV block (--kv-cache-metrics).
	KVBlockEvicted(lifetime, idle clock.Span, reuseGaps []clock.Span)
}

// Pipeline is a request's end at the front, over all stages.
type Pipeline struct {
	RequestID           string
	Arrival, FinishedAt clock.Wall
	Reason              request.FinishReason
	// Failure is client_abort, client_disconnect or stage_error; empty: derived from Reason.
	Failure             string
	QueueWait           clock.Span // front end's enqueue → submit to the entry stage
	TokensIn, TokensOut int        // the entry stage's prompt; all stages' output

	FinalStage int        // the stage whose end is the request's
	Ends       []StageEnd // in the order in which they reached the front; several of one stage for a streaming session
	Transfers  []Transfer // payloads between stages

	Trace TraceContext // of the request's own span
	Edges []StreamEdge // in the order in which they were marked
}

// StageEnd is a stage's record, or one finished segment's, and when it reached the front.
type StageEnd struct {
	Stage *Stage
	At    clock.Wall
}

// Transfer is one payload that went from a stage to the next. A time that nobody measured is absent; each is within one clock.
type Transfer struct {
	From, FromReplica, To, ToReplica int
	Bytes                            int
	TX                               clock.Span // send
	InFlight                         clock.Span // end of send → start of receive
	RX                               clock.Span // receive and decode
}

// TransferSink takes in each transfer when its receiver has it.
type TransferSink interface{ Transferred(*Transfer) }

// E2E is arrival → end of the whole pipeline.
func (p *Pipeline) E2E() clock.Span { return p.FinishedAt.Sub(p.Arrival).NonNegative() }

// PipelineSink takes each request's end once, from the orchestrator of a pipeline with several stages.
type PipelineSink interface{ PipelineFinished(*Pipeline) }

// PipelineOf derives the pipeline's end from the record of its only stage.
func PipelineOf(s *Stage) Pipeline {
	return Pipeline{RequestID: s.RequestID, FinalStage: s.StageID, Arrival: s.RequestStart, FinishedAt: s.FinishedAt, Reason: s.Finish, QueueWait: s.Pipeline.QueueWait,
		TokensIn: s.PromptTokens, TokensOut: s.NumGenerationTokens}
}

// Iteration is what the outputs of one step add to the families. One is kept a processor and reset each step, so a step
// allocates nothing.
type Iteration struct {
	Outputs          int // outputs of the step; terminal records are none
	PromptTokens     int // of requests whose first output this was
	LocalCompute     int
	LocalCacheHit    int
	External         int
	GenerationTokens int
	Preemptions      int
	TTFT             []FirstToken
	ITL              []clock.Span // one a request and step (http.md 8)

	Adapters *AdapterStates // the core's running account of LoRA adapters; nil without any
}

// FirstToken is one request's time to first token, with its trace for the exemplar.
type FirstToken struct {
	Span    clock.Span
	TraceID string
}

// Reset empties it and keeps its memory.
func (it *Iteration) Reset() {
	*it = Iteration{TTFT: it.TTFT[:0], ITL: it.ITL[:0], Adapters: it.Adapters}
}

func (it *Iteration) addPrompt(total, local, external int) {
	it.PromptTokens += total
	it.LocalCacheHit += local
	it.External += external
	it.LocalCompute += total - local - external
}

func (it *Iteration) addTTFT(s clock.Span, trace string) {
	if s.IsSet() {
		it.TTFT = append(it.TTFT, FirstToken{Span: s, TraceID: trace})
	}
}

// Discard is the Sink of a server that records nothing.
type Discard struct{}

// Step does nothing.
func (Discard) Step(*request.SchedulerStats, *Iteration) {}

// Finished does nothing.
func (Discard) Finished(*Stage) {}

// ParentFinished does nothing.
func (Discard) ParentFinished(int, int) {}

// KVBlockEvicted does nothing.
func (Discard) KVBlockEvicted(clock.Span, clock.Span, []clock.Span) {}

var _ Sink = Discard{}
