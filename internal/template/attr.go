package template

import (
	"math"
	"strings"
	"unicode/utf8"
)

// getAttr is obj.name in a template: a method of the type first, then an item.
func (st *state) getAttr(obj Value, name string) (Value, error) {
	v, err := st.attribute(obj, name)
	if v != nil || err != nil {
		return v, err
	}
	v, err = st.index(obj, String(name))
	if v != nil || err != nil {
		return v, err
	}
	return undefinedIn(obj, String(name)), nil
}

// getItem is obj[key] in a template: an item first, then, for a string, a method of the type.
func (st *state) getItem(obj, key Value) (Value, error) {
	v, err := st.index(obj, key)
	if v != nil || err != nil {
		return v, err
	}
	if name, ok := text(key); ok {
		v, err := st.attribute(obj, name)
		if v != nil || err != nil {
			return v, err
		}
	}
	return undefinedIn(obj, key), nil
}

// attribute is Python's getattr behind the sandbox: nil where there is no such attribute, an undefined value that fails with a
// SecurityError where the sandbox forbids it.
func (st *state) attribute(obj Value, name string) (Value, error) {
	switch o := obj.(type) {
	case *undefined:
		return nil, o.fail()
	case *namespace:
		if v, ok := o.attrs.Get(name); ok {
			if strings.HasPrefix(name, "_") {
				return unsafeAttribute(obj, name), nil
			}
			return v, nil
		}
	case *loopContext:
		if v, err := o.attr(st, name); v != nil || err != nil {
			return v, err
		}
	case *macro:
		if v := o.attr(name); v != nil {
			return v, nil
		}
	case *cycler:
		if v := o.attr(name); v != nil {
			return v, nil
		}
	case *selfRef:
		if v := o.attr(name); v != nil {
			return v, nil
		}
	case *tuple:
		if v := groupAttr(o, name); v != nil {
			return v, nil
		}
	}
	if isDunder(name) {
		return unsafeAttribute(obj, name), nil
	}
	if v := numberAttr(obj, name); v != nil {
		return v, nil
	}
	switch methodAccess(obj, name) {
	case methodAllowed:
		return &boundMethod{obj, name}, nil
	case methodMutates:
		return unsafeAttribute(obj, name), nil
	}
	return nil, nil
}

func unsafeAttribute(obj Value, name string) *undefined {
	u := undefinedHint("access to attribute '" + name + "' of '" + obj.typeName() + "' object is unsafe.")
	u.kind = SecurityError
	return u
}

// isDunder tells whether every Python object, or every container, has the attribute.
func isDunder(name string) bool {
	if len(name) < 5 || !strings.HasPrefix(name, "__") || !strings.HasSuffix(name, "__") {
		return false
	}
	switch name[2 : len(name)-2] {
	case "class", "delattr", "dir", "doc", "eq", "format", "ge", "getattribute", "getstate", "gt", "hash", "init", "init_subclass",
		"le", "lt", "ne", "new", "reduce", "reduce_ex", "repr", "setattr", "sizeof", "str", "subclasshook", "add", "contains",
		"getitem", "iter", "len", "mul", "mod":
		return true
	}
	return false
}

func numberAttr(obj Value, name string) Value {
	if !isNumber(obj) {
		return nil
	}
	_, isFloat := obj.(Float)
	switch name {
	case "real":
		if b, ok := obj.(Bool); ok {
			n, _ := asInt(b)
			return Int(n)
		}
		return obj
	case "imag":
		if isFloat {
			return Float(0)
		}
		return Int(0)
	case "numerator", "denominator":
		if isFloat {
			return nil
		}
		if name == "denominator" {
			return Int(1)
		}
		n, _ := asBig(obj)
		return normalInt(n)
	}
	return nil
}

// index is obj[key] where Python allows it; nil where it raises TypeError or LookupError, which jinja2 turns into undefined.
func (st *state) index(obj, key Value) (Value, error) {
	switch o := obj.(type) {
	case *Dict:
		v, ok, err := o.getValue(key)
		if err != nil || !ok {
			return nil, nil //nolint:nilerr // an unhashable key is a TypeError: undefined
		}
		return v, nil
	case *undefined:
		return nil, o.fail()
	}
	n, ok := asInt(key)
	if !ok {
		return nil, nil
	}
	switch o := obj.(type) {
	case *List:
		if i, ok := wrapIndex(n, len(o.items)); ok {
			return o.items[i], nil
		}
	case *tuple:
		if i, ok := wrapIndex(n, len(o.items)); ok {
			return o.items[i], nil
		}
	case *rangeValue:
		if i, ok := wrapIndex(n, o.n); ok {
			return o.at(i), nil
		}
	case String, markup:
		s, _ := text(obj)
		_, marked := obj.(markup)
		if c := runeAt(s, n); c != "" {
			return likeString(marked, c), st.walk(len(s))
		}
	}
	return nil, nil
}

