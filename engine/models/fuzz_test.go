package models_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omni-engine/engine/models"
	"omni-engine/internal/weights/safetensors"
)

// FuzzConfig: a config.json is downloaded. Whatever it says, Load answers with a module that validates or an error; it never panics.
func FuzzConfig(f *testing.F) {
	var weights []models.Weights
	for _, dir := range []string{"tiny/llama_default", "tiny/gemma3_text", "tiny/deepseek_v2", "tiny/qwen3_next", "tiny/gpt_oss", "tiny_qwen3_omni", "tiny_zimage/transformer"} {
		dir = filepath.Join("testdata", dir)
		config, err := os.ReadFile(filepath.Join(dir, "config.json"))
		require.NoError(f, err)
		w, err := safetensors.Open(dir)
		require.NoError(f, err)
		weights = append(weights, w)
		for part := range uint8(4) {
			f.Add(config, uint8(len(weights)-1), part)
		}
	}
	for _, s := range []string{
		`{}`, `null`, `[]`, `{"architectures":["LlamaForCausalLM"]}`,
		`{"architectures":["Gemma3ForCausalLM"],"num_hidden_layers":2,"vocab_size":9,"hidden_size":8,"num_attention_heads":2,"sliding_window_pattern":0}`,
		`{"architectures":["LlamaForCausalLM"],"num_hidden_layers":1,"vocab_size":512,"hidden_size":64,"num_attention_heads":4,"head_dim":1}`,
		`{"architectures":["Qwen3NextForCausalLM"],"num_hidden_layers":2,"vocab_size":9,"hidden_size":8,"num_attention_heads":2,"full_attention_interval":0}`,
		`{"architectures":["SmolLM3ForCausalLM"],"num_hidden_layers":2,"vocab_size":9,"hidden_size":8,"num_attention_heads":2,"no_rope_layer_interval":0}`,
		`{"architectures":["LlamaForCausalLM"],"num_hidden_layers":1,"vocab_size":512,"hidden_size":64,"num_attention_heads":4,"rope_scaling":{"rope_type":"yarn","factor":-1}}`,
	} {
		f.Add([]byte(s), uint8(0), uint8(0))
	}
	parts := []string{"", models.Thinker, models.Talker, models.Code2Wav}
	f.Fuzz(func(t *testing.T, config []byte, which, part uint8) {
		m, err := models.Load(models.Source{Config: config, Weights: weights[int(which)%len(weights)], Part: parts[part%4]})
		if err == nil {
			require.NoError(t, m.Module.Validate())
		}
	})
}

// spoil sets one value somewhere in a JSON object to something odd.
func spoil(t *rapid.T, o map[string]any) {
	keys := slices.Sorted(maps.Keys(o))
	k := rapid.SampledFrom(keys).Draw(t, "key")
	if inner, ok := o[k].(map[string]any); ok && len(inner) > 0 && rapid.IntRange(0, 5).Draw(t, "deeper") > 0 {
		spoil(t, inner)
		return
	}
	o[k] = rapid.SampledFrom([]any{0.0, -1.0, 1.0, 2.0, 3.0, 7.5, 1e15, -1e300, 100000.0, "x", nil, true, []any{}, []any{0.0}, []any{-1.0, 1e9, 0.5}, []any{"x"}, map[string]any{}}).Draw(t, "value")
}

// One or a few odd values in an otherwise good config are an error or a model, and never a panic.
func TestOddConfigValuesNeverPanic(t *testing.T) {
	type source struct {
		config  []byte
		weights models.Weights
	}
	var sources []source
	for _, dir := range append(checkpoints(t), filepath.Join("testdata", "tiny_qwen3_omni"), filepath.Join("testdata", "tiny_zimage", "transformer")) {
		config, err := os.ReadFile(filepath.Join(dir, "config.json"))
		require.NoError(t, err)
		w, err := safetensors.Open(dir)
		require.NoError(t, err)
		defer func() { require.NoError(t, w.Close()) }()
		sources = append(sources, source{config, w})
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(sources).Draw(t, "model")
		var o map[string]any
		if err := json.Unmarshal(s.config, &o); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 3).Draw(t, "spoiled") {
			spoil(t, o)
		}
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		m, err := models.Load(models.Source{Config: raw, Weights: s.weights, Part: rapid.SampledFrom([]string{"", "", models.Talker, models.Code2Wav}).Draw(t, "part")})
		if err == nil && m.Module.Validate() != nil {
			t.Fatal(m.Module.Validate())
		}
	})
}
