package template

import (
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// filterFunc is a filter: in|name(args).
type filterFunc func(st *state, in Value, a *arguments) (Value, error)

// filterByName gives jinja2's filters, with transformers' tojson; nil for a name that does not exist. Those that exist and have no use
// in a prompt are refused when they run.
func filterByName(name string) filterFunc {
	switch name {
	case "abs":
		return filterAbs
	case "attr":
		return filterAttr
	case "batch":
		return filterBatch
	case "capitalize":
		return textFilter(name, capitalize)
	case "center":
		return filterCenter
	case "count", "length":
		return filterLength
	case "d", "default":
		return filterDefault
	case "dictsort":
		return filterDictSort
	case "e", "escape":
		return filterEscape
	case "filesizeformat":
		return filterFileSize
	case "first":
		return filterFirst
	case "float":
		return filterFloat
	case "forceescape":
		return filterForceEscape
	case "format":
		return filterFormat
	case "groupby":
		return filterGroupBy
	case "indent":
		return filterIndent
	case "int":
		return filterInt
	case "items":
		return filterItems
	case "join":
		return filterJoin
	case "last":
		return filterLast
	case "list":
		return filterList
	case "lower":
		return textFilter(name, lower)
	case "map":
		return filterMap
	case "max":
		return minMax(opGT)
	case "min":
		return minMax(opLT)
	case "reject":
		return selecting("reject", false, false)
	case "rejectattr":
		return selecting("rejectattr", true, false)
	case "replace":
		return filterReplace
	case "reverse":
		return filterReverse
	case "round":
		return filterRound
	case "safe":
		return filterSafe
	case "select":
		return selecting("select", false, true)
	case "selectattr":
		return selecting("selectattr", true, true)
	case "slice":
		return filterSlice
	case "sort":
		return filterSort
	case "string":
		return filterString
	case "striptags":
		return filterStripTags
	case "sum":
		return filterSum
	case "title":
		return textFilter(name, titleWords)
	case "tojson":
		return filterToJSON
	case "trim":
		return filterTrim
	case "truncate":
		return filterTruncate
	case "unique":
		return filterUnique
	case "upper":
		return textFilter(name, upper)
	case "urlencode":
		return filterURLEncode
	case "wordcount":
		return filterWordCount
	case "xmlattr":
		return filterXMLAttr
	case "pprint", "random", "urlize", "wordwrap":
		return func(*state, Value, *arguments) (Value, error) {
			return nil, errorf(UnsupportedKind, "the filter '%s' is not supported", name)
		}
	}
	return nil
}

// soft is soft_str(v): text as it is, anything else through str.
func (st *state) soft(v Value) (s string, marked bool, err error) {
	if m, ok := v.(markup); ok {
		return string(m), true, st.walk(len(m))
	}
	if s, err = st.str(v); err != nil {
		return "", false, err
	}
	return s, false, st.walk(len(s))
}

// textFilter is a filter that maps text to text.
func textFilter(name string, f func(string) string) filterFunc {
	return func(st *state, in Value, a *arguments) (Value, error) {
		if _, err := a.bind(name, 0); err != nil {
			return nil, err
		}
		s, marked, err := st.soft(in)
		if err != nil {
			return nil, err
		}
		if err := st.grow(len(s)); err != nil {
			return nil, err
		}
		return likeString(marked, f(s)), nil
	}
}

// titleWords is the title filter: a word begins after a hyphen, white space or an opening bracket, and only there.
func titleWords(s string) string {
	var b, word strings.Builder
	flush := func() {
		if w := word.String(); w != "" {
			_, n := utf8.DecodeRuneInString(w)
			b.WriteString(upper(w[:n]))
			b.WriteString(lower(w[n:]))
			word.Reset()
		}
	}
	for _, r := range s {
		if isSpace(r) || strings.ContainsRune("-({[<", r) {
			flush()
			b.WriteRune(r)
		} else {
			word.WriteRune(r)
		}
	}
	flush()
	return b.String()
}

func filterTrim(st *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("trim", 0, "chars")
	if err != nil {
		return nil, err
	}
	s, marked, err := st.soft(in)
	if err != nil {
		return nil, err
	}
	s, err = strip(s, "strip", orNone(p[0]))
	return likeString(marked, s), err
}

func filterString(st *state, in Value, a *arguments) (Value, error) {
	if _, err := a.bind("string", 0); err != nil {
		return nil, err
	}
	s, marked, err := st.soft(in)
	return likeString(marked, s), err
}

func filterSafe(st *state, in Value, a *arguments) (Value, error) {
	if _, err := a.bind("safe", 0); err != nil {
		return nil, err
	}
	s, _, err := st.soft(in)
	return markup(s), err
}

func filterEscape(st *state, in Value, a *arguments) (Value, error) {
	if _, err := a.bind("escape", 0); err != nil {
		return nil, err
	}
	s, err := st.escaped(in)
	if err != nil {
		return nil, err
	}
	return markup(s), st.grow(len(s))
}

func filterForceEscape(st *state, in Value, a *arguments) (Value, error) {
	s, _, err := st.soft(in)
	if err != nil {
		return nil, err
	}
	return filterEscape(st, String(s), a)
}

func filterCenter(st *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("center", 0, "width")
	if err != nil {
		return nil, err
	}
	if p[0] == nil {
		p[0] = Int(80)
	}
	s, marked, err := st.soft(in)
	if err != nil {
		return nil, err
	}
	return st.padMethod(s, marked, "center", &arguments{pos: p})
}

func filterReplace(st *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("replace", 2, "old", "new", "count")
	if err != nil {
		return nil, err
	}
	var parts [3]string
	for i, v := range []Value{in, p[0], p[1]} {
		if parts[i], err = st.str(v); err != nil {
			return nil, err
		}
	}
	most := int64(-1)
	if c := orNone(p[2]); c != (None{}) {
		var ok bool
		if most, ok = asInt(c); !ok {
			return nil, notAnInteger(c)
		}
	}
	s, err := st.replace(parts[0], parts[1], parts[2], most)
	return String(s), err
}

func filterFormat(st *state, in Value, a *arguments) (Value, error) {
	if len(a.pos) > 0 && len(a.kw) > 0 {
		return nil, errorf(ArgumentError, "can't handle positional and keyword arguments at the same time")
	}
	s, marked, err := st.soft(in)
	if err != nil {
		return nil, err
	}
	if len(a.kw) > 0 {
		d := NewDict()
		for _, k := range a.kw {
			d.Set(k.name, k.val)
		}
		return st.percent(likeString(marked, s), d)
	}
	return st.percent(likeString(marked, s), &tuple{items: a.pos})
}

func filterIndent(st *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("indent", 0, "width", "first", "blank")
	if err != nil {
		return nil, err
	}
	s, ok := text(in)
	if !ok {
		if u, undef := in.(*undefined); undef {
			return nil, u.fail()
		}
		if l, isList := in.(*List); isList {
			return nil, errorf("AttributeError", "'%s' object has no attribute 'splitlines'", l.typeName())
		}
		return nil, typeErrorf("unsupported operand type(s) for +=: '%s' and 'str'", in.typeName())
	}
	_, marked := in.(markup)
	pad := "    "
	if p[0] != nil {
		if pad, ok = text(p[0]); !ok {
			n, ok := asInt(p[0])
			if !ok {
				return nil, typeErrorf("can't multiply sequence by non-int of type '%s'", p[0].typeName())
			}
			if n > 1<<20 {
				return nil, &LimitError{What: "memory"}
			}
			pad = strings.Repeat(" ", int(max(n, 0)))
		} else if marked {
			if pad, err = st.escaped(p[0]); err != nil {
				return nil, err
			}
		}
	}
	first, err := truthOr(st, p[1], false)
	if err != nil {
		return nil, err
	}
	blank, err := truthOr(st, p[2], false)
	if err != nil {
		return nil, err
	}
	lines := splitLines(s+"\n", false)
	if err := st.grow(len(s) + len(lines)*(len(pad)+1)); err != nil {
		return nil, err
	}
	for i := range lines {
		if i == 0 && first || i > 0 && (blank || lines[i] != "") {
			lines[i] = pad + lines[i]
		}
	}
	return likeString(marked, strings.Join(lines, "\n")), nil
}

func filterTruncate(st *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("truncate", 0, "length", "killwords", "end", "leeway")
	if err != nil {
		return nil, err
	}
	size, leeway, end := int64(255), int64(5), "..."
	for i, to := range map[int]*int64{0: &size, 3: &leeway} {
		if v := orNone(p[i]); v != (None{}) {
			n, ok := asInt(v)
			if !ok {
				return nil, notAnInteger(v)
			}
			*to = n
		}
	}
	if p[2] != nil {
		var ok bool
		if end, ok = text(p[2]); !ok {
			return nil, typeErrorf("truncate() end must be a string")
		}
	}
	kill, err := truthOr(st, p[1], false)
	if err != nil {
		return nil, err
	}
	endLen := int64(utf8.RuneCountInString(end))
	if size < endLen || leeway < 0 {
		return nil, errorf("AssertionError", "expected length >= %d, got %d", endLen, size)
	}
	n, ok := st.length(in)
	if !ok {
		return nil, typeErrorf("object of type '%s' has no len()", in.typeName())
	}
	if int64(n) <= size+leeway {
		return in, nil
	}
	s, ok := text(in)
	if !ok {
		return nil, typeErrorf("truncate() cannot shorten a %s", in.typeName())
	}
	s = runes(s, 0, int(size-endLen))
	if !kill {
		if i := strings.LastIndexByte(s, ' '); i >= 0 {
			s = s[:i]
		}
	}
	return String(s + end), st.grow(len(s) + len(end))
}

func filterWordCount(st *state, in Value, a *arguments) (Value, error) {
	if _, err := a.bind("wordcount", 0); err != nil {
		return nil, err
	}
	s, _, err := st.soft(in)
	words := strings.FieldsFunc(s, func(r rune) bool { return r != '_' && !isAlnumRune(r) && !unicode.Is(unicode.Mn, r) })
	return Int(len(words)), err
}

func filterStripTags(st *state, in Value, a *arguments) (Value, error) {
	if _, err := a.bind("striptags", 0); err != nil {
		return nil, err
	}
	s, _, err := st.soft(in)
	if err != nil {
		return nil, err
	}
	s = regexp.MustCompile(`(?s)<!--.*?-->|<[^>]*>`).ReplaceAllString(s, "")
	s = strings.Join(splitSpace(s, len(s)), " ")
	return String(unescapeHTML(s)), st.grow(len(s))
}

func filterURLEncode(st *state, in Value, a *arguments) (Value, error) {
	if _, err := a.bind("urlencode", 0); err != nil {
		return nil, err
	}
	if _, ok := text(in); ok || isNumber(in) || in == (None{}) {
		s, err := st.str(in)
		return String(urlQuote(s, true)), err
	}
	src := in
	if d, ok := in.(*Dict); ok {
		src = &dictView{d, viewItems}
	}
	pairs, err := st.collect(src)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(pairs))
	for i, pair := range pairs {
		kv, err := st.unpack(pair, 2)
		if err != nil {
			return nil, err
		}
		k, err := st.str(kv[0])
		if err != nil {
			return nil, err
		}
		v, err := st.str(kv[1])
		if err != nil {
			return nil, err
		}
		out[i] = urlQuote(k, false) + "=" + urlQuote(v, false)
	}
	return st.joined(out, "&", false)
}

// urlQuote quotes for a path (slashes stay, a space is %20) or for a query (a space is +).
func urlQuote(s string, path bool) string {
	q := strings.ReplaceAll(url.QueryEscape(s), "%7E", "~")
	if path {
		q = strings.NewReplacer("+", "%20", "%2F", "/").Replace(q)
	}
	return q
}

func filterXMLAttr(st *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("xmlattr", 0, "autospace")
	if err != nil {
		return nil, err
	}
	d, ok := in.(*Dict)
	if !ok {
		return nil, noItems(in)
	}
	var parts []string
	for k, v := range d.All() {
		if _, undef := v.(*undefined); undef || v == (None{}) {
			continue
		}
		if strings.ContainsAny(k, " \t\n\r\f\v/>=") {
			return nil, errorf(ValueError, "Invalid character in attribute name: %s", appendStringRepr(nil, k))
		}
		val, err := st.escaped(v)
		if err != nil {
			return nil, err
		}
		parts = append(parts, escapeHTML(k)+`="`+val+`"`)
	}
	s := strings.Join(parts, " ")
	space, err := truthOr(st, p[0], true)
	if space && s != "" {
		s = " " + s
	}
	if err != nil {
		return nil, err
	}
	return String(s), st.grow(len(s))
}
