package gguf

import (
	"fmt"
	"strings"
)

// Token types of tokenizer.ggml.token_type.
const (
	TokenNormal      int32 = 1
	TokenUnknown     int32 = 2
	TokenControl     int32 = 3
	TokenUserDefined int32 = 4
	TokenUnused      int32 = 5
	TokenByte        int32 = 6
)

// NoToken marks a special token that the file does not name.
const NoToken int32 = -1

// Vocab is what a file says about its tokenizer, unjudged: slices are as long as the vocabulary or empty, an id is NoToken
// or within it, and a switch is nil when the file leaves it to the tokenizer model's default.
type Vocab struct {
	Model  string // tokenizer.ggml.model: "gpt2" (BPE), "llama" (SentencePiece), ...
	Pre    string // tokenizer.ggml.pre: the pre-tokenizer's name, such as "smollm"
	Tokens []string
	Scores []float32
	Types  []int32  // TokenNormal and its siblings
	Merges []string // "left right", best first

	BOS, EOS, UNK, PAD, SEP, MASK, EOT, EOM        int32
	AddBOS, AddEOS, AddSpacePrefix, CollapseSpaces *bool
	ChatTemplate                                   string            // tokenizer.chat_template
	ChatTemplates                                  map[string]string // further named ones
	CharsMap                                       []byte            // SentencePiece's precompiled normaliser
}

// Vocab gathers the tokenizer's facts. A file without a vocabulary is an error.
func (f *File) Vocab() (Vocab, error) {
	v, err := vocabOf(f.Meta)
	if err != nil {
		return Vocab{}, fmt.Errorf("read GGUF vocabulary: %w", err)
	}
	return v, nil
}

func vocabOf(m Metadata) (v Vocab, err error) {
	var ok bool
	if v.Model, ok = m.String("tokenizer.ggml.model"); !ok {
		return v, fmt.Errorf("the file has no tokenizer.ggml.model")
	}
	if v.Tokens, ok = m.Strings("tokenizer.ggml.tokens"); !ok || len(v.Tokens) == 0 {
		return v, fmt.Errorf("the file has no tokenizer.ggml.tokens")
	}
	v.Pre, _ = m.String("tokenizer.ggml.pre")
	if v.Scores, err = optional[[]float32](m, "tokenizer.ggml.scores"); err != nil {
		return v, err
	}
	if v.Types, err = optional[[]int32](m, "tokenizer.ggml.token_type"); err != nil {
		return v, err
	}
	if v.Merges, err = optional[[]string](m, "tokenizer.ggml.merges"); err != nil {
		return v, err
	}
	n := len(v.Tokens)
	if got := len(v.Scores); got != 0 && got != n {
		return v, fmt.Errorf("%d scores for %d tokens", got, n)
	}
	if got := len(v.Types); got != 0 && got != n {
		return v, fmt.Errorf("%d token types for %d tokens", got, n)
	}
	if err := v.ids(m); err != nil {
		return v, err
	}
	v.switches(m)
	v.templates(m)
	v.CharsMap, _ = m.values["tokenizer.ggml.precompiled_charsmap"].([]byte)
	return v, nil
}

func optional[T any](m Metadata, key string) (T, error) {
	var none T
	raw, present := m.Value(key)
	if !present {
		return none, nil
	}
	v, ok := raw.(T)
	if !ok {
		return none, fmt.Errorf("%s is a %T, expected %T", key, raw, none)
	}
	return v, nil
}

func (v *Vocab) ids(m Metadata) error {
	for _, id := range []struct {
		key string
		dst *int32
	}{
		{"bos_token_id", &v.BOS}, {"eos_token_id", &v.EOS}, {"unknown_token_id", &v.UNK}, {"padding_token_id", &v.PAD},
		{"seperator_token_id", &v.SEP}, // the format's own spelling
		{"mask_token_id", &v.MASK}, {"eot_token_id", &v.EOT}, {"eom_token_id", &v.EOM},
	} {
		*id.dst = NoToken
		key := "tokenizer.ggml." + id.key
		n, ok := m.Int(key)
		if !ok || n == -1 || n == 1<<32-1 { // some writers store -1 for "none", signed or not
			continue
		}
		if n < 0 || n >= int64(len(v.Tokens)) {
			return fmt.Errorf("%s %d is outside the vocabulary of %d", key, n, len(v.Tokens))
		}
		*id.dst = int32(n)
	}
	return nil
}

func (v *Vocab) switches(m Metadata) {
	for _, s := range []struct {
		key string
		dst **bool
	}{
		{"add_bos_token", &v.AddBOS}, {"add_eos_token", &v.AddEOS}, {"add_space_prefix", &v.AddSpacePrefix},
		{"remove_extra_whitespaces", &v.CollapseSpaces},
	} {
		if on, ok := m.Bool("tokenizer.ggml." + s.key); ok {
			*s.dst = &on
		}
	}
}

func (v *Vocab) templates(m Metadata) {
	const key = "tokenizer.chat_template"
	v.ChatTemplate, _ = m.String(key)
	for _, k := range m.Keys() {
		name, named := strings.CutPrefix(k, key+".")
		text, isText := m.String(k)
		if !named || !isText {
			continue
		}
		if v.ChatTemplates == nil {
			v.ChatTemplates = map[string]string{}
		}
		v.ChatTemplates[name] = text
	}
}
