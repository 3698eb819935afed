package template

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// formatMethod is str.format and str.format_map, with field access behind the sandbox.
func (st *state) formatMethod(format string, marked bool, name string, a *arguments) (Value, error) {
	f := &formatter{st: st, a: a, marked: marked}
	if name == "format_map" {
		p, err := a.positional("format_map", 1, 1)
		if err != nil {
			return nil, err
		}
		d, ok := p[0].(*Dict)
		if !ok {
			return nil, typeErrorf("format_map() needs a mapping, not %s", p[0].typeName())
		}
		f.a, f.dict = &arguments{}, d
	}
	s, err := f.expand(format, 0)
	if err != nil {
		return nil, err
	}
	return likeString(marked, s), st.grow(len(s))
}

type formatter struct {
	st     *state
	a      *arguments
	dict   *Dict
	auto   int // next automatic field
	manual bool
	marked bool
}

// expand replaces the fields of a format string; a format spec may have fields of its own, one level deep.
func (f *formatter) expand(s string, depth int) (string, error) {
	if depth > 1 {
		return "", errorf(ValueError, "Max string recursion exceeded")
	}
	var b strings.Builder
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:i])
		if i+1 < len(s) && s[i+1] == s[i] {
			b.WriteByte(s[i])
			s = s[i+2:]
			continue
		}
		if s[i] == '}' {
			return "", errorf(ValueError, "Single '}' encountered in format string")
		}
		field, rest, ok := cutField(s[i+1:])
		if !ok {
			return "", errorf(ValueError, "Single '{' encountered in format string")
		}
		t, err := f.field(field, depth)
		if err != nil {
			return "", err
		}
		if err := f.st.grow(len(t)); err != nil {
			return "", err
		}
		b.WriteString(t)
		s = rest
	}
	return b.String(), nil
}

// cutField splits after the brace that closes the field.
func cutField(s string) (field, rest string, ok bool) {
	depth := 1
	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return s[:i], s[i+1:], true
			}
		}
	}
	return "", "", false
}

func (f *formatter) field(field string, depth int) (string, error) {
	name, fmtSpec := field, ""
	conv := byte(0)
	if i := fieldNameEnd(field); i >= 0 {
		name = field[:i]
		rest := field[i:]
		if rest[0] == '!' {
			if len(rest) < 2 || len(rest) > 2 && rest[2] != ':' {
				return "", errorf(ValueError, "expected ':' after conversion specifier")
			}
			conv, rest = rest[1], rest[2:]
		}
		fmtSpec = strings.TrimPrefix(rest, ":")
	}
	v, err := f.lookup(name)
	if err != nil {
		return "", err
	}
	switch conv {
	case 0:
	case 's', 'r', 'a':
		get := f.st.str
		if conv != 's' {
			get = f.st.repr
		}
		t, err := get(v)
		if err != nil {
			return "", err
		}
		v = String(t)
	default:
		return "", errorf(ValueError, "Unknown conversion specifier '%c'", conv)
	}
	if strings.Contains(fmtSpec, "{") {
		if fmtSpec, err = f.expand(fmtSpec, depth+1); err != nil {
			return "", err
		}
	}
	t, err := f.st.formatValue(v, fmtSpec)
	if _, safe := v.(markup); f.marked && !safe {
		t = escapeHTML(t)
	}
	return t, err
}

// fieldNameEnd finds the '!' or ':' after a field's name; one in brackets belongs to the name.
func fieldNameEnd(s string) int {
	inside := false
	for i := range len(s) {
		switch c := s[i]; {
		case c == '[':
			inside = true
		case c == ']':
			inside = false
		case !inside && (c == '!' || c == ':'):
			return i
		}
	}
	return -1
}

