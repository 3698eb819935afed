package tokenizer

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// charsMap is SentencePiece's precompiled normaliser: a double-array trie from texts to places in a blob of replacements,
// each ended by a zero byte.
type charsMap struct {
	units []uint32
	blob  string
}

func newCharsMap(data []byte) (normalizer, error) {
	if len(data) == 0 {
		return nil, nil
	}
	if len(data) < 4 {
		return nil, fmt.Errorf("precompiled_charsmap of %d bytes is too short", len(data))
	}
	size := binary.LittleEndian.Uint32(data)
	rest := data[4:]
	if size%4 != 0 || size == 0 || uint64(size) > uint64(len(rest)) {
		return nil, fmt.Errorf("precompiled_charsmap of %d bytes cannot hold a trie of %d", len(data), size)
	}
	m := &charsMap{units: make([]uint32, size/4), blob: string(rest[size:])}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(rest[4*i:])
	}
	if !utf8.ValidString(m.blob) {
		return nil, fmt.Errorf("precompiled_charsmap holds replacements that are not UTF-8")
	}
	return m, nil
}

func offsetOf(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }

// lookup returns the replacement of the shortest text that s begins with: the reference's choice.
func (m *charsMap) lookup(s string) (string, bool) {
	at := offsetOf(m.units[0])
	for i := range len(s) {
		at ^= uint32(s[i])
		if s[i] == 0 || uint64(at) >= uint64(len(m.units)) {
			return "", false
		}
		unit := m.units[at]
		if unit&(1<<31|0xff) != uint32(s[i]) {
			return "", false
		}
		at ^= offsetOf(unit)
		if unit>>8&1 == 0 {
			continue
		}
		if uint64(at) >= uint64(len(m.units)) {
			return "", false
		}
		place := m.units[at] &^ (1 << 31)
		if uint64(place) > uint64(len(m.blob)) {
			return "", false
		}
		text, _, _ := strings.Cut(m.blob[place:], "\x00")
		return text, utf8.ValidString(text)
	}
	return "", false
}

// maxCluster is below which length, in bytes, a character with its marks is looked up as one.
const maxCluster = 6

func (m *charsMap) normalize(s string) (string, error) {
	var out strings.Builder
	out.Grow(len(s))
	for len(s) > 0 {
		n := clusterLen(s)
		cluster := s[:n]
		s = s[n:]
		if n < maxCluster {
			if text, ok := m.lookup(cluster); ok {
				out.WriteString(text)
				continue
			}
		}
		for _, r := range cluster {
			if text, ok := m.lookup(string(r)); ok {
				out.WriteString(text)
			} else {
				out.WriteRune(r)
			}
		}
	}
	return out.String(), nil
}

// clusterLen is the length of the extended grapheme cluster that s begins with, as far as it matters here: clusters of
// maxCluster bytes and more (Hangul, flags, conjuncts) are treated like single characters anyway.
func clusterLen(s string) int {
	r, n := utf8.DecodeRuneInString(s)
	if strings.HasPrefix(s, "\r\n") {
		return 2
	}
	if isControl(r) {
		return n
	}
	for n < len(s) {
		next, size := utf8.DecodeRuneInString(s[n:])
		if !extendsCluster(next) {
			if !isPrepended(r) || isControl(next) {
				break
			}
		}
		r = next
		n += size
	}
	return n
}

func isControl(r rune) bool {
	if r == 0x200c || r == 0x200d || isPrepended(r) {
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

func extendsCluster(r rune) bool {
	if r < 0x300 {
		return false
	}
	return r == 0x200c || r == 0x200d || r == 0xe33 || r == 0xeb3 || r == 0xff9e || r == 0xff9f || unicode.Is(unicode.M, r) ||
		r >= 0x1f3fb && r <= 0x1f3ff
}

// isPrepended is Grapheme_Cluster_Break=Prepend: signs that go with the character after them.
func isPrepended(r rune) bool {
	return unicode.Is(unicode.Prepended_Concatenation_Mark, r) || r == 0xd4e
}
