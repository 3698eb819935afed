package stagelog

import (
	"log/slog"

	"omni-engine/metrics/record"
)

// Sink logs each finished request of a pipeline with one stage (--log-stats) and passes everything on. With several stages
// the orchestrator keeps an [Aggregator] a request instead.
type Sink struct {
	record.Sink
	log *slog.Logger
}

// NewSink returns next itself when log is nil.
func NewSink(next record.Sink, log *slog.Logger) record.Sink {
	if log == nil {
		return next
	}
	return &Sink{Sink: next, log: log}
}

// Finished passes the record on and logs it.
func (s *Sink) Finished(r *record.Stage) {
	s.Sink.Finished(r)
	if r.Recorded() {
		One(r).logTo(s.log)
	}
}

// PipelineSink logs each request of a pipeline of several stages (--log-stats) and passes its end on.
type PipelineSink struct {
	record.PipelineSink
	log *slog.Logger
}

// NewPipelineSink returns next itself when log is nil.
func NewPipelineSink(next record.PipelineSink, log *slog.Logger) record.PipelineSink {
	if log == nil {
		return next
	}
	return &PipelineSink{PipelineSink: next, log: log}
}

// PipelineFinished passes the end on and logs the request.
func (s *PipelineSink) PipelineFinished(p *record.Pipeline) {
	s.PipelineSink.PipelineFinished(p)
	Of(p).logTo(s.log)
}

// Of returns the account of a request that ended; what was not recorded is left out (PS-15).
func Of(p *record.Pipeline) *Aggregator {
	a := NewAggregator(p.RequestID, p.Arrival, p.FinalStage)
	a.gather(p)
	return a
}

// OfDuplex is Of for one duplex response (PS-61).
func OfDuplex(p *record.Pipeline) *Aggregator {
	a := NewDuplexAggregator(p.RequestID, p.Arrival, p.FinalStage)
	a.gather(p)
	return a
}

func (a *Aggregator) gather(p *record.Pipeline) {
	for _, e := range p.Ends {
		if e.Stage.Recorded() {
			a.OnStage(e.Stage, e.At)
		}
	}
	for i := range p.Transfers {
		t := &p.Transfers[i]
		a.OnTransfer(t.From, t.To, t.Bytes, t.TX, t.RX, t.InFlight)
	}
	a.OnFinalize(p.FinishedAt)
}

// One returns the account of a request whose only stage ended.
func One(r *record.Stage) *Aggregator {
	a := NewAggregator(r.RequestID, r.RequestStart, r.StageID)
	a.OnStage(r, r.FinishedAt)
	a.OnFinalize(r.FinishedAt)
	return a
}
