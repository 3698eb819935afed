package template

// run executes statements in order; a nil scope is the template's top level.
func (st *state) run(body []stmt, sc *scope) (flow, error) {
	for _, s := range body {
		if err := st.step(1); err != nil {
			return flowNext, err
		}
		if fl, err := s.exec(st, sc); err != nil || fl != flowNext {
			return fl, err
		}
	}
	return flowNext, nil
}

func (s *dataStmt) exec(st *state, _ *scope) (flow, error) { return flowNext, st.write(s.text) }

func (s *outputStmt) exec(st *state, sc *scope) (flow, error) {
	st.line = s.line
	for _, e := range s.exprs {
		v, err := e.eval(st, sc)
		if err != nil {
			return flowNext, err
		}
		t, err := st.str(v)
		if err != nil {
			return flowNext, err
		}
		if err := st.write(t); err != nil {
			return flowNext, err
		}
	}
	return flowNext, nil
}

func (s *setStmt) exec(st *state, sc *scope) (flow, error) {
	st.line = s.line
	v, err := s.val.eval(st, sc)
	if err != nil {
		return flowNext, err
	}
	return flowNext, s.to.assign(st, sc, v)
}

func (s *setBlockStmt) exec(st *state, sc *scope) (flow, error) {
	st.line = s.line
	if err := st.checkNamespace(s.to, sc); err != nil {
		return flowNext, err
	}
	inner := enter(sc, s.unset)
	t, fl, err := st.capture(func() (flow, error) { return st.run(s.body, inner) })
	if err != nil || fl != flowNext {
		return fl, err
	}
	var v Value = String(t)
	if s.filter != nil {
		if v, err = s.filter.applyTo(st, inner, v); err != nil {
			return flowNext, err
		}
	}
	return flowNext, s.to.assign(st, sc, v)
}

// checkNamespace refuses an assignment to the attribute of something else before the block's body runs.
func (st *state) checkNamespace(t target, sc *scope) error {
	if a, ok := t.(*attrTarget); ok {
		if _, ok := sc.lookup(st, a.id).(*namespace); !ok {
			return errorf(RuntimeError, "cannot assign attribute on non-namespace object")
		}
	}
	return nil
}

func (s *ifStmt) exec(st *state, sc *scope) (flow, error) {
	st.line = s.line
	v, err := s.test.eval(st, sc)
	if err != nil {
		return flowNext, err
	}
	if ok, err := st.truth(v); err != nil {
		return flowNext, err
	} else if ok {
		return st.run(s.body, sc)
	}
	for i := range s.elifs {
		b := &s.elifs[i]
		st.line = b.line
		if v, err = b.test.eval(st, sc); err != nil {
			return flowNext, err
		}
		if ok, err := st.truth(v); err != nil {
			return flowNext, err
		} else if ok {
			return st.run(b.body, sc)
		}
	}
	return st.run(s.other, sc)
}

func (s *macroStmt) exec(st *state, sc *scope) (flow, error) {
	return flowNext, s.to.assign(st, sc, &macro{s.def, sc})
}

func (s *callStmt) exec(st *state, sc *scope) (flow, error) {
	st.line = s.line
	fn, err := s.call.fn.eval(st, sc)
	if err != nil {
		return flowNext, err
	}
	var a arguments
	if err := s.call.args.eval(st, sc, &a); err != nil {
		return flowNext, err
	}
	if _, twice := a.get("caller"); twice {
		return flowNext, typeErrorf("got multiple values for keyword argument 'caller'")
	}
	a.kw = append(a.kw, keyword{"caller", &macro{s.def, sc}})
	v, err := st.call(fn, &a)
	if err != nil {
		return flowNext, err
	}
	t, err := st.str(v)
	if err != nil {
		return flowNext, err
	}
	return flowNext, st.write(t)
}

func (s *filterStmt) exec(st *state, sc *scope) (flow, error) {
	st.line = s.line
	inner := enter(sc, s.unset)
	t, fl, err := st.capture(func() (flow, error) { return st.run(s.body, inner) })
	if err != nil || fl != flowNext {
		return fl, err
	}
	v, err := s.filter.applyTo(st, inner, String(t))
	if err != nil {
		return flowNext, err
	}
	t, ok := text(v)
	if !ok {
		return flowNext, typeErrorf("sequence item 0: expected str instance, %s found", v.typeName())
	}
	return flowNext, st.write(t)
}

func (s *withStmt) exec(st *state, sc *scope) (flow, error) {
	st.line = s.line
	vals, err := evalAll(st, sc, s.vals)
	if err != nil {
		return flowNext, err
	}
	inner := enter(sc, s.unset)
	for i, t := range s.to {
		if err := t.assign(st, inner, vals[i]); err != nil {
			return flowNext, err
		}
	}
	return st.run(s.body, inner)
}

func (s *generationStmt) exec(st *state, sc *scope) (flow, error) {
	return st.run(s.body, enter(sc, s.unset))
}

func (s *blockStmt) exec(st *state, sc *scope) (flow, error) {
	st.line = s.line
	if !s.scoped {
		sc = nil // a block sees the template's variables, not those of the loop around it
	}
	return st.run(s.body, enter(sc, s.unset))
}

func (s *jumpStmt) exec(*state, *scope) (flow, error) { return s.how, nil }

func (s *refusedStmt) exec(st *state, _ *scope) (flow, error) {
	st.line = s.line
	return flowNext, errorf(UnsupportedKind, "%s", s.what)
}
