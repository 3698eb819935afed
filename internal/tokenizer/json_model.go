package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// modelDescription is the model of a tokenizer.json, of whatever type.
type modelDescription struct {
	Type         string    `json:"type"`
	Dropout      *float64  `json:"dropout"`
	UnkToken     *string   `json:"unk_token"`
	UnkID        *int32    `json:"unk_id"`
	Prefix       *string   `json:"continuing_subword_prefix"`
	Suffix       *string   `json:"end_of_word_suffix"`
	MaxChars     *int      `json:"max_input_chars_per_word"`
	FuseUnk      bool      `json:"fuse_unk"`
	ByteFallback bool      `json:"byte_fallback"`
	IgnoreMerges bool      `json:"ignore_merges"`
	Vocab        vocabList `json:"vocab"`
	Merges       mergeList `json:"merges"`
}

func (b *builder) model(d *modelDescription) (model, error) {
	if d == nil {
		return nil, fmt.Errorf("is missing")
	}
	b.unk = None
	b.vocab = d.Vocab.ids
	switch d.Type {
	case "BPE", "": // the oldest files do not name it
		return b.bpe(d)
	case "WordPiece":
		return b.wordPiece(d)
	case "Unigram":
		return b.unigram(d)
	}
	return nil, fmt.Errorf("%q is not supported", d.Type)
}

func (b *builder) bpe(d *modelDescription) (model, error) {
	vocab := d.Vocab.ids
	switch {
	case d.Dropout != nil && *d.Dropout != 0:
		return nil, fmt.Errorf("BPE with dropout is not supported: ids would be random")
	case d.Prefix != nil && *d.Prefix != "":
		return nil, fmt.Errorf("BPE with continuing_subword_prefix %q is not supported", *d.Prefix)
	case d.Suffix != nil && *d.Suffix != "":
		return nil, fmt.Errorf("BPE with end_of_word_suffix %q is not supported", *d.Suffix)
	}
	if d.UnkToken != nil {
		id, ok := vocab[*d.UnkToken]
		if !ok {
			return nil, fmt.Errorf("unk_token %.80q is not in the vocabulary", *d.UnkToken)
		}
		b.unk = id
	}
	m := &bpe{vocab: vocab, byteLevel: b.byteLevel, fallback: d.ByteFallback, ignoreMerges: d.IgnoreMerges, fuseUnk: d.FuseUnk, unk: b.unk}
	if b.byteLevel {
		m.vocab, m.bytes = byteVocab(vocab, b.alphabet)
	} else {
		m.bytes, m.allBytes = byteTokens(vocab)
	}
	merged, err := m.readMerges(vocab, d.Merges)
	if err != nil {
		return nil, err
	}
	m.prepare()
	if !b.byteLevel {
		m.findCut("▁", vocab, merged)
	}
	return m, nil
}

// readMerges fills the table of pairs and returns the tokens that merging makes.
func (m *bpe) readMerges(vocab map[string]int32, merges mergeList) (merged map[int32]bool, err error) {
	m.pairs = newPairTable(len(merges))
	merged = map[int32]bool{}
	var both []byte
	for i, pair := range merges {
		both = append(append(both[:0], pair[0]...), pair[1]...)
		left, okLeft := vocab[pair[0]]
		right, okRight := vocab[pair[1]]
		into, okInto := vocab[string(both)]
		if !okLeft || !okRight || !okInto {
			return nil, fmt.Errorf("merge %d of %.80q and %.80q: a token is not in the vocabulary", i, pair[0], pair[1])
		}
		m.pairs.put(left, right, merge{uint32(i), into})
		if m.fallback {
			merged[into] = true
		}
	}
	return merged, nil
}

// byteVocab rewrites a byte-level vocabulary by bytes. Tokens with other characters are only reached as added tokens.
func byteVocab(vocab map[string]int32, alphabet *byteAlphabet) (byBytes map[string]int32, single [256]int32) {
	byBytes = make(map[string]int32, len(vocab))
	for i := range single {
		single[i] = -1
	}
	for token, id := range vocab {
		b, ok := alphabet.decode(token)
		if !ok {
			continue
		}
		byBytes[b] = id
		if len(b) == 1 {
			single[b[0]] = id
		}
	}
	return byBytes, single
}

