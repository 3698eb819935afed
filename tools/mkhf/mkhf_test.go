package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"omni-engine/internal/tensor"
	"omni-engine/internal/weights/gguf"
	"omni-engine/internal/weights/safetensors"
)

func readJSON(t *testing.T, dst any, path ...string) {
	raw, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, dst))
}

// The hashes come from Python: gguf's dequantisation, numpy's reshape and swapaxes for the rotated rows, ml_dtypes' rounding.
func TestWeightsEqualThoseOfAnIndependentConversion(t *testing.T) {
	for _, arch := range []string{"llama", "gemma3"} {
		var want map[string]struct {
			Shape          []int
			F32, F16, BF16 string
		}
		readJSON(t, &want, "testdata", "tiny-"+arch+".json")
		for dtype, d := range map[string]tensor.DType{"f32": tensor.F32, "f16": tensor.F16, "bf16": tensor.BF16} {
			t.Run(arch+" "+dtype, func(t *testing.T) {
				dir := t.TempDir()
				require.NoError(t, run([]string{"testdata/tiny-" + arch + ".gguf", dir, "-dtype", dtype}))
				f, err := safetensors.Open(dir)
				require.NoError(t, err)
				defer f.Close()
				assert.Len(t, f.Names(), len(want))
				for name, w := range want {
					v, err := f.Tensor(name)
					require.NoError(t, err)
					assert.Equal(t, d, v.DType)
					assert.Equal(t, w.Shape, v.Shape)
					sum := sha256.Sum256(v.Data)
					hash := map[tensor.DType]string{tensor.F32: w.F32, tensor.F16: w.F16, tensor.BF16: w.BF16}[d]
					assert.Equal(t, hash, hex.EncodeToString(sum[:]), name)
				}
			})
		}
	}
}

func TestConfigHasWhatTransformersReads(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, run([]string{"testdata/tiny-llama.gguf", dir}))
	var c map[string]any
	readJSON(t, &c, dir, "config.json")
	for key, want := range map[string]any{
		"model_type": "llama", "hidden_size": 32.0, "intermediate_size": 64.0, "num_hidden_layers": 1.0, "num_attention_heads": 4.0,
		"num_key_value_heads": 2.0, "head_dim": 8.0, "max_position_embeddings": 128.0, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
		"vocab_size": 265.0, "tie_word_embeddings": false, "torch_dtype": "float32", "bos_token_id": 1.0, "eos_token_id": 2.0, "pad_token_id": 2.0,
	} {
		assert.Equal(t, want, c[key], key)
	}
	require.NoError(t, run([]string{"-dtype", "bf16", "testdata/tiny-gemma3.gguf", dir}))
	readJSON(t, &c, dir, "config.json")
	for key, want := range map[string]any{
		"model_type": "gemma3_text", "head_dim": 8.0, "query_pre_attn_scalar": 8.0, "sliding_window": 16.0, "rope_theta": 1e6,
		"rope_local_base_freq": 10000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
		"layer_types": []any{"sliding_attention"}, "hidden_activation": "gelu_pytorch_tanh",
	} {
		assert.Equal(t, want, c[key], key)
	}
}

func TestTokenizerFollowsThePreTokenizerThatTheFileNames(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, run([]string{"testdata/tiny-llama.gguf", dir}))
	var tokenizer struct {
		PreTokenizer json.RawMessage `json:"pre_tokenizer"`
		AddedTokens  []struct {
			ID      int
			Content string
			Special bool
		} `json:"added_tokens"`
		Model struct {
			Vocab  map[string]int
			Merges [][2]string
		}
	}
	readJSON(t, &tokenizer, dir, "tokenizer.json")
	assert.JSONEq(t, `{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},
		{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}]}`, string(tokenizer.PreTokenizer))
	require.Len(t, tokenizer.AddedTokens, 3)
	assert.Equal(t, "<|im_end|>", tokenizer.AddedTokens[2].Content)
	assert.True(t, tokenizer.AddedTokens[2].Special)
	assert.Len(t, tokenizer.Model.Vocab, 265)
	assert.Equal(t, [2]string{"Ġ", "h"}, tokenizer.Model.Merges[2])
	var config map[string]any
	readJSON(t, &config, dir, "tokenizer_config.json")
	assert.Contains(t, config["chat_template"], "<|im_start|>")
	assert.Equal(t, "<|im_end|>", config["eos_token"])
}

