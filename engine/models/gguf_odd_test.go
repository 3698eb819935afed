package models_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omni-engine/engine/models"
	"omni-engine/internal/tensor"
)

// metadata stands in for a GGUF file's.
type metadata map[string]any

func (m metadata) String(k string) (string, bool) { v, ok := m[k].(string); return v, ok }
func (m metadata) Bool(k string) (value, ok bool) { value, ok = m[k].(bool); return value, ok }
func (m metadata) Int(k string) (int64, bool)     { v, ok := m[k].(int64); return v, ok }
func (m metadata) Ints(k string) ([]int64, bool)  { v, ok := m[k].([]int64); return v, ok }
func (m metadata) Float(k string) (float64, bool) {
	if v, ok := m.Int(k); ok {
		return float64(v), true
	}
	v, ok := m[k].(float64)
	return v, ok
}

// tensors stands in for a file's tensors.
type tensors map[string]tensor.View

func (w tensors) Names() []string {
	var out []string
	for n := range w {
		out = append(out, n)
	}
	return out
}

func (w tensors) Tensor(name string) (tensor.View, error) {
	if v, ok := w[name]; ok {
		return v, nil
	}
	return tensor.View{}, fmt.Errorf("no tensor %q", name)
}

func (w tensors) put(name string, shape ...int) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	w[name+".weight"] = tensor.View{DType: tensor.F32, Shape: shape, Data: make([]byte, 4*n)}
}

// tinyGGUF is a one-layer model of an architecture.
func tinyGGUF(arch string) (metadata, tensors) {
	w := tensors{}
	w.put("token_embd", 9, 8)
	w.put("output_norm", 8)
	for name, shape := range map[string][]int{"attn_norm": {8}, "ffn_norm": {8}, "attn_q": {8, 8}, "attn_k": {4, 8}, "attn_v": {4, 8}, "attn_output": {8, 8},
		"ffn_gate": {6, 8}, "ffn_up": {6, 8}, "ffn_down": {8, 6}, "post_attention_norm": {8}, "post_ffw_norm": {8}} {
		w.put("blk.0."+name, shape...)
	}
	m := metadata{"general.architecture": arch}
	for k, v := range map[string]any{"block_count": int64(1), "embedding_length": int64(8), "attention.head_count": int64(2), "attention.head_count_kv": int64(1),
		"context_length": int64(64), "rope.freq_base": 1e6, "attention.sliding_window": int64(5), "attention.layer_norm_rms_epsilon": 1e-6} {
		m[arch+"."+k] = v
	}
	return m, w
}

func TestGGUFArchitectures(t *testing.T) {
	for _, arch := range []string{"llama", "gemma3", "qwen2", "qwen3"} {
		m, w := tinyGGUF(arch)
		model, err := models.Load(models.Source{Metadata: m, Weights: w})
		require.NoError(t, err, arch)
		require.Equal(t, 9, model.Vocab)
		require.Equal(t, 64, model.MaxModelLen)
	}
	m, w := tinyGGUF("mamba")
	_, err := models.Load(models.Source{Metadata: m, Weights: w})
	require.ErrorContains(t, err, `architecture "mamba" is not supported`)
}

// A GGUF file is downloaded: odd metadata is an error or a model, and never a panic.
func TestOddGGUFMetadataNeverPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		arch := rapid.SampledFrom([]string{"llama", "gemma3", "qwen3"}).Draw(t, "arch")
		m, w := tinyGGUF(arch)
		keys := []string{"block_count", "embedding_length", "attention.head_count", "attention.head_count_kv", "context_length", "rope.freq_base", "attention.sliding_window",
			"attention.key_length", "attention.value_length", "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor", "attention.sliding_window_pattern",
			"rope.scaling.original_context_length", "expert_count", "rope.freq_base_swa", "final_logit_softcapping"}
		for range rapid.IntRange(1, 3).Draw(t, "n") {
			m[arch+"."+rapid.SampledFrom(keys).Draw(t, "key")] = rapid.SampledFrom([]any{int64(0), int64(-1), int64(1), int64(3), int64(1) << 40, 0.0, -2.5, 1e300, "yarn", "linear", "x", true}).Draw(t, "value")
		}
		if rapid.Bool().Draw(t, "freqs") {
			w.put("rope_freqs", rapid.IntRange(0, 3).Draw(t, "len"))
		}
		model, err := models.Load(models.Source{Metadata: m, Weights: w})
		if err == nil && model.Module.Validate() != nil {
			t.Fatal(model.Module.Validate())
		}
		if err != nil && strings.Contains(err.Error(), "%!") {
			t.Fatal(err)
		}
	})
}

func TestNormEpsilonThatBreaksEveryAnswerIsRefused(t *testing.T) {
	for _, eps := range []float64{math.NaN(), math.Inf(1), -1e-5, 7} {
		m, w := tinyGGUF("llama")
		m["llama.attention.layer_norm_rms_epsilon"] = eps
		_, err := models.Load(models.Source{Metadata: m, Weights: w})
		require.ErrorContains(t, err, "layer_norm_rms_epsilon is")
	}
}
