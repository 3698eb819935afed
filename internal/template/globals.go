package template

import (
	"math"
	"strings"
)

// maxRange is jinja2's sandbox limit on the length of a range.
const maxRange = 100000

// global gives the functions that every template sees; nil for other names.
func (t *Template) global(name string) Value {
	switch name {
	case "range":
		return &function{"range", makeRange}
	case "dict":
		return &dictFunction{}
	case "namespace":
		return &function{"namespace", makeNamespace}
	case "cycler":
		return &function{"cycler", makeCycler}
	case "joiner":
		return &function{"joiner", makeJoiner}
	case "lipsum":
		return &function{"lipsum", func(*state, *arguments) (Value, error) {
			return nil, errorf(UnsupportedKind, "lipsum is not supported")
		}}
	case "raise_exception":
		return &function{"raise_exception", raiseException}
	case "strftime_now":
		return &function{"strftime_now", t.strftimeNow}
	case "self":
		return &selfRef{t}
	}
	return nil
}

func raiseException(st *state, a *arguments) (Value, error) {
	p, err := a.bind("raise_exception", 1, "message")
	if err != nil {
		return nil, err
	}
	msg, err := st.str(p[0])
	if err != nil {
		return nil, err
	}
	return nil, &RaisedError{Message: msg}
}

func (t *Template) strftimeNow(st *state, a *arguments) (Value, error) {
	p, err := a.bind("strftime_now", 1, "format")
	if err != nil {
		return nil, err
	}
	format, ok := text(p[0])
	if !ok {
		return nil, typeErrorf("strftime() argument 1 must be str, not %s", p[0].typeName())
	}
	s := strftime(t.now(), format)
	return String(s), st.grow(len(s))
}

func makeRange(_ *state, a *arguments) (Value, error) {
	p, err := a.positional("range", 1, 3)
	if err != nil {
		return nil, err
	}
	r := &rangeValue{step: 1}
	nums := [3]int64{}
	given := 0
	for i, v := range p {
		if v == nil {
			break
		}
		if u, ok := v.(*undefined); ok {
			return nil, typeErrorf("'%s' object cannot be interpreted as an integer", u.typeName())
		}
		n, ok := asInt(v)
		if !ok {
			return nil, notAnInteger(v)
		}
		if n > math.MaxInt32<<8 || n < -math.MaxInt32<<8 {
			return nil, errorf(OverflowError, "range bound out of reach")
		}
		nums[i] = n
		given++
	}
	r.stop = nums[0]
	if given > 1 {
		r.start, r.stop = nums[0], nums[1]
	}
	if given > 2 {
		if r.step = nums[2]; r.step == 0 {
			return nil, errorf(ValueError, "range() arg 3 must not be zero")
		}
	}
	if r.step > 0 && r.start < r.stop {
		r.n = int((r.stop-r.start-1)/r.step + 1)
	} else if r.step < 0 && r.start > r.stop {
		r.n = int((r.start-r.stop-1)/-r.step + 1)
	}
	if r.n > maxRange {
		return nil, errorf(OverflowError, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
	}
	return r, nil
}

// dictFunction is the global "dict".
type dictFunction struct{}

func (*dictFunction) typeName() string { return "TemplateDict" }

// makeDict is dict(mapping or pairs, **kw).
func makeDict(st *state, a *arguments) (*Dict, error) {
	if len(a.pos) > 1 {
		return nil, typeErrorf("dict expected at most 1 argument, got %d", len(a.pos))
	}
	d := NewDict()
	if len(a.pos) == 1 {
		if src, ok := a.pos[0].(*Dict); ok {
			d = src.clone()
		} else {
			pairs, err := st.collect(a.pos[0])
			if err != nil {
				return nil, err
			}
			for _, pair := range pairs {
				kv, err := st.unpack(pair, 2)
				if err != nil {
					return nil, err
				}
				if err := d.putValue(kv[0], kv[1]); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, k := range a.kw {
		d.Set(k.name, k.val)
	}
	return d, st.growItems(2 * d.Len())
}

func makeNamespace(st *state, a *arguments) (Value, error) {
	d, err := makeDict(st, a)
	if err != nil {
		return nil, err
	}
	for k := range d.All() {
		if strings.HasPrefix(k, "_") {
			return nil, underscoreError(k)
		}
	}
	return &namespace{d}, nil
}

func underscoreError(name string) error {
	return errorf(SecurityError, "Chat templates cannot store underscore-prefixed attributes on a namespace, but got %s. "+
		"Please rename the attribute.", string(appendStringRepr(nil, name)))
}

func (ns *namespace) set(st *state, name string, v Value) error {
	if strings.HasPrefix(name, "_") {
		return underscoreError(name)
	}
	ns.attrs.Set(name, v)
	return st.step(1)
}

// cycler is jinja2's cycler: next() walks the items in turn.
type cycler struct {
	items []Value
	pos   int
}

func (*cycler) typeName() string { return "Cycler" }

func makeCycler(_ *state, a *arguments) (Value, error) {
	if len(a.kw) > 0 {
		return nil, typeErrorf("cycler() takes no keyword arguments")
	}
	if len(a.pos) == 0 {
		return nil, errorf("RuntimeError", "at least one item has to be provided")
	}
	return &cycler{items: a.pos}, nil
}

func (c *cycler) attr(name string) Value {
	switch name {
	case "current":
		return c.items[c.pos]
	case "pos":
		return Int(c.pos)
	case "items":
		return &tuple{items: c.items}
	}
	return nil
}

func (c *cycler) method(name string) (Value, error) {
	if name == "reset" {
		c.pos = 0
		return None{}, nil
	}
	v := c.items[c.pos]
	c.pos = (c.pos + 1) % len(c.items)
	return v, nil
}

// makeJoiner gives a function that returns nothing the first time and the separator from then on.
func makeJoiner(_ *state, a *arguments) (Value, error) {
	p, err := a.bind("joiner", 0, "sep")
	if err != nil {
		return nil, err
	}
	sep := p[0]
	if sep == nil {
		sep = String(", ")
	}
	used := false
	return &function{"joiner", func(*state, *arguments) (Value, error) {
		if !used {
			used = true
			return String(""), nil
		}
		return sep, nil
	}}, nil
}

// selfRef is "self": self.name() renders a block again.
type selfRef struct{ t *Template }

func (*selfRef) typeName() string { return "TemplateReference" }

func (s *selfRef) attr(name string) Value {
	b, ok := s.t.blocks[name]
	if !ok {
		return nil
	}
	return &function{"block", func(st *state, _ *arguments) (Value, error) {
		if err := st.enter(); err != nil {
			return nil, err
		}
		defer st.leave()
		out, _, err := st.capture(func() (flow, error) { return st.run(b.body, enter(nil, b.unset)) })
		return String(out), err
	}}
}
