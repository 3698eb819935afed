package tokenizer

import (
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

func (b *builder) wordPiece(d *modelDescription) (model, error) {
	unkToken, prefix, maxChars := "[UNK]", "##", 100
	if d.UnkToken != nil {
		unkToken = *d.UnkToken
	}
	if d.Prefix != nil {
		prefix = *d.Prefix
	}
	if d.MaxChars != nil {
		maxChars = *d.MaxChars
	}
	vocab := d.Vocab.ids
	unk, ok := vocab[unkToken]
	if !ok {
		return nil, fmt.Errorf("unk_token %.80q is not in the vocabulary", unkToken)
	}
	if maxChars < 0 || maxChars > 1000 {
		return nil, fmt.Errorf("max_input_chars_per_word %d is outside 0 to 1000", maxChars)
	}
	b.unk = unk
	m := &wordPiece{starts: vocab, continues: map[string]int32{}, unk: unk, maxChars: maxChars}
	for token, id := range vocab {
		if len(token) >= len(prefix) && token[:len(prefix)] == prefix {
			m.continues[token[len(prefix):]] = id
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
