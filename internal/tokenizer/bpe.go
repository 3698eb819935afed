package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// model turns a piece of text into ids, appended to dst.
type model interface {
	encode(dst []int32, s string, work *scratch) []int32
}

// bpe merges neighbouring tokens, the best rank first, the leftmost among equals.
type bpe struct {
	vocab        map[string]int32 // by what a token stands for: bytes (byte-level) or text
	pairs        *pairTable
	bytes        [256]int32 // token of a byte, -1 without one; byte-level's alphabet, or <0x00> to <0xFF>
	byteLevel    bool
	fallback     bool // SentencePiece: a character without a token becomes its bytes
	allBytes     bool // every byte has a token
	ignoreMerges bool // a word that is a token stays whole
	fuseUnk      bool
	unk          int32 // -1: such text is dropped
	ascii        [utf8.RuneSelf]int32
	cache        *wordCache

	// cut is set when words may be merged separately: no merge makes a token with its text after another character, except
	// after those in joined.
	cut    string
	joined map[rune]bool
}

// scratch is an encoder's memory, reused.
type scratch struct {
	symbols []symbol
	heap    []candidate
	words   []string
}

type symbol struct {
	id         int32
	prev, next int32 // -1 at the ends
	rank       uint32
	into       int32
}

func (m *bpe) prepare() {
	m.cache = newWordCache()
	for i := range m.ascii {
		m.ascii[i] = -1
		if id, ok := m.vocab[string(rune(i))]; ok {
			m.ascii[i] = id
		}
	}
}

func (m *bpe) encode(dst []int32, s string, work *scratch) []int32 {
	if m.cut == "" {
		return m.word(dst, s, work)
	}
	begin := 0
	for i := 1; i < len(s); {
		j := strings.Index(s[i:], m.cut)
		if j < 0 {
			break
		}
		i += j
		if r, _ := utf8.DecodeLastRuneInString(s[:i]); i > 0 && !m.joined[r] {
			dst = m.word(dst, s[begin:i], work)
			begin = i
		}
		i += len(m.cut)
	}
	return m.word(dst, s[begin:], work)
}

// word encodes what the pre-tokenizer gave, through the cache.
func (m *bpe) word(dst []int32, s string, work *scratch) []int32 {
	if s == "" {
		return dst
	}
	if len(s) > maxCacheWord {
		return m.merged(dst, s, work)
	}
	slot := m.cache.slot(s)
	if c := slot.Load(); c != nil && c.word == s {
		return append(dst, c.ids...)
	}
	n := len(dst)
	dst = m.merged(dst, s, work)
	put(slot, s, dst[n:])
	return dst
}

func (m *bpe) merged(dst []int32, s string, work *scratch) []int32 {
	if m.ignoreMerges {
		if id, ok := m.vocab[s]; ok {
			return append(dst, id)
		}
	}
	work.symbols = m.symbols(work.symbols[:0], s)
	if len(work.symbols) <= maxScan {
		return mergeByScan(dst, work.symbols, m.pairs)
	}
	return mergeByHeap(dst, work, m.pairs)
}

// symbols gives the tokens that merging begins with.
func (m *bpe) symbols(out []symbol, s string) []symbol {
	if m.byteLevel {
		for i := range len(s) {
			if id := m.bytes[s[i]]; id >= 0 {
				out = append(out, symbol{id: id})
			} else {
				out = m.unknown(out, false)
			}
		}
		return out
	}
	fresh := false // the last symbol is an unknown one that the next may join
	for i := 0; i < len(s); {
		id, n := int32(-1), 1
		if s[i] < utf8.RuneSelf {
			id = m.ascii[s[i]]
		} else {
			_, n = utf8.DecodeRuneInString(s[i:])
			if got, ok := m.vocab[s[i:i+n]]; ok {
				id = got
			}
		}
		switch {
		case id >= 0:
			out, fresh = append(out, symbol{id: id}), false
		case m.fallback && m.spells(s[i:i+n]):
			for _, b := range []byte(s[i : i+n]) {
				out = append(out, symbol{id: m.bytes[b]})
			}
			fresh = false
		default:
			out = m.unknown(out, fresh)
			fresh = true
		}
		i += n
	}
	return out
}

// spells says whether every byte of a character has a token.
func (m *bpe) spells(char string) bool {
	if m.allBytes {
		return true
	}
	for _, b := range []byte(char) {
		if m.bytes[b] < 0 {
			return false
		}
	}
	return true
}

func (m *bpe) unknown(out []symbol, after bool) []symbol {
	if m.unk < 0 || after && m.fuseUnk {
		return out
	}
	return append(out, symbol{id: m.unk})
}

