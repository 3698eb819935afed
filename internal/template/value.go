package template

import (
	"math/big"
)

// Value is a value that a template can see: None, Bool, Int, Float, String, *List, *Dict, or one that only the interpreter makes
// (tuples, ranges, macros, iterators). The set is closed: a value of another Go type cannot reach a template.
type Value interface {
	// typeName is Python's name of the type, as error messages spell it.
	typeName() string
}

type (
	// None is Python's None, JSON's null.
	None struct{}
	// Bool is True or False; it counts as the integers 1 and 0, as in Python.
	Bool bool
	// Int is an integer that fits 64 bits. Larger ones, from JSON or from arithmetic, are kept exactly by an unexported type.
	Int int64
	// Float is a float. JSON numbers with a fraction or an exponent become Float, the others Int: templates print them differently.
	Float float64
	// String is text in UTF-8. Length and indices that a template sees count code points.
	String string
)

type (
	// bigInt is an integer outside 64 bits.
	bigInt struct{ v *big.Int }
	// markup is a string marked safe; joining it with a plain string escapes the plain one (markupsafe.Markup).
	markup string
	tuple  struct {
		items []Value
		group bool // a pair that groupby made: it has the attributes grouper and list
	}
	// List is a list. Templates cannot change it (immutable sandbox).
	List struct{ items []Value }
	// rangeValue is range(start, stop, step), never laid out.
	rangeValue struct {
		start, stop, step int64
		n                 int
	}
	// namespace is the one object that a template may change: {% set ns.x = ... %}.
	namespace struct{ attrs *Dict }
	// dictView is what dict.keys(), values() and items() give.
	dictView struct {
		d    *Dict
		what viewKind
	}
	// generator is a one-shot iterator, as map, select and their kin give: it is true, has no length, and a second walk finds it empty.
	generator struct {
		it   iterator
		name string
	}
	// function is something callable that Go implements.
	function struct {
		name string
		call func(st *state, a *arguments) (Value, error)
	}
	// boundMethod is obj.name where the type has such a method.
	boundMethod struct {
		recv Value
		name string
	}
)

type viewKind uint8

const (
	viewKeys viewKind = iota
	viewValues
	viewItems
)

func (None) typeName() string         { return "NoneType" }
func (Bool) typeName() string         { return "bool" }
func (Int) typeName() string          { return "int" }
func (bigInt) typeName() string       { return "int" }
func (Float) typeName() string        { return "float" }
func (String) typeName() string       { return "str" }
func (markup) typeName() string       { return "Markup" }
func (*tuple) typeName() string       { return "tuple" }
func (*List) typeName() string        { return "list" }
func (*Dict) typeName() string        { return "dict" }
func (*rangeValue) typeName() string  { return "range" }
func (*namespace) typeName() string   { return "TemplateNamespace" }
func (g *generator) typeName() string { return "generator" }
func (*function) typeName() string    { return "function" }
func (*boundMethod) typeName() string { return "builtin_function_or_method" }
func (v *dictView) typeName() string {
	return [...]string{"dict_keys", "dict_values", "dict_items"}[v.what]
}

// NewList makes a list that owns items.
func NewList(items ...Value) *List { return &List{items: items} }

// Len gives the number of items.
func (l *List) Len() int { return len(l.items) }

// At gives item i.
func (l *List) At(i int) Value { return l.items[i] }

// undefined is what a missing name, key or attribute gives. It prints as nothing, is false and iterates over nothing; anything else
// that is done with it is an error of the given kind (jinja2's default Undefined).
type undefined struct {
	hint string // the whole message, where set
	obj  Value  // what the name was looked up on; nil for a variable
	name Value
	kind ErrorKind
}

func (*undefined) typeName() string { return "Undefined" }

func undefinedName(name string) *undefined {
	return &undefined{name: String(name), kind: UndefinedError}
}

func undefinedHint(hint string) *undefined { return &undefined{hint: hint, kind: UndefinedError} }

func undefinedIn(obj, name Value) *undefined {
	return &undefined{obj: obj, name: name, kind: UndefinedError}
}

// fail is the error of using u, worded as jinja2 words it.
func (u *undefined) fail() error {
	msg := u.hint
	if msg == "" {
		shown := "?"
		if b, err := (&state{lim: DefaultLimits()}).appendRepr(nil, u.name, 0); err == nil {
			shown = string(b)
		}
		switch _, isStr := u.name.(String); {
		case u.obj == nil:
			msg = shown + " is undefined"
		case isStr:
			msg = "'" + objectTypeRepr(u.obj) + "' has no attribute " + shown
		default:
			msg = objectTypeRepr(u.obj) + " has no element " + shown
		}
	}
	return &Error{Kind: u.kind, Message: msg}
}

func objectTypeRepr(v Value) string {
	switch v.(type) {
	case None:
		return "None"
	case *namespace:
		return "transformers.utils.chat_template_utils.TemplateNamespace object"
	case *loopContext:
		return "jinja2.runtime.LoopContext object"
	case *macro:
		return "jinja2.runtime.Macro object"
	case markup:
		return "markupsafe.Markup object"
	}
	return v.typeName() + " object"
}

// text gives the Go string of a String or markup.
func text(v Value) (string, bool) {
	switch s := v.(type) {
	case String:
		return string(s), true
	case markup:
		return string(s), true
	}
	return "", false
}
