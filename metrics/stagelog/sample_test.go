package stagelog

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// lines is a slog handler that keeps what was logged.
type lines struct {
	level slog.Level
	got   *[]string
}

func (l lines) Enabled(_ context.Context, at slog.Level) bool { return at >= l.level }
func (l lines) Handle(_ context.Context, r slog.Record) error {
	*l.got = append(*l.got, r.Level.String()+" "+r.Message)
	return nil
}
func (l lines) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l lines) WithGroup(string) slog.Handler      { return l }

func logTo(level slog.Level) (*slog.Logger, *[]string) {
	got := &[]string{}
	return slog.New(lines{level, got}), got
}

func wall(ms float64) clock.Wall {
	return clock.WallAt(time.Unix(1000, 0).Add(time.Duration(ms * 1e6)))
}

func ms(v float64) clock.Span { return clock.SpanOf(time.Duration(v * 1e6)) }

// sample cuts the recorded output of vLLM-Omni's own code into its scenarios' logs and JSON parts.
func sample(t *testing.T) (logs [2]string, snapshot, summary string) {
	t.Helper()
	data, err := os.ReadFile("testdata/omni_rendered_sample.txt")
	require.NoError(t, err)
	parts := strings.Split(string(data), "=== SCENARIO ")
	_, first, _ := strings.Cut(parts[1], "\n")
	logs[0], first, _ = strings.Cut(first, "--- snapshot\n")
	snapshot, summary, _ = strings.Cut(first, "--- build_and_log_summary()\n")
	_, logs[1], _ = strings.Cut(parts[2], "\n")
	return logs, snapshot, summary
}

// rowOf gives a row of the registry the values of a recorded JSON object; the registry's kinds stay.
func rowOf(t *testing.T, values map[string]any) record.Row {
	t.Helper()
	row := record.NewRow(&record.Stage{})
	for i, c := range row {
		switch v := values[c.Name].(type) {
		case nil:
		case string:
			row[i].Value = record.TextValue(v)
		case float64:
			if c.Kind == record.Int {
				row[i].Value = record.IntValue(int(v))
			} else {
				row[i].Value = record.FloatValue(v)
			}
		case []any:
			list := make([]float64, len(v))
			for j := range v {
				list[j] = v[j].(float64)
			}
			row[i].Value = record.ListValue(list)
		}
	}
	return row
}

// withoutSplit takes the phase and wait cells out: vLLM-Omni 0.30 has none.
func withoutSplit(row record.Row) record.Row {
	set := map[string]bool{}
	for _, f := range record.SplitFields() {
		set[f.Name] = true
	}
	return row.Without(set)
}

// three builds the first scenario from the recorded rows.
func three(t *testing.T, summary string) *Aggregator {
	t.Helper()
	var recorded struct {
		Stages []struct{ Stages []map[string]any } `json:"stage_table"`
	}
	require.NoError(t, json.Unmarshal([]byte(summary), &recorded))
	a := NewAggregator("req-1", wall(0), 2)
	for i, values := range recorded.Stages[0].Stages {
		e := Event{Row: rowOf(t, values), Submit: wall([]float64{0, 50, 200}[i]), At: wall([]float64{2000, 2200, 2400}[i])}
		if i == 2 {
			e.Pipeline.Preprocess = ms(12)
		}
		a.OnEvent(e)
	}
	a.OnFinalize(wall(2500))
	a.OnFinalize(wall(9999))
	return a
}

func TestTablesAreVLLMOmnisPS20(t *testing.T) {
	logs, _, summary := sample(t)
	log, got := logTo(slog.LevelDebug)
	three(t, summary).BuildAndLogSummary(log)
	require.Len(t, *got, 4)
	out := ""
	for _, line := range *got {
		level, text, _ := strings.Cut(line, " ")
		want := "DEBUG" // 0.30 prints all at INFO
		if strings.HasPrefix(text, "[OmniTiming]") {
			want = "INFO"
		}
		require.Equal(t, want, level)
		out += "INFO " + text + "\n"
	}
	require.Equal(t, logs[0], out)
}

func TestOnlyTheTimingLineIsLoggedAtInfoPS20(t *testing.T) {
	_, _, summary := sample(t)
	log, got := logTo(slog.LevelInfo)
	require.NotNil(t, three(t, summary).BuildAndLogSummary(log))
	require.Equal(t, []string{"INFO [OmniTiming] req=req-1 total=2.50s preprocess=0.01s engine=2.49s stages=[0:0.90s,1:1.50s,2:1.80s] transfers=[0->1=0.00ms,1->2=0.00ms]"}, *got)
	require.Nil(t, three(t, summary).BuildAndLogSummary(nil), "without --log-stats there is no summary")
}

