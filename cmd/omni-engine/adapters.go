package main

import (
	"omni-engine/internal/tokenizer"
	"omni-engine/output"
)

// apiTokenizer is the tokenizer as the front end sees it.
type apiTokenizer struct{ *tokenizer.Tokenizer }

// Encode recognises special tokens in the text, as vLLM's tokenizer does.
func (t apiTokenizer) Encode(text string, addSpecial bool) ([]int32, error) {
	return t.Tokenizer.Encode(text, tokenizer.EncodeOptions{AddSpecial: addSpecial, ParseSpecial: true})
}

// streamTokenizer is the tokenizer as the output processor sees it.
type streamTokenizer struct{ *tokenizer.Tokenizer }

// NewStream returns a decoder that continues after the prompt.
func (t streamTokenizer) NewStream(prompt []int32, skipSpecial, spacesBetween bool) output.Detokenizer {
	return t.Tokenizer.NewStream(prompt, skipSpecial, spacesBetween)
}

// Decode keeps special tokens and shows incomplete bytes as U+FFFD.
func (t streamTokenizer) Decode(ids []int32) string { return t.Tokenizer.Decode(ids, false) }