// maxScan is the longest word for which searching all pairs before every merge is faster than a heap.
const maxScan = 24

func mergeByScan(dst []int32, w []symbol, pairs *pairTable) []int32 {
	for i := range w {
		w[i].rank = noRank
		if i+1 < len(w) {
			m := pairs.get(w[i].id, w[i+1].id)
			w[i].rank, w[i].into = m.rank, m.id
		}
	}
	for {
		best, at := noRank, 0
		for i := range w {
			if w[i].rank < best {
				best, at = w[i].rank, i
			}
		}
		if best == noRank {
			break
		}
		w[at].id = w[at].into
		w = append(w[:at+1], w[at+2:]...)
		w[at].rank = noRank
		if at+1 < len(w) {
			m := pairs.get(w[at].id, w[at+1].id)
			w[at].rank, w[at].into = m.rank, m.id
		}
		if at > 0 {
			m := pairs.get(w[at-1].id, w[at].id)
			w[at-1].rank, w[at-1].into = m.rank, m.id
		}
	}
	for i := range w {
		dst = append(dst, w[i].id)
	}
	return dst
}

// candidate is a possible merge at symbol at with the one after it; stale when the symbol's rank has changed since.
type candidate struct {
	rank uint32
	at   int32
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

// mergeByHeap is O(n log n): a linked list of symbols and a heap of candidates.
func mergeByHeap(dst []int32, work *scratch, pairs *pairTable) []int32 {
	w, h := work.symbols, work.heap[:0]
	for i := range w {
		w[i].prev, w[i].next, w[i].rank = int32(i)-1, int32(i)+1, noRank
		if i+1 == len(w) {
			w[i].next = -1
			break
		}
		m := pairs.get(w[i].id, w[i+1].id)
		if w[i].rank, w[i].into = m.rank, m.id; m.rank != noRank {
			h = append(h, candidate{m.rank, int32(i)})
		}
	}
	for i := len(h)/2 - 1; i >= 0; i-- {
		siftDown(h, i)
	}
	rate := func(i int32) {
		w[i].rank = noRank
		if j := w[i].next; j >= 0 {
			m := pairs.get(w[i].id, w[j].id)
			if w[i].rank, w[i].into = m.rank, m.id; m.rank != noRank {
				h = pushCandidate(h, candidate{m.rank, i})
			}
		}
	}
	for len(h) > 0 {
		c := h[0]
		h[0] = h[len(h)-1]
		h = h[:len(h)-1]
		siftDown(h, 0)
		s := &w[c.at]
		if s.rank != c.rank {
			continue
		}
		gone := &w[s.next]
		gone.rank = noRank
		s.id, s.next = s.into, gone.next
		if s.next >= 0 {
			w[s.next].prev = c.at
		}
		rate(c.at)
		if s.prev >= 0 {
			rate(s.prev)
		}
	}
	work.heap = h
	for i := int32(0); i >= 0 && len(w) > 0; i = w[i].next {
		dst = append(dst, w[i].id)
	}
	return dst
}

func siftDown(h []candidate, i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1].before(h[c]) {
			c++
		}
		if !h[c].before(h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

func pushCandidate(h []candidate, c candidate) []candidate {
	h = append(h, c)
	for i := len(h) - 1; i > 0; {
		p := (i - 1) / 2
		if !h[i].before(h[p]) {
			break
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
	return h
}

// findCut looks whether words may be merged one by one: it lists the characters after which some merged token goes on with
// separator. Only where no character is without a token, since runs of unknown ones are fused across words.
func (m *bpe) findCut(separator string, vocab map[string]int32, merged map[int32]bool) {
	if m.byteLevel || !m.fallback || !m.allBytes {
		return
	}
	m.cut, m.joined = separator, map[rune]bool{}
	for text, id := range vocab {
		if !merged[id] {
			continue
		}
		for i := 0; ; {
			j := strings.Index(text[i:], separator)
			if j < 0 {
				break
			}
			if i += j; i > 0 {
				r, _ := utf8.DecodeLastRuneInString(text[:i])
				m.joined[r] = true
			}
			i += len(separator)
		}
	}
}

// byteTokens looks up <0x00> to <0xFF> and says whether all are there.
func byteTokens(vocab map[string]int32) (ids [256]int32, all bool) {
	all = true
	for b := range ids {
		id, ok := vocab[fmt.Sprintf("<0x%02X>", b)]
		if ids[b] = id; !ok {
			ids[b], all = -1, false
		}
	}
	return ids, all
}
