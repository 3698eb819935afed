package stages

import (
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

// Transferred adds a payload that its receiver has.
func (j *Journey) Transferred(t record.Transfer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return
	}
	j.p.Transfers = append(j.p.Transfers, t)
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
