package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"omni-engine/internal/weights/gguf"
)

// object is a JSON object of a tokenizer's description.
type object = map[string]any

// tokenizerFiles gives tokenizer.json and its companions, by file name.
func tokenizerFiles(v gguf.Vocab, maxLength int64) (map[string]any, error) {
	seen := make(map[string]bool, len(v.Tokens))
	for i, token := range v.Tokens {
		if seen[token] {
			return nil, fmt.Errorf("vocabulary: token %d, %q, occurs twice", i, token)
		}
		seen[token] = true
	}
	tokenizer, err := pipeline(v)
	if err != nil {
		return nil, err
	}
	added := addedTokens(v)
	tokenizer["version"], tokenizer["truncation"], tokenizer["padding"] = "1.0", nil, nil
	tokenizer["added_tokens"] = added
	special := object{}
	for key, n := range map[string]int32{"bos_token": v.BOS, "eos_token": v.EOS, "unk_token": v.UNK, "pad_token": v.PAD} {
		if n != gguf.NoToken {
			special[key] = v.Tokens[n]
		}
	}
	decoder := object{}
	for _, a := range added {
		entry := object{}
		for key, value := range a {
			if key != "id" {
				entry[key] = value
			}
		}
		decoder[strconv.Itoa(a["id"].(int))] = entry
	}
	config := object{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false, "model_max_length": maxLength,
		"added_tokens_decoder": decoder}
	for key, token := range special {
		config[key] = token
	}
	if v.ChatTemplate != "" {
		config["chat_template"] = v.ChatTemplate
	}
	return map[string]any{"tokenizer.json": tokenizer, "tokenizer_config.json": config, "special_tokens_map.json": special}, nil
}

// pipeline describes the steps that the vocabulary's model and pre-tokenizer stand for.
func pipeline(v gguf.Vocab) (object, error) {
	switch {
	case v.Model == "gpt2" && v.Pre == "smollm":
		merges, err := splitMerges(v)
		return object{
			"normalizer": nil,
			// The pre-tokenizer that the GGUF names: every digit alone, then GPT-2's pattern.
			"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []object{
				{"type": "Digits", "individual_digits": true}, byteLevel(false)}},
			"post_processor": specials(v),
			"decoder":        byteLevel(true),
			"model":          bpe(v, merges, nil, false),
		}, err
	case v.Model == "llama" && v.AddSpacePrefix != nil && !*v.AddSpacePrefix:
		if v.UNK == gguf.NoToken || len(v.Scores) == 0 {
			return nil, fmt.Errorf("a SentencePiece vocabulary needs scores and an unknown token")
		}
		space := object{"String": "▁"}
		return object{
			"normalizer":     object{"type": "Replace", "pattern": object{"String": " "}, "content": "▁"},
			"pre_tokenizer":  object{"type": "Split", "pattern": object{"String": " "}, "behavior": "MergedWithPrevious", "invert": false},
			"post_processor": specials(v),
			"decoder": object{"type": "Sequence", "decoders": []object{
				{"type": "Replace", "pattern": space, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}}},
			"model": bpe(v, mergesOf(v), v.Tokens[v.UNK], true),
		}, nil
	}
	return nil, fmt.Errorf("tokenizer %q with pre-tokenizer %q is not supported (gpt2 with smollm, and llama without space prefix, are)", v.Model, v.Pre)
}

func byteLevel(prefix bool) object {
	return object{"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": true}
}

func bpe(v gguf.Vocab, merges [][2]string, unknown any, sentencePiece bool) object {
	return object{"type": "BPE", "dropout": nil, "unk_token": unknown, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
		"fuse_unk": sentencePiece, "byte_fallback": sentencePiece, "ignore_merges": false, "vocab": ordered(v.Tokens), "merges": merges}
}

// ordered is a vocabulary as a JSON object from token to id, in the order of ids.
type ordered []string

func (o ordered) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	out.WriteByte('{')
	for i, token := range o {
		if !utf8.ValidString(token) {
			return nil, fmt.Errorf("token %d, %q, is not UTF-8", i, token)
		}
		if i > 0 {
			out.WriteByte(',')
		}
		if err := encoder.Encode(token); err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, ":%d", i)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// addedTokens are the tokens matched as a whole before anything else: control tokens (special) and user-defined ones.
func addedTokens(v gguf.Vocab) []object {
	added := []object{}
	for i, typ := range v.Types {
		if typ != gguf.TokenControl && typ != gguf.TokenUserDefined && int32(i) != v.UNK {
			continue
		}
		added = append(added, object{"id": i, "content": v.Tokens[i], "single_word": false, "lstrip": false, "rstrip": false,
			"normalized": false, "special": typ != gguf.TokenUserDefined})
	}
	return added
}

// specials is the post-processor that adds the begin and end tokens, where the file asks for them.
func specials(v gguf.Vocab) any {
	single, pair, tokens := []object{}, []object{}, object{}
	put := func(wanted *bool, n int32) {
		if wanted == nil || !*wanted || n == gguf.NoToken {
			return
		}
		token := v.Tokens[n]
		single = append(single, object{"SpecialToken": object{"id": token, "type_id": 0}})
		tokens[token] = object{"id": token, "ids": []int32{n}, "tokens": []string{token}}
	}
	put(v.AddBOS, v.BOS)
	single = append(single, object{"Sequence": object{"id": "A", "type_id": 0}})
	put(v.AddEOS, v.EOS)
	if len(tokens) == 0 {
		return nil
	}
	for _, side := range []string{"A", "B"} {
		for _, step := range single {
			again := object{}
			for kind, fields := range step {
				again[kind] = object{"id": fields.(object)["id"], "type_id": strings.Index("AB", side)}
				if kind == "Sequence" {
					again[kind].(object)["id"] = side
				}
			}
			pair = append(pair, again)
		}
	}
	return object{"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens}
}

func splitMerges(v gguf.Vocab) ([][2]string, error) {
	merges := make([][2]string, len(v.Merges))
	for i, merge := range v.Merges {
		left, right, ok := strings.Cut(merge, " ")
		if !ok || left == "" || right == "" {
			return nil, fmt.Errorf("merge %d, %q, is not a pair", i, merge)
		}
		merges[i] = [2]string{left, right}
	}
	return merges, nil
}

// mergesOf derives merges from scores: SentencePiece joins the neighbours whose union scores best, so every way to split a
// token in two tokens is a merge of that token's rank.
func mergesOf(v gguf.Vocab) [][2]string {
	ids := make(map[string]int, len(v.Tokens))
	for i, token := range v.Tokens {
		if len(v.Types) == 0 || v.Types[i] == gguf.TokenNormal || v.Types[i] == gguf.TokenUserDefined {
			ids[token] = i
		}
	}
	type merge struct{ left, right, whole int }
	var found []merge
	for token, whole := range ids {
		for at := range token {
			left, okLeft := ids[token[:at]]
			right, okRight := ids[token[at:]]
			if at > 0 && okLeft && okRight {
				found = append(found, merge{left, right, whole})
			}
		}
	}
	slices.SortFunc(found, func(a, b merge) int {
		return cmp.Or(cmp.Compare(v.Scores[b.whole], v.Scores[a.whole]), cmp.Compare(a.left, b.left), cmp.Compare(a.right, b.right))
	})
	merges := make([][2]string, len(found))
	for i, m := range found {
		merges[i] = [2]string{v.Tokens[m.left], v.Tokens[m.right]}
	}
	return merges
}