func wrapIndex(i int64, n int) (int, bool) {
	if i < 0 {
		i += int64(n)
	}
	return int(i), i >= 0 && i < int64(n)
}

// runeAt gives character i of s, from the end if negative; empty where there is none.
func runeAt(s string, i int64) string {
	if i >= int64(len(s)) || i < -int64(len(s)) {
		return ""
	}
	if i < 0 {
		for range -i - 1 {
			_, n := utf8.DecodeLastRuneInString(s)
			s = s[:len(s)-n]
		}
		_, n := utf8.DecodeLastRuneInString(s)
		return s[len(s)-n:]
	}
	for range i {
		_, n := utf8.DecodeRuneInString(s)
		s = s[n:]
	}
	_, n := utf8.DecodeRuneInString(s)
	return s[:n]
}

// sliceBound reads a bound of a slice; ok is false where it is left out or None.
func sliceBound(v Value) (n int64, ok bool, err error) {
	switch x := orNone(v).(type) {
	case None:
		return 0, false, nil
	case bigInt:
		if x.v.Sign() < 0 {
			return math.MinInt64, true, nil
		}
		return math.MaxInt64, true, nil
	default:
		n, ok := asInt(x)
		if !ok {
			return 0, false, typeErrorf("slice indices must be integers or None or have an __index__ method")
		}
		return n, true, nil
	}
}

// sliceRange resolves a slice of n items to a start, a step and a count, as Python's slice.indices does.
func sliceRange(n int, start, stop, step Value) (from, by, count int, err error) {
	s, ok, err := sliceBound(step)
	if err != nil {
		return 0, 0, 0, err
	}
	if !ok {
		s = 1
	}
	if s == 0 {
		return 0, 0, 0, errorf(ValueError, "slice step cannot be zero")
	}
	size := int64(n)
	s = min(max(s, -size-1), size+1) // longer steps change nothing
	low, high := int64(0), size
	if s < 0 {
		low, high = -1, size-1
	}
	clamp := func(v Value, def int64) (int64, error) {
		b, ok, err := sliceBound(v)
		if err != nil || !ok {
			return def, err
		}
		if b < 0 {
			if b += size; b < low {
				b = low
			}
		}
		return min(b, high), nil
	}
	a, b := low, high
	if s < 0 {
		a, b = high, low
	}
	if a, err = clamp(start, a); err != nil {
		return 0, 0, 0, err
	}
	if b, err = clamp(stop, b); err != nil {
		return 0, 0, 0, err
	}
	var c int64
	if s > 0 && a < b {
		c = (b-a-1)/s + 1
	} else if s < 0 && a > b {
		c = (a-b-1)/-s + 1
	}
	return int(a), int(s), int(c), nil
}

func pick(items []Value, from, by, count int) []Value {
	if by == 1 {
		return items[from : from+count : from+count] // shared: nothing changes a list
	}
	out := make([]Value, count)
	for i := range out {
		out[i] = items[from+i*by]
	}
	return out
}

// slice is obj[start:stop:step].
func (st *state) slice(obj, start, stop, step Value) (Value, error) {
	n, ok := st.length(obj)
	switch o := obj.(type) {
	case *undefined:
		return nil, o.fail()
	case *Dict:
		return nil, typeErrorf("unhashable type: 'slice'")
	case *dictView:
		ok = false
	}
	if !ok {
		return nil, typeErrorf("'%s' object is not subscriptable", obj.typeName())
	}
	from, by, count, err := sliceRange(n, start, stop, step)
	if err != nil {
		return nil, err
	}
	if by != 1 {
		if err := st.growItems(count); err != nil {
			return nil, err
		}
	}
	switch o := obj.(type) {
	case *List:
		return &List{pick(o.items, from, by, count)}, nil
	case *tuple:
		return &tuple{items: pick(o.items, from, by, count)}, nil
	case *rangeValue:
		first := o.start + int64(from)*o.step
		by := int64(by) * o.step
		return &rangeValue{first, first + int64(count)*by, by, count}, nil
	}
	s, _ := text(obj)
	_, marked := obj.(markup)
	return likeString(marked, sliceString(s, n, from, by, count)), st.walk(len(s))
}

// sliceString takes characters of s, which has n.
func sliceString(s string, n, from, by, count int) string {
	if count == 0 {
		return ""
	}
	if by == 1 {
		if n == len(s) {
			return s[from : from+count]
		}
		return runes(s, from, count)
	}
	rs := []rune(s)
	out := make([]rune, count)
	for i := range out {
		out[i] = rs[from+i*by]
	}
	return string(out)
}

// runes gives count characters of s from character from on.
func runes(s string, from, count int) string {
	at, start, seen := 0, len(s), 0
	for at < len(s) {
		if seen == from {
			start = at
		}
		if seen == from+count {
			return s[start:at]
		}
		_, n := utf8.DecodeRuneInString(s[at:])
		at += n
		seen++
	}
	return s[start:]
}
