package record

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
)

// TestNamesAreSpelledInOneFilePS13 reads every Go file of the module that is neither a test nor generated.
func TestNamesAreSpelledInOneFilePS13(t *testing.T) {
	root := "../.."
	require.FileExists(t, filepath.Join(root, "go.mod"))
	names := []string{VLLMTTFTMS, VLLMTPOTMS, VLLMITLMS, VLLMITLsMS}
	for _, f := range SplitFields() {
		names = append(names, f.Name)
	}
	require.Len(t, names, 13)
	seen := map[string]bool{}
	files := 0
	var overlay struct{ Replace map[string]string } // set when a mutation is tested: it is not in the tree
	if text := os.Getenv("OMNI_OVERLAY"); text != "" {
		require.NoError(t, json.Unmarshal([]byte(text), &overlay))
	}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") {
			return nil
		}
		source := path
		if whole, err := filepath.Abs(path); err == nil && overlay.Replace[whole] != "" {
			source = overlay.Replace[whole]
		}
		text, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		files++
		for _, name := range names {
			if !strings.Contains(string(text), name) {
				continue
			}
			if path == filepath.Join(root, "metrics/record/names.go") {
				seen[name] = true
				continue
			}
			t.Errorf("%s spells %s; use the constant of metrics/record/names.go", path, name)
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, files, 10)
	require.Len(t, seen, len(names), "names.go spells them all")
}

func TestRowsEncodeTheRegistryInOrderWithNullsPS11PS13(t *testing.T) {
	c := newCore(Identity{})
	c.terminal(30, request.FinishAbort, c.queued(10))
	data, err := json.Marshal(NewRow(c.Stage))
	require.NoError(t, err)
	at := -1
	for _, f := range Fields() {
		i := strings.Index(string(data), `"`+f.Name+`":`)
		require.Greater(t, i, at, "%s comes in the registry's order", f.Name)
		at = i
	}
	require.Contains(t, string(data), `"`+VLLMQueuedMS+`":null,"`+VLLMPrefillMS+`":null,"`+VLLMDecodeMS+`":null,"`+VLLMNumPreemptions+`":null`)
	require.Contains(t, string(data), `"`+VLLMUnscheduledWaitMS+`":20`)
	require.Contains(t, string(data), `"`+VLLMTTFTMS+`":0`, "0 in vLLM-Omni's own keys (http.md, differences)")
	require.False(t, c.TTFT().IsSet(), "absent in the record")
}

func row(values map[string]Value) Row {
	r := NewRow(&Stage{})
	for i := range r {
		if v, ok := values[r[i].Name]; ok {
			r[i].Value = v
		}
	}
	return r
}

// TestTerminalWinsWhenRowsFoldPS60 drives each field of the split: absent hides nothing, an explicit 0 is a value.
func TestTerminalWinsWhenRowsFoldPS60(t *testing.T) {
	for _, f := range SplitFields() {
		set := func(v Value) Row { return row(map[string]Value{f.Name: v}) }
		seven, nothing, zero := set(FloatValue(7)), set(Value{}), set(FloatValue(0))
		require.Equal(t, 7.0, Fold(nothing, seven).Get(f.Name).Number(), f.Name)
		require.Equal(t, 7.0, Fold(seven, nothing).Get(f.Name).Number(), f.Name)
		last := Fold(Fold(seven, zero), nothing).Get(f.Name)
		require.True(t, last.IsSet() && last.Number() == 0, "%s: the 0 is the last value", f.Name)
		require.False(t, Fold(nothing, nothing).Get(f.Name).IsSet(), f.Name)
	}
}

