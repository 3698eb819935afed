package metrics

import (
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// proto returns a block as the protobuf model's family, with native histograms beside the classic buckets.
func (b block) proto() *dto.MetricFamily {
	f := &dto.MetricFamily{Name: &b.f.name, Help: &b.f.help}
	switch {
	case b.summary:
		f.Type = dto.MetricType_SUMMARY.Enum()
		for _, s := range b.summaries {
			count, sum := s.count, s.total
			f.Metric = append(f.Metric, &dto.Metric{Label: s.series.pairs(), Summary: &dto.Summary{SampleCount: &count, SampleSum: &sum,
				CreatedTimestamp: timestamppb.New(s.series.created)}})
		}
	case b.f.kind == gauge:
		f.Type = dto.MetricType_GAUGE.Enum()
		for _, g := range b.gauges {
			f.Metric = append(f.Metric, &dto.Metric{Label: g.s.pairs(), Gauge: &dto.Gauge{Value: &g.value}})
		}
	case b.f.kind == counter:
		f.Type = dto.MetricType_COUNTER.Enum()
		for _, s := range b.series {
			v := s.value()
			f.Metric = append(f.Metric, &dto.Metric{Label: s.pairs(), Counter: &dto.Counter{Value: &v, CreatedTimestamp: timestamppb.New(s.created)}})
		}
	default:
		f.Type = dto.MetricType_HISTOGRAM.Enum()
		for _, s := range b.series {
			m := &dto.Metric{}
			if s.hist.Write(m) == nil {
				m.Label = s.pairs()
				f.Metric = append(f.Metric, m)
			}
		}
	}
	return f
}

// Gather implements prometheus.Gatherer: every family that has a series, for encoders and tests of the client library.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) {
	var out []*dto.MetricFamily
	for _, b := range m.collect(false) {
		if f := b.proto(); len(f.Metric) > 0 {
			out = append(out, f)
		}
	}
	return append(out, m.ownProcess()...), nil
}
