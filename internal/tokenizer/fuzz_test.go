package tokenizer

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// replacePart swaps one part of a description.
func replacePart(t testing.TB, description []byte, part, with string) []byte {
	var d map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(description, &d))
	d[part] = json.RawMessage(with)
	out, err := json.Marshal(d)
	require.NoError(t, err)
	return out
}

// FuzzEncodeDecode: tokenizers without loss give the text back; all of them encode anything, and streams agree with Decode.
func FuzzEncodeDecode(f *testing.F) {
	lossless := []string{"smollm2", "gemma3", "llama3.1", "gpt2", "o200k", "deepseek-v3"}
	var toks []*Tokenizer
	for _, name := range lossless {
		toks = append(toks, loadOwn(f, name))
	}
	lossy := []*Tokenizer{loadOwn(f, "qwen3"), loadOwn(f, "llama2"), loadOwn(f, "minilm-wordpiece")}
	for _, s := range []string{"", " ", "hello world", "\n\n  x", "don't DON'T", "12345", "é😀中文", "\xff\xfe", "a\x00b", "<|im_start|>", "▁▁", "'ſ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		valid := text
		if !utf8.ValidString(text) {
			valid = string([]rune(text))
		}
		for i, tok := range append(toks[:len(toks):len(toks)], lossy...) {
			ids, err := tok.Encode(valid, EncodeOptions{})
			require.NoError(t, err)
			got := tok.Decode(ids, false)
			require.Equal(t, got, strings.Join(pushAll(tok.NewStream(nil, false, true), ids), ""))
			if i < len(toks) && !strings.Contains(valid, "▁") { // SentencePiece's space sign comes back as a space
				require.Equal(t, valid, got, lossless[i])
			}
			_, err = tok.Encode(text, EncodeOptions{AddSpecial: true, ParseSpecial: true})
			require.NoError(t, err)
		}
	})
}

// FuzzFromJSON: no description makes loading or encoding panic.
func FuzzFromJSON(f *testing.F) {
	bpe := `"model":{"type":"BPE","unk_token":"?","vocab":{"?":0,"a":1,"b":2,"ab":3,"▁":4},"merges":["a b"],"byte_fallback":true,"fuse_unk":true}`
	for _, part := range []string{
		`"normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]}`,
		`"normalizer":{"type":"BertNormalizer","clean_text":true,"lowercase":true,"handle_chinese_chars":true}`,
		`"normalizer":{"type":"Replace","pattern":{"Regex":" {2,}"},"content":"▁"}`,
		`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\s+$"},"behavior":"MergedWithNext","invert":true}`,
		`"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits","individual_digits":false},{"type":"Punctuation"}]}`,
		`"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always"}`,
		`"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}`,
		`"decoder":{"type":"WordPiece","prefix":"##","cleanup":true}`,
		`"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"a"}},{"Sequence":{"id":"A"}}],"special_tokens":{"a":{"ids":[1]}}}`,
		`"post_processor":{"type":"BertProcessing","sep":["b",2],"cls":["a",1]}`,
		`"added_tokens":[{"id":7,"content":"<x>","lstrip":true,"rstrip":true,"single_word":true,"normalized":true,"special":true}]`,
	} {
		f.Add([]byte("{" + part + "," + bpe + "}"))
	}
	f.Add([]byte(`{"model":{"type":"WordPiece","unk_token":"?","vocab":{"?":0,"a":1,"##b":2}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := FromJSON(data, Config{})
		if err != nil {
			return
		}
		ids, err := tok.Encode("a  b <x> ab12 <?> é😀\n", EncodeOptions{AddSpecial: true, ParseSpecial: true})
		if err != nil {
			return
		}
		tok.Decode(ids, true)
		s := tok.NewStream(ids, false, false)
		for _, id := range ids {
			s.Push(id)
		}
		s.Flush()
	})
}

func TestConcurrentEncodersAgree(t *testing.T) {
	tok, alone := loadOwn(t, "smollm2"), loadOwn(t, "smollm2")
	var strs []string
	readGzipJSON(t, "testdata/strings.json.gz", &strs)
	strs = strs[:500]
	want := make([][]int32, len(strs))
	for i, s := range strs {
		var err error
		want[i], err = alone.Encode(s, EncodeOptions{})
		require.NoError(t, err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i, s := range strs {
				got, err := tok.Encode(s, EncodeOptions{})
				if err != nil || !equalIDs(want[i], got) {
					t.Errorf("%q: want %v, got %v, %v", s, want[i], got, err)
				}
			}
		})
	}
	wg.Wait()
}
