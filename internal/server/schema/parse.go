package schema

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// SyntaxError is a JSON error in the words of Python's json module. Pos counts characters from 0.
type SyntaxError struct {
	Msg string
	Pos int
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s at character %d", e.Msg, e.Pos) }

// maxDepth bounds nesting; Python's own recursion limit is of this size.
const maxDepth = 900

type parser struct {
	s string
	i int
}

// Parse reads one JSON document.
func Parse(data []byte) (any, error) {
	p := &parser{s: string(data)}
	p.space()
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if p.space(); p.i < len(p.s) {
		return nil, p.fail("Extra data", p.i)
	}
	return v, nil
}

func (p *parser) fail(msg string, at int) error {
	return &SyntaxError{Msg: msg, Pos: utf8.RuneCountInString(p.s[:min(at, len(p.s))])}
}

func (p *parser) space() {
	for p.i < len(p.s) {
		switch p.s[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return
		}
	}
}

func (p *parser) word(w string) bool {
	if len(p.s)-p.i >= len(w) && p.s[p.i:p.i+len(w)] == w {
		p.i += len(w)
		return true
	}
	return false
}

func (p *parser) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, p.fail("Too deeply nested", p.i)
	}
	if p.i >= len(p.s) {
		return nil, p.fail("Expecting value", p.i)
	}
	switch c := p.s[p.i]; {
	case c == '"':
		p.i++
		return p.str()
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.list(depth)
	case c == 'n' && p.word("null"):
		return nil, nil
	case c == 't' && p.word("true"):
		return true, nil
	case c == 'f' && p.word("false"):
		return false, nil
	case c == 'N' && p.word("NaN"):
		return math.NaN(), nil
	case c == 'I' && p.word("Infinity"):
		return math.Inf(1), nil
	case c == '-' && p.word("-Infinity"):
		return math.Inf(-1), nil
	case c == '-' || (c >= '0' && c <= '9'):
		return p.number()
	}
	return nil, p.fail("Expecting value", p.i)
}

func (p *parser) digits(i int) int {
	for i < len(p.s) && p.s[i] >= '0' && p.s[i] <= '9' {
		i++
	}
	return i
}

func (p *parser) number() (any, error) {
	start, i := p.i, p.i
	if p.s[i] == '-' {
		i++
	}
	end := p.digits(i)
	if end == i {
		return nil, p.fail("Expecting value", start)
	}
	if p.s[i] == '0' {
		end = i + 1
	}
	float := false
	if end < len(p.s) && p.s[end] == '.' {
		if e := p.digits(end + 1); e > end+1 {
			end, float = e, true
		}
	}
	if end < len(p.s) && (p.s[end] == 'e' || p.s[end] == 'E') {
		e := end + 1
		if e < len(p.s) && (p.s[e] == '+' || p.s[e] == '-') {
			e++
		}
		if d := p.digits(e); d > e {
			end, float = d, true
		}
	}
	p.i = end
	text := p.s[start:end]
	if float {
		f, _ := strconv.ParseFloat(text, 64) // out of range gives an infinity, as in Python
		return f, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	if len(text) > 4300 { // Python's own limit on integer text
		return nil, p.fail("Exceeds the limit (4300 digits) for integer string conversion", start)
	}
	n, _ := new(big.Int).SetString(text, 10)
	return n, nil
}

func (p *parser) list(depth int) (any, error) {
	p.i++
	l := []any{}
	if p.space(); p.i < len(p.s) && p.s[p.i] == ']' {
		p.i++
		return l, nil
	}
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		l = append(l, v)
		p.space()
		if p.i < len(p.s) && p.s[p.i] == ']' {
			p.i++
			return l, nil
		}
		if p.i >= len(p.s) || p.s[p.i] != ',' {
			return nil, p.fail("Expecting ',' delimiter", p.i)
		}
		comma := p.i
		p.i++
		if p.space(); p.i < len(p.s) && p.s[p.i] == ']' {
			return nil, p.fail("Illegal trailing comma before end of array", comma)
		}
	}
}

func (p *parser) object(depth int) (any, error) {
	p.i++
	d := NewDict()
	const name = "Expecting property name enclosed in double quotes"
	if p.space(); p.i < len(p.s) && p.s[p.i] == '}' {
		p.i++
		return d, nil
	}
	for {
		if p.i >= len(p.s) || p.s[p.i] != '"' {
			return nil, p.fail(name, p.i)
		}
		p.i++
		k, err := p.str()
		if err != nil {
			return nil, err
		}
		if p.space(); p.i >= len(p.s) || p.s[p.i] != ':' {
			return nil, p.fail("Expecting ':' delimiter", p.i)
		}
		p.i++
		p.space()
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		d.Set(k, v)
		p.space()
		if p.i < len(p.s) && p.s[p.i] == '}' {
			p.i++
			return d, nil
		}
		if p.i >= len(p.s) || p.s[p.i] != ',' {
			return nil, p.fail("Expecting ',' delimiter", p.i)
		}
		p.i++
		p.space()
	}
}

// str reads the rest of a string whose quote has been read. Lone surrogates and invalid bytes become U+FFFD.
func (p *parser) str() (string, error) {
	begin := p.i - 1
	var b []byte
	for {
		if p.i >= len(p.s) {
			return "", p.fail("Unterminated string starting at", begin)
		}
		switch c := p.s[p.i]; {
		case c == '"':
			p.i++
			return string(b), nil
		case c < 0x20:
			return "", p.fail("Invalid control character at", p.i)
		case c != '\\':
			r, n := utf8.DecodeRuneInString(p.s[p.i:])
			b = utf8.AppendRune(b, r)
			p.i += n
		default:
			r, err := p.escape(begin)
			if err != nil {
				return "", err
			}
			b = utf8.AppendRune(b, r)
		}
	}
}

func (p *parser) escape(begin int) (rune, error) {
	if p.i+1 >= len(p.s) {
		return 0, p.fail("Unterminated string starting at", begin)
	}
	at := p.i
	c := p.s[p.i+1]
	p.i += 2
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		r, ok := p.hex4(p.i)
		if !ok {
			return 0, p.fail(`Invalid \uXXXX escape`, at+1)
		}
		p.i += 4
		if utf16.IsSurrogate(r) && p.i+6 <= len(p.s) && p.s[p.i] == '\\' && p.s[p.i+1] == 'u' {
			if low, ok := p.hex4(p.i + 2); ok {
				if full := utf16.DecodeRune(r, low); full != utf8.RuneError {
					p.i += 6
					return full, nil
				}
			}
		}
		return r, nil // AppendRune makes U+FFFD of a lone surrogate
	}
	return 0, p.fail(`Invalid \escape`, at)
}

func (p *parser) hex4(i int) (rune, bool) {
	if i+4 > len(p.s) {
		return 0, false
	}
	n, err := strconv.ParseUint(p.s[i:i+4], 16, 32)
	return rune(n), err == nil && p.s[i] != '+' && p.s[i] != '-'
}
