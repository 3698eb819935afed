package tokenizer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Token types of a GGUF vocabulary.
const (
	typeNormal      int32 = 1
	typeUnknown     int32 = 2
	typeControl     int32 = 3
	typeUserDefined int32 = 4
	typeUnused      int32 = 5
	typeByte        int32 = 6
)

// Vocab is a GGUF file's vocabulary. Ids are None where the file names none; Scores, Types and Merges may be empty where
// the model does not need them.
type Vocab struct {
	Model  string // "gpt2": byte-level BPE; "llama": SentencePiece with scores
	Pre    string // the pre-tokenizer of a "gpt2" model, such as "smollm"
	Tokens []string
	Scores []float32
	Types  []int32
	Merges []string // "left right", best first

	BOS, EOS, UNK, PAD, EOT        int32
	AddBOS, AddEOS, AddSpacePrefix bool
}

// FromVocab builds the tokenizer of a GGUF vocabulary. Control tokens are special; user-defined tokens are always cut out
// of the text. The pre-tokenizer is the one that the file names.
func FromVocab(v Vocab) (*Tokenizer, error) {
	t, err := fromVocab(v)
	if err != nil {
		return nil, fmt.Errorf("build tokenizer from GGUF vocabulary: %w", err)
	}
	return t, nil
}

func fromVocab(v Vocab) (*Tokenizer, error) {
	if len(v.Tokens) == 0 || len(v.Tokens) > maxVocab {
		return nil, fmt.Errorf("%d tokens, expected 1 to %d", len(v.Tokens), maxVocab)
	}
	if n := len(v.Types); n != 0 && n != len(v.Tokens) {
		return nil, fmt.Errorf("%d types for %d tokens", n, len(v.Tokens))
	}
	ids := make(map[string]int32, len(v.Tokens))
	var added []addedToken
	for i, token := range v.Tokens {
		id := int32(i)
		if _, twice := ids[token]; !twice {
			ids[token] = id // of a text given twice the first id is the one that encodes
		}
		switch v.typeOf(id) {
		case typeControl, typeUnknown:
			added = append(added, addedToken{id: id, content: token, special: true})
		case typeUserDefined:
			added = append(added, addedToken{id: id, content: token})
		}
	}
	t, err := newTokenizer(ids, added)
	if err != nil {
		return nil, err
	}
	t.fill(v.Tokens)
	switch v.Model {
	case "gpt2":
		err = t.byteLevelVocab(v, ids)
	case "llama":
		err = t.sentencePieceVocab(v, ids)
	default:
		err = fmt.Errorf("tokenizer model %q is not supported (gpt2 and llama are)", v.Model)
	}
	if err != nil {
		return nil, err
	}
	if err := t.vocabEnds(v); err != nil {
		return nil, err
	}
	return t, t.finish(added)
}

// fill gives every id its text, also those whose text another id has.
func (t *Tokenizer) fill(tokens []string) {
	for n := len(tokens); len(t.tokens) < n; {
		t.tokens, t.present = append(t.tokens, ""), append(t.present, false)
		t.added, t.special = append(t.added, false), append(t.special, false)
	}
	for i, token := range tokens {
		t.tokens[i], t.present[i] = token, true
	}
}

func (v *Vocab) typeOf(id int32) int32 {
	if len(v.Types) == 0 {
		return typeNormal
	}
	return v.Types[id]
}

// vocabEnds sets the named tokens and what is put around a text.
func (t *Tokenizer) vocabEnds(v Vocab) error {
	for _, s := range []struct {
		name string
		id   int32
		dst  *int32
	}{{"begin", v.BOS, &t.bos}, {"end", v.EOS, &t.eos}, {"unknown", v.UNK, &t.unk}, {"padding", v.PAD, &t.pad}, {"end-of-turn", v.EOT, &t.eot}} {
		if s.id != None && !t.has(s.id) {
			return fmt.Errorf("the %s token %d is not in the vocabulary", s.name, s.id)
		}
		*s.dst = s.id
	}
	return t.addEnds(&v.AddBOS, &v.AddEOS)
}

