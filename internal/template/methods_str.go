package template

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

func stringMethodAccess(name string) methodKind {
	switch name {
	case "capitalize", "casefold", "center", "count", "encode", "endswith", "expandtabs", "find", "format", "format_map", "index",
		"isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace",
		"istitle", "isupper", "join", "ljust", "lower", "lstrip", "maketrans", "partition", "removeprefix", "removesuffix", "replace",
		"rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase",
		"title", "translate", "upper", "zfill":
		return methodAllowed
	}
	return methodNone
}

// stringMethod is str's methods; on markup, results are markup and arguments that enter the text are escaped, as markupsafe does.
func (st *state) stringMethod(recv Value, name string, a *arguments) (Value, error) {
	s, _ := text(recv)
	_, marked := recv.(markup)
	if err := st.walk(len(s)); err != nil {
		return nil, err
	}
	switch name {
	case "strip", "lstrip", "rstrip":
		return stripMethod(s, marked, name, a)
	case "split", "rsplit", "splitlines", "partition", "rpartition":
		return st.splitMethod(s, marked, name, a)
	case "startswith", "endswith":
		return affixMethod(s, name, a)
	case "find", "rfind", "index", "rindex", "count":
		return findMethod(s, name, a)
	case "replace":
		return st.replaceMethod(s, marked, a)
	case "join":
		return st.joinMethod(s, marked, a)
	case "center", "ljust", "rjust", "zfill", "expandtabs":
		return st.padMethod(s, marked, name, a)
	case "removeprefix", "removesuffix":
		p, err := a.positional(name, 1, 1)
		if err != nil {
			return nil, err
		}
		cut, ok := text(p[0])
		if !ok {
			return nil, typeErrorf("%s() argument must be str, not %s", name, p[0].typeName())
		}
		if name == "removeprefix" {
			return likeString(marked, strings.TrimPrefix(s, cut)), nil
		}
		return likeString(marked, strings.TrimSuffix(s, cut)), nil
	case "format", "format_map":
		return st.formatMethod(s, marked, name, a)
	case "encode", "maketrans", "translate":
		return nil, unsupportedMethod(recv, name)
	}
	if _, err := a.positional("str."+name, 0, 0); err != nil {
		return nil, err
	}
	if is, ok := strings.CutPrefix(name, "is"); ok {
		return Bool(stringIs(s, is)), nil
	}
	if err := st.grow(len(s)); err != nil {
		return nil, err
	}
	switch name {
	case "upper":
		s = upper(s)
	case "lower":
		s = lower(s)
	case "casefold":
		s = caseFold(s)
	case "title":
		s = titleCase(s)
	case "capitalize":
		s = capitalize(s)
	case "swapcase":
		s = swapCase(s)
	}
	return likeString(marked, s), nil
}

func stringIs(s, what string) bool {
	switch what {
	case "alnum":
		return allRunes(s, isAlnumRune)
	case "alpha":
		return allRunes(s, unicode.IsLetter)
	case "ascii":
		return isASCII(s)
	case "decimal":
		return allRunes(s, unicode.IsDigit)
	case "digit":
		return allRunes(s, isDigitRune)
	case "numeric":
		return allRunes(s, unicode.IsNumber)
	case "space":
		return allRunes(s, isSpace)
	case "printable":
		return s == "" || allRunes(s, isPrintable)
	case "lower":
		return hasOnlyCase(s, unicode.IsLower, unicode.IsUpper)
	case "upper":
		return hasOnlyCase(s, unicode.IsUpper, unicode.IsLower)
	case "title":
		return isTitle(s)
	}
	return isIdentifier(s)
}

func stripMethod(s string, marked bool, name string, a *arguments) (Value, error) {
	p, err := a.positional(name, 0, 1)
	if err != nil {
		return nil, err
	}
	s, err = strip(s, name, orNone(p[0]))
	return likeString(marked, s), err
}

