package models_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/models"
	"omni-engine/internal/weights/gguf"
	"omni-engine/kernels"
)

// ggufModels finds the two real models.
func ggufModels(t *testing.T) map[string]string {
	smollm2, gemma3 := os.Getenv("OMNI_MODEL_SMOLLM2"), os.Getenv("OMNI_MODEL_GEMMA3")
	if smollm2 == "" || gemma3 == "" || os.Getenv("OMNI_TESTDATA") == "" {
		t.Skip("set OMNI_TESTDATA, OMNI_MODEL_SMOLLM2 and OMNI_MODEL_GEMMA3 (files that scripts/model.sh fetches)")
	}
	return map[string]string{"smollm2": smollm2, "gemma3": gemma3}
}

func openGGUF(t *testing.T, path string) *models.Model {
	f, err := gguf.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	m, err := models.Load(models.Source{Metadata: f.Meta, Weights: f})
	require.NoError(t, err)
	return m
}

func relativeL2(got, want []float32) float64 {
	var d, n float64
	for i := range want {
		e := float64(got[i]) - float64(want[i])
		d, n = d+e*e, n+float64(want[i])*float64(want[i])
	}
	return math.Sqrt(d / n)
}

func TestRealGGUFModelsMatchTransformers(t *testing.T) {
	for name, path := range ggufModels(t) {
		t.Run(name, func(t *testing.T) {
			text := filepath.Join(os.Getenv("OMNI_TESTDATA"), "ref", "text")
			raw, err := os.ReadFile(filepath.Join(text, name+".json"))
			require.NoError(t, err)
			var want struct {
				Prompts []struct {
					IDs, Greedy []int32
					Margins     []float64
				}
			}
			require.NoError(t, json.Unmarshal(raw, &want))
			rows := npz(t, filepath.Join(text, name+".npz"))
			m := openGGUF(t, path)
			run := newRunner(t, m.Module, kernels.Limits{Tokens: 512, Rows: 1, LogitRows: 1, MaxModelLen: 1024, BlockSize: 16})
			for i, p := range want.Prompts {
				if len(p.IDs) > 64 || i > 3 && os.Getenv("OMNI_LONG") == "" {
					continue
				}
				got := run.last(chunk{tokens: p.IDs})
				limit := 1e-4
				if name == "gemma3" {
					limit = 5e-4 // its rows are stored as float16
				}
				rel := relativeL2(got, rows[fmt.Sprintf("prompt%d.logits", i)].floats())
				t.Logf("prompt %d: relative L2 %.1e", i, rel)
				require.LessOrEqual(t, rel, limit, "prompt %d", i)
				for k, id := range p.Greedy[:4] {
					require.Equal(t, id, argmax(got), "prompt %d token %d", i, k)
					got = run.last(chunk{start: len(p.IDs) + k, tokens: []int32{id}})
				}
			}
		})
	}
}
