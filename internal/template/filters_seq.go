package template

import (
	"errors"
	"strconv"
	"strings"
)

// attrGetter makes the function that takes an attribute ("a.b.0", or a number) out of an item; without one, the item itself. fold makes
// text lower case, as case-insensitive filters compare it.
func (st *state) attrGetter(attribute, def Value, fold bool) (func(Value) (Value, error), error) {
	parts := attributeParts(attribute)
	if len(parts) > 1000 {
		return nil, &LimitError{What: "attribute path"}
	}
	return func(v Value) (Value, error) {
		for _, p := range parts {
			var err error
			if v, err = st.getItem(v, p); err != nil {
				return nil, err
			}
			if _, undef := v.(*undefined); undef && def != nil && def != (None{}) {
				v = def
			}
		}
		if fold {
			v = ignoreCase(v)
		}
		return v, st.step(1)
	}, nil
}

func attributeParts(attribute Value) []Value {
	switch x := attribute.(type) {
	case nil, None:
		return nil
	case String:
		var parts []Value
		for _, p := range strings.Split(string(x), ".") {
			if n, err := strconv.Atoi(p); err == nil && p[0] >= '0' && p[0] <= '9' {
				parts = append(parts, Int(n))
			} else {
				parts = append(parts, String(p))
			}
		}
		return parts
	}
	return []Value{attribute}
}

func ignoreCase(v Value) Value {
	if s, ok := text(v); ok {
		return String(lower(s))
	}
	return v
}

func filterLength(st *state, in Value, a *arguments) (Value, error) {
	if _, err := a.bind("length", 0); err != nil {
		return nil, err
	}
	if lc, ok := in.(*loopContext); ok {
		n, err := lc.length(st)
		return Int(n), err
	}
	n, ok := st.length(in)
	if !ok {
		return nil, typeErrorf("object of type '%s' has no len()", in.typeName())
	}
	if s, ok := text(in); ok {
		return Int(n), st.walk(len(s))
	}
	return Int(n), nil
}

func filterDefault(st *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("default", 0, "default_value", "boolean")
	if err != nil {
		return nil, err
	}
	_, use := in.(*undefined)
	if !use {
		boolean, err := truthOr(st, p[1], false)
		if err != nil {
			return nil, err
		}
		if boolean {
			t, err := st.truth(in)
			if err != nil {
				return nil, err
			}
			use = !t
		}
	}
	if !use {
		return in, nil
	}
	if p[0] == nil {
		return String(""), nil
	}
	return p[0], nil
}

func filterFirst(st *state, in Value, a *arguments) (Value, error) {
	if _, err := a.bind("first", 0); err != nil {
		return nil, err
	}
	it, err := st.iter(in)
	if err != nil {
		return nil, err
	}
	v, ok, err := it.next(st)
	if err == nil && !ok {
		return undefinedHint("No first item, sequence was empty."), nil
	}
	return v, err
}

func filterLast(st *state, in Value, a *arguments) (Value, error) {
	if _, err := a.bind("last", 0); err != nil {
		return nil, err
	}
	if l, ok := in.(*List); ok && len(l.items) > 0 {
		return l.items[len(l.items)-1], nil
	}
	items, err := st.reversible(in)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return undefinedHint("No last item, sequence was empty."), nil
	}
	return items[len(items)-1], nil
}

// reversible lists what Python's reversed takes.
func (st *state) reversible(v Value) ([]Value, error) {
	switch v.(type) {
	case *generator, *namespace, None, *loopContext:
		return nil, typeErrorf("'%s' object is not reversible", v.typeName())
	}
	items, err := st.collect(v)
	var e *Error
	if errors.As(err, &e) && e.Kind == TypeError && isNumber(v) {
		return nil, typeErrorf("'%s' object is not reversible", v.typeName())
	}
	return items, err
}

func filterReverse(st *state, in Value, a *arguments) (Value, error) {
	if _, err := a.bind("reverse", 0); err != nil {
		return nil, err
	}
	if s, ok := text(in); ok {
		_, marked := in.(markup)
		rs := []rune(s)
		reverse(rs)
		return likeString(marked, string(rs)), st.grow(len(s))
	}
	_, oneShot := in.(*generator)
	items, err := st.collect(in)
	if err != nil {
		return nil, errorf(ArgumentError, "argument must be iterable")
	}
	if oneShot {
		reverse(items)
		return &List{items}, nil
	}
	return &generator{&reverseIter{items}, "reversed"}, nil
}

func filterList(st *state, in Value, a *arguments) (Value, error) {
	if _, err := a.bind("list", 0); err != nil {
		return nil, err
	}
	items, err := st.collect(in)
	return &List{items}, err
}