// lookup finds "name.attr[key]".
func (f *formatter) lookup(name string) (Value, error) {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	first := name[:end]
	if name == "" {
		if f.manual {
			return nil, errorf(ValueError, "cannot switch from manual field specification to automatic field numbering")
		}
		first = strconv.Itoa(f.auto)
		f.auto++
	}
	v, err := f.argument(first, name == "")
	rest := name[end:]
	for err == nil && rest != "" {
		if rest[0] == '.' {
			n := strings.IndexAny(rest[1:], ".[") + 1
			if n == 0 {
				n = len(rest)
			}
			if n == 1 {
				return nil, errorf(ValueError, "Empty attribute in format string")
			}
			v, err = f.st.getAttr(v, rest[1:n])
			rest = rest[n:]
			continue
		}
		n := strings.IndexByte(rest, ']')
		if rest[0] != '[' || n < 2 {
			return nil, errorf(ValueError, "Empty attribute in format string")
		}
		var key Value = String(rest[1:n])
		if i, err := strconv.Atoi(rest[1:n]); err == nil && rest[1] >= '0' && rest[1] <= '9' {
			key = Int(i)
		}
		v, err = f.st.getItem(v, key)
		rest = rest[n+1:]
		if rest != "" && rest[0] != '.' && rest[0] != '[' {
			return nil, errorf(ValueError, "Only '.' or '[' may follow ']' in format field specifier")
		}
	}
	return v, err
}

// argument finds a numbered or named argument; auto tells that the number was not written.
func (f *formatter) argument(name string, auto bool) (Value, error) {
	i, err := strconv.Atoi(name)
	switch {
	case auto:
	case err == nil && name[0] >= '0' && name[0] <= '9':
		if f.auto > 0 {
			return nil, errorf(ValueError, "cannot switch from manual field specification to automatic field numbering")
		}
		f.manual = true
	default:
		v, ok := f.a.get(name)
		if f.dict != nil {
			v, ok = f.dict.Get(name)
		}
		if !ok {
			return nil, errorf(KeyError, "%s", appendStringRepr(nil, name))
		}
		return v, nil
	}
	if i >= len(f.a.pos) {
		return nil, errorf(IndexError, "tuple index out of range")
	}
	return f.a.pos[i], nil
}

// formatValue is format(v, spec).
func (st *state) formatValue(v Value, fmtSpec string) (string, error) {
	if fmtSpec == "" {
		return st.str(v)
	}
	s, err := parseSpec(fmtSpec)
	if err != nil {
		return "", err
	}
	if t, ok := text(v); ok {
		return s.text(t)
	}
	if !isNumber(v) {
		return "", typeErrorf("unsupported format string passed to %s.__format__", v.typeName())
	}
	if s.align == 0 {
		s.align = '>'
	}
	if _, isBool := v.(Bool); isBool && s.verb == 0 {
		n, _ := asInt(v)
		v = Int(n)
	}
	f, isFloat := v.(Float)
	if !isFloat {
		switch s.verb {
		case 0, 'd', 'n', 'x', 'X', 'o', 'b', 'c':
			if s.precision >= 0 {
				return "", errorf(ValueError, "Precision not allowed in integer format specifier")
			}
			n, _ := asBig(v)
			if s.verb == 'c' {
				if !n.IsInt64() || n.Int64() < 0 || n.Int64() > utf8.MaxRune {
					return "", errorf(OverflowError, "%%c arg not in range(0x110000)")
				}
				return s.pad("", string(rune(n.Int64()))), nil
			}
			return s.integer(n), nil
		}
		x, err := asFloat(v)
		if err != nil {
			return "", err
		}
		f = Float(x)
	}
	return s.formatFloat(float64(f), v)
}

func (s *spec) formatFloat(f float64, v Value) (string, error) {
	switch s.verb {
	case 0:
		if s.precision < 0 {
			return s.number(math.Signbit(f), "", strings.TrimPrefix(floatRepr(f), "-")), nil
		}
		s.verb = 'g'
		t := s.digits(math.Abs(f))
		if !strings.ContainsAny(t, ".einf") {
			t += ".0"
		}
		return s.number(math.Signbit(f), "", t), nil
	case 'e', 'E', 'f', 'F', 'g', 'G', 'n', '%':
		if s.precision < 0 {
			s.precision = 6
		}
		return s.float(f), nil
	}
	return "", errorf(ValueError, "Unknown format code '%c' for object of type '%s'", s.verb, v.typeName())
}