func TestSummaryIsVLLMOmnisPS21(t *testing.T) {
	_, _, summary := sample(t)
	s := three(t, summary).Build()
	for i := range s.Stages[0].Stages {
		row := s.Stages[0].Stages[i]
		for _, f := range record.SplitFields() {
			c, ok := (&column{cells: row}).has(f.Name)
			require.True(t, ok, "stage_table carries %s for every request and stage", f.Name)
			require.False(t, c.IsSet())
		}
		s.Stages[0].Stages[i] = withoutSplit(row)
	}
	got, err := json.Marshal(s)
	require.NoError(t, err)
	var want bytes.Buffer
	require.NoError(t, json.Compact(&want, []byte(summary)))
	var a, b any
	require.NoError(t, json.Unmarshal(got, &a))
	require.NoError(t, json.Unmarshal([]byte(summary), &b))
	inDelta(t, b, a, "summary")
	require.Equal(t, keys(t, want.Bytes()), keys(t, got), "the keys come in the same order")
}

// inDelta compares JSON values; numbers to a millionth of a millisecond.
func inDelta(t *testing.T, want, got any, path string) {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		require.True(t, ok, path)
		require.Len(t, g, len(w), path)
		for k := range w {
			inDelta(t, w[k], g[k], path+"."+k)
		}
	case []any:
		g, ok := got.([]any)
		require.True(t, ok, path)
		require.Len(t, g, len(w), path)
		for i := range w {
			inDelta(t, w[i], g[i], path)
		}
	case float64:
		require.InDelta(t, w, got, 1e-6, path)
	default:
		require.Equal(t, want, got, path)
	}
}

func keys(t *testing.T, data []byte) []string {
	t.Helper()
	var out []string
	d := json.NewDecoder(bytes.NewReader(data))
	for {
		token, err := d.Token()
		if err != nil {
			return out
		}
		if s, ok := token.(string); ok {
			out = append(out, s)
		}
	}
}

func TestDiffusionRowsAndTransfersAreVLLMOmnis(t *testing.T) {
	logs, _, summary := sample(t)
	var recorded struct {
		Stages []struct{ Stages []map[string]any } `json:"stage_table"`
	}
	require.NoError(t, json.Unmarshal([]byte(summary), &recorded))
	a := NewAggregator("req-2", wall(0), 1)
	first := recorded.Stages[0].Stages[0]
	for _, name := range []string{record.TimePerUnitMS, record.InterOutputMS, record.InterOutputsMS, record.ServingFirstMS,
		record.VLLMTTFTMS, record.VLLMTPOTMS, record.VLLMITLMS, record.VLLMITLsMS} {
		delete(first, name)
	}
	a.OnEvent(Event{Row: rowOf(t, first), Submit: wall(0), At: wall(2000)})
	image := map[string]any{"stage_id": 1.0, "batch_id": 1.0, "denoise_step_latency_ms": 36.0, "image_pixels": 1048576.0,
		"image_time_to_first_output_ms": 1990.0, "num_inference_steps": 50.0, "output_unit_count": 1.0, "output_unit_type": "image",
		"stage_gen_time_ms": 2000.0, "postprocess_time_ms": 80.0}
	a.OnEvent(Event{Row: rowOf(t, image), Submit: wall(0), At: wall(2500),
		Pipeline: record.PipelineTimings{Preprocess: ms(12), AR2Diffusion: ms(3.5)},
		Diffusion: []record.NamedFloat{{Name: "preprocess_time_s", Value: 0.004}, {Name: "diffusion_engine_exec_time_s", Value: 1.9},
			{Name: "forward_time_s", Value: 1.8}, {Name: "postprocess_time_s", Value: 0.08}, {Name: "scheduler_queue_wait_s", Value: 0.001}, {Name: "image_num", Value: 1}}})
	a.OnTransfer(0, 1, 65536, ms(2.25), clock.Span{}, clock.Span{})
	a.OnFinalize(wall(2500))
	log, got := logTo(slog.LevelDebug)
	a.BuildAndLogSummary(log)
	out := ""
	for _, line := range *got {
		_, text, _ := strings.Cut(line, " ")
		out += "INFO " + text + "\n"
	}
	require.Equal(t, strings.TrimRight(logs[1], "\n"), strings.TrimRight(out, "\n"))
}
