package template

import "strconv"

func itoa(n int) string { return strconv.Itoa(n) }

// arguments are what a call, a filter or a test was given.
type arguments struct {
	pos []Value
	kw  []keyword
}

type keyword struct {
	name string
	val  Value
}

func (a *arguments) get(name string) (Value, bool) {
	for _, k := range a.kw {
		if k.name == name {
			return k.val, true
		}
	}
	return nil, false
}

// bind puts the arguments in the order of names; nil where one was left out. The first required ones must be there.
func (a *arguments) bind(fn string, required int, names ...string) ([]Value, error) {
	if len(a.pos) > len(names) {
		return nil, typeErrorf("%s() takes at most %d arguments (%d given)", fn, len(names), len(a.pos))
	}
	out := make([]Value, len(names))
	copy(out, a.pos)
next:
	for _, k := range a.kw {
		for i, n := range names {
			if n == k.name {
				if out[i] != nil {
					return nil, typeErrorf("%s() got multiple values for argument '%s'", fn, n)
				}
				out[i] = k.val
				continue next
			}
		}
		return nil, typeErrorf("%s() got an unexpected keyword argument '%s'", fn, k.name)
	}
	for i := range required {
		if out[i] == nil {
			return nil, typeErrorf("%s() missing 1 required positional argument: '%s'", fn, names[i])
		}
	}
	return out, nil
}

// positional is bind for functions that take no keywords.
func (a *arguments) positional(fn string, required, most int) ([]Value, error) {
	if len(a.kw) > 0 {
		return nil, typeErrorf("%s() takes no keyword arguments", fn)
	}
	switch n := len(a.pos); {
	case n > 0 && most == 0:
		return nil, typeErrorf("%s() takes no arguments (%d given)", fn, n)
	case n < required:
		return nil, typeErrorf("%s expected at least %s, got %d", fn, plural(required), n)
	case n > most:
		return nil, typeErrorf("%s expected at most %s, got %d", fn, plural(most), n)
	}
	out := make([]Value, most)
	copy(out, a.pos)
	return out, nil
}

func plural(n int) string {
	if n == 1 {
		return "1 argument"
	}
	return itoa(n) + " arguments"
}

func orNone(v Value) Value {
	if v == nil {
		return None{}
	}
	return v
}

func truthOr(st *state, v Value, def bool) (bool, error) {
	if v == nil {
		return def, nil
	}
	return st.truth(v)
}

// call is fn(...).
func (st *state) call(fn Value, a *arguments) (Value, error) {
	if err := st.step(2); err != nil {
		return nil, err
	}
	switch f := fn.(type) {
	case *function:
		return f.call(st, a)
	case *boundMethod:
		return st.callMethod(f.recv, f.name, a)
	case *macro:
		return f.call(st, a)
	case *loopContext:
		return f.recurse(st, a)
	case *dictFunction:
		return makeDict(st, a)
	case *undefined:
		return nil, f.fail()
	}
	return nil, typeErrorf("'%s' object is not callable", fn.typeName())
}

// macro is a macro with the scope in which it was defined.
type macro struct {
	def   *macroDef
	scope *scope
}

func (*macro) typeName() string { return "Macro" }

// call renders the macro's body.
func (m *macro) call(st *state, a *arguments) (Value, error) {
	if err := st.enter(); err != nil {
		return nil, err
	}
	defer st.leave()
	d := m.def
	sc := enter(m.scope, d.unset)
	used := make([]bool, len(a.kw))
	if err := m.bindParams(st, sc, a, used); err != nil {
		return nil, err
	}
	if err := m.bindRest(st, sc, a, used); err != nil {
		return nil, err
	}
	line := st.line
	s, _, err := st.capture(func() (flow, error) { return st.run(d.body, sc) })
	if err != nil {
		return nil, err
	}
	st.line = line
	return String(s), nil
}

func (m *macro) bindParams(st *state, sc *scope, a *arguments, used []bool) error {
	d := m.def
	missing := make([]int, 0, len(d.params))
	for i, p := range d.params {
		if i < len(a.pos) {
			sc.set(st, p.id, a.pos[i])
			continue
		}
		found := false
		for k := range a.kw {
			if a.kw[k].name == p.name {
				sc.set(st, p.id, a.kw[k].val)
				used[k], found = true, true
			}
		}
		if !found {
			missing = append(missing, i)
		}
	}
	for _, i := range missing {
		p := d.params[i]
		var v Value = undefinedHint("parameter '" + p.name + "' was not provided")
		if k := i - (len(d.params) - len(d.defaults)); k >= 0 {
			var err error
			if v, err = d.defaults[k].eval(st, sc); err != nil {
				return err
			}
		}
		sc.set(st, p.id, v)
	}
	return nil
}

// bindRest fills caller, kwargs and varargs, and refuses what is left over.
func (m *macro) bindRest(st *state, sc *scope, a *arguments, used []bool) error {
	d := m.def
	if d.usesCaller && !d.callerParam {
		var caller Value = undefinedHint("No caller defined")
		for k := range a.kw {
			if a.kw[k].name == "caller" {
				caller, used[k] = a.kw[k].val, true
			}
		}
		sc.set(st, d.callerID, caller)
	}
	rest := NewDict()
	for k, kw := range a.kw {
		if used[k] {
			continue
		}
		if !d.usesKw && kw.name == "caller" {
			return typeErrorf("macro %s was invoked with two values for the special caller argument. This is most likely a bug.", m.shown())
		}
		if !d.usesKw {
			return typeErrorf("macro %s takes no keyword argument '%s'", m.shown(), kw.name)
		}
		rest.Set(kw.name, kw.val)
	}
	if d.usesKw {
		sc.set(st, d.kwargsID, rest)
	}
	if d.usesVar {
		more := &tuple{}
		if len(a.pos) > len(d.params) {
			more.items = a.pos[len(d.params):]
		}
		sc.set(st, d.varargsID, more)
	} else if len(a.pos) > len(d.params) {
		return typeErrorf("macro %s takes not more than %d argument(s)", m.shown(), len(d.params))
	}
	return nil
}

func (m *macro) shown() string {
	if m.def.name == "" {
		return "None"
	}
	return "'" + m.def.name + "'"
}

// attr gives the attributes of a macro that jinja2 documents.
func (m *macro) attr(name string) Value {
	switch name {
	case "name":
		if m.def.name == "" {
			return None{}
		}
		return String(m.def.name)
	case "arguments":
		names := &tuple{}
		for _, p := range m.def.params {
			names.items = append(names.items, String(p.name))
		}
		return names
	case "catch_kwargs":
		return Bool(m.def.usesKw)
	case "catch_varargs":
		return Bool(m.def.usesVar)
	case "caller":
		return Bool(m.def.usesCaller)
	case "explicit_caller":
		return Bool(m.def.callerParam)
	}
	return nil
}
