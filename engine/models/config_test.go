package models_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/models"
)

// Published checkpoints carry configs of transformers 4: rope_theta and rope_scaling, torch_dtype, no layer_types. They must mean the same.
func TestOlderConfigsMeanTheSame(t *testing.T) {
	for name, older := range map[string]map[string]any{
		"llama_default": {"rope_theta": 10000.0, "torch_dtype": "bfloat16", "head_dim": nil},
		"llama3_tied": {"rope_theta": 500000.0, "rope_scaling": map[string]any{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
			"high_freq_factor": 4.0, "original_max_position_embeddings": 16.0}},
		"gemma3_text": {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": map[string]any{"rope_type": "linear", "factor": 8.0}, "sliding_window_pattern": 3.0},
		"qwen2":       {"rope_theta": 1e6, "sliding_window": 8.0, "use_sliding_window": false},
		"deepseek_v2": {"rope_theta": 10000.0, "rope_scaling": map[string]any{"type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
			"mscale": 0.707, "mscale_all_dim": 0.707, "original_max_position_embeddings": 16.0}},
		"qwen3_next": {"rope_theta": 1e7, "partial_rotary_factor": 0.25, "full_attention_interval": 2.0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("testdata", "tiny", name)
			now := open(t, dir, nil)
			var c map[string]any
			raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(raw, &c))
			for _, k := range []string{"rope_parameters", "layer_types", "dtype", "_sliding_window_pattern"} {
				delete(c, k)
			}
			c["torch_dtype"] = "bfloat16"
			for k, v := range older {
				c[k] = v
			}
			raw, err = json.Marshal(c)
			require.NoError(t, err)
			then := open(t, dir, func(s *models.Source) { s.Config = raw })
			require.Equal(t, now.Config, then.Config)
			require.Equal(t, now.Module, then.Module)
		})
	}
}

func TestFactsForTheEngine(t *testing.T) {
	dir := filepath.Join("testdata", "tiny", "gemma3_text")
	m := open(t, dir, func(s *models.Source) { s.Generation = []byte(`{"eos_token_id": [1, 106]}`) })
	require.Equal(t, "Gemma3ForCausalLM", m.Architecture)
	require.Equal(t, []int32{1, 106}, m.EOS, "generation_config.json before config.json")
	require.Equal(t, 512, m.Vocab)
	require.Equal(t, 256, m.MaxModelLen)
	require.Equal(t, "bfloat16", m.DType)
	require.Len(t, m.Groups, 2)
	require.Equal(t, 8, m.Groups[0].Window)
	require.Zero(t, m.Groups[1].Window)
	require.False(t, m.Recurrent)
	next := open(t, filepath.Join("testdata", "tiny", "qwen3_next"), nil)
	require.True(t, next.Recurrent)
	require.Equal(t, []int32{2}, next.EOS)
}

func TestWhatIsNotSupportedIsRefusedByName(t *testing.T) {
	dir := filepath.Join("testdata", "tiny", "llama_default")
	base := open(t, dir, nil)
	require.NotNil(t, base)
	for change, want := range map[string]string{
		`{"architectures":["FalconForCausalLM"]}`:                         "architecture FalconForCausalLM is not supported; supported are [Cohere2ForCausalLM",
		`{"architectures":["LlamaForCausalLM"],"quantization_config":{}}`: "quantization_config is not supported",
		`{"_class_name":"SD3Transformer2DModel"}`:                         "class SD3Transformer2DModel is not supported",
		`{}`: "no architectures",
		`{"architectures":["LlamaForCausalLM"],"num_hidden_layers":3,"vocab_size":512,"hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2}`:            "model.layers.2.input_layernorm.weight",
		`{"architectures":["LlamaForCausalLM"],"num_hidden_layers":2,"vocab_size":512,"hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2}`:            "has shape",
		`{"architectures":["LlamaForCausalLM"],"num_hidden_layers":2,"vocab_size":512,"hidden_size":64,"num_attention_heads":4,"rope_scaling":{"rope_type":"odd"}}`: `rope type "odd" is not supported`,
	} {
		var w models.Weights
		open(t, dir, func(s *models.Source) { w = s.Weights })
		_, err := models.Load(models.Source{Config: []byte(change), Weights: w})
		require.ErrorContains(t, err, want)
	}
}
