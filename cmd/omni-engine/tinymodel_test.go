package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// tinyModel is a folder with one of the tiny checkpoints and a tokenizer of single bytes.
func tinyModel(t testing.TB, name string) string {
	t.Helper()
	dir := t.TempDir()
	from, err := filepath.Abs(filepath.Join("..", "..", "engine", "models", "testdata", "tiny", name))
	require.NoError(t, err)
	for _, file := range []string{"config.json", "model.safetensors"} {
		require.NoError(t, os.Symlink(filepath.Join(from, file), filepath.Join(dir, file)))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), byteTokenizer(t, 512), 0o644))
	return dir
}

// byteTokenizer is a byte-level BPE without merges: ids 0 to 2 are pad, beginning and end, 3 to 258 the bytes, the rest unused.
func byteTokenizer(t testing.TB, vocab int) []byte {
	t.Helper()
	ids := map[string]int{"<pad>": 0, "<s>": 1, "</s>": 2}
	// GPT-2's letters for bytes: printable ones stand for themselves, the others follow from U+0100 on.
	next := rune(256)
	for b := range 256 {
		letter := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE) {
			letter, next = next, next+1
		}
		ids[string(letter)] = 3 + b
	}
	for i := len(ids); i < vocab; i++ {
		ids[fmt.Sprintf("<unused%d>", i)] = i
	}
	special := []map[string]any{}
	for _, s := range []string{"<pad>", "<s>", "</s>"} {
		special = append(special, map[string]any{"id": ids[s], "content": s, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
	}
	data, err := json.Marshal(map[string]any{
		"version": "1.0", "added_tokens": special,
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
		"decoder":       map[string]any{"type": "ByteLevel"},
		"model":         map[string]any{"type": "BPE", "vocab": ids, "merges": []string{}},
	})
	require.NoError(t, err)
	return data
}

func TestInspectPrintsThePlan(t *testing.T) {
	cmd := root()
	out := &capture{}
	cmd.SetOut(out)
	cmd.SetArgs([]string{"inspect", tinyModel(t, "qwen3"), "--device", "cpu", "--dtype", "float32", "--max-num-seqs", "4", "--kv-cache-memory-bytes", "1m"})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	require.Contains(t, out.String(), "2 layers, hidden 64, vocabulary 512")
	require.Regexp(t, `KV cache +[0-9.]+ KiB, 61 blocks, 960 tokens, 3.75 requests`, out.String())
}

type capture struct{ data []byte }

func (c *capture) Write(p []byte) (int, error) { c.data = append(c.data, p...); return len(p), nil }
func (c *capture) String() string              { return string(c.data) }
