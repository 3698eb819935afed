package template

import (
	"math/big"
	"strings"
	"unicode/utf8"
)

// maxField bounds the width and precision of a formatted field.
const maxField = 1 << 20

// spec is one conversion of a format string, in either of Python's two languages.
type spec struct {
	fill      string
	align     byte // '<', '>', '^', '=', 0
	sign      byte // '+', ' ', '-', 0
	alt       bool
	zero      bool
	width     int
	group     byte // ',' or '_'
	precision int  // -1 where left out
	verb      byte // 0 where left out
}

// percent is Python's "format % values".
func (st *state) percent(format, values Value) (Value, error) {
	f, _ := text(format)
	_, marked := format.(markup)
	p := &percentArgs{st: st, marked: marked, text: f}
	switch v := values.(type) {
	case *tuple:
		p.items = v.items
	case *Dict:
		p.dict, p.items, p.loose = v, []Value{v}, true
	default:
		p.items = []Value{values}
		switch values.(type) {
		case *List, *rangeValue, *undefined: // objects with subscripts may be left over, as in Python
			p.loose = true
		}
	}
	var b strings.Builder
	for {
		i := strings.IndexByte(f, '%')
		if i < 0 {
			b.WriteString(f)
			break
		}
		b.WriteString(f[:i])
		f = f[i+1:]
		s, rest, err := p.convert(f)
		if err != nil {
			return nil, err
		}
		if err := st.grow(len(s)); err != nil {
			return nil, err
		}
		b.WriteString(s)
		f = rest
	}
	if p.next < len(p.items) && !p.loose {
		return nil, typeErrorf("not all arguments converted during string formatting")
	}
	return likeString(marked, b.String()), st.grow(b.Len())
}

type percentArgs struct {
	st     *state
	items  []Value
	next   int
	dict   *Dict
	loose  bool
	marked bool
	text   string // the whole format
	at     int    // of the conversion's letter, in characters
}

func (p *percentArgs) take() (Value, error) {
	if p.next >= len(p.items) {
		return nil, typeErrorf("not enough arguments for format string")
	}
	p.next++
	return p.items[p.next-1], nil
}

// number reads digits, or '*' for an argument.
func (p *percentArgs) number(f string) (n int, rest string, err error) {
	if strings.HasPrefix(f, "*") {
		v, err := p.take()
		if err != nil {
			return 0, "", err
		}
		w, ok := asInt(v)
		if !ok {
			return 0, "", typeErrorf("* wants int")
		}
		if w > maxField || w < -maxField {
			return 0, "", &LimitError{What: "field width"}
		}
		return int(w), f[1:], nil
	}
	for f != "" && f[0] >= '0' && f[0] <= '9' {
		if n = n*10 + int(f[0]-'0'); n > maxField {
			return 0, "", &LimitError{What: "field width"}
		}
		f = f[1:]
	}
	return n, f, nil
}

// convert formats one conversion; f begins after the percent sign.
func (p *percentArgs) convert(f string) (out, rest string, err error) {
	var arg Value
	if strings.HasPrefix(f, "(") {
		if arg, f, err = p.key(f); err != nil {
			return "", "", err
		}
	}
	s := spec{fill: " ", align: '>', precision: -1}
	for f != "" && strings.IndexByte("-+ #0", f[0]) >= 0 {
		switch f[0] {
		case '-':
			s.align = '<'
		case '+':
			s.sign = '+'
		case ' ':
			if s.sign == 0 {
				s.sign = ' '
			}
		case '#':
			s.alt = true
		case '0':
			s.zero = true
		}
		f = f[1:]
	}
	if s.width, f, err = p.number(f); err != nil {
		return "", "", err
	}
	if s.width < 0 {
		s.width, s.align = -s.width, '<'
	}
	if strings.HasPrefix(f, ".") {
		if s.precision, f, err = p.number(f[1:]); err != nil {
			return "", "", err
		}
		s.precision = max(s.precision, 0)
	}
	if f != "" && strings.IndexByte("hlL", f[0]) >= 0 {
		f = f[1:]
	}
	if f == "" {
		return "", "", errorf(ValueError, "incomplete format")
	}
	s.verb = f[0]
	p.at = utf8.RuneCountInString(p.text[:len(p.text)-len(f)])
	if s.verb == '%' {
		return "%", f[1:], nil
	}
	if arg == nil {
		if arg, err = p.take(); err != nil {
			return "", "", err
		}
	}
	out, err = p.format(&s, arg)
	return out, f[1:], err
}

// key reads "(name)" and finds it in the mapping.
func (p *percentArgs) key(f string) (Value, string, error) {
	depth, end := 0, -1
	for i := 0; i < len(f) && end < 0; i++ {
		switch f[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				end = i
			}
		}
	}
	if end < 0 {
		return nil, "", errorf(ValueError, "incomplete format key")
	}
	if p.dict == nil {
		return nil, "", typeErrorf("format requires a mapping")
	}
	v, ok := p.dict.Get(f[1:end])
	if !ok {
		return nil, "", errorf(KeyError, "%s", appendStringRepr(nil, f[1:end]))
	}
	return v, f[end+1:], nil
}

