package template

import (
	"strings"
	"unicode/utf8"
)

func (st *state) strings(parts []string, marked bool) (Value, error) {
	if err := st.growItems(2 * len(parts)); err != nil {
		return nil, err
	}
	items := make([]Value, len(parts))
	for i, p := range parts {
		items[i] = likeString(marked, p)
	}
	return &List{items}, nil
}

func (st *state) splitMethod(s string, marked bool, name string, a *arguments) (Value, error) {
	switch name {
	case "splitlines":
		p, err := a.bind(name, 0, "keepends")
		if err != nil {
			return nil, err
		}
		keep, err := truthOr(st, p[0], false)
		if err != nil {
			return nil, err
		}
		return st.strings(splitLines(s, keep), marked)
	case "partition", "rpartition":
		p, err := a.positional(name, 1, 1)
		if err != nil {
			return nil, err
		}
		sep, ok := text(p[0])
		if !ok {
			return nil, typeErrorf("must be str, not %s", p[0].typeName())
		}
		if sep == "" {
			return nil, errorf(ValueError, "empty separator")
		}
		parts := [3]string{s, "", ""}
		if i := strings.Index(s, sep); name == "partition" && i >= 0 {
			parts = [3]string{s[:i], sep, s[i+len(sep):]}
		} else if i := strings.LastIndex(s, sep); name == "rpartition" {
			if parts = [3]string{"", "", s}; i >= 0 {
				parts = [3]string{s[:i], sep, s[i+len(sep):]}
			}
		}
		return &tuple{items: []Value{likeString(marked, parts[0]), likeString(marked, parts[1]), likeString(marked, parts[2])}}, nil
	}
	p, err := a.bind(name, 0, "sep", "maxsplit")
	if err != nil {
		return nil, err
	}
	most := int64(-1)
	if p[1] != nil {
		var ok bool
		if most, ok = asInt(p[1]); !ok {
			return nil, notAnInteger(p[1])
		}
	}
	if most < 0 || most > int64(len(s)) {
		most = int64(len(s)) + 1
	}
	if _, none := orNone(p[0]).(None); none {
		if name == "rsplit" {
			return st.strings(rsplitSpace(s, int(most)), marked)
		}
		return st.strings(splitSpace(s, int(most)), marked)
	}
	sep, ok := text(p[0])
	if !ok {
		return nil, typeErrorf("must be str or None, not %s", p[0].typeName())
	}
	if sep == "" {
		return nil, errorf(ValueError, "empty separator")
	}
	if name == "rsplit" {
		return st.strings(rsplit(s, sep, int(most)), marked)
	}
	return st.strings(strings.SplitN(s, sep, int(most)+1), marked)
}

func notAnInteger(v Value) error {
	return typeErrorf("'%s' object cannot be interpreted as an integer", v.typeName())
}

func splitSpace(s string, most int) []string {
	var out []string
	for s = strings.TrimLeftFunc(s, isSpace); s != ""; s = strings.TrimLeftFunc(s, isSpace) {
		if len(out) == most {
			return append(out, s) // the rest keeps its trailing white space
		}
		i := strings.IndexFunc(s, isSpace)
		if i < 0 {
			return append(out, s)
		}
		out = append(out, s[:i])
		s = s[i:]
	}
	return out
}

func rsplitSpace(s string, most int) []string {
	var out []string
	for s = strings.TrimRightFunc(s, isSpace); s != ""; s = strings.TrimRightFunc(s, isSpace) {
		i := strings.LastIndexFunc(s, isSpace)
		if len(out) == most || i < 0 {
			out = append(out, s)
			break
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		out = append(out, s[i+n:])
		s = s[:i]
	}
	reverse(out)
	return out
}

func rsplit(s, sep string, most int) []string {
	var out []string
	for len(out) < most {
		i := strings.LastIndex(s, sep)
		if i < 0 {
			break
		}
		out = append(out, s[i+len(sep):])
		s = s[:i]
	}
	out = append(out, s)
	reverse(out)
	return out
}

func reverse[T any](s []T) {
	for i, j := 0, len(s)-1; i < j; i, j = i+1, j-1 {
		s[i], s[j] = s[j], s[i]
	}
}

// splitLines is str.splitlines.
func splitLines(s string, keep bool) []string {
	var out []string
	for s != "" {
		i := strings.IndexFunc(s, func(r rune) bool {
			return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
		})
		if i < 0 {
			return append(out, s)
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			n = 2
		}
		line := s[:i]
		if keep {
			line = s[:i+n]
		}
		out = append(out, line)
		s = s[i+n:]
	}
	return out
}
