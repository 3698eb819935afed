package stagelog

import (
	"strconv"

	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// Aggregator gathers one request's records until it ends; one a request, or one a duplex response. One goroutine uses it.
type Aggregator struct {
	requestID  string
	start      clock.Wall
	finalStage int
	duplex     bool

	events []Event
	edges  []*edge
	end    clock.Wall
}

// Event is one stage's finished record, or one finished segment's, as the front end sees it: a row that may have come from
// another process, with the front's own times.
type Event struct {
	Row       record.Row
	Submit    clock.Wall // submit to the stage
	At        clock.Wall // arrival of the result
	Pipeline  record.PipelineTimings
	Diffusion []record.NamedFloat
}

func (e *Event) stage() int { return e.Row.Get(record.StageID).Int() }

// edge sums what went from one stage to the next.
type edge struct {
	from, to               int
	bytes                  int
	tx, rxDecode, inFlight clock.Span
}

// NewAggregator starts the account of one request; finalStage is the stage whose end is the request's.
func NewAggregator(requestID string, start clock.Wall, finalStage int) *Aggregator {
	return &Aggregator{requestID: requestID, start: start, finalStage: finalStage}
}

// NewDuplexAggregator starts the account of one duplex response: its table has one folded column a stage and leaves out what
// describes an engine-core request (PS-61).
func NewDuplexAggregator(requestID string, start clock.Wall, finalStage int) *Aggregator {
	a := NewAggregator(requestID, start, finalStage)
	a.duplex = true
	return a
}

// OnStage takes in a stage's record, whose result reached the front at the given time.
func (a *Aggregator) OnStage(s *record.Stage, at clock.Wall) {
	a.OnEvent(Event{Row: record.NewRow(s), Submit: s.Arrival, At: at, Pipeline: s.Pipeline, Diffusion: s.Diffusion})
}

// OnEvent takes in a stage's row.
func (a *Aggregator) OnEvent(e Event) {
	a.events = append(a.events, e)
	if id := e.stage(); id > 0 { // as vLLM-Omni does: every later stage has an edge from the one before
		a.edge(id-1, id)
	}
}

// OnTransfer adds one transfer to its edge; an absent time adds nothing.
func (a *Aggregator) OnTransfer(from, to, bytes int, tx, rxDecode, inFlight clock.Span) {
	e := a.edge(from, to)
	e.bytes += bytes
	e.tx, e.rxDecode, e.inFlight = plus(e.tx, tx), plus(e.rxDecode, rxDecode), plus(e.inFlight, inFlight)
}

// OnFinalize ends the request; a second call is ignored.
func (a *Aggregator) OnFinalize(at clock.Wall) {
	if !a.end.IsSet() {
		a.end = at
	}
}

func (a *Aggregator) edge(from, to int) *edge {
	for _, e := range a.edges {
		if e.from == from && e.to == to {
			return e
		}
	}
	e := &edge{from: from, to: to}
	a.edges = append(a.edges, e)
	return e
}

func plus(a, b clock.Span) clock.Span {
	x, okA := a.Get()
	y, okB := b.Get()
	if !okA && !okB {
		return clock.Span{}
	}
	return clock.SpanOf(x + y)
}

// total is the edge's time; 0 when nothing was recorded.
func (e *edge) total() clock.Span {
	return plus(clock.SpanOf(0), plus(plus(e.tx, e.rxDecode), e.inFlight))
}

func (e *edge) name() string { return strconv.Itoa(e.from) + "->" + strconv.Itoa(e.to) }

// tokens is the entry stage's input and every stage's output.
func (a *Aggregator) tokens() int {
	n := 0
	for _, e := range a.events {
		n += e.Row.Get(record.NumTokensIn).Int() + e.Row.Get(record.NumTokensOut).Int()
	}
	return n
}

// columns are the stage table's: one an event, or one a stage for a duplex response.
func (a *Aggregator) columns() []column {
	var out []column
	if !a.duplex {
		for _, e := range a.events {
			out = append(out, column{strconv.Itoa(e.stage()), withDiffusion(e.Row, e.Diffusion)})
		}
		return out
	}
	exclude := record.DuplexStageTableExclude()
	for _, f := range a.folded() {
		out = append(out, column{strconv.Itoa(f.id), withDiffusion(f.row.Without(exclude), f.diffusion)})
	}
	return out
}

// fold is one stage's rows folded into one.
type fold struct {
	id        int
	row       record.Row
	diffusion []record.NamedFloat
}

func (a *Aggregator) folded() []fold {
	var out []fold
	for _, id := range a.stageIDs() {
		f := fold{id: id}
		var rows []record.Row
		for _, e := range a.events {
			if e.stage() == id {
				rows, f.diffusion = append(rows, e.Row), e.Diffusion
			}
		}
		f.row = record.FoldDuplex(rows...)
		out = append(out, f)
	}
	return out
}

// Folded returns the rows folded by stage id, with every field: what the duplex table leaves out is here (PS-61).
func (a *Aggregator) Folded() map[int]record.Row {
	out := map[int]record.Row{}
	for _, f := range a.folded() {
		out[f.id] = f.row
	}
	return out
}

// withDiffusion appends a diffusion stage's own metrics as cells.
func withDiffusion(row record.Row, metrics []record.NamedFloat) record.Row {
	row = append(record.Row{}, row...)
	for _, v := range metrics {
		row = append(row, record.Cell{Name: v.Name, Value: record.FloatValue(v.Value)})
	}
	return row
}
