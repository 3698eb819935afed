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
		One(r).BuildAndLogSummary(s.log)
	}
}

// One returns the account of a request whose only stage ended.
func One(r *record.Stage) *Aggregator {
	a := NewAggregator(r.RequestID, r.RequestStart, r.StageID)
	a.OnStage(r, r.FinishedAt)
	a.OnFinalize(r.FinishedAt)
	return a
}
