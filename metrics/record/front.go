package record

import "omni-engine/internal/clock"

// Params are what a client asked of sampling, for spans.
type Params struct {
	Temperature, TopP float64
	N                 int
}

// Front is a client request's end as the front saw it: what no stage's record holds.
type Front struct {
	RequestID    string
	Trace        TraceContext // of the request's own span; the records of its stages carry it too
	Operation    string       // chat, text_completion, …
	Model        string       // served name
	Arrival, End clock.Wall
	Records      int // stage records that belong to it, over all sequences and stages
	PromptTokens int
	Status       int    // HTTP status of the answer; 0: none, or not over HTTP
	Failure      string // what the client was told when the answer is an error
	Edges        []StreamEdge
}

// FrontSink takes each client request's end once. It does not block, and does not change the argument.
type FrontSink interface{ FrontFinished(*Front) }

// E2E is arrival → the end of the last of its records, front-end clock.
func (f *Front) E2E(records []*Stage) clock.Span {
	var latest clock.Span
	for _, s := range records {
		if d := s.FinishedAt.Sub(f.Arrival).NonNegative(); longer(d, latest) {
			latest = d
		}
	}
	return latest
}

func longer(a, b clock.Span) bool {
	x, ok := a.Get()
	y, known := b.Get()
	return ok && (!known || x > y)
}

// FrontOf is the front's view of a request that went through several stages.
func FrontOf(p *Pipeline) *Front {
	f := &Front{RequestID: p.RequestID, Trace: p.Trace, Arrival: p.Arrival, End: p.FinishedAt, PromptTokens: p.TokensIn, Edges: p.Edges}
	for _, e := range p.Ends {
		if e.Stage.Ended() {
			f.Records++
			f.Model = e.Stage.Model
		}
	}
	return f
}
