package stages

import (
	"slices"
	"sync"
	"sync/atomic"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// Traffic accounts for the requests of a pipeline with several stages: how many are on their way, and what each one's end was. The
// orchestrator of such a pipeline opens a [Journey] for each request and tells it what happens.
type Traffic struct {
	ends              record.PipelineSink
	transfers         record.TransferSink
	total, dispatched atomic.Int64
}

// NewTraffic tells ends of each request's end, once, and transfers of each payload between stages; either may be nil.
func NewTraffic(ends record.PipelineSink, transfers record.TransferSink) *Traffic {
	return &Traffic{ends: ends, transfers: transfers}
}

// InFlight returns the requests that have not ended, and those of them that a stage was given.
func (t *Traffic) InFlight() (total, dispatched int) {
	return int(t.total.Load()), int(t.dispatched.Load())
}

// Begin opens the account of one request that arrived at the front; finalStage is the stage whose end is the request's.
func (t *Traffic) Begin(id string, arrival clock.Wall, finalStage int) *Journey {
	t.total.Add(1)
	return &Journey{traffic: t, p: record.Pipeline{RequestID: id, Arrival: arrival, FinalStage: finalStage}}
}

// Journey is one request's way through the stages. Its methods may be called from any goroutine; after the end they do nothing.
type Journey struct {
	traffic *Traffic
	mu      sync.Mutex
	p       record.Pipeline
	sent    bool
	ended   bool
}

// Dispatched says that the entry stage was given the request.
func (j *Journey) Dispatched(at clock.Wall) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended || j.sent {
		return
	}
	j.sent = true
	j.p.QueueWait = at.Sub(j.p.Arrival).NonNegative()
	j.traffic.dispatched.Add(1)
}

// Traced says which trace the request belongs to: the context of its own span.
func (j *Journey) Traced(t record.TraceContext) *Journey {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.p.Trace = t
	return j
}

// Mark notes what somebody saw of the request's stream from a stage's replica to another's, or to the client ([record.Client], 0).
// What the stages' records know (first output, first input) is filled in at the end.
func (j *Journey) Mark(from, fromReplica, to, toReplica int, what record.EdgeEvent, at record.Instant) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return
	}
	j.edge(from, fromReplica, to, toReplica).Mark(what, at)
}

func (j *Journey) edge(from, fromReplica, to, toReplica int) *record.StreamEdge {
	for i := range j.p.Edges {
		e := &j.p.Edges[i]
		if e.From == from && e.FromReplica == fromReplica && e.To == to && e.ToReplica == toReplica {
			return e
		}
	}
	j.p.Edges = append(j.p.Edges, record.StreamEdge{From: from, FromReplica: fromReplica, To: to, ToReplica: toReplica})
	return &j.p.Edges[len(j.p.Edges)-1]
}

// Edges returns what was seen of the request's streams so far.
func (j *Journey) Edges() []record.StreamEdge {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.observe()
	return slices.Clone(j.p.Edges)
}

// observe adds what the stages' records know. A segment's record has not ended: it tells nothing.
func (j *Journey) observe() {
	for i := range j.p.Edges {
		for _, s := range j.p.Ends {
			if s.Stage.Ended() {
				j.p.Edges[i].Observe(s.Stage)
			}
		}
	}
}

// Transferred adds a payload that its receiver has.
func (j *Journey) Transferred(t record.Transfer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return
	}
	j.p.Transfers = append(j.p.Transfers, t)
	j.edge(t.From, t.FromReplica, t.To, t.ToReplica)
	if s := j.traffic.transfers; s != nil {
		s.Transferred(&t)
	}
}

// Stage adds a stage's record, or a finished segment's, which reached the front at the given time.
func (j *Journey) Stage(s *record.Stage, at clock.Wall) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return
	}
	j.p.Ends = append(j.p.Ends, record.StageEnd{Stage: s, At: at})
	if s.StageID == 0 {
		j.p.TokensIn += s.PromptTokens
	}
	j.p.TokensOut += s.NumGenerationTokens
}

// Records returns the stages' records so far, for stage_metrics.
func (j *Journey) Records() []*record.Stage {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]*record.Stage, len(j.p.Ends))
	for i, e := range j.p.Ends {
		out[i] = e.Stage
	}
	return out
}

// End closes the account and passes it on, exactly once: it reports whether this call did. failure is client_abort, client_disconnect or
// stage_error; empty: derived from why.
func (j *Journey) End(why request.FinishReason, failure string, at clock.Wall) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return false
	}
	j.ended = true
	j.observe()
	j.p.Reason, j.p.Failure, j.p.FinishedAt = why, failure, at
	j.traffic.total.Add(-1)
	if j.sent {
		j.traffic.dispatched.Add(-1)
	}
	if s := j.traffic.ends; s != nil {
		s.PipelineFinished(&j.p)
	}
	return true
}
