package template

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokEOF tokenKind = iota
	tokData
	tokVarBegin
	tokVarEnd
	tokBlockBegin
	tokBlockEnd
	tokName
	tokString
	tokNumber
	tokOp
)

type token struct {
	kind tokenKind
	text string // data, name, operator; a string after its escapes
	num  Value  // of tokNumber
	line int
}

// describe names a token as jinja2's messages do.
func (t token) describe() string {
	switch t.kind {
	case tokEOF:
		return "end of template"
	case tokData:
		return "template data / text"
	case tokVarBegin:
		return "begin of print statement"
	case tokVarEnd:
		return "end of print statement"
	case tokBlockBegin:
		return "begin of statement block"
	case tokBlockEnd:
		return "end of statement block"
	case tokString:
		return "string"
	case tokNumber:
		return "number"
	}
	return t.text
}

// lexer splits a template as jinja2's lexer does with trim_blocks and lstrip_blocks on: a newline right after a block tag or a comment
// goes away, so does white space between the start of a line and such a tag; '-' takes all white space on its side, '+' keeps it.
type lexer struct {
	src       string
	pos       int
	line      int
	lineStart bool // the last match ended with a newline, or nothing was matched yet
	stack     []byte
	out       []token
}

func tokenize(src string) ([]token, error) {
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	lx := &lexer{src: strings.TrimSuffix(src, "\n"), line: 1, lineStart: true}
	for lx.pos < len(lx.src) {
		if err := lx.root(); err != nil {
			return nil, err
		}
	}
	lx.add(token{kind: tokEOF})
	return lx.out, nil
}

func (lx *lexer) add(t token) {
	t.line = lx.line
	lx.out = append(lx.out, t)
}

func (lx *lexer) fail(format string, args ...any) error {
	return &SyntaxError{Message: fmt.Sprintf(format, args...), Line: lx.line}
}

// advance moves to byte position to, counting lines.
func (lx *lexer) advance(to int) {
	lx.line += strings.Count(lx.src[lx.pos:to], "\n")
	if to > lx.pos {
		lx.lineStart = lx.src[to-1] == '\n'
	}
	lx.pos = to
}

// root reads text up to the next tag, and the tag.
func (lx *lexer) root() error {
	rest := lx.src[lx.pos:]
	at := 0
	for {
		i := strings.IndexByte(rest[at:], '{')
		if i < 0 || at+i+1 >= len(rest) {
			lx.data(rest)
			lx.advance(len(lx.src))
			return nil
		}
		at += i
		if c := rest[at+1]; c == '{' || c == '%' || c == '#' {
			break
		}
		at++
	}
	kind := rest[at+1]
	sign := byte(0)
	if at+2 < len(rest) && (rest[at+2] == '-' || rest[at+2] == '+') {
		sign = rest[at+2]
	}
	lx.data(lx.strip(rest[:at], sign, kind != '{'))
	tag := lx.pos + at
	after := tag + 2
	if sign != 0 {
		after++
	}
	lx.advance(tag)
	switch kind {
	case '#':
		lx.advance(after)
		return lx.comment()
	case '%':
		if end, ok := matchRaw(lx.src, after); ok {
			lx.advance(end)
			return lx.raw()
		}
		lx.add(token{kind: tokBlockBegin})
	default:
		lx.add(token{kind: tokVarBegin})
	}
	lx.advance(after)
	return lx.inside(kind == '%')
}

// strip applies white-space control to the text before a tag.
func (lx *lexer) strip(s string, sign byte, block bool) string {
	if sign == '-' {
		return strings.TrimRightFunc(s, isSpace)
	}
	if sign == '+' || !block {
		return s
	}
	lineAt := strings.LastIndexByte(s, '\n') + 1
	if (lineAt > 0 || lx.lineStart) && strings.TrimLeftFunc(s[lineAt:], isSpace) == "" {
		return s[:lineAt]
	}
	return s
}

func (lx *lexer) data(s string) {
	if s != "" {
		lx.add(token{kind: tokData, text: s})
	}
}

func skipSpace(s string, i int) int {
	return len(s) - len(strings.TrimLeftFunc(s[i:], isSpace))
}

// matchRaw matches "raw %}" at i and gives where the raw text begins.
func matchRaw(s string, i int) (int, bool) {
	i = skipSpace(s, i)
	if !strings.HasPrefix(s[i:], "raw") {
		return 0, false
	}
	i = skipSpace(s, i+3)
	if strings.HasPrefix(s[i:], "-%}") {
		return skipSpace(s, i+3), true
	}
	if strings.HasPrefix(s[i:], "%}") {
		return i + 2, true
	}
	return 0, false
}

