package tokenizer

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// A normalizer rewrites text before it is cut.
type normalizer interface {
	normalize(s string) (string, error)
}

type normalizers []normalizer

func (n normalizers) normalize(s string) (string, error) {
	var err error
	for _, step := range n {
		if s, err = step.normalize(s); err != nil {
			return "", err
		}
	}
	return s, nil
}

// mapping is a normalizer that cannot fail.
type mapping func(string) string

func (f mapping) normalize(s string) (string, error) { return f(s), nil }

// form is one of Unicode's normal forms. Go's norm package puts a combining grapheme joiner into very long runs of marks
// (stream-safe text); the reference does not, so those are taken out again where the text had none.
func form(f norm.Form) normalizer {
	const joiner = "\u034f"
	return mapping(func(s string) string {
		if f.IsNormalString(s) {
			return s
		}
		out := f.String(s)
		if !strings.Contains(s, joiner) && strings.Contains(out, joiner) {
			out = strings.ReplaceAll(out, joiner, "")
		}
		return out
	})
}

type replaceLiteral struct{ old, new string }

func (r replaceLiteral) normalize(s string) (string, error) {
	if r.old == "" {
		return s, nil
	}
	return strings.ReplaceAll(s, r.old, r.new), nil
}

// replacePattern writes content in place of each match.
type replacePattern struct {
	finder
	content string
}

func (r replacePattern) normalize(s string) (string, error) {
	var out strings.Builder
	at := 0
	err := r.find(s, func(begin, end int) {
		out.WriteString(s[at:begin])
		out.WriteString(r.content)
		at = end
	})
	out.WriteString(s[at:])
	return out.String(), err
}

func prepend(prefix string) normalizer {
	return mapping(func(s string) string {
		if s == "" {
			return s
		}
		return prefix + s
	})
}

func strip(left, right bool) normalizer {
	return mapping(func(s string) string {
		if left {
			s = strings.TrimLeftFunc(s, unicode.IsSpace)
		}
		if right {
			s = strings.TrimRightFunc(s, unicode.IsSpace)
		}
		return s
	})
}

// stripAccents drops combining marks; the text is decomposed before.
func stripAccents(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, s)
}

// lowercase is the full mapping without context: U+0130 becomes two characters.
func lowercase(s string) string {
	s = strings.ToLower(s)
	return s
}

// bert is BERT's normalizer.
type bert struct{ clean, chinese, accents, lower bool }

func (b bert) normalize(s string) (string, error) {
	if b.clean {
		s = strings.Map(cleanRune, s)
	}
	if b.chinese {
		s = spaceOutChinese(s)
	}
	if b.accents {
		s, _ = form(norm.NFD).normalize(s)
		s = stripAccents(s)
	}
	if b.lower {
		s = lowercase(s)
	}
	return s, nil
}

func cleanRune(r rune) rune {
	switch {
	case r == 0 || r == unicode.ReplacementChar:
		return -1
	case r == '\t' || r == '\n' || r == '\r':
		return ' '
	case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs):
		return -1
	case unicode.IsSpace(r):
		return ' '
	}
	return r
}

func spaceOutChinese(s string) string {
	var out strings.Builder
	for _, r := range s {
		if isChinese(r) {
			out.WriteByte(' ')
			out.WriteRune(r)
			out.WriteByte(' ')
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}

func isChinese(r rune) bool {
	return r >= 0x4e00 && r <= 0x9fff || r >= 0x3400 && r <= 0x4dbf || r >= 0x20000 && r <= 0x2a6df ||
		r >= 0x2a700 && r <= 0x2b73f || r >= 0x2b740 && r <= 0x2b81f || r >= 0x2b920 && r <= 0x2ceaf ||
		r >= 0xf900 && r <= 0xfaff || r >= 0x2f800 && r <= 0x2fa1f
}
