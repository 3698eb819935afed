package tokenizer

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
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

// asGGUF turns a byte-level tokenizer.json into the vocabulary that a GGUF file would carry.
func asGGUF(t testing.TB, data []byte, pre string) Vocab {
	var d description
	require.NoError(t, json.Unmarshal(data, &d))
	v := Vocab{Model: "gpt2", Pre: pre, Tokens: make([]string, len(d.Model.Vocab.ids)), Types: make([]int32, len(d.Model.Vocab.ids)),
		BOS: None, EOS: None, UNK: None, PAD: None, EOT: None}
	for token, id := range d.Model.Vocab.ids {
		v.Tokens[id], v.Types[id] = token, typeNormal
	}
	for _, a := range d.AddedTokens {
		for int64(len(v.Tokens)) <= a.ID {
			v.Tokens, v.Types = append(v.Tokens, fmt.Sprintf("[PAD%d]", len(v.Tokens))), append(v.Types, typeUnused)
		}
		v.Tokens[a.ID], v.Types[a.ID] = a.Content, typeUserDefined
		if a.Special {
			v.Types[a.ID] = typeControl
		}
	}
	for _, m := range d.Model.Merges {
		v.Merges = append(v.Merges, m[0]+" "+m[1])
	}
	return v
}

// TestGGUFPreTokenizersFollowTheirNames: the same vocabulary by either way gives the reference's ids.
func TestGGUFPreTokenizersFollowTheirNames(t *testing.T) {
	var strs []string
	readGzipJSON(t, "testdata/strings.json.gz", &strs)
	for name, pre := range map[string]string{"smollm2": "smollm", "gpt2": "gpt-2", "llama3.1": "llama-bpe", "o200k": "gpt-4o", "deepseek-v3": "deepseek-v3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok, err := FromVocab(asGGUF(t, readGzip(t, "testdata/"+name+".json.gz"), pre))
			require.NoError(t, err)
			var ref reference
			readGzipJSON(t, "testdata/ref-"+name+".json.gz", &ref)
			ref.WithSpecial = nil // a matter of the file's switches
			holdToReference(t, tok, strs, ref)
		})
	}
}

func TestScoredVocabularyMergesTheBestScoreFirst(t *testing.T) {
	tokens := []string{"<unk>", "<s>", "▁", "a", "b", "c", "ab", "bc", "abc", "▁a"}
	scores := []float32{0, 0, -9, -9, -9, -9, -3, -1, -5, -2}
	types := []int32{typeUnknown, typeControl, 1, 1, 1, 1, 1, 1, 1, 1}
	for b := range 256 {
		tokens, scores, types = append(tokens, fmt.Sprintf("<0x%02X>", b)), append(scores, 0), append(types, typeByte)
	}
	v := Vocab{Model: "llama", Tokens: tokens, Scores: scores, Types: types, BOS: 1, EOS: None, UNK: 0, PAD: None, EOT: None, AddBOS: true, AddSpacePrefix: true}
	tok, err := FromVocab(v)
	require.NoError(t, err)
	byteID := func(b byte) int32 { return 10 + int32(b) }
	for _, c := range []struct {
		text string
		want []int32
	}{
		{"", []int32{1}},
		{"abc", []int32{1, 9, 7}}, // bc (-1), then ▁a (-2)
		{"a", []int32{1, 9}},
		{"b a", []int32{1, 2, 4, 9}},
		{"é", []int32{1, 2, byteID(0xc3), byteID(0xa9)}},
		{"<s>a", []int32{1, 1, 9}}, // the space prefix comes again after a control token
		{"<0x41>", []int32{1, 2, byteID('<'), byteID('0'), byteID('x'), byteID('4'), byteID('1'), byteID('>')}},
	} {
		got, err := tok.Encode(c.text, EncodeOptions{AddSpecial: true, ParseSpecial: true})
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%q", c.text)
		require.Equal(t, strings.ReplaceAll(c.text, "<s>", ""), strings.TrimPrefix(tok.Decode(got, true), " "), "%q", c.text)
	}
	plain, err := tok.Encode("<s>", EncodeOptions{})
	require.NoError(t, err)
	require.NotContains(t, plain, int32(1), "text must not become a control token")
}
