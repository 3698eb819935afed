package tokenizer

// caseScanner is the family that began with GPT-4o's pattern, which also cuts before a capital:
//
//	H+|P?U*L+C?|P?U+L*C?|\p{N}{1,D}| ?[^\s\p{L}\p{N}]+TAIL|\s*[\r\n]+|\s+(?!\S)|\s+
//
// P is [^\r\n\p{L}\p{N}], U [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], L [\p{Ll}\p{Lm}\p{Lo}\p{M}], C a contraction without case.
// H+ and the exclusion of Han from U and L are Kimi's.
type caseScanner struct {
	*classTable
	digits       int
	contractions bool
	han          bool
	after        tail
}

func (t caseScanner) match(s string, i int) int {
	c, n := t.at(s, i)
	if n == 0 {
		return -1
	}
	if t.han && c&han != 0 {
		return t.run(s, i, han)
	}
	for _, word := range [...]func(string, int) int{t.lowerWord, t.upperWord} {
		if c&(newline|letter|number) == 0 {
			if end := word(s, i+n); end > 0 {
				return t.contracted(s, end)
			}
		}
		if end := word(s, i); end > 0 {
			return t.contracted(s, end)
		}
	}
	if c&number != 0 {
		return t.runAtMost(s, i, number, t.digits)
	}
	return t.rest(s, i, space|letter|number, t.after)
}

func (t caseScanner) contracted(s string, i int) int {
	if t.contractions {
		if end := contraction(s, i, true); end > 0 {
			return end
		}
	}
	return i
}

func (t caseScanner) in(c, want class) bool {
	return c&want != 0 && !(t.han && c&han != 0)
}

// lowerWord is U*L+. Where no small letter follows the run of U, the run gives back until it ends in a character that is in
// L too.
func (t caseScanner) lowerWord(s string, i int) int {
	end, both := i, -1
	for {
		c, n := t.at(s, end)
		if n == 0 {
			return both
		}
		if t.in(c, upper|caseless|mark) {
			end += n
			if c&(caseless|mark) != 0 {
				both = end
			}
			continue
		}
		if !t.in(c, lower) {
			return both
		}
		return t.runIn(s, end, lower|caseless|mark)
	}
}

// upperWord is U+L*.
func (t caseScanner) upperWord(s string, i int) int {
	end := t.runIn(s, i, upper|caseless|mark)
	if end == i {
		return -1
	}
	return t.runIn(s, end, lower|caseless|mark)
}

func (t caseScanner) runIn(s string, i int, want class) int {
	for {
		c, n := t.at(s, i)
		if n == 0 || !t.in(c, want) {
			return i
		}
		i += n
	}
}