// blockEnd matches the end of a tag that closes with mark ("%}" or "#}") at i.
func blockEnd(s string, i int, mark string) (int, bool) {
	switch {
	case strings.HasPrefix(s[i:], "+"+mark):
		return i + 3, true
	case strings.HasPrefix(s[i:], "-"+mark):
		return skipSpace(s, i+3), true
	case strings.HasPrefix(s[i:], mark):
		i += 2
		if i < len(s) && s[i] == '\n' {
			i++
		}
		return i, true
	}
	return 0, false
}

func (lx *lexer) comment() error {
	i := strings.Index(lx.src[lx.pos:], "#}")
	if i < 0 {
		return lx.fail("Missing end of comment tag")
	}
	end := lx.pos + i
	if i > 0 && (lx.src[end-1] == '-' || lx.src[end-1] == '+') {
		end--
	}
	end, _ = blockEnd(lx.src, end, "#}")
	lx.advance(end)
	return nil
}

func (lx *lexer) raw() error {
	for from := lx.pos; ; {
		i := strings.Index(lx.src[from:], "{%")
		if i < 0 {
			return lx.fail("Missing end of raw directive")
		}
		tag := from + i
		from = tag + 2
		sign := byte(0)
		if from < len(lx.src) && (lx.src[from] == '-' || lx.src[from] == '+') {
			sign = lx.src[from]
			from++
		}
		j := skipSpace(lx.src, from)
		if !strings.HasPrefix(lx.src[j:], "endraw") {
			continue
		}
		end, ok := blockEnd(lx.src, skipSpace(lx.src, j+6), "%}")
		if !ok {
			continue
		}
		lx.data(lx.strip(lx.src[lx.pos:tag], sign, true))
		lx.advance(end)
		return nil
	}
}

// inside reads the tokens of a tag up to its end.
func (lx *lexer) inside(block bool) error {
	lx.stack = lx.stack[:0]
	for lx.pos < len(lx.src) {
		if len(lx.stack) == 0 {
			if end, ok := lx.tagEnd(block); ok {
				kind := tokVarEnd
				if block {
					kind = tokBlockEnd
				}
				lx.add(token{kind: kind})
				lx.advance(end)
				return nil
			}
		}
		if err := lx.one(); err != nil {
			return err
		}
	}
	return nil // the parser reports the end of the template
}

func (lx *lexer) tagEnd(block bool) (int, bool) {
	if block {
		return blockEnd(lx.src, lx.pos, "%}")
	}
	if strings.HasPrefix(lx.src[lx.pos:], "-}}") {
		return skipSpace(lx.src, lx.pos+3), true
	}
	return lx.pos + 2, strings.HasPrefix(lx.src[lx.pos:], "}}")
}

// one reads one token of an expression.
func (lx *lexer) one() error {
	s := lx.src[lx.pos:]
	r, _ := utf8.DecodeRuneInString(s)
	switch {
	case isSpace(r):
		lx.advance(skipSpace(lx.src, lx.pos))
		return nil
	case r >= '0' && r <= '9':
		return lx.number()
	case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.M, r):
		n := strings.IndexFunc(s, func(r rune) bool {
			return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.M, r) && !unicode.Is(unicode.Nl, r)
		})
		if n < 0 {
			n = len(s)
		}
		if unicode.IsDigit(r) {
			return lx.fail("Invalid character in identifier")
		}
		lx.add(token{kind: tokName, text: s[:n]})
		lx.advance(lx.pos + n)
		return nil
	case r == '\'' || r == '"':
		return lx.string()
	}
	return lx.operator()
}

func (lx *lexer) operator() error {
	s := lx.src[lx.pos:]
	n := 1
	if len(s) > 1 {
		switch s[:2] {
		case "//", "**", "==", "!=", ">=", "<=":
			n = 2
		}
	}
	op := s[:n]
	if n == 1 && !strings.Contains("+-/*%~[](){}><=.:|,;", op) {
		r, _ := utf8.DecodeRuneInString(s)
		return lx.fail("unexpected char %q at %d", string(r), lx.pos)
	}
	switch op {
	case "{":
		lx.stack = append(lx.stack, '}')
	case "(":
		lx.stack = append(lx.stack, ')')
	case "[":
		lx.stack = append(lx.stack, ']')
	case "}", ")", "]":
		if len(lx.stack) == 0 {
			return lx.fail("unexpected '%s'", op)
		}
		want := lx.stack[len(lx.stack)-1]
		lx.stack = lx.stack[:len(lx.stack)-1]
		if want != op[0] {
			return lx.fail("unexpected '%s', expected '%c'", op, want)
		}
	}
	lx.add(token{kind: tokOp, text: op})
	lx.advance(lx.pos + n)
	return nil
}

