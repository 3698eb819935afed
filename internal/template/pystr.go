package template

import (
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str is Python's str(v).
func (st *state) str(v Value) (string, error) {
	switch x := v.(type) {
	case String:
		return string(x), nil
	case markup:
		return string(x), nil
	case Int:
		return strconv.FormatInt(int64(x), 10), nil
	case *undefined:
		return "", nil
	case None:
		return "None", nil
	}
	b, err := st.appendRepr(nil, v, 0)
	if err != nil {
		return "", err
	}
	if err := st.grow(len(b)); err != nil {
		return "", err
	}
	return string(b), nil
}

func (st *state) repr(v Value) (string, error) {
	b, err := st.appendRepr(nil, v, 0)
	if err != nil {
		return "", err
	}
	return string(b), st.grow(len(b))
}

// maxIntDigits is CPython's limit on converting integers to text.
const maxIntDigits = 4300

// appendRepr appends Python's repr(v).
func (st *state) appendRepr(b []byte, v Value, depth int) ([]byte, error) {
	if depth > st.lim.Depth {
		return b, errorf(RecursionError, "maximum recursion depth exceeded while getting the repr of an object")
	}
	if err := st.step(1); err != nil {
		return b, err
	}
	if len(b) > st.lim.Output {
		return b, &LimitError{What: "output size"}
	}
	switch x := v.(type) {
	case None:
		return append(b, "None"...), nil
	case Bool:
		if x {
			return append(b, "True"...), nil
		}
		return append(b, "False"...), nil
	case Int:
		return strconv.AppendInt(b, int64(x), 10), nil
	case bigInt:
		s := x.v.String()
		if len(s) > maxIntDigits {
			return b, errorf(ValueError, "Exceeds the limit (%d digits) for integer string conversion", maxIntDigits)
		}
		return append(b, s...), nil
	case Float:
		return append(b, floatRepr(float64(x))...), nil
	case String:
		if err := st.walk(len(x)); err != nil {
			return b, err
		}
		return appendStringRepr(b, string(x)), nil
	case markup:
		b = append(b, "Markup("...)
		return append(appendStringRepr(b, string(x)), ')'), nil
	case *undefined:
		return append(b, "Undefined"...), nil
	case *List:
		return st.appendReprSeq(b, x.items, '[', ']', depth)
	case *tuple:
		if len(x.items) == 1 {
			b, err := st.appendRepr(append(b, '('), x.items[0], depth+1)
			return append(b, ",)"...), err
		}
		return st.appendReprSeq(b, x.items, '(', ')', depth)
	case *Dict:
		return st.appendReprDict(b, x, depth)
	case *dictView:
		b = append(append(b, x.typeName()...), '(')
		items := make([]Value, 0, x.d.Len())
		for i := range x.d.keys {
			items = append(items, x.at(i))
		}
		b, err := st.appendReprSeq(b, items, '[', ']', depth)
		return append(b, ')'), err
	case *rangeValue:
		b = append(b, "range("...)
		b = strconv.AppendInt(b, x.start, 10)
		b = append(b, ", "...)
		b = strconv.AppendInt(b, x.stop, 10)
		if x.step != 1 {
			b = append(b, ", "...)
			b = strconv.AppendInt(b, x.step, 10)
		}
		return append(b, ')'), nil
	case *namespace:
		b, err := st.appendReprDict(append(b, "<Namespace "...), x.attrs, depth)
		return append(b, '>'), err
	case *macro:
		if x.def.name == "" {
			return append(b, "<Macro anonymous>"...), nil
		}
		return append(appendStringRepr(append(b, "<Macro "...), x.def.name), '>'), nil
	case *loopContext:
		n, err := x.length(st)
		b = strconv.AppendInt(append(b, "<LoopContext "...), int64(x.index0+1), 10)
		return append(strconv.AppendInt(append(b, '/'), int64(n), 10), '>'), err
	case *selfRef:
		return append(b, "<TemplateReference None>"...), nil
	case *generator:
		return append(b, "<generator object "+x.name+">"...), nil
	}
	return append(append(append(b, '<'), v.typeName()...), " object>"...), nil
}

func (st *state) appendReprSeq(b []byte, items []Value, open, closing byte, depth int) ([]byte, error) {
	b = append(b, open)
	var err error
	for i, it := range items {
		if i > 0 {
			b = append(b, ", "...)
		}
		if b, err = st.appendRepr(b, it, depth+1); err != nil {
			return b, err
		}
	}
	return append(b, closing), nil
}

func (st *state) appendReprDict(b []byte, d *Dict, depth int) ([]byte, error) {
	b = append(b, '{')
	var err error
	for i, k := range d.keys {
		if i > 0 {
			b = append(b, ", "...)
		}
		if b, err = st.appendRepr(b, k, depth+1); err != nil {
			return b, err
		}
		b = append(b, ": "...)
		if b, err = st.appendRepr(b, d.vals[i], depth+1); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// floatRepr is repr(float): the shortest digits that read back, with an exponent below 1e-4 and from 1e16.
func floatRepr(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// appendStringRepr is repr(str): single quotes unless the text has some and no double ones; what does not print is escaped.
func appendStringRepr(b []byte, s string) []byte {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b = append(b, quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r >= ' ' && r < 0x7f || r > 0xff && unicode.IsPrint(r) || r > 0xa0 && r != 0xad && r <= 0xff:
			b = utf8.AppendRune(b, r)
		case r <= 0xff:
			b = append(b, '\\', 'x', hexDigits[r>>4], hexDigits[r&15])
		case r <= 0xffff:
			b = appendU16(b, uint16(r))
		default:
			b = append(b, '\\', 'U')
			for shift := 28; shift >= 0; shift -= 4 {
				b = append(b, hexDigits[r>>shift&15])
			}
		}
	}
	return append(b, quote)
}

const hexDigits = "0123456789abcdef"

func appendU16(b []byte, r uint16) []byte {
	return append(b, '\\', 'u', hexDigits[r>>12], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// isSpace is Python's str.isspace for one character, which is also what \s matches.
func isSpace(r rune) bool {
	switch {
	case r >= '\t' && r <= '\r', r >= 0x1c && r <= ' ', r == 0x85, r == 0xa0, r == 0x1680, r >= 0x2000 && r <= 0x200a,
		r == 0x2028, r == 0x2029, r == 0x202f, r == 0x205f, r == 0x3000:
		return true
	}
	return false
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// escapeHTML is markupsafe.escape.
func escapeHTML(s string) string {
	if !strings.ContainsAny(s, `&<>'"`) {
		return s
	}
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;").Replace(s)
}
