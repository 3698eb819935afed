package tokenizer

// A scanner is a split pattern written by hand: match returns the end of the match that begins at s[i], or -1. What each
// one does is given as the regular expression it stands for, with alternatives tried in order.
type scanner interface {
	match(s string, i int) int
}

// spaces is the end of every pattern here: \s+(?!\S)|\s+. Of a run of spaces that a word follows, the last is left to it.
func (t *classTable) spaces(s string, i int) int {
	end, last := i, i
	for {
		c, n := t.at(s, end)
		if n == 0 {
			return noMatchIfEmpty(i, end)
		}
		if c&space == 0 {
			break
		}
		last = end
		end += n
	}
	if last > i {
		return last
	}
	return noMatchIfEmpty(i, end)
}

func noMatchIfEmpty(begin, end int) int {
	if end == begin {
		return -1
	}
	return end
}

// lineEnds is \s*[\r\n]+: up to the last line end of a run of spaces.
func (t *classTable) lineEnds(s string, i int) int {
	end := -1
	for {
		c, n := t.at(s, i)
		if n == 0 || c&space == 0 {
			return end
		}
		i += n
		if c&newline != 0 {
			end = i
		}
	}
}

// contraction is 's|'t|'re|'ve|'m|'ll|'d, with (?i) when fold. -1 without one.
func contraction(s string, i int, fold bool) int {
	if i+1 >= len(s) || s[i] != '\'' {
		return -1
	}
	lowered := func(b byte) byte {
		if fold && b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		return b
	}
	var second byte
	if i+2 < len(s) {
		second = lowered(s[i+2])
	}
	switch lowered(s[i+1]) {
	case 's', 't', 'm', 'd':
		return i + 2
	case 'r', 'v':
		if second == 'e' {
			return i + 3
		}
	case 'l':
		if second == 'l' {
			return i + 3
		}
	case 0xc5: // U+017F, the long s, folds to s
		if fold && i+2 < len(s) && s[i+2] == 0xbf {
			return i + 3
		}
	}
	return -1
}

// gpt2Scanner is 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+.
type gpt2Scanner struct{ *classTable }

func (t gpt2Scanner) match(s string, i int) int {
	if end := contraction(s, i, false); end > 0 {
		return end
	}
	word := i
	if i < len(s) && s[i] == ' ' {
		word++
	}
	c, n := t.at(s, word)
	switch {
	case n == 0 || c&space != 0:
		return t.spaces(s, i)
	case c&letter != 0:
		return t.run(s, word+n, letter)
	case c&number != 0:
		return t.run(s, word+n, number)
	}
	return t.runWithout(s, word+n, space|letter|number)
}

// wordScanner is the family that began with GPT-4's pattern:
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?W+|\p{N}{1,D}| ?[^\s\p{N}W]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// where W is \p{L}, for some models with \p{M}.
type wordScanner struct {
	*classTable
	word   class
	digits int
}

func (t wordScanner) match(s string, i int) int {
	if end := contraction(s, i, true); end > 0 {
		return end
	}
	c, n := t.at(s, i)
	if n == 0 {
		return -1
	}
	if c&(newline|letter|number) == 0 {
		if end := t.run(s, i+n, t.word); end > i+n {
			return end
		}
	}
	if end := t.run(s, i, t.word); end > i {
		return end
	}
	if c&number != 0 {
		return t.runAtMost(s, i, number, t.digits)
	}
	return t.rest(s, i, space|number|t.word, newlines)
}

// tail is what may follow a run of signs.
type tail func(s string, i int) int

func newlines(s string, i int) int {
	for i < len(s) && (s[i] == '\r' || s[i] == '\n') {
		i++
	}
	return i
}

func newlinesAndSlashes(s string, i int) int {
	for i < len(s) && (s[i] == '\r' || s[i] == '\n' || s[i] == '/') {
		i++
	}
	return i
}

// rest is  ?[^REFUSE]+TAIL|\s*[\r\n]+|\s+(?!\S)|\s+.
func (t *classTable) rest(s string, i int, refuse class, after tail) int {
	sign := i
	if s[i] == ' ' {
		sign++
	}
	if end := t.runWithout(s, sign, refuse); end > sign {
		return after(s, end)
	}
	if end := t.lineEnds(s, i); end > 0 {
		return end
	}
	return t.spaces(s, i)
}
