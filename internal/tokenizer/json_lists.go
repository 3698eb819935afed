package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A vocabulary's lists are most of a tokenizer.json: hundreds of thousands of short texts. They are read here by hand, many
// times faster than by reflection; encoding/json has checked the syntax before it hands them over.

// vocabList takes {"token": id} and, for Unigram, [["token", score]].
type vocabList struct {
	ids    map[string]int32
	pieces []string // Unigram
	scores []float64
}

// mergeList takes merges as "left right" and as ["left", "right"].
type mergeList [][2]string

// lister walks through a valid JSON value.
type lister struct {
	s string
	i int
}

// next skips white space and commas and returns the byte there, 0 at the end.
func (l *lister) next() byte {
	for ; l.i < len(l.s); l.i++ {
		switch c := l.s[l.i]; c {
		case ' ', '\t', '\n', '\r', ',', ':':
		default:
			return c
		}
	}
	return 0
}

// text reads a string.
func (l *lister) text() (string, error) {
	if l.next() != '"' {
		return "", fmt.Errorf("expected a text at byte %d of the list", l.i)
	}
	begin := l.i
	plain := true
	for l.i++; l.i < len(l.s) && l.s[l.i] != '"'; l.i++ {
		if l.s[l.i] == '\\' {
			plain = false
			l.i++
		}
	}
	l.i = min(l.i+1, len(l.s))
	quoted := l.s[begin:l.i]
	if plain && utf8.ValidString(quoted) {
		return quoted[1 : len(quoted)-1], nil
	}
	var s string
	err := json.Unmarshal([]byte(quoted), &s)
	return s, err
}

// number reads what stands where a number should.
func (l *lister) number() string {
	l.next()
	n := strings.IndexAny(l.s[l.i:], ", \t\n\r]}")
	if n < 0 {
		n = len(l.s) - l.i
	}
	word := l.s[l.i : l.i+n]
	l.i += n
	return word
}

// take says whether c comes next, and passes it.
func (l *lister) take(c byte) bool {
	if l.next() != c {
		return false
	}
	l.i++
	return true
}

func (v *vocabList) UnmarshalJSON(b []byte) error {
	l := &lister{s: string(b)}
	switch {
	case l.take('{'):
		return v.object(l)
	case l.take('['):
		return v.list(l)
	}
	return fmt.Errorf("vocab is neither an object nor a list")
}

func (v *vocabList) object(l *lister) error {
	v.ids = make(map[string]int32, len(l.s)/20)
	for !l.take('}') {
		token, err := l.text()
		if err != nil {
			return fmt.Errorf("vocab: %w", err)
		}
		word := l.number()
		id, err := strconv.ParseInt(word, 10, 32)
		if err != nil {
			return fmt.Errorf("vocab: id %.20q of token %.80q is not an integer", word, token)
		}
		if id < 0 || id >= maxVocab {
			return fmt.Errorf("token %.80q has id %d, outside 0 to %d", token, id, maxVocab-1)
		}
		v.ids[token] = int32(id)
	}
	return nil
}

func (v *vocabList) list(l *lister) error {
	for !l.take(']') {
		if !l.take('[') {
			return fmt.Errorf("vocab entry %d is not a pair", len(v.pieces))
		}
		token, err := l.text()
		if err != nil {
			return fmt.Errorf("vocab: %w", err)
		}
		word := l.number()
		score, err := parseScore(word)
		if err != nil || math.IsNaN(score) || math.IsInf(score, 0) {
			return fmt.Errorf("vocab: score %.20q of token %.80q is not a finite number", word, token)
		}
		if !l.take(']') {
			return fmt.Errorf("vocab entry %d is not a pair", len(v.pieces))
		}
		v.pieces, v.scores = append(v.pieces, token), append(v.scores, score)
		if len(v.pieces) > maxVocab {
			return fmt.Errorf("vocab has more than %d entries", maxVocab)
		}
	}
	return nil
}

// parseScore reads a number as the reference's JSON library does: the digits rounded to a float64, then divided by a power
// of ten, which may miss the nearest float64 by one unit. Ties between paths are decided by such units.
func parseScore(word string) (float64, error) {
	exact, err := strconv.ParseFloat(word, 64)
	if err != nil || len(word) > 24 {
		return exact, err
	}
	digits, negative := strings.CutPrefix(word, "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	significand, err := strconv.ParseUint(whole+fraction, 10, 64)
	if err != nil || len(fraction) > 22 { // an exponent, or too many digits
		return exact, nil
	}
	f := float64(significand) / math.Pow10(len(fraction))
	if negative {
		f = -f
	}
	return f, nil
}

func (m *mergeList) UnmarshalJSON(b []byte) error {
	l := &lister{s: string(b)}
	if string(b) == "null" {
		return nil
	}
	if !l.take('[') {
		return fmt.Errorf("merges are not a list")
	}
	for !l.take(']') {
		pair, err := l.pair()
		if err != nil {
			return fmt.Errorf("merge %d: %w", len(*m), err)
		}
		*m = append(*m, pair)
	}
	return nil
}

func (l *lister) pair() (pair [2]string, err error) {
	if l.take('[') {
		for i := range pair {
			if pair[i], err = l.text(); err != nil {
				return pair, err
			}
		}
		if !l.take(']') {
			return pair, fmt.Errorf("more than two tokens")
		}
		return pair, nil
	}
	line, err := l.text()
	if err != nil {
		return pair, err
	}
	left, right, ok := strings.Cut(line, " ")
	if !ok {
		return pair, fmt.Errorf("%.80q is not two tokens", line)
	}
	return [2]string{left, right}, nil
}
