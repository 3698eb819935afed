package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// class is a set of character properties.
type class uint16

const (
	upper    class = 1 << iota // Lu, Lt
	lower                      // Ll
	caseless                   // Lm, Lo
	mark                       // M
	number                     // N
	punct                      // P
	sign                       // S
	space                      // White_Space
	han                        // script Han
	newline                    // \r \n

	letter = upper | lower | caseless
)

const pageSize = 256

// classTable is a two-stage table: a page number for each 256 characters, pages shared where equal.
type classTable struct {
	ascii [utf8.RuneSelf]class
	page  [(unicode.MaxRune + 1) / pageSize]uint16
	pages [][pageSize]class
}

// classes is built on first use, from Go's Unicode tables.
var classes = sync.OnceValue(buildClasses)

func buildClasses() *classTable {
	flat := make([]class, unicode.MaxRune+1)
	for _, t := range []struct {
		table *unicode.RangeTable
		c     class
	}{
		{unicode.Lu, upper}, {unicode.Lt, upper}, {unicode.Ll, lower}, {unicode.Lm, caseless}, {unicode.Lo, caseless},
		{unicode.M, mark}, {unicode.N, number}, {unicode.P, punct}, {unicode.S, sign},
		{unicode.White_Space, space}, {unicode.Han, han},
	} {
		for _, r := range t.table.R16 {
			mark16(flat, rune(r.Lo), rune(r.Hi), rune(r.Stride), t.c)
		}
		for _, r := range t.table.R32 {
			mark16(flat, rune(r.Lo), rune(r.Hi), rune(r.Stride), t.c)
		}
	}
	flat['\r'] |= newline
	flat['\n'] |= newline

	t := &classTable{}
	copy(t.ascii[:], flat)
	seen := map[[pageSize]class]uint16{}
	for i := range t.page {
		p := [pageSize]class(flat[i*pageSize:])
		n, ok := seen[p]
		if !ok {
			n = uint16(len(t.pages))
			seen[p] = n
			t.pages = append(t.pages, p)
		}
		t.page[i] = n
	}
	return t
}

func mark16(flat []class, lo, hi, stride rune, c class) {
	for r := lo; r <= hi; r += stride {
		flat[r] |= c
	}
}

func (t *classTable) of(r rune) class {
	if uint32(r) > unicode.MaxRune {
		return 0
	}
	return t.pages[t.page[r/pageSize]][r%pageSize]
}

// at gives the class and length of the character at s[i]; length 0 at the end.
func (t *classTable) at(s string, i int) (class, int) {
	if i >= len(s) {
		return 0, 0
	}
	if b := s[i]; b < utf8.RuneSelf {
		return t.ascii[b], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return t.of(r), n
}

// run returns the end of the characters from i on that have any of want.
func (t *classTable) run(s string, i int, want class) int {
	for {
		c, n := t.at(s, i)
		if n == 0 || c&want == 0 {
			return i
		}
		i += n
	}
}

// runWithout returns the end of the characters from i on that have none of refuse.
func (t *classTable) runWithout(s string, i int, refuse class) int {
	for {
		c, n := t.at(s, i)
		if n == 0 || c&refuse != 0 {
			return i
		}
		i += n
	}
}

// runAtMost is run with a limit on the number of characters.
func (t *classTable) runAtMost(s string, i int, want class, limit int) int {
	for range limit {
		c, n := t.at(s, i)
		if n == 0 || c&want == 0 {
			return i
		}
		i += n
	}
	return i
}

// isPunctuation is the reference's notion: Unicode's P and every ASCII sign.
func isPunctuation(r rune) bool {
	if r < utf8.RuneSelf {
		return r > ' ' && r < 0x7f && !(r >= '0' && r <= '9') && !(r >= 'A' && r <= 'Z') && !(r >= 'a' && r <= 'z')
	}
	return classes().of(r)&punct != 0
}
