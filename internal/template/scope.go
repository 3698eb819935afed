package template

// scope holds the variables of a loop round, a macro call or another inner block. The template's own variables are in state.root;
// a nil *scope stands for that level. Inner scopes read outer ones and never write to them.
type scope struct {
	parent *scope
	ids    []int
	vals   []Value
}

func (sc *scope) set(st *state, id int, v Value) {
	if sc == nil {
		st.root[id] = v
		return
	}
	for i, have := range sc.ids {
		if have == id {
			sc.vals[i] = v
			return
		}
	}
	sc.ids = append(sc.ids, id)
	sc.vals = append(sc.vals, v)
}

// lookup finds a variable; nil when there is none.
func (sc *scope) lookup(st *state, id int) Value {
	for ; sc != nil; sc = sc.parent {
		for i, have := range sc.ids {
			if have == id {
				if v := sc.vals[i]; v != (unassigned{}) {
					return v
				}
				return nil
			}
		}
	}
	return st.root[id]
}

// unassigned marks a variable that the scope starts without, whatever outer scopes have.
type unassigned struct{}

func (unassigned) typeName() string { return "missing" }

// enter makes a scope for a body.
func enter(parent *scope, unset []int) *scope {
	sc := &scope{parent: parent}
	sc.clear(unset)
	return sc
}

// clear marks variables as not there yet.
func (sc *scope) clear(unset []int) {
	for _, id := range unset {
		sc.ids, sc.vals = append(sc.ids, id), append(sc.vals, unassigned{})
	}
}

// reset empties the scope for the next round of a loop.
func (sc *scope) reset() {
	sc.ids, sc.vals = sc.ids[:0], sc.vals[:0]
}

func (t *nameTarget) assign(st *state, sc *scope, v Value) error {
	sc.set(st, t.id, v)
	return nil
}

func (t *attrTarget) assign(st *state, sc *scope, v Value) error {
	ns, ok := sc.lookup(st, t.id).(*namespace)
	if !ok {
		return errorf(RuntimeError, "cannot assign attribute on non-namespace object")
	}
	return ns.set(st, t.attr, v)
}

func (t *tupleTarget) assign(st *state, sc *scope, v Value) error {
	parts, err := st.unpack(v, len(t.items))
	if err != nil {
		return err
	}
	for i, it := range t.items {
		if err := it.assign(st, sc, parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// unpack takes exactly n items out of v.
func (st *state) unpack(v Value, n int) ([]Value, error) {
	switch x := v.(type) {
	case *tuple:
		if len(x.items) == n {
			return x.items, nil
		}
	case *List:
		if len(x.items) == n {
			return x.items, nil
		}
	}
	it, err := st.iter(v)
	if err != nil {
		if _, undef := v.(*undefined); !undef {
			return nil, typeErrorf("cannot unpack non-iterable %s object", v.typeName())
		}
		return nil, err
	}
	parts := make([]Value, 0, n)
	for {
		item, ok, err := it.next(st)
		switch {
		case err != nil:
			return nil, err
		case !ok && len(parts) < n:
			return nil, errorf(ValueError, "not enough values to unpack (expected %d, got %d)", n, len(parts))
		case !ok:
			return parts, nil
		case len(parts) == n:
			return nil, errorf(ValueError, "too many values to unpack (expected %d)", n)
		}
		parts = append(parts, item)
	}
}
