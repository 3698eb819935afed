package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// runeRange is first to last, inclusive.
type runeRange struct{ first, last rune }

// setScanner is \s?[...]{min,max}: characters of a class or in ranges, max 0 for no limit.
type setScanner struct {
	*classTable
	space    bool // an optional \s first
	class    class
	ranges   []runeRange // sorted
	min, max int
}

func (t setScanner) match(s string, i int) int {
	if t.space {
		if c, n := t.at(s, i); c&space != 0 {
			if end := t.set(s, i+n); end > 0 {
				return end
			}
		}
	}
	return t.set(s, i)
}

func (t setScanner) set(s string, i int) int {
	count := 0
	for t.max == 0 || count < t.max {
		if i >= len(s) {
			break
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if t.of(r)&t.class == 0 && !t.inRanges(r) {
			break
		}
		i += n
		count++
	}
	if count < t.min {
		return -1
	}
	return i
}

func (t setScanner) inRanges(r rune) bool {
	_, found := slices.BinarySearchFunc(t.ranges, r, func(x runeRange, r rune) int {
		switch {
		case x.last < r:
			return -1
		case x.first > r:
			return 1
		}
		return 0
	})
	return found
}

// parseSet reads the simple form \s?[a-zÀ-Ö...]+ with literal characters and ranges only, as DeepSeek's first models have it.
func parseSet(pattern string) (scanner, bool) {
	t := setScanner{classTable: classes(), min: 1}
	pattern, t.space = strings.CutPrefix(pattern, `\s?`)
	body, open := strings.CutPrefix(pattern, "[")
	body, plus := strings.CutSuffix(body, "]+")
	if !plus {
		t.max = 1
		if body, plus = strings.CutSuffix(body, "]"); !plus {
			return nil, false
		}
	}
	if !open || body == "" || strings.ContainsAny(body, `\[]^&`) || strings.HasPrefix(body, "-") {
		return nil, false
	}
	runes := []rune(body)
	for i := 0; i < len(runes); i++ {
		x := runeRange{runes[i], runes[i]}
		if i+2 < len(runes) && runes[i+1] == '-' {
			x.last = runes[i+2]
			i += 2
		}
		if x.last < x.first {
			return nil, false
		}
		t.ranges = append(t.ranges, x)
	}
	t.ranges = mergeRanges(t.ranges)
	return t, true
}

func mergeRanges(in []runeRange) []runeRange {
	slices.SortFunc(in, func(a, b runeRange) int { return int(a.first - b.first) })
	out := in[:0]
	for _, x := range in {
		if n := len(out); n > 0 && x.first <= out[n-1].last+1 {
			out[n-1].last = max(out[n-1].last, x.last)
			continue
		}
		out = append(out, x)
	}
	return out
}

// trailingSpaces is \s+$.
type trailingSpaces struct{ *classTable }

func (t trailingSpaces) match(s string, i int) int {
	if end := t.run(s, i, space); end > i && end == len(s) {
		return end
	}
	return -1
}

// skip says how far no match can begin, so that a search over a long run of spaces stays linear.
func (t trailingSpaces) skip(s string, i int) int {
	return max(t.run(s, i, space), i)
}

// deepseek3Scanner is the third pattern of DeepSeek-V3:
//
//	[ASCII signs][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
type deepseek3Scanner struct{ *classTable }

func (t deepseek3Scanner) match(s string, i int) int {
	c, n := t.at(s, i)
	if n == 0 {
		return -1
	}
	if n == 1 && isPunctuation(rune(s[i])) {
		if end := asciiLetters(s, i+1); end > i+1 {
			return end
		}
	}
	if c&(newline|letter|punct|sign) == 0 {
		if end := t.run(s, i+n, letter|mark); end > i+n {
			return end
		}
	}
	if end := t.run(s, i, letter|mark); end > i {
		return end
	}
	begin := i
	if s[i] == ' ' {
		begin++
	}
	if end := t.run(s, begin, punct|sign); end > begin {
		return newlines(s, end)
	}
	if end := t.lineEnds(s, i); end > 0 {
		return end
	}
	return t.spaces(s, i)
}

func asciiLetters(s string, i int) int {
	for i < len(s) && (s[i]|0x20 >= 'a' && s[i]|0x20 <= 'z') {
		i++
	}
	return i
}
