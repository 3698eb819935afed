package template

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSONDepth bounds the nesting that FromJSON accepts.
const maxJSONDepth = 200

// FromJSON reads one JSON text (RFC 8259) into a value. Objects keep their order (a repeated key keeps its first place and its last
// value, as in Python); numbers without fraction and exponent stay integers of any size. Lone surrogates and invalid UTF-8 become
// U+FFFD.
func FromJSON(data []byte) (Value, error) {
	p := jsonParser{s: string(data)}
	v, err := p.value(0)
	if err == nil {
		if p.space(); p.i < len(p.s) {
			err = p.fail("text after the value")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading JSON: %w", err)
	}
	return v, nil
}

type jsonParser struct {
	s string
	i int
}

func (p *jsonParser) fail(what string) error { return fmt.Errorf("%s at byte %d", what, p.i) }

func (p *jsonParser) space() {
	for p.i < len(p.s) && (p.s[p.i] == ' ' || p.s[p.i] == '\n' || p.s[p.i] == '\t' || p.s[p.i] == '\r') {
		p.i++
	}
}

// next skips white space and gives the byte there, 0 at the end.
func (p *jsonParser) next() byte {
	p.space()
	if p.i >= len(p.s) {
		return 0
	}
	return p.s[p.i]
}

func (p *jsonParser) value(depth int) (Value, error) {
	if depth > maxJSONDepth {
		return nil, p.fail("nesting too deep")
	}
	switch c := p.next(); {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		s, err := p.str()
		return String(s), err
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	}
	for word, v := range p.words() {
		if strings.HasPrefix(p.s[p.i:], word) {
			p.i += len(word)
			return v, nil
		}
	}
	if p.i >= len(p.s) {
		return nil, p.fail("unexpected end")
	}
	return nil, p.fail("unexpected character")
}

func (*jsonParser) words() func(yield func(string, Value) bool) {
	return func(yield func(string, Value) bool) {
		_ = yield("true", Bool(true)) && yield("false", Bool(false)) && yield("null", None{})
	}
}

func (p *jsonParser) object(depth int) (Value, error) {
	p.i++
	d := NewDict()
	if p.next() == '}' {
		p.i++
		return d, nil
	}
	for {
		if p.next() != '"' {
			return nil, p.fail("expected a key")
		}
		key, err := p.str()
		if err != nil {
			return nil, err
		}
		if p.next() != ':' {
			return nil, p.fail("expected ':'")
		}
		p.i++
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		d.Set(key, v)
		switch p.next() {
		case ',':
			p.i++
		case '}':
			p.i++
			return d, nil
		default:
			return nil, p.fail("expected ',' or '}'")
		}
	}
}

func (p *jsonParser) array(depth int) (Value, error) {
	p.i++
	l := &List{}
	if p.next() == ']' {
		p.i++
		return l, nil
	}
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		l.items = append(l.items, v)
		switch p.next() {
		case ',':
			p.i++
		case ']':
			p.i++
			return l, nil
		default:
			return nil, p.fail("expected ',' or ']'")
		}
	}
}

func (p *jsonParser) digits() bool {
	from := p.i
	for p.i < len(p.s) && p.s[p.i] >= '0' && p.s[p.i] <= '9' {
		p.i++
	}
	return p.i > from
}

func (p *jsonParser) number() (Value, error) {
	from := p.i
	if p.s[p.i] == '-' {
		p.i++
	}
	lead := p.i
	if !p.digits() || p.s[lead] == '0' && p.i > lead+1 {
		return nil, p.fail("malformed number")
	}
	isFloat := false
	if p.i < len(p.s) && p.s[p.i] == '.' {
		p.i++
		if isFloat = true; !p.digits() {
			return nil, p.fail("malformed number")
		}
	}
	if p.i < len(p.s) && (p.s[p.i] == 'e' || p.s[p.i] == 'E') {
		p.i++
		if p.i < len(p.s) && (p.s[p.i] == '+' || p.s[p.i] == '-') {
			p.i++
		}
		if isFloat = true; !p.digits() {
			return nil, p.fail("malformed number")
		}
	}
	lit := p.s[from:p.i]
	if isFloat {
		f, _ := strconv.ParseFloat(lit, 64) // out of range gives ±Inf, as Python's json does
		return Float(f), nil
	}
	if n, err := strconv.ParseInt(lit, 10, 64); err == nil {
		return Int(n), nil
	}
	if len(lit) > maxIntDigits {
		return nil, p.fail("integer with too many digits")
	}
	n, _ := new(big.Int).SetString(lit, 10)
	return bigInt{n}, nil
}

func (p *jsonParser) str() (string, error) {
	p.i++
	from := p.i
	for p.i < len(p.s) && p.s[p.i] != '"' && p.s[p.i] != '\\' && p.s[p.i] >= ' ' {
		p.i++
	}
	if p.i < len(p.s) && p.s[p.i] == '"' {
		p.i++
		return strings.ToValidUTF8(p.s[from:p.i-1], "\uFFFD"), nil
	}
	b := []byte(p.s[from:p.i])
	for p.i < len(p.s) {
		switch c := p.s[p.i]; {
		case c == '"':
			p.i++
			return strings.ToValidUTF8(string(b), "\uFFFD"), nil
		case c < ' ':
			return "", p.fail("control character in a string")
		case c == '\\':
			r, err := p.escape()
			if err != nil {
				return "", err
			}
			b = utf8.AppendRune(b, r)
		default:
			b = append(b, c)
			p.i++
		}
	}
	return "", p.fail("unterminated string")
}

func (p *jsonParser) escape() (rune, error) {
	if p.i+1 >= len(p.s) {
		return 0, p.fail("unterminated string")
	}
	c := p.s[p.i+1]
	if c == 'u' {
		r, ok := p.hex4(p.i + 2)
		if !ok {
			return 0, p.fail("malformed escape")
		}
		p.i += 6
		if utf16.IsSurrogate(r) && strings.HasPrefix(p.s[p.i:], `\u`) {
			if low, ok := p.hex4(p.i + 2); ok {
				if full := utf16.DecodeRune(r, low); full != utf8.RuneError {
					p.i += 6
					return full, nil
				}
			}
		}
		return r, nil // AppendRune writes U+FFFD for a lone surrogate
	}
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
	}
	return 0, p.fail("malformed escape")
}

func (p *jsonParser) hex4(at int) (rune, bool) {
	if at+4 > len(p.s) {
		return 0, false
	}
	n, err := strconv.ParseUint(p.s[at:at+4], 16, 16)
	return rune(n), err == nil
}
