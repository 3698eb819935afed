// Package schema reads JSON as Python's json module does and checks it as pydantic's lax mode does, so that a client that was
// written against vLLM's front end gets the same verdict in the same words: error types, locations, order and counts.
package schema

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// A value is one of: nil, bool, int64, *big.Int (beyond int64), float64, string, []any, *Dict.

// Dict is a JSON object with its keys in order; a repeated key keeps its first place and its last value, as in Python.
type Dict struct {
	keys []string
	vals map[string]any
}

// NewDict returns an empty object.
func NewDict() *Dict { return &Dict{vals: map[string]any{}} }

// Set adds or replaces a key.
func (d *Dict) Set(k string, v any) {
	if _, ok := d.vals[k]; !ok {
		d.keys = append(d.keys, k)
	}
	d.vals[k] = v
}

// Get returns a key's value.
func (d *Dict) Get(k string) (any, bool) { v, ok := d.vals[k]; return v, ok }

// Has reports whether the key is there and not null.
func (d *Dict) Has(k string) bool { return d.vals[k] != nil }

// Keys returns the keys in order.
func (d *Dict) Keys() []string { return d.keys }

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

// Str returns a string, or def when it is absent, null or no string.
func (d *Dict) Str(k, def string) string {
	if s, ok := d.vals[k].(string); ok {
		return s
	}
	return def
}

// Int returns an integer, or def.
func (d *Dict) Int(k string, def int64) int64 {
	if n, ok := d.vals[k].(int64); ok {
		return n
	}
	return def
}

// Float returns a number, or def.
func (d *Dict) Float(k string, def float64) float64 {
	switch n := d.vals[k].(type) {
	case float64:
		return n
	case int64:
		return float64(n)
	}
	return def
}

// Bool returns a boolean, or def.
func (d *Dict) Bool(k string, def bool) bool {
	if b, ok := d.vals[k].(bool); ok {
		return b
	}
	return def
}

// List returns a list, or nil.
func (d *Dict) List(k string) []any { l, _ := d.vals[k].([]any); return l }

// Dict returns an object, or nil.
func (d *Dict) Dict(k string) *Dict { o, _ := d.vals[k].(*Dict); return o }

// Repr formats a value as Python's repr.
func Repr(v any) string {
	var b strings.Builder
	repr(&b, v)
	return b.String()
}

func repr(b *strings.Builder, v any) {
	switch v := v.(type) {
	case string:
		b.WriteString(reprString(v))
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			repr(b, e)
		}
		b.WriteByte(']')
	case *Dict:
		b.WriteByte('{')
		for i, k := range v.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(reprString(k) + ": ")
			repr(b, v.vals[k])
		}
		b.WriteByte('}')
	default:
		b.WriteString(Text(v))
	}
}

// Text formats a value as Python's str.
func Text(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	case *big.Int:
		return v.String()
	case float64:
		return FloatText(v)
	case string:
		return v
	}
	return Repr(v)
}

// FloatText formats a float as Python does: shortest form, always with a point or an exponent.
func FloatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func reprString(s string) string {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	var b strings.Builder
	b.WriteByte(quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7f || (r >= 0x80 && r < 0xa0) || r == 0xad:
			const hex = "0123456789abcdef"
			b.WriteString(`\x`)
			b.WriteByte(hex[byte(r)>>4])
			b.WriteByte(hex[byte(r)&15])
		case !strconv.IsPrint(r) && r > 0xa0:
			if r > 0xffff {
				b.WriteString(`\U000` + strconv.FormatInt(int64(r)|1<<20, 16)[0:5])
			} else {
				b.WriteString(`\u` + strconv.FormatInt(int64(r)|1<<16, 16)[1:])
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte(quote)
	return b.String()
}