func TestOtherFieldsFoldAsInVLLMOmni(t *testing.T) {
	a := row(map[string]Value{NumTokensOut: IntValue(3), StageGenTimeMS: FloatValue(100), ServingFirstMS: FloatValue(10),
		AudioSampleRate: IntValue(0), OutputUnitCount: IntValue(3), FinishReasonField: Value{}, FinalOutputType: TextValue("text"),
		InterOutputsMS: ListValue([]float64{1, 2}), VLLMITLsMS: ListValue([]float64{4}), VLLMTTFTMS: FloatValue(5), VLLMTPOTMS: FloatValue(2), DenoiseStepMS: FloatValue(1)})
	b := row(map[string]Value{NumTokensOut: IntValue(2), StageGenTimeMS: FloatValue(50), ServingFirstMS: FloatValue(99),
		AudioSampleRate: IntValue(24000), OutputUnitCount: IntValue(2), FinishReasonField: TextValue("stop"), FinalOutputType: Value{},
		InterOutputsMS: ListValue([]float64{6}), VLLMITLsMS: ListValue([]float64{8}), VLLMTTFTMS: FloatValue(6), VLLMTPOTMS: FloatValue(3), DenoiseStepMS: FloatValue(0)})
	before := a.Get(InterOutputsMS).List()
	f := Fold(a, b)
	for name, want := range map[string]float64{NumTokensOut: 5, StageGenTimeMS: 150, ServingFirstMS: 10, AudioSampleRate: 24000,
		OutputUnitCount: 5, InterOutputMS: 3, VLLMITLMS: 6, VLLMTTFTMS: 5, VLLMTPOTMS: 3, DenoiseStepMS: 1, TimePerUnitMS: (150 - 10) / 4.0} {
		require.Equal(t, want, f.Get(name).Number(), name)
	}
	require.Equal(t, []float64{1, 2, 6}, f.Get(InterOutputsMS).List())
	require.Equal(t, "stop", f.Get(FinishReasonField).Text())
	require.Equal(t, "text", f.Get(FinalOutputType).Text())
	require.Equal(t, []float64{1, 2}, before, "folding changes no input")
	weighted := FoldDuplex(a, b).Get(VLLMTPOTMS).Number()
	require.InDelta(t, (2.0*2+3*1)/3, weighted, 1e-12, "weighted by tokens out − 1")
}

// TestSnapshotHasVLLMOmnisKeysPS23 checks the stage_metrics map of a response.
func TestSnapshotHasVLLMOmnisKeysPS23(t *testing.T) {
	c := newCore(Identity{StageID: 0, StageName: "thinker", Replica: 3})
	c.last(30, 1, c.queued(10), c.scheduled(20))
	other := newCore(Identity{StageID: 1})
	other.terminal(30, request.FinishError)
	m := StageMetrics(c.Stage, other.Stage)
	require.Len(t, m, 2)
	var names []string
	for _, cell := range m["0"] {
		names = append(names, cell.Name)
	}
	require.Equal(t, SnapshotOrder(), names)
	require.Equal(t, []string{"stage_id", "final_output_type", "finish_reason", "num_tokens_in", "num_tokens_out", "stage_gen_time_ms",
		"postprocess_time_ms", "audio_frames", "audio_sample_rate", "audio_duration_s", "image_pixels", "denoise_step_latency_ms",
		"output_unit_type", "output_unit_count", "serving_time_to_first_output_ms", "image_time_to_first_output_ms",
		"time_per_output_unit_ms", "inter_output_latency_ms", "inter_output_latencies_ms", "vllm_ttft_ms", "vllm_tpot_ms", "vllm_itl_ms", "vllm_itls_ms"},
		names[:23], "vLLM-Omni's keys in its order, then the split, the waits, the name and the replica")
	require.Equal(t, "thinker", m["0"].Get(StageNameField).Text())
	require.Equal(t, 3, m["0"].Get(ReplicaID).Int())
	require.Equal(t, 10.0, m["0"].Get(VLLMQueuedMS).Number())
	require.Equal(t, "stage_1", m["1"].Get(StageNameField).Text())
	data, err := json.Marshal(m["1"])
	require.NoError(t, err)
	require.Contains(t, string(data), `"`+VLLMPrefillMS+`":null`)
	require.Contains(t, string(data), `"final_output_type":null`)
}