func (p *percentArgs) format(s *spec, arg Value) (string, error) {
	if u, ok := arg.(*undefined); ok && strings.IndexByte("sra", s.verb) < 0 {
		return "", u.fail()
	}
	switch s.verb {
	case 's', 'r', 'a':
		var t string
		var err error
		if s.verb == 's' {
			t, err = p.st.str(arg)
		} else {
			t, err = p.st.repr(arg)
		}
		if err != nil {
			return "", err
		}
		if _, safe := arg.(markup); p.marked && !safe {
			t = escapeHTML(t)
		}
		if s.precision >= 0 {
			t = runes(t, 0, s.precision)
		}
		s.zero = false
		return s.pad("", t), nil
	case 'c':
		if n, ok := asInt(arg); ok {
			if n < 0 || n > utf8.MaxRune {
				return "", errorf(OverflowError, "%%c arg not in range(0x110000)")
			}
			return s.pad("", string(rune(n))), nil
		}
		if t, ok := text(arg); ok && utf8.RuneCountInString(t) == 1 {
			return s.pad("", t), nil
		}
		return "", typeErrorf("%%c requires int or char")
	case 'd', 'i', 'u', 'x', 'X', 'o':
		n, ok := asBig(arg)
		if f, isFloat := arg.(Float); isFloat && strings.IndexByte("diu", s.verb) >= 0 {
			v, finite := floatToInt(float64(f))
			if !finite {
				return "", errorf(ValueError, "cannot convert float to integer")
			}
			n, ok = asBig(v)
		}
		if !ok {
			kind := "a real number"
			if strings.IndexByte("xXo", s.verb) >= 0 {
				kind = "an integer"
			}
			return "", typeErrorf("%%%c format: %s is required, not %s", s.verb, kind, arg.typeName())
		}
		return s.integer(n), nil
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if !isNumber(arg) {
			return "", typeErrorf("must be real number, not %s", arg.typeName())
		}
		f, err := asFloat(arg)
		if err != nil {
			return "", err
		}
		if s.precision < 0 {
			s.precision = 6
		}
		return s.float(f), nil
	}
	return "", errorf(ValueError, "unsupported format character '%c' (0x%x) at index %d", s.verb, s.verb, p.at)
}

// integer formats d, x, X, o and b; precision is the least number of digits.
func (s *spec) integer(n *big.Int) string {
	base, prefix := 10, ""
	switch s.verb {
	case 'x', 'X':
		base, prefix = 16, "0"+string(rune(s.verb))
	case 'o':
		base, prefix = 8, "0o"
	case 'b':
		base, prefix = 2, "0b"
	}
	digits := new(big.Int).Abs(n).Text(base)
	if s.verb == 'X' {
		digits = strings.ToUpper(digits)
	}
	if len(digits) < s.precision {
		digits = strings.Repeat("0", s.precision-len(digits)) + digits
	}
	if !s.alt {
		prefix = ""
	}
	return s.number(n.Sign() < 0, prefix, digits)
}

// number joins sign, prefix and digits, groups and pads them.
func (s *spec) number(negative bool, prefix, digits string) string {
	sign := ""
	switch {
	case negative:
		sign = "-"
	case s.sign == '+' || s.sign == ' ':
		sign = string(rune(s.sign))
	}
	if s.group != 0 {
		digits = s.groupDigits(digits, len(sign)+len(prefix))
	}
	return s.pad(sign+prefix, digits)
}

// groupDigits puts separators into the integer part; with zero padding, the zeros are grouped too.
func (s *spec) groupDigits(digits string, taken int) string {
	whole := len(digits)
	for i := range len(digits) {
		if c := digits[i]; (c < '0' || c > '9') && (s.verb != 'x' && s.verb != 'X' || c == '.') {
			whole = i
			break
		}
	}
	every := 3
	if strings.IndexByte("xXob", s.verb) >= 0 && s.verb != 0 {
		every = 4
	}
	tail := digits[whole:]
	group := func(d string) string {
		var b strings.Builder
		for i := range len(d) {
			if i > 0 && (len(d)-i)%every == 0 {
				b.WriteByte(s.group)
			}
			b.WriteByte(d[i])
		}
		return b.String()
	}
	d := digits[:whole]
	out := group(d)
	if s.zero || s.align == '=' && s.fill == "0" {
		for taken+len(out)+len(tail) < s.width {
			d = "0" + d
			out = group(d)
			if taken+len(out)+len(tail) > s.width && (len(d))%every == 1 && len(d) > 1 {
				break
			}
		}
	}
	return out + tail
}

// pad fills to the width; zeros go between the sign and the digits.
func (s *spec) pad(sign, body string) string {
	n := s.width - utf8.RuneCountInString(sign) - utf8.RuneCountInString(body)
	if n <= 0 {
		return sign + body
	}
	fill, align := s.fill, s.align
	if s.zero && align != '<' {
		fill, align = "0", '='
	}
	switch align {
	case '<':
		return sign + body + strings.Repeat(fill, n)
	case '^':
		return strings.Repeat(fill, n/2) + sign + body + strings.Repeat(fill, n-n/2)
	case '=':
		return sign + strings.Repeat(fill, n) + body
	}
	return strings.Repeat(fill, n) + sign + body
}
