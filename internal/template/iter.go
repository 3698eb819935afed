package template

import "unicode/utf8"

// iterator walks over items; ok is false at the end.
type iterator interface {
	next(st *state) (v Value, ok bool, err error)
}

type sliceIter struct {
	items []Value
	i     int
}

func (it *sliceIter) next(*state) (Value, bool, error) {
	if it.i >= len(it.items) {
		return nil, false, nil
	}
	v := it.items[it.i]
	it.i++
	return v, true, nil
}

type reverseIter struct{ items []Value }

func (it *reverseIter) next(*state) (Value, bool, error) {
	n := len(it.items)
	if n == 0 {
		return nil, false, nil
	}
	v := it.items[n-1]
	it.items = it.items[:n-1]
	return v, true, nil
}

// runeIter gives plain strings, for marked text too.
type runeIter struct{ s string }

func (it *runeIter) next(*state) (Value, bool, error) {
	if it.s == "" {
		return nil, false, nil
	}
	_, n := utf8.DecodeRuneInString(it.s)
	c := it.s[:n]
	it.s = it.s[n:]
	return String(c), true, nil
}

type viewIter struct {
	v *dictView
	i int
}

func (it *viewIter) next(*state) (Value, bool, error) {
	if it.i >= it.v.d.Len() {
		return nil, false, nil
	}
	it.i++
	return it.v.at(it.i - 1), true, nil
}

func (v *dictView) at(i int) Value {
	switch v.what {
	case viewKeys:
		return v.d.keys[i]
	case viewValues:
		return v.d.vals[i]
	}
	return &tuple{items: []Value{v.d.keys[i], v.d.vals[i]}}
}

type rangeIter struct {
	r *rangeValue
	i int
}

func (it *rangeIter) next(*state) (Value, bool, error) {
	if it.i >= it.r.n {
		return nil, false, nil
	}
	it.i++
	return it.r.at(it.i - 1), true, nil
}

func (r *rangeValue) at(i int) Value { return Int(r.start + int64(i)*r.step) }

// funcIter is an iterator from a closure.
type funcIter func(st *state) (Value, bool, error)

func (f funcIter) next(st *state) (Value, bool, error) {
	if err := st.step(1); err != nil {
		return nil, false, err
	}
	return f(st)
}

func (l *loopContext) next(st *state) (Value, bool, error) {
	v, ok, err := l.advance(st)
	if err != nil || !ok {
		return nil, false, err
	}
	return &tuple{items: []Value{v, l}}, true, nil
}

// iter is Python's iter(v).
func (st *state) iter(v Value) (iterator, error) {
	switch x := v.(type) {
	case *List:
		return &sliceIter{items: x.items}, nil
	case *tuple:
		return &sliceIter{items: x.items}, nil
	case String:
		return &runeIter{s: string(x)}, nil
	case markup:
		return &runeIter{s: string(x)}, nil
	case *Dict:
		return &sliceIter{items: x.keys}, nil
	case *dictView:
		return &viewIter{v: x}, nil
	case *rangeValue:
		return &rangeIter{r: x}, nil
	case *generator:
		return x.it, nil
	case *loopContext:
		return x, nil
	case *undefined:
		return &sliceIter{}, nil
	}
	return nil, typeErrorf("'%s' object is not iterable", v.typeName())
}

// drain collects what is left of an iterator.
func (st *state) drain(it iterator) ([]Value, error) {
	if s, ok := it.(*sliceIter); ok {
		rest := s.items[s.i:]
		s.i = len(s.items)
		return append([]Value(nil), rest...), st.growItems(len(rest))
	}
	var out []Value
	for {
		v, ok, err := it.next(st)
		if err != nil {
			return nil, err
		}
		if !ok {
			return out, nil
		}
		if err := st.growItems(1); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
}

// collect is list(v).
func (st *state) collect(v Value) ([]Value, error) {
	it, err := st.iter(v)
	if err != nil {
		return nil, err
	}
	return st.drain(it)
}

// length is len(v) where v has one.
func (st *state) length(v Value) (int, bool) {
	switch x := v.(type) {
	case String:
		return utf8.RuneCountInString(string(x)), true
	case markup:
		return utf8.RuneCountInString(string(x)), true
	case *List:
		return len(x.items), true
	case *tuple:
		return len(x.items), true
	case *Dict:
		return x.Len(), true
	case *dictView:
		return x.d.Len(), true
	case *rangeValue:
		return x.n, true
	case *undefined:
		return 0, true
	}
	return 0, false
}

// truth is bool(v).
func (st *state) truth(v Value) (bool, error) {
	switch x := v.(type) {
	case Bool:
		return bool(x), nil
	case None, *undefined:
		return false, nil
	case String:
		return x != "", nil
	case markup:
		return x != "", nil
	case Int:
		return x != 0, nil
	case Float:
		return x != 0, nil
	case *List:
		return len(x.items) > 0, nil
	case *tuple:
		return len(x.items) > 0, nil
	case *Dict:
		return x.Len() > 0, nil
	case *dictView:
		return x.d.Len() > 0, nil
	case *rangeValue:
		return x.n > 0, nil
	case *loopContext:
		n, err := x.length(st)
		return n > 0, err
	}
	return true, nil
}