func filterItems(_ *state, in Value, a *arguments) (Value, error) {
	if _, err := a.bind("items", 0); err != nil {
		return nil, err
	}
	// The checks run when the first item is asked for, as in the generator that jinja2 has here.
	var it iterator
	return &generator{funcIter(func(st *state) (Value, bool, error) {
		if it == nil {
			switch d := in.(type) {
			case *undefined:
				it = &sliceIter{}
			case *Dict:
				it = &viewIter{v: &dictView{d, viewItems}}
			default:
				return nil, false, typeErrorf("Can only get item pairs from a mapping.")
			}
		}
		return it.next(st)
	}), "do_items"}, nil
}

func filterJoin(st *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("join", 0, "d", "attribute")
	if err != nil {
		return nil, err
	}
	sep := ""
	if p[0] != nil {
		if sep, err = st.str(p[0]); err != nil {
			return nil, err
		}
	}
	get, err := st.attrGetter(orNone(p[1]), nil, false)
	if err != nil {
		return nil, err
	}
	items, err := st.collect(in)
	if err != nil {
		return nil, err
	}
	parts := make([]string, len(items))
	for i, it := range items {
		v, err := get(it)
		if err != nil {
			return nil, err
		}
		if parts[i], err = st.str(v); err != nil {
			return nil, err
		}
	}
	return st.joined(parts, sep, false)
}

func filterAttr(st *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("attr", 1, "name")
	if err != nil {
		return nil, err
	}
	name, ok := text(p[0])
	if !ok {
		return nil, typeErrorf("attribute name must be string, not '%s'", p[0].typeName())
	}
	v, err := st.attribute(in, name)
	if v == nil && err == nil {
		v = undefinedIn(in, p[0])
	}
	return v, err
}

// transform makes the function that map applies.
func (st *state) transform(a *arguments) (func(Value) (Value, error), error) {
	if len(a.pos) == 0 {
		p, err := a.bind("map", 0, "attribute", "default")
		if err != nil {
			return nil, errorf(ArgumentError, "%v", err)
		}
		if p[0] == nil {
			return nil, errorf(ArgumentError, "map requires a filter argument")
		}
		return st.attrGetter(p[0], p[1], false)
	}
	name, _ := text(a.pos[0])
	f := filterByName(name)
	if f == nil {
		return nil, errorf(RuntimeError, "No filter named '%s'.", name)
	}
	rest := &arguments{a.pos[1:], a.kw}
	return func(v Value) (Value, error) { return f(st, v, rest) }, nil
}

// lazy makes a generator whose set-up runs when its first item is asked for.
func lazy(name string, in Value, setup func(st *state) (func(Value) (Value, bool, error), error)) Value {
	var it iterator
	var f func(Value) (Value, bool, error)
	return &generator{funcIter(func(st *state) (Value, bool, error) {
		if it == nil {
			ok, err := st.truth(in)
			if err != nil {
				return nil, false, err
			}
			if !ok {
				it = &sliceIter{}
			} else if f, err = setup(st); err != nil {
				return nil, false, err
			} else if it, err = st.iter(in); err != nil {
				return nil, false, err
			}
		}
		for {
			v, ok, err := it.next(st)
			if err != nil || !ok {
				return nil, false, err
			}
			if v, ok, err = f(v); err != nil || ok {
				return v, ok, err
			}
			if err := st.step(1); err != nil {
				return nil, false, err
			}
		}
	}), name}
}

func filterMap(_ *state, in Value, a *arguments) (Value, error) {
	return lazy("sync_do_map", in, func(st *state) (func(Value) (Value, bool, error), error) {
		f, err := st.transform(a)
		return func(v Value) (Value, bool, error) {
			v, err := f(v)
			return v, true, err
		}, err
	}), nil
}

// selecting makes select, reject, selectattr and rejectattr.
func selecting(name string, byAttr, keep bool) filterFunc {
	return func(_ *state, in Value, a *arguments) (Value, error) {
		return lazy(name, in, func(st *state) (func(Value) (Value, bool, error), error) {
			passes, err := st.predicate(a, byAttr)
			return func(v Value) (Value, bool, error) {
				ok, err := passes(v)
				return v, ok == keep, err
			}, err
		}), nil
	}
}

func (st *state) predicate(a *arguments, byAttr bool) (func(Value) (bool, error), error) {
	pos := a.pos
	get := func(v Value) (Value, error) { return v, nil }
	if byAttr {
		if len(pos) == 0 {
			return nil, errorf(ArgumentError, "Missing parameter for attribute name")
		}
		var err error
		if get, err = st.attrGetter(pos[0], nil, false); err != nil {
			return nil, err
		}
		pos = pos[1:]
	}
	check := func(v Value) (bool, error) { return st.truth(v) }
	if len(pos) > 0 {
		name, _ := text(pos[0])
		f := testByName(name)
		if f == nil {
			return nil, errorf(RuntimeError, "No test named '%s'.", name)
		}
		rest := &arguments{pos[1:], a.kw}
		check = func(v Value) (bool, error) { return f(st, v, rest) }
	}
	return func(v Value) (bool, error) {
		v, err := get(v)
		if err != nil {
			return false, err
		}
		return check(v)
	}, nil
}
