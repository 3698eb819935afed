package tokenizer

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// loadGGUFVocab reads a vocabulary dumped as JSON (the metadata's tokenizer.ggml keys).
func loadGGUFVocab(t testing.TB, path string) Vocab {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	raw := struct {
		Model  string    `json:"tokenizer.ggml.model"`
		Pre    string    `json:"tokenizer.ggml.pre"`
		Tokens []string  `json:"tokenizer.ggml.tokens"`
		Scores []float32 `json:"tokenizer.ggml.scores"`
		Types  []int32   `json:"tokenizer.ggml.token_type"`
		Merges []string  `json:"tokenizer.ggml.merges"`
		BOS    int32     `json:"tokenizer.ggml.bos_token_id"`
		EOS    int32     `json:"tokenizer.ggml.eos_token_id"`
		UNK    int32     `json:"tokenizer.ggml.unknown_token_id"`
		PAD    int32     `json:"tokenizer.ggml.padding_token_id"`
		AddBOS bool      `json:"tokenizer.ggml.add_bos_token"`
		Prefix bool      `json:"tokenizer.ggml.add_space_prefix"`
	}{}
	require.NoError(t, json.NewDecoder(z).Decode(&raw))
	return Vocab{Model: raw.Model, Pre: raw.Pre, Tokens: raw.Tokens, Scores: raw.Scores, Types: raw.Types, Merges: raw.Merges,
		BOS: raw.BOS, EOS: raw.EOS, UNK: raw.UNK, PAD: raw.PAD, EOT: None, AddBOS: raw.AddBOS, AddSpacePrefix: raw.Prefix}
}

// TestGGUFVocabulariesGiveTheExpectedIDs needs NAME.vocab.json.gz files, the tokenizer.ggml metadata of the two GGUF files as
// JSON, in the folder named by OMNI_TOKENIZERS.
func TestGGUFVocabulariesGiveTheExpectedIDs(t *testing.T) {
	refs := filepath.Join(corpus(t), "ref", "text")
	dir := os.Getenv("OMNI_TOKENIZERS")
	if dir == "" {
		t.Skip("OMNI_TOKENIZERS is not set: no folder of real tokenizers")
	}
	for _, name := range []string{"smollm2", "gemma3"} {
		t.Run(name, func(t *testing.T) {
			tok, err := FromVocab(loadGGUFVocab(t, filepath.Join(dir, name+".vocab.json.gz")))
			require.NoError(t, err)
			data, err := os.ReadFile(filepath.Join(refs, name+".json"))
			require.NoError(t, err)
			var ref struct {
				Tokenize []struct {
					Text    string  `json:"text"`
					Want    []int32 `json:"ids_expected"`
					Plain   []int32 `json:"llamacpp_ids_plain"` // special tokens are text
					Bare    []int32 `json:"ids_no_special"`
					Decoded string  `json:"decoded"` // of Bare
				} `json:"tokenize"`
				ChatTemplate []struct {
					Rendered string  `json:"rendered"`
					IDs      []int32 `json:"ids"`
				} `json:"chat_template"`
			}
			require.NoError(t, json.Unmarshal(data, &ref))
			require.NotEmpty(t, ref.Tokenize)
			for _, c := range ref.Tokenize {
				got, err := tok.Encode(c.Text, EncodeOptions{AddSpecial: true, ParseSpecial: true})
				require.NoError(t, err)
				require.True(t, equalIDs(c.Want, got), "%q: want %v, got %v", c.Text, c.Want, got)
				got, err = tok.Encode(c.Text, EncodeOptions{AddSpecial: true})
				require.NoError(t, err)
				require.True(t, equalIDs(c.Plain, got), "%q as plain text: want %v, got %v", c.Text, c.Plain, got)
				require.Equal(t, c.Decoded, tok.Decode(c.Bare, false), "%q", c.Text)
			}
			var strs []string
			readGzipJSON(t, "testdata/strings.json.gz", &strs)
			var all reference
			readGzipJSON(t, filepath.Join(refs, "..", "..", "textdata", "tokenizers", "ref-"+name+".json.gz"), &all)
			for i, text := range strs {
				// The tokenizer.json of Gemma spells runs of spaces with the space sign, its GGUF with spaces, and the
				// GGUF makes <mask> and <unused7> control tokens.
				if name == "gemma3" && (strings.Contains(text, "▁") || strings.Contains(text, "<mask>") || strings.Contains(text, "<unused")) {
					delete(all.IDs, i)
				}
			}
			holdToReference(t, tok, strs, all)
			for _, c := range ref.ChatTemplate {
				got, err := tok.Encode(c.Rendered, EncodeOptions{ParseSpecial: true})
				require.NoError(t, err)
				require.True(t, equalIDs(c.IDs, got), "%q: want %v, got %v", c.Rendered, c.IDs, got)
			}
		})
	}
}
