package tokenizer

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// None is the id of a token that a vocabulary does not have.
const None int32 = -1

// maxVocab bounds ids, so that a hostile description cannot ask for memory without end.
const maxVocab = 1 << 22

// Tokenizer encodes and decodes text. It is immutable and safe for concurrent use.
type Tokenizer struct {
	tokens  []string // vocabulary text by id
	present []bool   // false: the id is a hole
	ids     map[string]int32
	added   []bool // found in the text before the model runs
	special []bool

	normalizer normalizer // nil: none
	pre        pretokenizer
	model      model
	decoder    *decoder
	pieces     *pieces

	raw, normalized *matcher // added tokens looked for before and after normalising

	prefix, suffix []int32 // what AddSpecial adds
	bos, eos       int32
	unk, pad, eot  int32
	longest        int // characters of the longest token

	pool sync.Pool // *scratch
}

// EncodeOptions choose what Encode does beside the text itself.
type EncodeOptions struct {
	AddSpecial   bool // add the model's begin and end tokens
	ParseSpecial bool // special tokens that are spelled in the text become their ids; else they are ordinary text
}

// Encode returns the ids of text. Bytes that are not UTF-8 count as U+FFFD. The error is that of a split pattern that ran out
// of time, which no known pattern does.
func (t *Tokenizer) Encode(text string, opt EncodeOptions) ([]int32, error) {
	work, _ := t.pool.Get().(*scratch)
	if work == nil {
		work = &scratch{}
	}
	defer t.pool.Put(work.shrunk())

	if !utf8.ValidString(text) {
		text = lossy(text)
	}
	ids := make([]int32, 0, len(text)/3+len(t.prefix)+len(t.suffix)+4)
	if opt.AddSpecial {
		ids = append(ids, t.prefix...)
	}
	token := func(id int32) { ids = append(ids, id) }
	err := t.raw.cut(text, opt.ParseSpecial, func(s string) error {
		if t.normalizer != nil {
			var err error
			if s, err = t.normalizer.normalize(s); err != nil {
				return err
			}
		}
		return t.normalized.cut(s, opt.ParseSpecial, func(s string) error {
			var err error
			ids, err = t.encodeText(ids, s, work)
			return err
		}, token)
	}, token)
	if err != nil {
		return nil, fmt.Errorf("encode text of %d bytes: %w", len(text), err)
	}
	if opt.AddSpecial {
		ids = append(ids, t.suffix...)
	}
	return ids, nil
}

// encodeText encodes text that holds no added token.
func (t *Tokenizer) encodeText(ids []int32, s string, work *scratch) ([]int32, error) {
	if s == "" {
		return ids, nil
	}
	if t.pre == nil {
		return t.model.encode(ids, s, work), nil
	}
	words, err := t.pre.split(work.words[:0], s)
	if err != nil {
		return ids, err
	}
	for _, w := range words {
		ids = t.model.encode(ids, w, work)
	}
	clear(words) // keep no text alive
	work.words = words[:0]
	return ids, nil
}

// keepScratch is the largest memory, in elements, that is kept for the next call.
const keepScratch = 1 << 16

// shrunk is called when the memory is taken; it drops what an unusually long text left behind.
func (w *scratch) shrunk() *scratch {
	if cap(w.symbols) > keepScratch {
		w.symbols = nil
	}
	if cap(w.heap) > keepScratch {
		w.heap = nil
	}
	if cap(w.words) > keepScratch {
		w.words = nil
	}
	return w
}

// lossy replaces each maximal part of an invalid character by U+FFFD.
func lossy(s string) string {
	var out strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			n = invalidPrefix([]byte(s[:min(3, len(s))]))
		}
		out.WriteRune(r)
		s = s[n:]
	}
	return out.String()
}

// Decode returns the text of ids, without special tokens when skipSpecial. Bytes that form no character become U+FFFD, an
// id outside the vocabulary has no text.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	s := t.newStream(skipSpecial)
	var out strings.Builder
	for _, id := range ids {
		out.WriteString(s.Push(id))
	}
	out.WriteString(s.Flush())
	return out.String()
}

func (t *Tokenizer) has(id int32) bool {
	return id >= 0 && int(id) < len(t.present) && t.present[id]
}

// VocabSize is one more than the greatest id, added tokens included.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// TokenText is the vocabulary's own spelling of a token, such as "Ġthe" or "▁the"; "" outside the vocabulary.
func (t *Tokenizer) TokenText(id int32) string {
	if !t.has(id) {
		return ""
	}
	return t.tokens[id]
}