func (s *spec) text(t string) (string, error) {
	switch {
	case s.verb != 0 && s.verb != 's':
		return "", errorf(ValueError, "Unknown format code '%c' for object of type 'str'", s.verb)
	case s.align == '=':
		return "", errorf(ValueError, "'=' alignment not allowed in string format specifier")
	case s.sign != 0:
		return "", errorf(ValueError, "Sign not allowed in string format specifier")
	case s.group != 0:
		return "", errorf(ValueError, "Cannot specify '%c' with 's'.", s.group)
	}
	if s.precision >= 0 {
		t = runes(t, 0, s.precision)
	}
	if s.align == 0 {
		s.align = '<'
	}
	if s.zero && s.fill == " " {
		s.fill = "0"
	}
	s.zero = false
	return s.pad("", t), nil
}

func isAlign(c byte) bool { return c == '<' || c == '>' || c == '^' || c == '=' }

// parseSpec reads [[fill]align][sign][#][0][width][,_][.precision][type].
func parseSpec(t string) (*spec, error) {
	s := &spec{fill: " ", precision: -1}
	if _, n := utf8.DecodeRuneInString(t); n < len(t) && isAlign(t[n]) {
		s.fill, s.align, t = t[:n], t[n], t[n+1:]
	} else if t != "" && isAlign(t[0]) {
		s.align, t = t[0], t[1:]
	}
	if t != "" && strings.IndexByte("+- ", t[0]) >= 0 {
		s.sign, t = t[0], t[1:]
	}
	if strings.HasPrefix(t, "#") {
		s.alt, t = true, t[1:]
	}
	if strings.HasPrefix(t, "0") {
		s.zero, t = s.align == 0, t[1:]
	}
	p := &percentArgs{}
	var err error
	if t != "" && t[0] >= '0' && t[0] <= '9' {
		if s.width, t, err = p.number(t); err != nil {
			return nil, err
		}
	}
	if t != "" && (t[0] == ',' || t[0] == '_') {
		s.group, t = t[0], t[1:]
	}
	if strings.HasPrefix(t, ".") {
		if len(t) < 2 || t[1] < '0' || t[1] > '9' {
			return nil, errorf(ValueError, "Format specifier missing precision")
		}
		if s.precision, t, err = p.number(t[1:]); err != nil {
			return nil, err
		}
	}
	if len(t) > 1 {
		return nil, errorf(ValueError, "Invalid format specifier")
	}
	if t != "" {
		s.verb = t[0]
	}
	return s, nil
}

// float formats e, f, g and %; the precision is set.
func (s *spec) float(f float64) string {
	return s.number(math.Signbit(f) && !math.IsNaN(f), "", s.digits(math.Abs(f)))
}

// digits gives the digits of a float that is not negative.
func (s *spec) digits(f float64) string {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		t := "inf"
		if math.IsNaN(f) {
			t = "nan"
		}
		if s.verb >= 'A' && s.verb <= 'Z' {
			t = strings.ToUpper(t)
		}
		if s.verb == '%' {
			t += "%"
		}
		s.zero = false
		return t
	}
	switch s.verb {
	case 'f', 'F':
		t := strconv.FormatFloat(f, 'f', s.precision, 64)
		if s.alt && s.precision == 0 {
			t += "."
		}
		return t
	case '%':
		return strconv.FormatFloat(f*100, 'f', s.precision, 64) + "%"
	case 'e', 'E':
		return strconv.FormatFloat(f, s.verb, s.precision, 64)
	}
	return s.general(f)
}

// general is %g: an exponent below 1e-4 and from 10^precision, without trailing zeros.
func (s *spec) general(f float64) string {
	p := max(s.precision, 1)
	e := strconv.FormatFloat(f, 'e', p-1, 64)
	i := strings.IndexByte(e, 'e')
	exp, _ := strconv.Atoi(e[i+1:])
	trim := func(t string) string {
		if !s.alt && strings.Contains(t, ".") {
			t = strings.TrimRight(strings.TrimRight(t, "0"), ".")
		}
		return t
	}
	out := ""
	if exp < -4 || exp >= p {
		out = trim(e[:i]) + e[i:]
	} else {
		out = trim(strconv.FormatFloat(f, 'f', p-1-exp, 64))
	}
	if s.verb == 'G' {
		out = strings.ToUpper(out)
	}
	return out
}
