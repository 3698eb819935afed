package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is cut out of the text whole, before the model sees it.
type addedToken struct {
	id         int32
	content    string
	singleWord bool // only where no word goes on at its sides
	lstrip     bool // takes the white space before it along
	rstrip     bool
	normalized bool // looked for in the normalised text
	special    bool
}

// maxAddedLen bounds the work that a hostile description can cause at each byte of the text.
const maxAddedLen = 1024

// matcher finds added tokens, leftmost and longest first.
type matcher struct {
	*trie
	tokens []addedToken
}

func newMatcher(tokens []addedToken) (*matcher, error) {
	if len(tokens) == 0 {
		return nil, nil
	}
	m := &matcher{newTrie(), tokens}
	for i, t := range tokens {
		if len(t.content) > maxAddedLen {
			return nil, fmt.Errorf("added token %d is %d bytes long, more than %d", t.id, len(t.content), maxAddedLen)
		}
		if t.content != "" {
			m.insert(t.content, int32(i))
		}
	}
	return m, nil
}

// at returns the longest token that begins at s[i], nil for none.
func (m *matcher) at(s string, i int) *addedToken {
	found := int32(-1)
	for node := m.root[s[i]]; node != 0; node = m.step(node, s[i]) {
		if value := m.nodes[node].value; value >= 0 {
			found = value
		}
		if i++; i >= len(s) {
			break
		}
	}
	if found < 0 {
		return nil
	}
	return &m.tokens[found]
}

// cut calls text for what lies between added tokens and token for each of them, in order. Special tokens are text when
// special is false.
func (m *matcher) cut(s string, special bool, text func(string) error, token func(int32)) error {
	if m == nil {
		return text(s)
	}
	begin := 0
	for i := 0; i < len(s); {
		if m.root[s[i]] == 0 {
			i++
			continue
		}
		t := m.at(s, i)
		if t == nil {
			i++
			continue
		}
		from, to := i, i+len(t.content)
		i = to
		if t.special && !special || t.singleWord && !aloneAt(s, from, to) {
			continue
		}
		if t.lstrip {
			from = begin + len(strings.TrimRightFunc(s[begin:from], unicode.IsSpace))
		}
		if t.rstrip {
			to = len(s) - len(strings.TrimLeftFunc(s[to:], unicode.IsSpace))
		}
		if begin < from {
			if err := text(s[begin:from]); err != nil {
				return err
			}
		}
		token(t.id)
		begin, i = to, to
	}
	if begin < len(s) {
		return text(s[begin:])
	}
	return nil
}

func aloneAt(s string, from, to int) bool {
	before, n := utf8.DecodeLastRuneInString(s[:from])
	if n > 0 && isWord(before) {
		return false
	}
	after, n := utf8.DecodeRuneInString(s[to:])
	return n == 0 || !isWord(after)
}

// isWord is \w: letters, marks, decimal digits and connecting signs.
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc) || r == 0x200c || r == 0x200d
}
