package tokenizer

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// wordPiece takes the longest token that a word begins with, then the longest continuing one, and so on.
type wordPiece struct {
	starts, continues map[string]int32 // continues without the prefix
	unk               int32
	maxChars          int // a longer word is unknown
	longest           int // bytes of the longest token
}

func (b *builder) wordPiece(raw json.RawMessage) (model, error) {
	d := struct {
		UnkToken string           `json:"unk_token"`
		Prefix   string           `json:"continuing_subword_prefix"`
		MaxChars int              `json:"max_input_chars_per_word"`
		Vocab    map[string]int32 `json:"vocab"`
	}{MaxChars: 100, Prefix: "##", UnkToken: "[UNK]"}
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, err
	}
	unk, ok := d.Vocab[d.UnkToken]
	if !ok {
		return nil, fmt.Errorf("unk_token %.80q is not in the vocabulary", d.UnkToken)
	}
	if d.MaxChars < 0 || d.MaxChars > 1000 {
		return nil, fmt.Errorf("max_input_chars_per_word %d is outside 0 to 1000", d.MaxChars)
	}
	b.vocab, b.unk = d.Vocab, unk
	m := &wordPiece{starts: d.Vocab, continues: map[string]int32{}, unk: unk, maxChars: d.MaxChars}
	for token, id := range d.Vocab {
		if len(token) >= len(d.Prefix) && token[:len(d.Prefix)] == d.Prefix {
			m.continues[token[len(d.Prefix):]] = id
		}
		m.longest = max(m.longest, len(token))
	}
	return m, nil
}

func (m *wordPiece) encode(dst []int32, s string, _ *scratch) []int32 {
	if utf8.RuneCountInString(s) > m.maxChars {
		return append(dst, m.unk)
	}
	begin := len(dst)
	vocab := m.starts
	for s != "" {
		end := min(len(s), m.longest)
		for ; end > 0; end-- {
			if end < len(s) && !utf8.RuneStart(s[end]) {
				continue
			}
			if id, ok := vocab[s[:end]]; ok {
				dst = append(dst, id)
				break
			}
		}
		if end == 0 {
			return append(dst[:begin], m.unk)
		}
		s, vocab = s[end:], m.continues
	}
	return dst
}
