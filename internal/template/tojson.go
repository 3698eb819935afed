package template

import (
	"math"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// jsonStyle is how json.dumps lays text out.
type jsonStyle struct {
	ascii     bool
	indent    string
	multiline bool // an indent was given, even an empty one
	item, key string
	sortKeys  bool
}

// filterToJSON is transformers' tojson: json.dumps with ensure_ascii=False by default, without jinja2's HTML escapes.
func filterToJSON(st *state, v Value, a *arguments) (Value, error) {
	p, err := a.bind("tojson", 0, "ensure_ascii", "indent", "separators", "sort_keys")
	if err != nil {
		return nil, err
	}
	style := jsonStyle{item: ", ", key: ": "}
	if style.ascii, err = truthOr(st, p[0], false); err != nil {
		return nil, err
	}
	switch ind := orNone(p[1]).(type) {
	case None:
	case String:
		style.indent, style.multiline = string(ind), true
	case *undefined:
		return nil, ind.fail()
	default:
		n, ok := asInt(ind)
		if !ok {
			return nil, typeErrorf("can't multiply sequence by non-int of type '%s'", ind.typeName())
		}
		if n > 1<<16 {
			return nil, &LimitError{What: "memory"}
		}
		style.indent, style.multiline = strings.Repeat(" ", int(max(n, 0))), true
	}
	if style.multiline {
		style.item = ","
	}
	if sep := orNone(p[2]); sep != (None{}) {
		parts, err := st.unpack(sep, 2)
		if err != nil {
			return nil, err
		}
		var ok1, ok2 bool
		style.item, ok1 = text(parts[0])
		style.key, ok2 = text(parts[1])
		if !ok1 || !ok2 {
			return nil, typeErrorf("separators must be strings")
		}
	}
	if style.sortKeys, err = truthOr(st, p[3], false); err != nil {
		return nil, err
	}
	b, err := st.appendJSON(nil, v, &style, 0)
	if err != nil {
		return nil, err
	}
	return String(b), st.grow(len(b))
}

func (st *state) appendJSON(b []byte, v Value, style *jsonStyle, depth int) ([]byte, error) {
	if depth > st.lim.Depth {
		return b, errorf(RecursionError, "maximum recursion depth exceeded while encoding a JSON object")
	}
	if err := st.step(1); err != nil {
		return b, err
	}
	if len(b) > st.lim.Output {
		return b, &LimitError{What: "output size"}
	}
	switch x := v.(type) {
	case None:
		return append(b, "null"...), nil
	case Bool:
		return strconv.AppendBool(b, bool(x)), nil
	case Int:
		return strconv.AppendInt(b, int64(x), 10), nil
	case bigInt:
		return st.appendRepr(b, x, depth)
	case Float:
		return append(b, jsonFloat(float64(x))...), nil
	case String:
		return appendJSONString(b, string(x), style.ascii), st.walk(len(x))
	case markup:
		return appendJSONString(b, string(x), style.ascii), st.walk(len(x))
	case *List:
		return st.appendJSONArray(b, x.items, style, depth)
	case *tuple:
		return st.appendJSONArray(b, x.items, style, depth)
	case *Dict:
		return st.appendJSONObject(b, x, style, depth)
	}
	return b, typeErrorf("Object of type %s is not JSON serializable", v.typeName())
}

func (st *state) appendJSONArray(b []byte, items []Value, style *jsonStyle, depth int) ([]byte, error) {
	if len(items) == 0 {
		return append(b, "[]"...), nil
	}
	b = append(b, '[')
	var err error
	for i, it := range items {
		if i > 0 {
			b = append(b, style.item...)
		}
		b = style.newline(b, depth+1)
		if b, err = st.appendJSON(b, it, style, depth+1); err != nil {
			return b, err
		}
	}
	return append(style.newline(b, depth), ']'), nil
}

func (st *state) appendJSONObject(b []byte, d *Dict, style *jsonStyle, depth int) ([]byte, error) {
	if d.Len() == 0 {
		return append(b, "{}"...), nil
	}
	order := make([]int, d.Len())
	for i := range order {
		order[i] = i
	}
	if style.sortKeys {
		var failed error
		sort.SliceStable(order, func(i, j int) bool {
			lt, err := st.compare(opLT, d.keys[order[i]], d.keys[order[j]])
			if err != nil && failed == nil {
				failed = err
			}
			return lt
		})
		if failed != nil {
			return b, failed
		}
	}
	b = append(b, '{')
	for n, i := range order {
		if n > 0 {
			b = append(b, style.item...)
		}
		b = style.newline(b, depth+1)
		key, err := jsonKey(d.keys[i])
		if err != nil {
			return b, err
		}
		b = append(appendJSONString(b, key, style.ascii), style.key...)
		if b, err = st.appendJSON(b, d.vals[i], style, depth+1); err != nil {
			return b, err
		}
	}
	return append(style.newline(b, depth), '}'), nil
}

func (s *jsonStyle) newline(b []byte, depth int) []byte {
	if !s.multiline {
		return b
	}
	b = append(b, '\n')
	for range depth {
		b = append(b, s.indent...)
	}
	return b
}

func jsonKey(k Value) (string, error) {
	switch x := k.(type) {
	case String:
		return string(x), nil
	case markup:
		return string(x), nil
	case None:
		return "null", nil
	case Bool:
		return strconv.FormatBool(bool(x)), nil
	case Int:
		return strconv.FormatInt(int64(x), 10), nil
	case bigInt:
		return x.v.String(), nil
	case Float:
		return jsonFloat(float64(x)), nil
	}
	return "", typeErrorf("keys must be str, int, float, bool or None, not %s", k.typeName())
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatRepr(f)
}

func appendJSONString(b []byte, s string, ascii bool) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && (c < utf8.RuneSelf || !ascii) {
			i++
			continue
		}
		b = append(b, s[from:i]...)
		size := 1
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c == '\b':
			b = append(b, `\b`...)
		case c == '\f':
			b = append(b, `\f`...)
		case c < utf8.RuneSelf:
			b = appendU16(b, uint16(c))
		default:
			var r rune
			r, size = utf8.DecodeRuneInString(s[i:])
			if r > 0xffff {
				r -= 0x10000
				b = appendU16(b, uint16(0xd800+r>>10))
				r = 0xdc00 + r&0x3ff
			}
			b = appendU16(b, uint16(r))
		}
		i += size
		from = i
	}
	return append(append(b, s[from:]...), '"')
}