// TokenBytes are the bytes that a token stands for inside a text; they may be part of a character.
func (t *Tokenizer) TokenBytes(id int32) []byte {
	if !t.has(id) {
		return nil
	}
	return []byte(t.pieces.of(id))
}

// ID looks a token up by the vocabulary's spelling.
func (t *Tokenizer) ID(token string) (int32, bool) {
	id, ok := t.ids[token]
	return id, ok
}

// IsSpecial says whether a token is a control token, left out of text when those are skipped.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.has(id) && t.special[id] }

// BOS is the begin token or None.
func (t *Tokenizer) BOS() int32 { return t.bos }

// EOS is the end token or None.
func (t *Tokenizer) EOS() int32 { return t.eos }

// PAD is the padding token or None.
func (t *Tokenizer) PAD() int32 { return t.pad }

// EOT is the end-of-turn token that a GGUF names, or None.
func (t *Tokenizer) EOT() int32 { return t.eot }

// UNK is the token of text that has none, or None.
func (t *Tokenizer) UNK() int32 { return t.unk }

// MaxTokenChars is the length, in characters, of the longest token's spelling.
func (t *Tokenizer) MaxTokenChars() int { return t.longest }

// newTokenizer lays out a vocabulary; vocab's ids are within maxVocab.
func newTokenizer(vocab map[string]int32, addedTokens []addedToken) (*Tokenizer, error) {
	size := 0
	for token, id := range vocab {
		if id < 0 || id >= maxVocab {
			return nil, fmt.Errorf("token %.80q has id %d, outside 0 to %d", token, id, maxVocab-1)
		}
		size = max(size, int(id)+1)
	}
	for _, a := range addedTokens {
		if a.id < 0 || a.id >= maxVocab {
			return nil, fmt.Errorf("added token %.80q has id %d, outside 0 to %d", a.content, a.id, maxVocab-1)
		}
		size = max(size, int(a.id)+1)
	}
	t := &Tokenizer{tokens: make([]string, size), present: make([]bool, size), added: make([]bool, size), special: make([]bool, size),
		ids: make(map[string]int32, len(vocab)+len(addedTokens)), bos: None, eos: None, unk: None, pad: None, eot: None}
	for token, id := range vocab {
		if t.present[id] {
			return nil, fmt.Errorf("tokens %.80q and %.80q have the same id %d", t.tokens[id], token, id)
		}
		t.tokens[id], t.present[id], t.ids[token] = token, true, id
	}
	for _, a := range addedTokens {
		if t.present[a.id] && t.tokens[a.id] != a.content {
			return nil, fmt.Errorf("tokens %.80q and %.80q have the same id %d", t.tokens[a.id], a.content, a.id)
		}
		t.tokens[a.id], t.present[a.id], t.ids[a.content] = a.content, true, a.id
		t.added[a.id] = true
		t.special[a.id] = t.special[a.id] || a.special
	}
	for _, token := range t.tokens {
		t.longest = max(t.longest, utf8.RuneCountInString(token))
	}
	return t, nil
}

// markAdded marks every id with an added token's text: a Unigram vocabulary may have it twice, and the reference goes by text.
func (t *Tokenizer) markAdded(addedTokens []addedToken) {
	special := make(map[string]bool, len(addedTokens))
	for _, a := range addedTokens {
		special[a.content] = special[a.content] || a.special
	}
	for id, token := range t.tokens {
		if s, ok := special[token]; ok && t.present[id] {
			t.added[id] = true
			t.special[id] = s
		}
	}
}

// finish builds what follows from the pipeline's parts.
func (t *Tokenizer) finish(addedTokens []addedToken) error {
	var raw, normalized []addedToken
	for _, a := range addedTokens {
		if !a.normalized || t.normalizer == nil {
			raw = append(raw, a)
			continue
		}
		content, err := t.normalizer.normalize(a.content)
		if err != nil {
			return fmt.Errorf("normalise added token %.80q: %w", a.content, err)
		}
		a.content = content
		normalized = append(normalized, a)
	}
	var err error
	if t.raw, err = newMatcher(raw); err != nil {
		return err
	}
	if t.normalized, err = newMatcher(normalized); err != nil {
		return err
	}
	t.pieces, err = t.decoder.buildPieces(t.tokens)
	return err
}