func (t *Tokenizer) byteLevelVocab(v Vocab, ids map[string]int32) error {
	pre, ok := ggufPretokenizer(v.Pre)
	if !ok {
		return fmt.Errorf("pre-tokenizer %q is not supported", v.Pre)
	}
	alphabet := newByteAlphabet()
	m := &bpe{byteLevel: true, ignoreMerges: pre.ignoreMerges, unk: None}
	m.vocab, m.bytes = byteVocab(ids, alphabet)
	m.pairs = newPairTable(len(v.Merges))
	for i, line := range v.Merges {
		// A token may begin with a space only by mistake; the separator is the first one after the first character.
		at := 1 + strings.IndexByte(line[min(1, len(line)):], ' ')
		if at == 0 {
			return fmt.Errorf("merge %d, %.80q, is not two tokens", i, line)
		}
		left, okLeft := ids[line[:at]]
		right, okRight := ids[line[at+1:]]
		into, okInto := ids[line[:at]+line[at+1:]]
		if okLeft && okRight && okInto { // others can never apply
			m.pairs.put(left, right, merge{uint32(i), into})
		}
	}
	m.prepare()
	t.pre, t.model, t.decoder = pre.split, m, &decoder{alphabet: alphabet}
	return nil
}

func (t *Tokenizer) sentencePieceVocab(v Vocab, ids map[string]int32) error {
	if len(v.Scores) != len(v.Tokens) {
		return fmt.Errorf("%d scores for %d tokens", len(v.Scores), len(v.Tokens))
	}
	m := &bpe{vocab: v.plain(ids), fallback: true, fuseUnk: true, unk: v.UNK}
	if v.UNK != None && !t.has(v.UNK) {
		return fmt.Errorf("the unknown token %d is not in the vocabulary", v.UNK)
	}
	m.bytes, m.allBytes = byteTokens(ids)
	m.pairs = newPairTable(len(v.Tokens))
	ranks := scoreRanks(v.Scores)
	merged := map[int32]bool{}
	for i, token := range v.Tokens {
		id := int32(i)
		if m.vocab[token] != id || v.typeOf(id) == typeByte || len(token) > maxAddedLen {
			continue
		}
		for at := range token {
			if at == 0 {
				continue
			}
			left, ok := m.vocab[token[:at]]
			if !ok {
				continue
			}
			if right, ok := m.vocab[token[at:]]; ok {
				m.pairs.put(left, right, merge{ranks[i], id})
				merged[id] = true
			}
		}
	}
	m.prepare()
	m.findCut("▁", m.vocab, merged)

	spaces := normalizers{replaceLiteral{" ", "▁"}}
	d := &decoder{fallback: true, replace: []replaceLiteral{{"▁", " "}}}
	if v.AddSpacePrefix {
		spaces = normalizers{prepend("▁"), spaces[0]}
		d.stripLeft, d.stripMax = " ", 1
	}
	t.normalizer, t.model, t.decoder = spaces, m, d
	return nil
}

// plain leaves out the tokens that ordinary text must not become: control, unknown and unused ones.
func (v *Vocab) plain(ids map[string]int32) map[string]int32 {
	out := make(map[string]int32, len(ids))
	for token, id := range ids {
		switch v.typeOf(id) {
		case typeNormal, typeUserDefined:
			if utf8.ValidString(token) {
				out[token] = id
			}
		}
	}
	return out
}

// scoreRanks numbers scores from the best down; equal scores are equal ranks, of which the leftmost pair goes first.
func scoreRanks(scores []float32) []uint32 {
	order := make([]int32, len(scores))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(scores[b], scores[a]) })
	ranks := make([]uint32, len(scores))
	rank := uint32(0)
	for i, id := range order {
		if i > 0 && cmp.Compare(scores[id], scores[order[i-1]]) != 0 {
			rank++
		}
		ranks[id] = rank
	}
	return ranks
}
