package template

import "strings"

func (e *nameExpr) eval(st *state, sc *scope) (Value, error) {
	if v := sc.lookup(st, e.id); v != nil {
		return v, nil
	}
	return undefinedName(e.name), nil
}

func (e *constExpr) eval(*state, *scope) (Value, error) { return e.v, nil }

func evalAll(st *state, sc *scope, es []expr) ([]Value, error) {
	if len(es) == 0 {
		return nil, nil
	}
	if err := st.growItems(len(es)); err != nil {
		return nil, err
	}
	vs := make([]Value, len(es))
	for i, e := range es {
		v, err := e.eval(st, sc)
		if err != nil {
			return nil, err
		}
		vs[i] = v
	}
	return vs, nil
}

func (e *tupleExpr) eval(st *state, sc *scope) (Value, error) {
	vs, err := evalAll(st, sc, e.items)
	if err != nil {
		return nil, err
	}
	return &tuple{items: vs}, nil
}

func (e *listExpr) eval(st *state, sc *scope) (Value, error) {
	vs, err := evalAll(st, sc, e.items)
	if err != nil {
		return nil, err
	}
	return &List{vs}, nil
}

func (e *dictExpr) eval(st *state, sc *scope) (Value, error) {
	if err := st.growItems(2 * len(e.keys)); err != nil {
		return nil, err
	}
	d := NewDict()
	for i := range e.keys {
		k, err := e.keys[i].eval(st, sc)
		if err != nil {
			return nil, err
		}
		v, err := e.vals[i].eval(st, sc)
		if err != nil {
			return nil, err
		}
		if err := d.putValue(k, v); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (e *attrExpr) eval(st *state, sc *scope) (Value, error) {
	obj, err := e.obj.eval(st, sc)
	if err != nil {
		return nil, err
	}
	if err := st.step(1); err != nil {
		return nil, err
	}
	return st.getAttr(obj, e.name)
}

func (e *itemExpr) eval(st *state, sc *scope) (Value, error) {
	obj, err := e.obj.eval(st, sc)
	if err != nil {
		return nil, err
	}
	key, err := e.key.eval(st, sc)
	if err != nil {
		return nil, err
	}
	if err := st.step(1); err != nil {
		return nil, err
	}
	return st.getItem(obj, key)
}

func (e *sliceExpr) eval(st *state, sc *scope) (Value, error) {
	obj, err := e.obj.eval(st, sc)
	if err != nil {
		return nil, err
	}
	var bounds [3]Value
	for i, b := range [...]expr{e.start, e.stop, e.step} {
		if b != nil {
			if bounds[i], err = b.eval(st, sc); err != nil {
				return nil, err
			}
		}
	}
	return st.slice(obj, bounds[0], bounds[1], bounds[2])
}

func (e *callExpr) eval(st *state, sc *scope) (Value, error) {
	fn, err := e.fn.eval(st, sc)
	if err != nil {
		return nil, err
	}
	var a arguments
	if err := e.args.eval(st, sc, &a); err != nil {
		return nil, err
	}
	return st.call(fn, &a)
}

func (e *filterExpr) eval(st *state, sc *scope) (Value, error) {
	in, err := e.in.eval(st, sc)
	if err != nil {
		return nil, err
	}
	return e.apply(st, sc, in)
}

func (e *filterExpr) apply(st *state, sc *scope, in Value) (Value, error) {
	var a arguments
	if err := e.args.eval(st, sc, &a); err != nil {
		return nil, err
	}
	if e.fn == nil {
		return nil, errorf(RuntimeError, "No filter named '%s' found.", e.name)
	}
	if err := st.step(1); err != nil {
		return nil, err
	}
	return e.fn(st, in, &a)
}

// applyTo runs a chain of filters over a text that has no expression of its own.
func (e *filterExpr) applyTo(st *state, sc *scope, in Value) (Value, error) {
	if e.in != nil {
		var err error
		if in, err = e.in.(*filterExpr).applyTo(st, sc, in); err != nil {
			return nil, err
		}
	}
	return e.apply(st, sc, in)
}

func (e *testExpr) eval(st *state, sc *scope) (Value, error) {
	in, err := e.in.eval(st, sc)
	if err != nil {
		return nil, err
	}
	var a arguments
	if err := e.args.eval(st, sc, &a); err != nil {
		return nil, err
	}
	if e.fn == nil {
		return nil, errorf(RuntimeError, "No test named '%s' found.", e.name)
	}
	if err := st.step(1); err != nil {
		return nil, err
	}
	ok, err := e.fn(st, in, &a)
	return Bool(ok), err
}

func (e *unaryExpr) eval(st *state, sc *scope) (Value, error) {
	x, err := e.x.eval(st, sc)
	if err != nil {
		return nil, err
	}
	return st.unary(e.op, x)
}

func (e *binaryExpr) eval(st *state, sc *scope) (Value, error) {
	l, err := e.l.eval(st, sc)
	if err != nil {
		return nil, err
	}
	r, err := e.r.eval(st, sc)
	if err != nil {
		return nil, err
	}
	if err := st.step(1); err != nil {
		return nil, err
	}
	return st.binary(e.op, l, r)
}

func (e *andExpr) eval(st *state, sc *scope) (Value, error) {
	l, err := e.l.eval(st, sc)
	if err != nil {
		return nil, err
	}
	if ok, err := st.truth(l); err != nil || !ok {
		return l, err
	}
	return e.r.eval(st, sc)
}

func (e *orExpr) eval(st *state, sc *scope) (Value, error) {
	l, err := e.l.eval(st, sc)
	if err != nil {
		return nil, err
	}
	if ok, err := st.truth(l); err != nil || ok {
		return l, err
	}
	return e.r.eval(st, sc)
}

func (e *concatExpr) eval(st *state, sc *scope) (Value, error) {
	parts := make([]string, len(e.parts))
	total := 0
	for i, p := range e.parts {
		v, err := p.eval(st, sc)
		if err != nil {
			return nil, err
		}
		if parts[i], err = st.str(v); err != nil {
			return nil, err
		}
		total += len(parts[i])
	}
	if err := st.grow(total); err != nil {
		return nil, err
	}
	return String(strings.Join(parts, "")), nil
}

func (e *compareExpr) eval(st *state, sc *scope) (Value, error) {
	l, err := e.first.eval(st, sc)
	if err != nil {
		return nil, err
	}
	for i, op := range e.ops {
		r, err := e.rest[i].eval(st, sc)
		if err != nil {
			return nil, err
		}
		if err := st.step(1); err != nil {
			return nil, err
		}
		ok, err := st.compare(op, l, r)
		if err != nil || !ok {
			return Bool(false), err
		}
		l = r
	}
	return Bool(true), nil
}

func (e *condExpr) eval(st *state, sc *scope) (Value, error) {
	t, err := e.test.eval(st, sc)
	if err != nil {
		return nil, err
	}
	ok, err := st.truth(t)
	switch {
	case err != nil:
		return nil, err
	case ok:
		return e.then.eval(st, sc)
	case e.other != nil:
		return e.other.eval(st, sc)
	}
	return undefinedHint("the inline if-expression on line " + itoa(e.line) +
		" evaluated to false and no else section was defined."), nil
}

// eval computes the arguments of a call into out.
func (a *callArgs) eval(st *state, sc *scope, out *arguments) error {
	var err error
	if out.pos, err = evalAll(st, sc, a.pos); err != nil {
		return err
	}
	for i, e := range a.kw {
		v, err := e.eval(st, sc)
		if err != nil {
			return err
		}
		out.kw = append(out.kw, keyword{a.names[i], v})
	}
	if a.star != nil {
		v, err := a.star.eval(st, sc)
		if err != nil {
			return err
		}
		more, err := st.collect(v)
		if err != nil {
			return err
		}
		out.pos = append(out.pos, more...)
	}
	if a.dstr == nil {
		return nil
	}
	v, err := a.dstr.eval(st, sc)
	if err != nil {
		return err
	}
	d, ok := v.(*Dict)
	if !ok {
		return typeErrorf("argument after ** must be a mapping, not %s", v.typeName())
	}
	for i, k := range d.keys {
		name, ok := text(k)
		if !ok {
			return typeErrorf("keywords must be strings")
		}
		if _, twice := out.get(name); twice {
			return typeErrorf("got multiple values for keyword argument '%s'", name)
		}
		out.kw = append(out.kw, keyword{name, d.vals[i]})
	}
	return nil
}
