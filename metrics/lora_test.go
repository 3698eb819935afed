package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// adapterRequest drives one request of an adapter: queued and scheduled with its first output, then its end.
func adapterRequest(sink record.Sink, it *record.Iteration, name string) (end func()) {
	c := clock.NewManual(0)
	at := func(n int) clock.Time { return c.At(time.Duration(n) * time.Millisecond) }
	s := record.Begin(record.Identity{}, wall(0))
	s.Adapter = name
	it.Reset()
	s.ApplyOutput(at(30), wall(30), &request.Output{NewTokens: []int32{1}, Events: []request.Event{
		{Type: request.Queued, At: at(1)}, {Type: request.Scheduled, At: at(2)}, {Type: request.Preempted, At: at(3)}, {Type: request.Scheduled, At: at(4)}}}, it)
	sink.Step(&request.SchedulerStats{}, it)
	return func() {
		it.Reset()
		s.ApplyOutput(at(40), wall(40), &request.Output{NewTokens: []int32{1}, Finish: request.FinishStop}, it)
		sink.Step(&request.SchedulerStats{}, it)
		sink.Finished(s)
	}
}

func loraSeries(t *testing.T, m *Metrics) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	e := parseText(t, scrape(t, m))
	for s := range e.series {
		if rest, ok := strings.CutPrefix(s, "vllm:lora_requests_info"); ok {
			out[rest] = e.value(t, s)
		}
	}
	return out
}

// TestAdapterSeriesAreTheRecordedOnes replays the recorded run of one LoRA request: the same two series, in the same order of time.
func TestAdapterSeriesAreTheRecordedOnes(t *testing.T) {
	m := newTest(t, func(c *Config) { c.MaxLoRAs = 1 })
	it := &record.Iteration{Adapters: record.NewAdapterStates()}
	before := float64(time.Now().UnixNano()) / 1e9
	adapterRequest(m.Sink(0, 0), it, "zero")()
	golden := map[string]float64{}
	e := goldenText(t, "metrics_misc.txt")
	for s := range e.series {
		if rest, ok := strings.CutPrefix(s, "vllm:lora_requests_info"); ok {
			golden[rest] = e.value(t, s)
		}
	}
	got := loraSeries(t, m)
	require.Len(t, got, 2)
	require.Len(t, golden, 2)
	for s := range golden {
		require.Contains(t, got, s)
		require.GreaterOrEqual(t, got[s], before, "the time of its last update")
	}
	busy, idle := `{max_lora="1",running_lora_adapters="zero",waiting_lora_adapters="zero"}`, `{max_lora="1",running_lora_adapters="",waiting_lora_adapters=""}`
	require.Less(t, golden[busy], golden[idle])
	require.Less(t, got[busy], got[idle], "the newest tells what is loaded now")
}

func TestAdaptersAreJoinedAndTheirSeriesBounded(t *testing.T) {
	m := newTest(t, func(c *Config) { c.MaxLoRAs, c.Stages = 4, []StageInfo{{Replicas: 2}} })
	it := &record.Iteration{Adapters: record.NewAdapterStates()}
	sink := m.Sink(0, 0)
	endB := adapterRequest(sink, it, "b")
	endA := adapterRequest(sink, it, "a")
	require.Contains(t, loraSeries(t, m), `{max_lora="4",running_lora_adapters="a,b",waiting_lora_adapters="a,b"}`)
	endB()
	require.Contains(t, loraSeries(t, m), `{max_lora="4",running_lora_adapters="a",waiting_lora_adapters="a"}`)
	endA()
	for i := range 3 * maxAdapterSeries {
		adapterRequest(sink, it, fmt.Sprint("adapter", i))()
	}
	got := loraSeries(t, m)
	require.Len(t, got, maxAdapterSeries)
	require.Contains(t, got, fmt.Sprintf(`{max_lora="4",running_lora_adapters="adapter%d",waiting_lora_adapters="adapter%d"}`, 3*maxAdapterSeries-1, 3*maxAdapterSeries-1))
	require.Contains(t, got, `{max_lora="4",running_lora_adapters="",waiting_lora_adapters=""}`, "what is set at every pause stays")
	require.Empty(t, it.Adapters.Names())
}
