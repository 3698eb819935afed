package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// A pretokenizer cuts a piece of text into smaller ones, appended to dst.
type pretokenizer interface {
	split(dst []string, s string) ([]string, error)
}

// finder reports matches of a pattern in a text, in order, none of them empty.
type finder interface {
	find(s string, yield func(begin, end int)) error
}

// scanFinder finds with a scanner.
type scanFinder struct{ scanner }

func (f scanFinder) find(s string, yield func(begin, end int)) error {
	skipper, skips := f.scanner.(interface{ skip(string, int) int })
	for i := 0; i < len(s); {
		if end := f.match(s, i); end > i {
			yield(i, end)
			i = end
			continue
		}
		next := i
		if skips {
			next = skipper.skip(s, i)
		}
		if next == i {
			_, n := utf8.DecodeRuneInString(s[i:])
			next = i + n
		}
		i = next
	}
	return nil
}

// literalFinder finds a fixed text.
type literalFinder string

func (f literalFinder) find(s string, yield func(begin, end int)) error {
	if f == "" {
		return nil
	}
	for at := 0; ; {
		i := strings.Index(s[at:], string(f))
		if i < 0 {
			return nil
		}
		yield(at+i, at+i+len(f))
		at += i + len(f)
	}
}

// runeFinder finds single characters.
type runeFinder func(r rune) bool

func (f runeFinder) find(s string, yield func(begin, end int)) error {
	for i, r := range s {
		if f(r) {
			yield(i, i+utf8.RuneLen(r))
		}
	}
	return nil
}

type behavior int

const (
	isolated behavior = iota
	removed
	mergedWithPrevious
	mergedWithNext
	contiguous
)

// splitter cuts at the matches of a pattern; invert swaps matches and what is between them.
type splitter struct {
	finder
	behavior behavior
	invert   bool
}

func (p splitter) split(dst []string, s string) ([]string, error) {
	if sf, ok := p.finder.(scanFinder); ok && p.behavior == isolated {
		return isolate(dst, s, sf), nil
	}
	cut := cutter{dst: dst, s: s, behavior: p.behavior, invert: p.invert, base: len(dst)}
	at := 0
	err := p.find(s, func(begin, end int) {
		cut.add(at, begin, false)
		cut.add(begin, end, true)
		at = end
	})
	if err != nil {
		return dst, err
	}
	cut.add(at, len(s), false)
	return cut.finish(), nil
}

// isolate is the common case, without calls through functions.
func isolate(dst []string, s string, f scanFinder) []string {
	at := 0
	for i := 0; i < len(s); {
		end := f.match(s, i)
		if end <= i {
			next := i
			if skipper, ok := f.scanner.(interface{ skip(string, int) int }); ok {
				next = skipper.skip(s, i)
			}
			if next == i {
				_, n := utf8.DecodeRuneInString(s[i:])
				next += n
			}
			i = next
			continue
		}
		if at < i {
			dst = append(dst, s[at:i])
		}
		dst = append(dst, s[i:end])
		i, at = end, end
	}
	if at < len(s) {
		dst = append(dst, s[at:])
	}
	return dst
}

// cutter collects alternating stretches of a text under a behavior.
type cutter struct {
	dst      []string
	s        string
	behavior behavior
	invert   bool
	base     int

	begin, end int // the stretch that is still growing
	open       bool
	matched    bool // it is, or ends with, a match
}

func (c *cutter) add(begin, end int, match bool) {
	if begin == end {
		return
	}
	match = match != c.invert
	switch c.behavior {
	case isolated:
		c.dst = append(c.dst, c.s[begin:end])
	case removed:
		if !match {
			c.dst = append(c.dst, c.s[begin:end])
		}
	case contiguous:
		if c.open && c.matched == match {
			c.end = end
			return
		}
		c.flush()
		c.begin, c.end, c.open, c.matched = begin, end, true, match
	case mergedWithPrevious:
		if c.open && match && !c.matched {
			c.end, c.matched = end, true
			return
		}
		c.flush()
		c.begin, c.end, c.open, c.matched = begin, end, true, match
	case mergedWithNext:
		if c.open && c.matched && !match {
			c.end, c.matched = end, false
			return
		}
		c.flush()
		c.begin, c.end, c.open, c.matched = begin, end, true, match
	}
}

