package template

import (
	"sort"
	"strings"
)

// sortBy sorts items by key, keeping the order of equal ones.
func (st *state) sortBy(items []Value, reversed bool, key func(Value) (Value, error)) ([]Value, error) {
	type pair struct{ key, item Value }
	pairs := make([]pair, len(items))
	for i, it := range items {
		k, err := key(it)
		if err != nil {
			return nil, err
		}
		pairs[i] = pair{k, it}
	}
	var failed error
	sort.SliceStable(pairs, func(i, j int) bool {
		if failed != nil {
			return false
		}
		if reversed {
			i, j = j, i
		}
		lt, err := st.compare(opLT, pairs[i].key, pairs[j].key)
		failed = err
		return lt
	})
	out := make([]Value, len(pairs))
	for i, p := range pairs {
		out[i] = p.item
	}
	return out, failed
}

func filterSort(st *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("sort", 0, "reverse", "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	reversed, err := truthOr(st, p[0], false)
	if err != nil {
		return nil, err
	}
	sensitive, err := truthOr(st, p[1], false)
	if err != nil {
		return nil, err
	}
	attrs := []Value{orNone(p[2])}
	if s, ok := text(attrs[0]); ok {
		attrs = nil
		for _, part := range strings.Split(s, ",") {
			attrs = append(attrs, String(part))
		}
	}
	gets := make([]func(Value) (Value, error), len(attrs))
	for i, at := range attrs {
		if gets[i], err = st.attrGetter(at, nil, !sensitive); err != nil {
			return nil, err
		}
	}
	items, err := st.collect(in)
	if err != nil {
		return nil, err
	}
	items, err = st.sortBy(items, reversed, func(v Value) (Value, error) {
		keys := make([]Value, len(gets))
		for i, get := range gets {
			var err error
			if keys[i], err = get(v); err != nil {
				return nil, err
			}
		}
		return &List{keys}, nil
	})
	return &List{items}, err
}

// noItems is the error of using something as a mapping that is none.
func noItems(v Value) error {
	if u, undef := v.(*undefined); undef {
		return u.fail()
	}
	return errorf("AttributeError", "'%s' object has no attribute 'items'", v.typeName())
}

func filterDictSort(st *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("dictsort", 0, "case_sensitive", "by", "reverse")
	if err != nil {
		return nil, err
	}
	sensitive, err := truthOr(st, p[0], false)
	if err != nil {
		return nil, err
	}
	reversed, err := truthOr(st, p[2], false)
	if err != nil {
		return nil, err
	}
	pos := 0
	if p[1] != nil {
		switch by, _ := text(p[1]); by {
		case "key":
		case "value":
			pos = 1
		default:
			return nil, errorf(ArgumentError, `You can only sort by either "key" or "value"`)
		}
	}
	d, ok := in.(*Dict)
	if !ok {
		return nil, noItems(in)
	}
	items, err := st.collect(&dictView{d, viewItems})
	if err != nil {
		return nil, err
	}
	items, err = st.sortBy(items, reversed, func(v Value) (Value, error) {
		k := v.(*tuple).items[pos]
		if !sensitive {
			k = ignoreCase(k)
		}
		return k, nil
	})
	return &List{items}, err
}

func filterUnique(_ *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("unique", 0, "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	var it iterator
	var get func(Value) (Value, error)
	seen := map[dictKey]bool{}
	return &generator{funcIter(func(st *state) (Value, bool, error) {
		if it == nil {
			sensitive, err := truthOr(st, p[0], false)
			if err != nil {
				return nil, false, err
			}
			if get, err = st.attrGetter(orNone(p[1]), nil, !sensitive); err != nil {
				return nil, false, err
			}
			if it, err = st.iter(in); err != nil {
				return nil, false, err
			}
		}
		for {
			v, ok, err := it.next(st)
			if err != nil || !ok {
				return nil, false, err
			}
			k, err := get(v)
			if err != nil {
				return nil, false, err
			}
			h, err := hashKey(k)
			if err != nil {
				return nil, false, err
			}
			if !seen[h] {
				seen[h] = true
				return v, true, st.growItems(4)
			}
		}
	}), "sync_do_unique"}, nil
}

// minMax makes min (better is opLT) and max (opGT).
func minMax(better compareOp) filterFunc {
	return func(st *state, in Value, a *arguments) (Value, error) {
		p, err := a.bind("min or max", 0, "case_sensitive", "attribute")
		if err != nil {
			return nil, err
		}
		sensitive, err := truthOr(st, p[0], false)
		if err != nil {
			return nil, err
		}
		get, err := st.attrGetter(orNone(p[1]), nil, !sensitive)
		if err != nil {
			return nil, err
		}
		items, err := st.collect(in)
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return undefinedHint("No aggregated item, sequence was empty."), nil
		}
		var best, bestKey Value
		for _, it := range items {
			k, err := get(it)
			if err != nil {
				return nil, err
			}
			if best != nil {
				if ok, err := st.compare(better, k, bestKey); err != nil {
					return nil, err
				} else if !ok {
					continue
				}
			}
			best, bestKey = it, k
		}
		return best, nil
	}
}

// groupAttr gives the attributes of groupby's pairs.
func groupAttr(t *tuple, name string) Value {
	switch {
	case t.group && name == "grouper":
		return t.items[0]
	case t.group && name == "list":
		return t.items[1]
	}
	return nil
}

func filterGroupBy(st *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("groupby", 1, "attribute", "default", "case_sensitive")
	if err != nil {
		return nil, err
	}
	sensitive, err := truthOr(st, p[2], false)
	if err != nil {
		return nil, err
	}
	key, err := st.attrGetter(p[0], p[1], !sensitive)
	if err != nil {
		return nil, err
	}
	shown, err := st.attrGetter(p[0], p[1], false)
	if err != nil {
		return nil, err
	}
	items, err := st.collect(in)
	if err != nil {
		return nil, err
	}
	if items, err = st.sortBy(items, false, key); err != nil {
		return nil, err
	}
	out := &List{}
	var last Value
	var group *List
	for _, it := range items {
		k, err := key(it)
		if err != nil {
			return nil, err
		}
		same := false
		if group != nil {
			if same, err = st.equal(last, k); err != nil {
				return nil, err
			}
		}
		if !same {
			name, err := shown(it)
			if err != nil {
				return nil, err
			}
			group, last = &List{}, k
			out.items = append(out.items, &tuple{items: []Value{name, group}, group: true})
		}
		group.items = append(group.items, it)
	}
	return out, st.growItems(4 * len(items))
}

func filterBatch(st *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("batch", 1, "linecount", "fill_with")
	if err != nil {
		return nil, err
	}
	size, ok := asInt(p[0])
	if !ok || size < 1 {
		return nil, typeErrorf("batch() needs a positive number of items a line")
	}
	items, err := st.collect(in)
	if err != nil {
		return nil, err
	}
	var out []Value
	for len(items) > 0 {
		n := int(min(size, int64(len(items))))
		line := append([]Value(nil), items[:n]...)
		items = items[n:]
		if fill := orNone(p[1]); fill != (None{}) && int64(n) < size {
			if size > 1<<24 {
				return nil, &LimitError{What: "memory"}
			}
			if err := st.growItems(int(size)); err != nil {
				return nil, err
			}
			for int64(len(line)) < size {
				line = append(line, fill)
			}
		}
		out = append(out, &List{line})
	}
	return &generator{&sliceIter{items: out}, "do_batch"}, nil
}

func filterSlice(st *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("slice", 1, "slices", "fill_with")
	if err != nil {
		return nil, err
	}
	n, ok := asInt(p[0])
	if !ok {
		return nil, notAnInteger(p[0])
	}
	if n == 0 {
		return nil, errorf(ZeroDivision, "integer division or modulo by zero")
	}
	items, err := st.collect(in)
	if err != nil {
		return nil, err
	}
	if n < 0 {
		n = 0
	}
	if n > 1<<24 {
		return nil, &LimitError{What: "memory"}
	}
	if err := st.growItems(4 * int(n)); err != nil {
		return nil, err
	}
	var out []Value
	at := 0
	for i := range int(n) {
		size := len(items) / int(n)
		extra := i < len(items)%int(n)
		if extra {
			size++
		}
		part := append([]Value(nil), items[at:at+size]...)
		at += size
		if fill := orNone(p[1]); fill != (None{}) && !extra {
			part = append(part, fill)
		}
		out = append(out, &List{part})
	}
	return &generator{&sliceIter{items: out}, "sync_do_slice"}, nil
}