// strip cuts white space, or the given characters.
func strip(s, side string, chars Value) (string, error) {
	cut := isSpace
	if _, none := chars.(None); !none {
		set, ok := text(chars)
		if !ok {
			return "", typeErrorf("%s arg must be None or str", side)
		}
		cut = func(r rune) bool { return strings.ContainsRune(set, r) }
	}
	if side != "rstrip" {
		s = strings.TrimLeftFunc(s, cut)
	}
	if side != "lstrip" {
		s = strings.TrimRightFunc(s, cut)
	}
	return s, nil
}

// window gives the part of s between two character positions, and the character it begins at; ok is false where start is beyond the end.
func window(s string, start, end Value) (part string, from int, ok bool, err error) {
	if start == nil && end == nil {
		return s, 0, true, nil
	}
	n := utf8.RuneCountInString(s)
	from, _, count, err := sliceRange(n, start, end, nil)
	if err != nil {
		return "", 0, false, err
	}
	if b, given, _ := sliceBound(start); given && b > int64(n) {
		return "", 0, false, nil
	}
	return sliceString(s, n, from, 1, count), from, true, nil
}

func affixMethod(s, name string, a *arguments) (Value, error) {
	p, err := a.positional(name, 1, 3)
	if err != nil {
		return nil, err
	}
	s, _, ok, err := window(s, p[1], p[2])
	if err != nil || !ok {
		return Bool(false), err
	}
	has := strings.HasPrefix
	if name == "endswith" {
		has = strings.HasSuffix
	}
	if t, ok := p[0].(*tuple); ok {
		for _, it := range t.items {
			affix, ok := text(it)
			if !ok {
				return nil, typeErrorf("tuple for %s must only contain str, not %s", name, it.typeName())
			}
			if has(s, affix) {
				return Bool(true), nil
			}
		}
		return Bool(false), nil
	}
	affix, ok := text(p[0])
	if !ok {
		return nil, typeErrorf("%s first arg must be str or a tuple of str, not %s", name, p[0].typeName())
	}
	return Bool(has(s, affix)), nil
}

func findMethod(s, name string, a *arguments) (Value, error) {
	p, err := a.positional(name, 1, 3)
	if err != nil {
		return nil, err
	}
	sub, ok := text(p[0])
	if !ok {
		return nil, typeErrorf("must be str, not %s", p[0].typeName())
	}
	part, from, ok, err := window(s, p[1], p[2])
	if err != nil {
		return nil, err
	}
	if name == "count" {
		if !ok {
			return Int(0), nil
		}
		return Int(strings.Count(part, sub)), nil
	}
	i := -1
	if ok {
		if strings.HasPrefix(name, "r") {
			i = strings.LastIndex(part, sub)
		} else {
			i = strings.Index(part, sub)
		}
	}
	if i < 0 {
		if strings.HasSuffix(name, "index") {
			return nil, errorf(ValueError, "substring not found")
		}
		return Int(-1), nil
	}
	return Int(from + utf8.RuneCountInString(part[:i])), nil
}

func (st *state) replaceMethod(s string, marked bool, a *arguments) (Value, error) {
	p, err := a.positional("replace", 2, 3)
	if err != nil {
		return nil, err
	}
	from, ok1 := text(p[0])
	to, ok2 := text(p[1])
	if !ok1 || !ok2 {
		bad := 0
		if ok1 {
			bad = 1
		}
		return nil, typeErrorf("replace() argument %d must be str, not %s", bad+1, p[bad].typeName())
	}
	if _, safe := p[1].(markup); marked && !safe {
		to = escapeHTML(to)
	}
	most := int64(-1)
	if p[2] != nil {
		var ok bool
		if most, ok = asInt(p[2]); !ok {
			return nil, notAnInteger(p[2])
		}
	}
	s, err = st.replace(s, from, to, most)
	return likeString(marked, s), err
}

