package openai

import (
	"net/http"
	"sync"

	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// Tracer opens a request's span; what ends goes to [Options.Front].
type Tracer interface {
	// Begin decides whether a request is sampled, and returns the context of its span under the caller's (none: a new trace).
	Begin(caller record.TraceContext) record.TraceContext
}

// sent is the answer's writer, which notes when bytes of the body left: when Write and Flush returned, so that they were handed to
// the connection. Keep-alive comments of a stream are none of the answer's.
type sent struct {
	http.ResponseWriter
	first, last clock.Wall
	status      int
	buffered    bool // written, not flushed
}

func (s *sent) WriteHeader(status int) {
	if s.status == 0 {
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

func (s *sent) Write(b []byte) (int, error) {
	n, err := s.ResponseWriter.Write(b)
	if s.status == 0 {
		s.status = http.StatusOK
	}
	s.buffered = s.buffered || n > 0 && b[0] != ':'
	return n, err
}

// FlushError is for the response controller.
func (s *sent) FlushError() error {
	err := http.NewResponseController(s.ResponseWriter).Flush()
	if err == nil && s.buffered {
		s.buffered = false
		s.last = clock.WallNow()
		if !s.first.IsSet() {
			s.first = s.last
		}
	}
	return err
}

// Unwrap lets the response controller reach the connection.
func (s *sent) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// front is what the server keeps of a request for the sinks.
type front struct {
	mu      sync.Mutex // several prompts are read at once
	trace   record.TraceContext
	sent    *sent
	started int             // sequences that the engine took
	records []*record.Stage // of the sequences that ended while somebody read
}

// openFront takes in the caller's trace context and passes its own on to the engine.
func (s *Server) openFront(w http.ResponseWriter, r *http.Request, c *call) {
	c.front.sent, c.front.trace = &sent{ResponseWriter: w}, record.TraceFrom(r.Header.Values("Traceparent"), r.Header.Values("Tracestate"))
	switch {
	case s.opt.Tracer != nil:
		c.front.trace = s.opt.Tracer.Begin(c.front.trace)
	case c.front.trace.IsValid():
		s.warnTrace.Do(func() {
			s.log.Warn("a request carries a trace context, but tracing is off; start with --otlp-traces-endpoint")
		})
	}
	c.base.TraceParent, c.base.TraceState = c.front.trace.TraceParent(), c.front.trace.State
}

// closeFront flushes what is left and tells the request's end.
func (s *Server) closeFront(c *call, prompts []prompt) {
	f := &c.front
	if f.sent.buffered {
		_ = f.sent.FlushError() // a client that has gone got nothing
	}
	if s.opt.Front == nil {
		return
	}
	end := &record.Front{RequestID: c.base.External, Trace: f.trace, Operation: c.operation, Model: s.model.Names[0], Arrival: c.base.Arrival,
		End: clock.WallNow(), Records: f.started, Status: f.sent.status, Edges: c.edges()}
	for i := range prompts {
		end.PromptTokens += len(prompts[i].ids)
	}
	if end.Status >= http.StatusInternalServerError {
		end.Failure = http.StatusText(end.Status)
	}
	s.opt.Front.FrontFinished(end)
}

// see takes in every update of a sequence: for the log, and for what is told at the end.
func (c *call) see(s *Server, p *part) {
	if s.opt.LogOutputs {
		s.logOutput(c, p)
	}
	if p.Record != nil && p.Record.Recorded() {
		c.front.mu.Lock()
		defer c.front.mu.Unlock()
		c.front.records = append(c.front.records, p.Record)
	}
}

// edges are the answer's: one from the last stage to the client. Its stage side is that of the sequence that gave the first output
// to end, since all of them share the bytes.
func (c *call) edges() []record.StreamEdge {
	f := &c.front
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.records) == 0 {
		if !f.sent.first.IsSet() || f.started == 0 {
			return nil
		}
		return []record.StreamEdge{{To: record.Client, FirstByte: record.ServerInstant(f.sent.first), LastByte: record.ServerInstant(f.sent.last)}}
	}
	e := record.ClientEdge(f.records[0], f.sent.first, f.sent.last)
	for _, s := range f.records[1:] {
		if other := record.ClientEdge(s, f.sent.first, f.sent.last); !e.FirstOutput.IsSet() || e.FirstOutput.Sub(other.FirstOutput).IsSet() { // other is not later
			e = other
		}
	}
	return []record.StreamEdge{e}
}
