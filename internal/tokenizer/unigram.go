package tokenizer

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// unigram cuts a piece into the tokens whose scores, log probabilities, add up to the most (Viterbi).
type unigram struct {
	*trie
	scores   []float64
	bytes    [256]int32
	fallback bool // a character without a token becomes its bytes, where all of them are tokens
	unk      int32
	unkScore float64
	cache    *wordCache
}

// unkPenalty is how much worse than the worst token an unknown character is.
const unkPenalty = 10

func (b *builder) unigram(d *modelDescription) (model, error) {
	if d.Vocab.pieces == nil {
		return nil, fmt.Errorf("a Unigram model needs its vocabulary as a list")
	}
	m := &unigram{trie: newTrie(), scores: d.Vocab.scores, unk: None, cache: newWordCache()}
	b.vocab = make(map[string]int32, len(d.Vocab.pieces))
	worst := math.Inf(1)
	for i, token := range d.Vocab.pieces {
		if len(token) > maxAddedLen {
			return nil, fmt.Errorf("token %d is %d bytes long, more than %d", i, len(token), maxAddedLen)
		}
		b.vocab[token] = int32(i)
		worst = min(worst, m.scores[i])
		if token != "" {
			m.insert(token, int32(i))
		}
	}
	m.unkScore = worst - unkPenalty
	if d.ByteFallback {
		m.bytes, m.fallback = byteTokens(b.vocab)
	}
	switch {
	case d.UnkID != nil && (*d.UnkID < 0 || int(*d.UnkID) >= len(d.Vocab.pieces)):
		return nil, fmt.Errorf("unk_id %d is not in the vocabulary", *d.UnkID)
	case d.UnkID != nil:
		m.unk = *d.UnkID
	case !m.fallback:
		return nil, fmt.Errorf("a Unigram model needs unk_id or a token for every byte")
	}
	b.unk = m.unk
	return m, nil
}

// pathEnd is the best way to reach a place in the text.
type pathEnd struct {
	score float64
	from  int32 // -1: not reached
	id    int32 // -1: an unknown character
}

func (m *unigram) encode(dst []int32, s string, _ *scratch) []int32 {
	if len(s) > maxCacheWord {
		return m.best(dst, s)
	}
	slot := m.cache.slot(s)
	if c := slot.Load(); c != nil && c.word == s {
		return append(dst, c.ids...)
	}
	n := len(dst)
	dst = m.best(dst, s)
	put(slot, s, dst[n:])
	return dst
}

func (m *unigram) best(dst []int32, s string) []int32 {
	ends := make([]pathEnd, len(s)+1)
	for i := range ends {
		ends[i].from = -1
	}
	reach := func(from, to int, score float64, id int32) {
		score += ends[from].score
		if e := &ends[to]; e.from < 0 || score > e.score {
			*e = pathEnd{score, int32(from), id}
		}
	}
	for at := 0; at < len(s); {
		_, n := utf8.DecodeRuneInString(s[at:])
		single := false
		node := int32(0)
		for i := at; i < len(s); i++ {
			if node = m.step(node, s[i]); node == 0 {
				break
			}
			if id := m.nodes[node].value; id >= 0 {
				reach(at, i+1, m.scores[id], id)
				single = single || i+1 == at+n
			}
		}
		if !single {
			reach(at, at+n, m.unkScore, -1)
		}
		at += n
	}
	return m.path(dst, s, ends)
}

// path writes the tokens of the best path, runs of unknown characters as one.
func (m *unigram) path(dst []int32, s string, ends []pathEnd) []int32 {
	var back []int32 // places, last first
	for at := int32(len(s)); at > 0; at = ends[at].from {
		back = append(back, at)
	}
	unknown := false
	for i := len(back) - 1; i >= 0; i-- {
		e := ends[back[i]]
		switch {
		case e.id >= 0:
			dst = append(dst, e.id)
		case m.fallback:
			for _, b := range []byte(s[e.from:back[i]]) {
				dst = append(dst, m.bytes[b])
			}
		case !unknown:
			dst = append(dst, m.unk)
		}
		unknown = e.id < 0
	}
	return dst
}