func (lx *lexer) number() error {
	s := lx.src[lx.pos:]
	digits := func(i int, ok func(byte) bool) int { // digits with single underscores between them
		for i < len(s) && (ok(s[i]) || s[i] == '_' && i+1 < len(s) && ok(s[i+1])) {
			i++
		}
		return i
	}
	decimal := func(c byte) bool { return c >= '0' && c <= '9' }
	end := digits(0, decimal)
	isFloat := false
	if lx.pos == 0 || lx.src[lx.pos-1] != '.' {
		if end+1 < len(s) && s[end] == '.' && decimal(s[end+1]) {
			end, isFloat = digits(end+1, decimal), true
		}
		if end < len(s) && (s[end] == 'e' || s[end] == 'E') {
			i := end + 1
			if i < len(s) && (s[i] == '+' || s[i] == '-') {
				i++
			}
			if i < len(s) && decimal(s[i]) {
				end, isFloat = digits(i, decimal), true
			}
		}
	}
	if isFloat {
		f, _ := strconv.ParseFloat(strings.ReplaceAll(s[:end], "_", ""), 64)
		lx.add(token{kind: tokNumber, num: Float(f)})
		lx.advance(lx.pos + end)
		return nil
	}
	base := 10
	if len(s) > 2 && s[0] == '0' {
		inBase := func(c byte) bool { return c >= '0' && c < '0'+byte(base) }
		switch s[1] | 0x20 {
		case 'b':
			base = 2
		case 'o':
			base = 8
		case 'x':
			base = 16
			inBase = func(c byte) bool { return decimal(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
		}
		if base != 10 {
			if i := digits(2, inBase); i > 2 {
				end = i
			} else {
				base = 10
			}
		}
	}
	lit := strings.ReplaceAll(s[:end], "_", "")
	if base != 10 {
		lit = lit[2:]
	} else if strings.HasPrefix(lit, "0") && strings.Trim(lit, "0") != "" {
		end = digits(0, func(c byte) bool { return c == '0' }) // jinja2 reads the zeros as one number, the rest as another
		lit = "0"
	}
	if len(lit) > maxIntDigits {
		return lx.fail("Exceeds the limit (%d digits) for integer string conversion", maxIntDigits)
	}
	n, ok := new(big.Int).SetString(lit, base)
	if !ok {
		return lx.fail("malformed number")
	}
	lx.add(token{kind: tokNumber, num: normalInt(n)})
	lx.advance(lx.pos + end)
	return nil
}

func (lx *lexer) string() error {
	s := lx.src[lx.pos:]
	quote := s[0]
	i := 1
	for i < len(s) && s[i] != quote {
		if s[i] == '\\' {
			i++
		}
		i++
	}
	if i >= len(s) {
		return lx.fail("unexpected char %q at %d", string(quote), lx.pos)
	}
	v, err := unescape(s[1:i])
	if err != nil {
		return lx.fail("%v", err)
	}
	lx.add(token{kind: tokString, text: v})
	lx.advance(lx.pos + i + 1)
	return nil
}

// unescape reads Python's string escapes.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b []byte
	for i := 0; i < len(s); {
		if s[i] != '\\' || i+1 >= len(s) {
			b = append(b, s[i])
			i++
			continue
		}
		c := s[i+1]
		i += 2
		if k := strings.IndexByte(`\'"abfnrtv`, c); k >= 0 {
			b = append(b, "\\'\"\a\b\f\n\r\t\v"[k])
			continue
		}
		switch {
		case c == '\n':
		case c >= '0' && c <= '7':
			n := int(c - '0')
			for k := 0; k < 2 && i < len(s) && s[i] >= '0' && s[i] <= '7'; k++ {
				n = n*8 + int(s[i]-'0')
				i++
			}
			b = utf8.AppendRune(b, rune(n))
		case c == 'x' || c == 'u' || c == 'U':
			width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			if i+width > len(s) {
				return "", fmt.Errorf("truncated \\%c escape", c)
			}
			n, err := strconv.ParseUint(s[i:i+width], 16, 32)
			if err != nil || n > unicode.MaxRune {
				return "", fmt.Errorf("malformed \\%c escape", c)
			}
			i += width
			b = utf8.AppendRune(b, rune(n))
		case c == 'N':
			return "", fmt.Errorf(`\N escapes are not supported`)
		case c >= utf8.RuneSelf: // Python's unicode-escape sees the escape of the character, not the character
			r, size := utf8.DecodeRuneInString(s[i-1:])
			i += size - 1
			q := appendStringRepr(nil, string(r))
			if r >= 0xa0 {
				q = fmt.Appendf(nil, "'\\x%02x'", r)
				if r > 0xffff {
					q = fmt.Appendf(nil, "'\\U%08x'", r)
				} else if r > 0xff {
					q = fmt.Appendf(nil, "'\\u%04x'", r)
				}
			}
			b = append(b, '\\')
			b = append(b, q[2:len(q)-1]...)
		default:
			b = append(b, '\\', c)
		}
	}
	return string(b), nil
}