// decoder reads the decoder.
func (b *builder) decoder(raw json.RawMessage) (*decoder, error) {
	if absent(raw) {
		return plainDecoder(), nil
	}
	d := &decoder{}
	fused := false
	if err := b.decoderStep(&d, &fused, raw, 0); err != nil {
		return nil, err
	}
	return d, nil
}

func (b *builder) decoderStep(d **decoder, fused *bool, raw json.RawMessage, depth int) error {
	if depth > maxNesting {
		return fmt.Errorf("nested more than %d deep", maxNesting)
	}
	var p struct {
		Type           string            `json:"type"`
		Decoders       []json.RawMessage `json:"decoders"`
		Pattern        *pattern          `json:"pattern"`
		Content        string            `json:"content"`
		Start          int               `json:"start"`
		Stop           int               `json:"stop"`
		Prefix         string            `json:"prefix"`
		Cleanup        bool              `json:"cleanup"`
		Replacement    string            `json:"replacement"`
		PrependScheme  string            `json:"prepend_scheme"`
		AddPrefixSpace *bool             `json:"add_prefix_space"`
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	if p.Type != "Sequence" && p.Type != "Strip" && *fused {
		return fmt.Errorf("%s after Fuse is not supported", p.Type)
	}
	switch p.Type {
	case "Sequence":
		for _, step := range p.Decoders {
			if err := b.decoderStep(d, fused, step, depth+1); err != nil {
				return err
			}
		}
	case "ByteLevel":
		(*d).alphabet = b.alphabet
		*fused = true
	case "ByteFallback":
		(*d).fallback = true
	case "Fuse":
		*fused = true
	case "Replace":
		if p.Pattern == nil || p.Pattern.String == nil {
			return fmt.Errorf("decoder Replace with a regular expression is not supported")
		}
		if *p.Pattern.String != "" {
			(*d).replace = append((*d).replace, replaceLiteral{*p.Pattern.String, p.Content})
		}
	case "Strip":
		return stripStep(*d, *fused, p.Content, p.Start, p.Stop)
	case "WordPiece":
		return b.wholeDecoder(d, depth, wordPieceDecoder(p.Prefix, p.Cleanup))
	case "Metaspace":
		if p.Replacement == "" {
			p.Replacement = "▁"
		}
		prepended := p.PrependScheme != "never" && (p.AddPrefixSpace == nil || *p.AddPrefixSpace)
		return b.wholeDecoder(d, depth, metaspaceDecoder(p.Replacement, prepended))
	default:
		return fmt.Errorf("%q is not supported", p.Type)
	}
	return nil
}

// wholeDecoder is one that stands alone.
func (b *builder) wholeDecoder(d **decoder, depth int, whole *decoder) error {
	if depth > 0 {
		return fmt.Errorf("this decoder inside a Sequence is not supported")
	}
	*d = whole
	return nil
}

// stripStep takes characters off each token, or off the whole text once tokens are fused.
func stripStep(d *decoder, fused bool, content string, start, stop int) error {
	if start < 0 || stop < 0 || len([]rune(content)) != 1 {
		return fmt.Errorf("decoder Strip of %q, %d and %d is not supported", content, start, stop)
	}
	if fused {
		if stop != 0 || d.stripMax != 0 || d.alphabet != nil {
			return fmt.Errorf("decoder Strip at the end of the text is not supported")
		}
		d.stripLeft, d.stripMax = content, start
		return nil
	}
	d.strips = append(d.strips, func(t string) string {
		for i := 0; i < start && strings.HasPrefix(t, content); i++ {
			t = t[len(content):]
		}
		for i := 0; i < stop && strings.HasSuffix(t, content); i++ {
			t = t[:len(t)-len(content)]
		}
		return t
	})
	return nil
}
