package tokenizer

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLongUniformTextsEncodeInLinearTime would take far longer if any step were quadratic.
func TestLongUniformTextsEncodeInLinearTime(t *testing.T) {
	size := 1 << 16
	if os.Getenv("OMNI_LONG") != "" {
		size = 1 << 20
	}
	for _, name := range own(t) {
		tok := loadOwn(t, name)
		for _, unit := range []string{"a", "A", " ", "\n", " \n", "1", "!", "é", "あ", "あA", "'", "\u0301", "▁", "<", "\x00", "aA", "　"} {
			text := strings.Repeat(unit, size/len(unit))
			begin := time.Now()
			_, err := tok.Encode(text, EncodeOptions{ParseSpecial: true})
			took := time.Since(begin)
			require.NoError(t, err)
			require.Less(t, took, 4*time.Second, "%s on %q", name, unit)
		}
	}
}

func TestUnsupportedAndBrokenDescriptionsAreRefused(t *testing.T) {
	bpe := `"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}`
	for _, c := range []struct{ name, json, says string }{
		{"not JSON", `{`, "unexpected end"},
		{"no model", `{}`, "model: is missing"},
		{"unknown model", `{"model":{"type":"Magic"}}`, `"Magic" is not supported`},
		{"dropout", `{"model":{"type":"BPE","dropout":0.1,"vocab":{},"merges":[]}}`, "dropout"},
		{"suffix", `{"model":{"type":"BPE","end_of_word_suffix":"</w>","vocab":{},"merges":[]}}`, "end_of_word_suffix"},
		{"merge outside the vocabulary", `{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}`, "not in the vocabulary"},
		{"merge of one token", `{"model":{"type":"BPE","vocab":{"a":0},"merges":["ab"]}}`, "not two tokens"},
		{"id too great", `{"model":{"type":"BPE","vocab":{"a":2000000000},"merges":[]}}`, "outside"},
		{"added token on another's id", `{"added_tokens":[{"id":1,"content":"x"}],` + bpe + `}`, "same id"},
		{"negative id", `{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}`, "outside"},
		{"id twice", `{"model":{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}}`, "same id"},
		{"unknown normalizer", `{"normalizer":{"type":"Nmt"},` + bpe + `}`, `normalizer: "Nmt" is not supported`},
		{"unknown pre-tokenizer", `{"pre_tokenizer":{"type":"UnicodeScripts"},` + bpe + `}`, `pre_tokenizer: "UnicodeScripts"`},
		{"unknown decoder", `{"decoder":{"type":"CTC"},` + bpe + `}`, `decoder: "CTC"`},
		{"unknown post-processor", `{"post_processor":{"type":"Odd"},` + bpe + `}`, `post_processor: "Odd"`},
		{"broken pattern", `{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"},` + bpe + `}`, "compile split pattern"},
		{"template with an unknown token", `{"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}},{"Sequence":{"id":"A"}}],"special_tokens":{"x":{"ids":[9]}}},` + bpe + `}`, "not in the vocabulary"},
		{"deep nesting", `{"normalizer":` + strings.Repeat(`{"type":"Sequence","normalizers":[`, 40) + strings.Repeat(`]}`, 40) + `,` + bpe + `}`, "deep"},
		{"long added token", `{"added_tokens":[{"id":3,"content":"` + strings.Repeat("x", 2000) + `"}],` + bpe + `}`, "bytes long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := FromJSON([]byte(c.json), Config{})
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestBrokenVocabulariesAreRefused(t *testing.T) {
	good := Vocab{Model: "llama", Tokens: []string{"<unk>", "a"}, Scores: []float32{0, 0}, Types: []int32{2, 1}, BOS: None, EOS: None, UNK: 0, PAD: None, EOT: None}
	for _, c := range []struct {
		name, says string
		edit       func(*Vocab)
	}{
		{"no tokens", "0 tokens", func(v *Vocab) { v.Tokens = nil }},
		{"types too few", "1 types for 2 tokens", func(v *Vocab) { v.Types = v.Types[:1] }},
		{"scores too few", "1 scores for 2 tokens", func(v *Vocab) { v.Scores = v.Scores[:1] }},
		{"unknown model", `"rwkv" is not supported`, func(v *Vocab) { v.Model = "rwkv" }},
		{"unknown pre-tokenizer", `"xyz" is not supported`, func(v *Vocab) { v.Model, v.Pre = "gpt2", "xyz" }},
		{"id outside", "begin token 7", func(v *Vocab) { v.BOS = 7 }},
		{"begin token missing", "no begin token", func(v *Vocab) { v.AddBOS = true }},
		{"merge of one token", "not two tokens", func(v *Vocab) { v.Model, v.Pre, v.Merges = "gpt2", "gpt-2", []string{"ab"} }},
		{"empty merge", "not two tokens", func(v *Vocab) { v.Model, v.Pre, v.Merges = "gpt2", "gpt-2", []string{""} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := good
			c.edit(&v)
			_, err := FromVocab(v)
			require.ErrorContains(t, err, c.says)
		})
	}
	_, err := FromVocab(good)
	require.NoError(t, err)
}

func TestAddedTokensTakeTheirNeighboursAsDescribed(t *testing.T) {
	vocab := `"model":{"type":"BPE","unk_token":"?","vocab":{"?":0,"a":1," ":2},"merges":[]}`
	for _, c := range []struct {
		flags, text string
		want        []int32
	}{
		{`"lstrip":true`, "a  Na", []int32{1, 9, 1}},
		{`"rstrip":true`, "aN  a", []int32{1, 9, 1}},
		{`"lstrip":false`, "a Na", []int32{1, 2, 9, 1}},
		{`"single_word":true`, "aN N", []int32{1, 0, 2, 9}},
		{`"special":true`, "aN", []int32{1, 9}},
	} {
		tok, err := FromJSON([]byte(fmt.Sprintf(`{"added_tokens":[{"id":9,"content":"N",%s}],%s}`, c.flags, vocab)), Config{})
		require.NoError(t, err)
		got, err := tok.Encode(c.text, EncodeOptions{ParseSpecial: true})
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%s on %q", c.flags, c.text)
	}
}

func TestConfigOverridesTheEnds(t *testing.T) {
	cfg, err := ParseConfig([]byte(`{"bos_token":{"content":"<|begin_of_text|>"},"eos_token":"<|end_of_text|>","pad_token":null,"add_bos_token":false,"add_eos_token":true}`))
	require.NoError(t, err)
	tok, err := FromJSON(readGzip(t, "testdata/llama3.1.json.gz"), cfg)
	require.NoError(t, err)
	ids, err := tok.Encode("", EncodeOptions{AddSpecial: true})
	require.NoError(t, err)
	require.Equal(t, []int32{tok.EOS()}, ids)
	require.Equal(t, "<|begin_of_text|>", tok.TokenText(tok.BOS()))
	require.Equal(t, None, tok.PAD())

	_, err = FromJSON(readGzip(t, "testdata/llama3.1.json.gz"), Config{BOSToken: "<nowhere>"})
	require.ErrorContains(t, err, "not in the vocabulary")
}

func TestAnUnknownPatternFallsBackToARegularExpression(t *testing.T) {
	known := readGzip(t, "testdata/smollm2.json.gz")
	var strs []string
	readGzipJSON(t, "testdata/strings.json.gz", &strs)
	// The same pattern in other words has no scanner.
	const spelled = `{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(?:\\p{N})"},"behavior":"Isolated","invert":false},` +
		`{"type":"Split","pattern":{"Regex":"(?:'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+)"},"behavior":"Isolated"},` +
		`{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]}`
	other := replacePart(t, known, "pre_tokenizer", spelled)
	a, err := FromJSON(known, Config{})
	require.NoError(t, err)
	b, err := FromJSON(other, Config{})
	require.NoError(t, err)
	for i := 0; i < 600; i++ {
		want, err := a.Encode(strs[i], EncodeOptions{})
		require.NoError(t, err)
		got, err := b.Encode(strs[i], EncodeOptions{})
		require.NoError(t, err)
		require.Equal(t, want, got, "%q", strs[i])
	}
}
