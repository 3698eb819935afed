package schema

import (
	"fmt"
	"strconv"
)

type listType struct {
	elem     Type
	max      int
	iterable bool
}

// List is a list of elem.
func List(elem Type) Type { return listType{elem: elem} }

// ListMax is a list of at most n elements.
func ListMax(elem Type, n int) Type { return listType{elem: elem, max: n} }

// Iterable is a list that pydantic checks lazily: here only that it is one.
func Iterable() Type { return listType{elem: Any(), iterable: true} }

func (t listType) check(loc string, v any, strict bool) (any, Errors) {
	l, ok := v.([]any)
	switch {
	case !ok && t.iterable:
		return nil, one("iterable_type", loc, "Input should be iterable", v)
	case !ok:
		return nil, one("list_type", loc, "Input should be a valid list", v)
	case t.max > 0 && len(l) > t.max:
		return nil, Errors{{"too_long", loc, fmt.Sprintf("List should have at most %d items after validation, not %d", t.max, len(l)), v,
			fmt.Sprintf("'field_type': 'List', 'max_length': %d, 'actual_length': %d", t.max, len(l))}}
	}
	out := make([]any, len(l))
	var errs Errors
	for i, e := range l {
		c, bad := t.elem.check(loc+"."+strconv.Itoa(i), e, strict)
		out[i] = c
		errs = append(errs, bad...)
	}
	return out, errs
}

type dictType struct{ elem Type }

// DictOf is an object whose values are elem.
func DictOf(elem Type) Type { return dictType{elem} }

func (t dictType) check(loc string, v any, strict bool) (any, Errors) {
	d, ok := v.(*Dict)
	if !ok {
		return nil, one("dict_type", loc, "Input should be a valid dictionary", v)
	}
	out := NewDict()
	var errs Errors
	for _, k := range d.keys {
		c, bad := t.elem.check(loc+"."+k, d.vals[k], strict)
		out.Set(k, c)
		errs = append(errs, bad...)
	}
	return out, errs
}

// Field is one field of a model.
type Field struct {
	Name     string
	Type     Type
	Required bool
	Nullable bool
}

// F is an optional field that may be null.
func F(name string, t Type) Field { return Field{Name: name, Type: t, Nullable: true} }

// NonNull is an optional field that may not be null.
func NonNull(name string, t Type) Field { return Field{Name: name, Type: t} }

// Req is a required field.
func Req(name string, t Type) Field { return Field{Name: name, Type: t, Required: true} }

type model struct {
	fields []Field
	typed  bool // a TypedDict: plain objects only, in other words
}

// Model is an object with known fields; unknown ones are kept.
func Model(fields ...Field) Type { return model{fields, false} }

// TypedDict is a Model that pydantic reports as a dictionary.
func TypedDict(fields ...Field) Type { return model{fields, true} }

func (m model) check(loc string, v any, strict bool) (any, Errors) {
	d, ok := v.(*Dict)
	switch {
	case !ok && m.typed:
		return nil, one("dict_type", loc, "Input should be a valid dictionary", v)
	case !ok:
		return nil, one("model_attributes_type", loc, "Input should be a valid dictionary or object to extract fields from", v)
	}
	out := NewDict()
	for _, k := range d.keys {
		out.Set(k, d.vals[k])
	}
	var errs Errors
	for _, f := range m.fields {
		x, there := d.vals[f.Name]
		at := loc + "." + f.Name
		switch {
		case !there && f.Required:
			errs = append(errs, one("missing", at, "Field required", v)...)
		case !there, x == nil && f.Nullable:
		default:
			c, bad := f.Type.check(at, x, strict)
			out.vals[f.Name] = c
			errs = append(errs, bad...)
		}
	}
	return out, errs
}

// Choice is one member of a union; its tag, when not empty, shows in the location.
type Choice struct {
	Tag  string
	Type Type
}

type union []Choice

// Union is the first choice that fits without coercion, else the first that fits with it. Its errors are those of every choice.
func Union(choices ...Choice) Type { return union(choices) }

// OneOf is a Union of choices without tags.
func OneOf(types ...Type) Type {
	u := make(union, len(types))
	for i, t := range types {
		u[i].Type = t
	}
	return u
}

func (u union) check(loc string, v any, strict bool) (any, Errors) {
	for _, c := range u {
		if out, errs := c.Type.check(loc, v, true); errs == nil {
			return out, nil
		}
	}
	var all Errors
	for _, c := range u {
		at := loc
		if c.Tag != "" {
			at += "." + c.Tag
		}
		out, errs := c.Type.check(at, v, strict)
		if errs == nil {
			return out, nil
		}
		all = append(all, errs...)
	}
	return nil, all
}

type nullable struct{ Type }

// Nullable is t or null.
func Nullable(t Type) Type { return nullable{t} }

func (n nullable) check(loc string, v any, strict bool) (any, Errors) {
	if v == nil {
		return nil, nil
	}
	return n.Type.check(loc, v, strict)
}
