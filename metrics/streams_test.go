package metrics

import (
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// Edges of a pipeline of three stages: every sample was formed within one clock; across clocks there is none (PS-11).
func TestStreamEdgesBecomeHistogramsWithinOneClockPS11(t *testing.T) {
	m, err := New(Config{ModelName: "omni", Stages: []StageInfo{{ID: 0}, {ID: 1}, {ID: 2}}, MaxModelLen: 1024})
	require.NoError(t, err)
	cores := []*clock.Manual{clock.NewManual(time.Second), clock.NewManual(time.Second), clock.NewManual(time.Second)}
	core := func(k, ms int) record.Instant {
		return record.CoreInstant(k, 0, cores[k].At(time.Second+time.Duration(ms)*time.Millisecond))
	}
	arrival := clock.WallAt(time.Unix(1000, 0))
	server := func(ms int) record.Instant {
		return record.ServerInstant(arrival.Add(time.Duration(ms) * time.Millisecond))
	}
	p := &record.Pipeline{Arrival: arrival, FinishedAt: arrival.Add(time.Second), Edges: []record.StreamEdge{
		{From: 0, To: 1, FirstOutput: core(0, 10), FirstByte: core(0, 11), LastByte: core(0, 31), FirstInput: core(1, 500)},
		{From: 1, To: 2, FirstOutput: core(1, 540), FirstByte: server(45), LastByte: core(1, 600), FirstInput: core(2, 5)},
		{From: 2, To: record.Client, FirstOutput: core(1, 50), FirstByte: server(60), LastByte: server(90)},
	}}
	m.PipelineFinished(p)
	got := map[string]float64{}
	for _, b := range m.streams.collect() {
		for _, s := range b.series {
			n, sum := s.histogram()
			got[b.f.name+"{"+s.text+"}_count"], got[b.f.name+"{"+s.text+"}_sum"] = float64(n), sum
		}
	}
	for name, want := range map[string][2]float64{
		`omni_stream_first_byte_seconds{model_name="omni"}`:                            {1, 0.06},
		`omni_stream_send_seconds{from_stage="0",model_name="omni",to_stage="1"}`:      {1, 0.02},
		`omni_stream_send_seconds{from_stage="1",model_name="omni",to_stage="2"}`:      {0, 0}, // begun by the server, ended by a core
		`omni_stream_send_seconds{from_stage="2",model_name="omni",to_stage="client"}`: {1, 0.03},
		`omni_stream_first_chunk_seconds{model_name="omni",replica="0",stage="1"}`:     {1, 0.04},
		`omni_stream_first_chunk_seconds{model_name="omni",replica="0",stage="2"}`:     {0, 0}, // its output was read on another clock
	} {
		require.Contains(t, got, name+"_count")
		require.Equal(t, want[0], got[name+"_count"], name)
		require.InDelta(t, want[1], got[name+"_sum"], 1e-9, name)
	}
}

// The counters of traces exist when tracing is on, and only then.
func TestTraceCountersComeFromTheTracer(t *testing.T) {
	m, err := New(Config{ModelName: "omni", Stages: []StageInfo{{ID: 0}}, MaxModelLen: 1024})
	require.NoError(t, err)
	names := func() (out []string) {
		for _, b := range m.streams.collect() {
			out = append(out, b.f.name)
		}
		return out
	}
	require.Equal(t, []string{"omni_stream_first_byte_seconds", "omni_stream_send_seconds"}, names())
	m.SetTraces(func() (int64, int64, int64) { return 5, 2, 1 })
	blocks := m.streams.collect()
	require.Equal(t, 5.0, blocks[2].series[0].value())
	require.Equal(t, `model_name="omni",reason="queue_full"`, blocks[3].series[0].text)
	require.Equal(t, 2.0, blocks[3].series[0].value())
	require.Equal(t, 1.0, blocks[3].series[1].value())
}

// histogram reads a series' count and sum.
func (s *series) histogram() (count uint64, sum float64) {
	var out dto.Metric
	_ = s.hist.Write(&out)
	return out.GetHistogram().GetSampleCount(), out.GetHistogram().GetSampleSum()
}
