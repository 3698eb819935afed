package template

// testFunc is a test: in is name(args).
type testFunc func(st *state, in Value, a *arguments) (bool, error)

// testByName gives jinja2's tests; nil for a name that does not exist.
func testByName(name string) testFunc {
	switch name {
	case "defined":
		return plainTest(name, func(v Value) bool { _, undef := v.(*undefined); return !undef })
	case "undefined":
		return plainTest(name, func(v Value) bool { _, undef := v.(*undefined); return undef })
	case "none":
		return plainTest(name, func(v Value) bool { return v == (None{}) })
	case "boolean":
		return plainTest(name, func(v Value) bool { _, ok := v.(Bool); return ok })
	case "true":
		return plainTest(name, func(v Value) bool { return v == Bool(true) })
	case "false":
		return plainTest(name, func(v Value) bool { return v == Bool(false) })
	case "integer":
		return plainTest(name, func(v Value) bool { _, b := v.(Bool); _, ok := asBig(v); return ok && !b })
	case "float":
		return plainTest(name, func(v Value) bool { _, ok := v.(Float); return ok })
	case "number":
		return plainTest(name, isNumber)
	case "string":
		return plainTest(name, func(v Value) bool { _, ok := text(v); return ok })
	case "escaped":
		return plainTest(name, func(v Value) bool { _, ok := v.(markup); return ok })
	case "mapping":
		return plainTest(name, func(v Value) bool { _, ok := v.(*Dict); return ok })
	case "sequence":
		return plainTest(name, isSequence)
	case "iterable":
		return func(st *state, v Value, a *arguments) (bool, error) {
			_, err := st.iter(v)
			return err == nil, noArguments(name, a)
		}
	case "callable":
		return plainTest(name, isCallable)
	case "odd", "even":
		return parity(name)
	case "divisibleby":
		return testDivisibleBy
	case "lower", "upper":
		return func(st *state, v Value, a *arguments) (bool, error) {
			s, err := st.str(v)
			if err != nil {
				return false, err
			}
			return stringIs(s, name), noArguments(name, a)
		}
	case "filter":
		return named(name, func(s string) bool { return filterByName(s) != nil })
	case "test":
		return named(name, func(s string) bool { return testByName(s) != nil })
	case "sameas":
		return func(_ *state, v Value, a *arguments) (bool, error) {
			p, err := a.bind("sameas", 1, "other")
			if err != nil {
				return false, err
			}
			return sameObject(v, p[0]), nil
		}
	case "in":
		return comparing(opIn)
	case "==", "eq", "equalto":
		return comparing(opEQ)
	case "!=", "ne":
		return comparing(opNE)
	case ">", "gt", "greaterthan":
		return comparing(opGT)
	case ">=", "ge":
		return comparing(opGE)
	case "<", "lt", "lessthan":
		return comparing(opLT)
	case "<=", "le":
		return comparing(opLE)
	}
	return nil
}

func noArguments(name string, a *arguments) error {
	_, err := a.bind(name, 0)
	return err
}

func plainTest(name string, f func(Value) bool) testFunc {
	return func(_ *state, v Value, a *arguments) (bool, error) { return f(v), noArguments(name, a) }
}

func named(name string, exists func(string) bool) testFunc {
	return func(_ *state, v Value, a *arguments) (bool, error) {
		if _, err := hashKey(v); err != nil {
			return false, err
		}
		s, ok := text(v)
		return ok && exists(s), noArguments(name, a)
	}
}

func comparing(op compareOp) testFunc {
	return func(st *state, v Value, a *arguments) (bool, error) {
		p, err := a.positional(op.String(), 1, 1)
		if op == opIn {
			p, err = a.bind("in", 1, "seq")
		}
		if err != nil {
			return false, err
		}
		return st.compare(op, v, p[0])
	}
}

// isSequence is true of what has a length and takes subscripts; an undefined value is one of them.
func isSequence(v Value) bool {
	switch v.(type) {
	case String, markup, *List, *tuple, *Dict, *rangeValue, *undefined:
		return true
	}
	return false
}

func isCallable(v Value) bool {
	switch v.(type) {
	case *function, *boundMethod, *macro, *loopContext, *dictFunction, *undefined:
		return true
	}
	return false
}

func (st *state) divides(v, by Value) (Value, error) {
	if _, ok := text(v); ok {
		return nil, typeErrorf("not all arguments converted during string formatting") // "%" formats text
	}
	return st.binary(opMod, v, by)
}

func parity(name string) testFunc {
	want := Int(1)
	if name == "even" {
		want = 0
	}
	return func(st *state, v Value, a *arguments) (bool, error) {
		if err := noArguments(name, a); err != nil {
			return false, err
		}
		m, err := st.divides(v, Int(2))
		if err != nil {
			return false, err
		}
		return st.equal(m, want)
	}
}

func testDivisibleBy(st *state, v Value, a *arguments) (bool, error) {
	p, err := a.bind("test_divisibleby", 1, "num")
	if err != nil {
		return false, err
	}
	m, err := st.divides(v, p[0])
	if err != nil {
		return false, err
	}
	return st.equal(m, Int(0))
}
