package template

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	var b strings.Builder
	for _, r := range s {
		if t := upperSpecial(r); t != "" {
			b.WriteString(t)
		} else {
			b.WriteRune(unicode.ToUpper(r))
		}
	}
	return b.String()
}

func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	var b strings.Builder
	for i, r := range s {
		writeLower(&b, s, i, r)
	}
	return b.String()
}

// writeLower writes the lower case of the character at byte i of s; a sigma at the end of a word has a form of its own.
func writeLower(b *strings.Builder, s string, i int, r rune) {
	switch r {
	case 'İ':
		b.WriteString("i̇")
	case 'Σ':
		if finalSigma(s, i) {
			b.WriteRune('ς')
		} else {
			b.WriteRune('σ')
		}
	default:
		b.WriteRune(unicode.ToLower(r))
	}
}

func caseIgnorable(r rune) bool {
	switch r {
	case '\'', '.', ':', '^', '`', 0xa8, 0xad, 0xaf, 0xb4, 0xb7, 0xb8, 0x2018, 0x2019, 0x2024, 0x2027:
		return true
	}
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk)
}

func isCased(r rune) bool { return unicode.In(r, unicode.Lu, unicode.Ll, unicode.Lt) }

func finalSigma(s string, i int) bool {
	before := strings.TrimRightFunc(s[:i], caseIgnorable)
	r, _ := utf8.DecodeLastRuneInString(before)
	if before == "" || !isCased(r) {
		return false
	}
	after := strings.TrimLeftFunc(s[i+len("Σ"):], caseIgnorable)
	r, _ = utf8.DecodeRuneInString(after)
	return after == "" || !isCased(r)
}

func writeTitle(b *strings.Builder, r rune) {
	if t := titleSpecial(r); t != "" {
		b.WriteString(t)
	} else {
		b.WriteRune(unicode.ToTitle(r))
	}
}

// capitalize is str.capitalize: the first character in title case, the rest in lower case.
func capitalize(s string) string {
	var b strings.Builder
	for i, r := range s {
		if i == 0 {
			writeTitle(&b, r)
		} else {
			writeLower(&b, s, i, r)
		}
	}
	return b.String()
}

// titleCase is str.title: a letter after one that has no case is in title case, the others in lower case.
func titleCase(s string) string {
	var b strings.Builder
	inWord := false
	for i, r := range s {
		if inWord {
			writeLower(&b, s, i, r)
		} else {
			writeTitle(&b, r)
		}
		inWord = isCased(r)
	}
	return b.String()
}

func swapCase(s string) string {
	var b strings.Builder
	for i, r := range s {
		if unicode.IsUpper(r) {
			writeLower(&b, s, i, r)
		} else if t := upperSpecial(r); t != "" {
			b.WriteString(t)
		} else {
			b.WriteRune(unicode.ToUpper(r))
		}
	}
	return b.String()
}

// caseFold covers str.casefold except for rare full foldings.
func caseFold(s string) string {
	return lower(strings.NewReplacer("ß", "ss", "ẞ", "ss", "ς", "σ").Replace(s))
}

// allRunes is the shape of isalpha and its kin: false for an empty string.
func allRunes(s string, ok func(rune) bool) bool {
	for _, r := range s {
		if !ok(r) {
			return false
		}
	}
	return s != ""
}

// hasOnlyCase is islower and isupper: some letter has a case, and none has the other.
func hasOnlyCase(s string, want, other func(rune) bool) bool {
	found := false
	for _, r := range s {
		if other(r) || unicode.Is(unicode.Lt, r) {
			return false
		}
		found = found || want(r)
	}
	return found
}

func isTitle(s string) bool {
	found, inWord := false, false
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Lu, unicode.Lt):
			if inWord {
				return false
			}
			found, inWord = true, true
		case unicode.Is(unicode.Ll, r):
			if !inWord {
				return false
			}
			found = true
		default:
			inWord = false
		}
	}
	return found
}

func isIdentifier(s string) bool {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r) && !unicode.Is(unicode.M, r)) {
			return false
		}
	}
	return s != ""
}

func isDigitRune(r rune) bool {
	return unicode.Is(unicode.Nd, r) || r == 0xb2 || r == 0xb3 || r == 0xb9 || r == 0x2070 || r >= 0x2074 && r <= 0x2089
}

func isAlnumRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }

func isPrintable(r rune) bool { return unicode.IsPrint(r) }