func TestMergesAreDerivedFromScoresBestFirst(t *testing.T) {
	f, err := gguf.Open("testdata/tiny-gemma3.gguf")
	require.NoError(t, err)
	defer f.Close()
	v, err := f.Vocab()
	require.NoError(t, err)
	assert.Equal(t, [][2]string{{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {"▁", "hello"}, {"▁", "▁"}}, mergesOf(v))
}

func TestWhatIsNotSupportedIsRefused(t *testing.T) {
	dir := t.TempDir()
	assert.ErrorContains(t, run([]string{"testdata/tiny-llama.gguf", dir, "-dtype", "f8"}), `dtype "f8" is none of`)
	assert.ErrorContains(t, run([]string{"testdata/tiny-llama.gguf"}), "a GGUF file and a folder are needed")
	assert.Error(t, run([]string{"testdata/absent.gguf", dir}))

	raw, err := os.ReadFile("testdata/tiny-llama.gguf")
	require.NoError(t, err)
	for from, to := range map[string]string{"\x05\x00\x00\x00\x00\x00\x00\x00llama": "mamba", "\x06\x00\x00\x00\x00\x00\x00\x00smollm": "smolln",
		"\x12\x00\x00\x00\x00\x00\x00\x00output_norm.weight": "output_nurm.weight"} {
		changed := bytes.Replace(raw, []byte(from), []byte(from[:8]+to), 1)
		require.NotEqual(t, raw, changed)
		path := filepath.Join(dir, "changed.gguf")
		require.NoError(t, os.WriteFile(path, changed, 0o600))
		assert.ErrorContains(t, run([]string{path, dir}), to)
	}
	_, err = unpermute(make([]float32, 12), []int{6, 2}, 2)
	assert.ErrorContains(t, err, "2 rotated heads")
}

// The real tokenizers against recorded ids, as transformers reads what mkhf writes.
func TestTransformersTokenizesAsRecorded(t *testing.T) {
	smollm2, gemma3, data := os.Getenv("OMNI_MODEL_SMOLLM2"), os.Getenv("OMNI_MODEL_GEMMA3"), os.Getenv("OMNI_TESTDATA")
	if os.Getenv("OMNI_LONG") == "" || smollm2 == "" || gemma3 == "" || data == "" {
		t.Skip("set OMNI_LONG=1, OMNI_TESTDATA, OMNI_MODEL_SMOLLM2 and OMNI_MODEL_GEMMA3 (files that scripts/model.sh fetches)")
	}
	interpreter := cmp.Or(os.Getenv("OMNI_PYTHON"), "python3")
	if exec.Command(interpreter, "-c", "import transformers, jinja2").Run() != nil {
		t.Skipf("%s lacks transformers or jinja2: set OMNI_PYTHON to a Python that has them", interpreter)
	}
	for ref, model := range map[string]string{"smollm2": smollm2, "gemma3": gemma3} {
		dir := t.TempDir()
		require.NoError(t, run([]string{model, dir, "-dtype", "bf16"}))
		command := exec.Command(interpreter, "-c", `
import json, sys
from transformers import AutoConfig, AutoTokenizer, GenerationConfig
folder, reference = sys.argv[1], json.load(open(sys.argv[2]))
AutoConfig.from_pretrained(folder), GenerationConfig.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
wrong = [x["text"] for x in reference["tokenize"] if tokenizer(x["text"])["input_ids"] != x["ids_expected"]]
for x in reference["chat_template"]:
    text = tokenizer.apply_chat_template(x["messages"], tokenize=False, add_generation_prompt=x["add_generation_prompt"])
    if text != x["rendered"] or tokenizer(text)["input_ids"] != x["ids"]:
        wrong.append(text)
sys.exit("wrong: %r" % wrong if wrong or len(reference["tokenize"]) != 103 else 0)
`, dir, filepath.Join(data, "ref", "text", ref+".json"))
		command.Env = append(os.Environ(), "HF_HUB_OFFLINE=1")
		out, err := command.CombinedOutput()
		require.NoError(t, err, string(out))
	}
}
