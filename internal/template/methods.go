package template

import "math"

type methodKind uint8

const (
	methodNone methodKind = iota
	methodAllowed
	methodMutates // the immutable sandbox forbids it
)

// methodAccess says what the sandbox thinks of a method of obj's type.
func methodAccess(obj Value, name string) methodKind {
	switch obj.(type) {
	case String, markup:
		return stringMethodAccess(name)
	case *Dict:
		switch name {
		case "get", "items", "keys", "values", "copy", "fromkeys":
			return methodAllowed
		case "clear", "pop", "popitem", "setdefault", "update":
			return methodMutates
		}
	case *List:
		switch name {
		case "count", "index", "copy":
			return methodAllowed
		case "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove":
			return methodMutates
		}
	case *tuple, *rangeValue:
		if name == "count" || name == "index" {
			return methodAllowed
		}
	case Float:
		switch name {
		case "is_integer", "conjugate", "as_integer_ratio", "hex", "fromhex":
			return methodAllowed
		}
	case Int, Bool, bigInt:
		switch name {
		case "bit_length", "bit_count", "conjugate", "as_integer_ratio", "to_bytes", "from_bytes":
			return methodAllowed
		}
	case *dictFunction:
		if name == "fromkeys" {
			return methodAllowed
		}
	case *cycler:
		if name == "next" || name == "reset" {
			return methodAllowed
		}
	}
	return methodNone
}

// callMethod is recv.name(...), for a method that methodAccess allows.
func (st *state) callMethod(recv Value, name string, a *arguments) (Value, error) {
	switch o := recv.(type) {
	case String, markup:
		return st.stringMethod(recv, name, a)
	case *Dict:
		return st.dictMethod(o, name, a)
	case *List:
		return st.seqMethod(recv, o.items, name, a)
	case *tuple:
		return st.seqMethod(recv, o.items, name, a)
	case *rangeValue:
		items, err := st.collect(o)
		if err != nil {
			return nil, err
		}
		return st.seqMethod(recv, items, name, a)
	case *dictFunction:
		return fromKeys(st, a)
	case *cycler:
		return o.method(name)
	}
	return numberMethod(recv, name, a)
}

func unsupportedMethod(recv Value, name string) error {
	return errorf(UnsupportedKind, "the method %s.%s is not supported in templates", recv.typeName(), name)
}

func numberMethod(recv Value, name string, a *arguments) (Value, error) {
	if _, err := a.positional(name, 0, 0); err != nil {
		return nil, err
	}
	if f, ok := recv.(Float); ok {
		switch name {
		case "is_integer":
			return Bool(float64(f) == math.Trunc(float64(f)) && !math.IsInf(float64(f), 0)), nil
		case "conjugate":
			return f, nil
		}
		return nil, unsupportedMethod(recv, name)
	}
	n, _ := asBig(recv)
	switch name {
	case "bit_length":
		return Int(n.BitLen()), nil
	case "conjugate":
		return normalInt(n), nil
	case "as_integer_ratio":
		return &tuple{items: []Value{normalInt(n), Int(1)}}, nil
	}
	return nil, unsupportedMethod(recv, name)
}

func (st *state) dictMethod(d *Dict, name string, a *arguments) (Value, error) {
	switch name {
	case "get":
		p, err := a.positional("get", 1, 2)
		if err != nil {
			return nil, err
		}
		v, ok, err := d.getValue(p[0])
		if err != nil || ok {
			return v, err
		}
		return orNone(p[1]), nil
	case "fromkeys":
		return fromKeys(st, a)
	}
	if _, err := a.positional(name, 0, 0); err != nil {
		return nil, err
	}
	switch name {
	case "items":
		return &dictView{d, viewItems}, nil
	case "keys":
		return &dictView{d, viewKeys}, nil
	case "values":
		return &dictView{d, viewValues}, nil
	}
	return d.clone(), st.growItems(2 * d.Len())
}

func fromKeys(st *state, a *arguments) (Value, error) {
	p, err := a.positional("fromkeys", 1, 2)
	if err != nil {
		return nil, err
	}
	keys, err := st.collect(p[0])
	if err != nil {
		return nil, err
	}
	d := NewDict()
	for _, k := range keys {
		if err := d.putValue(k, orNone(p[1])); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (st *state) seqMethod(recv Value, items []Value, name string, a *arguments) (Value, error) {
	if name == "copy" {
		_, err := a.positional("copy", 0, 0)
		return recv, err // nothing can tell it from the original, except sameas
	}
	p, err := a.positional(name, 1, 3)
	if err != nil {
		return nil, err
	}
	if name == "count" {
		n := 0
		for _, it := range items {
			eq, err := st.equal(it, p[0])
			if err != nil {
				return nil, err
			}
			if eq {
				n++
			}
		}
		return Int(n), nil
	}
	from, _, count, err := sliceRange(len(items), p[1], p[2], nil)
	if err != nil {
		return nil, err
	}
	for i := from; i < from+count; i++ {
		eq, err := st.equal(items[i], p[0])
		if err != nil {
			return nil, err
		}
		if eq {
			return Int(i), nil
		}
	}
	shown, err := st.repr(p[0])
	if err != nil {
		return nil, err
	}
	return nil, errorf(ValueError, "%s is not in %s", shown, recv.typeName())
}
