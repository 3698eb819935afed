package models_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/models"
	"omni-engine/internal/tensor"
)

func TestConfigValuesThatAreNoNumbersAreRefused(t *testing.T) {
	dir := filepath.Join("testdata", "tiny", "llama_default")
	var w models.Weights
	open(t, dir, func(s *models.Source) { w = s.Weights })
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	for key, values := range map[string][]any{"num_hidden_layers": {"2", 1.5, 1e12, true}, "hidden_size": {"64", 64.5}, "vocab_size": {1e300},
		"rms_norm_eps": {"x", true}, "rope_theta": {"10000"}} {
		for _, v := range values {
			var config map[string]any
			require.NoError(t, json.Unmarshal(raw, &config))
			config[key] = v
			changed, err := json.Marshal(config)
			require.NoError(t, err)
			_, err = models.Load(models.Source{Config: changed, Weights: w})
			require.ErrorContains(t, err, key+" is ", "%v", v)
		}
	}
}

// retyped is a checkpoint in which one tensor claims another element type of the same size.
type retyped struct {
	models.Weights
	name  string
	dtype tensor.DType
}

func (r retyped) Tensor(name string) (tensor.View, error) {
	v, err := r.Weights.Tensor(name)
	if name == r.name {
		v.DType = r.dtype
	}
	return v, err
}

func TestWeightsOfIntegersAreRefused(t *testing.T) {
	for _, name := range []string{"model.norm.weight", "model.embed_tokens.weight", "model.layers.1.self_attn.q_proj.weight"} {
		open(t, filepath.Join("testdata", "tiny", "llama_default"), func(s *models.Source) {
			_, err := models.Load(models.Source{Config: s.Config, Weights: retyped{s.Weights, name, tensor.I32}})
			require.ErrorContains(t, err, "tensor "+name+" holds I32 elements")
		})
	}
}