func (c *cutter) flush() {
	if c.open {
		c.dst = append(c.dst, c.s[c.begin:c.end])
	}
	c.open = false
}

func (c *cutter) finish() []string {
	c.flush()
	return c.dst
}

// sequence applies pre-tokenizers one after the other.
type sequence []pretokenizer

func (p sequence) split(dst []string, s string) ([]string, error) {
	switch len(p) {
	case 0:
		return append(dst, s), nil
	case 1:
		return p[0].split(dst, s)
	}
	// The stages' pieces alternate between the tail of dst and a second list.
	base := len(dst)
	from := append(make([]string, 0, 16), s)
	var err error
	for i, step := range p {
		if i > 0 {
			from = append(from[:0], dst[base:]...)
			dst = dst[:base]
		}
		for _, piece := range from {
			if dst, err = step.split(dst, piece); err != nil {
				return dst, err
			}
		}
	}
	return dst, nil
}

// prefixSpace adds a space in front of a piece that has none (ByteLevel's add_prefix_space).
type prefixSpace struct{}

func (prefixSpace) split(dst []string, s string) ([]string, error) {
	if s != "" && s[0] != ' ' {
		s = " " + s
	}
	return append(dst, s), nil
}

// digitsSplitter cuts numbers out: each character alone, or each run.
func digitsSplitter(individual bool) pretokenizer {
	s := setScanner{classTable: classes(), class: number, min: 1}
	if individual {
		s.max = 1
	}
	return splitter{finder: scanFinder{s}}
}

// byteMapper rewrites bytes as the characters that stand for them in byte-level vocabularies, for steps that come after
// ByteLevel and look at those. unmapper takes it back, since the model here works on bytes.
type (
	byteMapper struct{ *byteAlphabet }
	unmapper   struct{ *byteAlphabet }
)

func (m byteMapper) split(dst []string, s string) ([]string, error) {
	return append(dst, m.encode(s)), nil
}

func (m unmapper) split(dst []string, s string) ([]string, error) {
	b, _ := m.decode(s)
	return append(dst, b), nil
}

// byteAlphabet is the bijection of GPT-2 between bytes and printable characters: printable Latin-1 stands for itself, the
// other bytes follow from U+0100 on.
type byteAlphabet struct {
	runes [256]rune
	bytes [0x144]int16 // -1: no byte
}

func newByteAlphabet() *byteAlphabet {
	a := &byteAlphabet{}
	for i := range a.bytes {
		a.bytes[i] = -1
	}
	next := rune(0x100)
	for b := range 256 {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae) {
			r = next
			next++
		}
		a.runes[b] = r
		a.bytes[r] = int16(b)
	}
	return a
}

func (a *byteAlphabet) encode(s string) string {
	var out strings.Builder
	for i := range len(s) {
		out.WriteRune(a.runes[s[i]])
	}
	return out.String()
}

// decode fails on a character that stands for no byte.
func (a *byteAlphabet) decode(s string) (string, bool) {
	out := make([]byte, 0, len(s))
	for _, r := range s {
		if int(r) >= len(a.bytes) || a.bytes[r] < 0 {
			return "", false
		}
		out = append(out, byte(a.bytes[r]))
	}
	return string(out), true
}

// metaspace writes spaces as a replacement character, puts one in front, and cuts before each.
type metaspace struct {
	replacement string
	always      bool // else only the first piece of the text gets one in front, or none
	cuts        bool
}

func (m metaspace) split(dst []string, s string) ([]string, error) {
	s = strings.ReplaceAll(s, " ", m.replacement)
	if m.always && !strings.HasPrefix(s, m.replacement) {
		s = m.replacement + s
	}
	if !m.cuts {
		return append(dst, s), nil
	}
	return splitter{finder: literalFinder(m.replacement), behavior: mergedWithNext}.split(dst, s)
}