func (st *state) replace(s, from, to string, most int64) (string, error) {
	n := int64(strings.Count(s, from))
	if most >= 0 {
		n = min(n, most)
	}
	if grown := int64(len(to) - len(from)); grown > 0 && n > 0 && grown > st.lim.Memory/n {
		return "", &LimitError{What: "memory"}
	}
	if n == 0 {
		return s, nil
	}
	return strings.Replace(s, from, to, int(n)), st.grow(len(s) + int(n)*(len(to)-len(from)))
}

func (st *state) joinMethod(sep string, marked bool, a *arguments) (Value, error) {
	p, err := a.positional("join", 1, 1)
	if err != nil {
		return nil, err
	}
	items, err := st.collect(p[0])
	if err != nil {
		return nil, err
	}
	parts := make([]string, len(items))
	for i, it := range items {
		t, ok := text(it)
		if !ok && !marked {
			return nil, typeErrorf("sequence item %d: expected str instance, %s found", i, it.typeName())
		}
		if marked {
			if t, err = st.escaped(it); err != nil {
				return nil, err
			}
		}
		parts[i] = t
	}
	return st.joined(parts, sep, marked)
}

func (st *state) joined(parts []string, sep string, marked bool) (Value, error) {
	total := len(sep) * max(len(parts)-1, 0)
	for _, p := range parts {
		total += len(p)
	}
	if err := st.grow(total); err != nil {
		return nil, err
	}
	return likeString(marked, strings.Join(parts, sep)), nil
}

// escaped is markupsafe.escape(v).
func (st *state) escaped(v Value) (string, error) {
	if m, ok := v.(markup); ok {
		return string(m), nil
	}
	s, err := st.str(v)
	return escapeHTML(s), err
}

func (st *state) padMethod(s string, marked bool, name string, a *arguments) (Value, error) {
	if name == "expandtabs" {
		return st.expandTabs(s, marked, a)
	}
	p, err := a.positional(name, 1, 2)
	if err != nil {
		return nil, err
	}
	width, ok := asInt(p[0])
	if !ok {
		return nil, notAnInteger(p[0])
	}
	fill := " "
	if p[1] != nil {
		if fill, ok = text(p[1]); !ok || utf8.RuneCountInString(fill) != 1 || name == "zfill" {
			return nil, typeErrorf("The fill character must be exactly one character long")
		}
	}
	pad := max(width-int64(utf8.RuneCountInString(s)), 0)
	if pad > st.lim.Memory {
		return nil, &LimitError{What: "memory"}
	}
	if err := st.grow(len(s) + int(pad)*len(fill)); err != nil {
		return nil, err
	}
	left, right := 0, int(pad)
	switch name {
	case "rjust":
		left, right = right, 0
	case "center":
		left = int(pad/2 + pad&width&1)
		right = int(pad) - left
	case "zfill":
		sign := ""
		if s != "" && (s[0] == '-' || s[0] == '+') {
			sign, s = s[:1], s[1:]
		}
		return likeString(marked, sign+strings.Repeat("0", int(pad))+s), nil
	}
	return likeString(marked, strings.Repeat(fill, left)+s+strings.Repeat(fill, right)), nil
}

func (st *state) expandTabs(s string, marked bool, a *arguments) (Value, error) {
	p, err := a.bind("expandtabs", 0, "tabsize")
	if err != nil {
		return nil, err
	}
	size := int64(8)
	if p[0] != nil {
		var ok bool
		if size, ok = asInt(p[0]); !ok {
			return nil, notAnInteger(p[0])
		}
	}
	if n := int64(strings.Count(s, "\t")); n > 0 && size > st.lim.Memory/n {
		return nil, &LimitError{What: "memory"}
	} else if err := st.grow(len(s) + int(n*max(size, 0))); err != nil {
		return nil, err
	}
	var b strings.Builder
	col := int64(0)
	for _, r := range s {
		switch {
		case r == '\t' && size > 0:
			n := size - col%size
			b.WriteString(strings.Repeat(" ", int(n)))
			col += n
			continue
		case r == '\t':
			continue
		case r == '\n' || r == '\r':
			col = -1
		}
		b.WriteRune(r)
		col++
	}
	return likeString(marked, b.String()), nil
}
