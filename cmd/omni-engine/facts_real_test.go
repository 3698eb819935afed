package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/internal/config"
	"omni-engine/internal/weights/quant"
)

// facts are what transformers (float32, from the dequantised GGUF) and llama.cpp's tokenizer say about a real model.
type facts struct {
	Tokenize []struct {
		Text, Decoded    string
		IDs, Plain, Bare []int32
	}
	Chat []struct {
		Messages            json.RawMessage
		AddGenerationPrompt bool `json:"add_generation_prompt"`
		Rendered            string
		IDs                 []int32
	}
	Prompts []struct {
		IDs    []int32
		Top20  [][2]float64 // id, logit
		Greedy []int32
		Margin []float64 `json:"greedy_margin"`
	}
	Paragraph struct {
		IDs      []int32
		Logprobs []float64 `json:"logprobs_of_next"`
		Argmax   []int32
		Ranks    []int32         `json:"rank_of_next"`
		Top5     [][5][2]float64 // id, logprob
	}
	Perplexity struct {
		IDs  []int32
		NLL  []float64
		PPL  float64
		Text string
	}
	LogitPrompts []int  `json:"logit_prompts"`
	LogitType    string `json:"logit_type"`

	logits map[int][]float32 // last position, by prompt
}

// realModel is a model file and its facts.
type realModel struct{ name, path string }

// realModels are the models that the environment names; without any the test is skipped.
func realModels(t *testing.T) (found []realModel) {
	t.Helper()
	for name, env := range map[string]string{"smollm2": "OMNI_MODEL_SMOLLM2", "gemma3": "OMNI_MODEL_GEMMA3"} {
		if path := os.Getenv(env); path != "" {
			found = append(found, realModel{name, path})
		}
	}
	if len(found) == 0 {
		t.Skip("set OMNI_MODEL_SMOLLM2 and OMNI_MODEL_GEMMA3 to GGUF files (scripts/model.sh fetches them)")
	}
	return found
}

// smollm2 is the path of the chat model.
func smollm2(t *testing.T) string {
	t.Helper()
	path := os.Getenv("OMNI_MODEL_SMOLLM2")
	if path == "" {
		t.Skip("set OMNI_MODEL_SMOLLM2 to a GGUF file (scripts/model.sh fetches it)")
	}
	return path
}

func long() bool { return os.Getenv("OMNI_LONG") != "" }

func gunzip(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "real", name))
	require.NoError(t, err)
	z, err := gzip.NewReader(bytes.NewReader(raw))
	require.NoError(t, err)
	data, err := io.ReadAll(z)
	require.NoError(t, err)
	return data
}

func readFacts(t *testing.T, name string) *facts {
	t.Helper()
	f := &facts{logits: map[int][]float32{}}
	require.NoError(t, json.Unmarshal(gunzip(t, name+".json.gz"), f))
	require.Len(t, f.Tokenize, 103)
	rows := gunzip(t, name+".logits.gz")
	size := 4
	if f.LogitType == "float16" {
		size = 2
	}
	width := len(rows) / size / len(f.LogitPrompts)
	for i, prompt := range f.LogitPrompts {
		row := make([]float32, width)
		for j := range row {
			if at := rows[(i*width+j)*size:]; size == 2 {
				row[j] = quant.F16ToF32(binary.LittleEndian.Uint16(at))
			} else {
				row[j] = math.Float32frombits(binary.LittleEndian.Uint32(at))
			}
		}
		f.logits[prompt] = row
	}
	return f
}

// openReal opens a model as the server does.
func openReal(t *testing.T, path string) (*source, *config.Serve) {
	t.Helper()
	cfg := config.Default()
	cfg.Model = path
	src, err := openSource(context.Background(), &cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, src.Close()) })
	return src, &cfg
}

// folder makes a Hugging Face folder of a GGUF file.
func folder(t *testing.T, gguf, dtype string) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("go", "run", "../../tools/mkhf", "-dtype", dtype, gguf, dir).CombinedOutput()
	require.NoError(t, err, string(out))
	return dir
}
