package gguf

import (
	"fmt"
	"math"
)

// Metadata is the key-value part of a file, in file order. A value is a Go number of the stored width, a bool, a string,
// a slice of one of these, or []any for an array of arrays.
type Metadata struct {
	keys   []string
	values map[string]any
}

// Keys are the keys in file order.
func (m Metadata) Keys() []string { return m.keys }

// Value is the value as stored.
func (m Metadata) Value(key string) (any, bool) {
	v, ok := m.values[key]
	return v, ok
}

// String is a string value; false when the key is absent or holds another type.
func (m Metadata) String(key string) (string, bool) {
	v, ok := m.values[key].(string)
	return v, ok
}

// Bool is a boolean value; false when the key is absent or holds another type.
func (m Metadata) Bool(key string) (value, ok bool) {
	value, ok = m.values[key].(bool)
	return value, ok
}

// Int is a value of any integer width; false when the key is absent, holds another type or does not fit.
func (m Metadata) Int(key string) (int64, bool) { return asInt(m.values[key]) }

// Float is a number of any type; false when the key is absent or is not a number.
func (m Metadata) Float(key string) (float64, bool) {
	switch v := m.values[key].(type) {
	case float32:
		return float64(v), true
	case float64:
		return v, true
	}
	n, ok := m.Int(key)
	return float64(n), ok
}

// Strings is an array of strings; false when the key is absent or holds another type.
func (m Metadata) Strings(key string) ([]string, bool) {
	v, ok := m.values[key].([]string)
	return v, ok
}

// Floats is an array of float32; false when the key is absent or holds another type.
func (m Metadata) Floats(key string) ([]float32, bool) {
	v, ok := m.values[key].([]float32)
	return v, ok
}

// Ints is an array of any integer type (or of booleans, as 0 and 1: some per-layer switches are stored so); false when the
// key is absent, holds another type or a number that does not fit.
func (m Metadata) Ints(key string) ([]int64, bool) {
	switch v := m.values[key].(type) {
	case []uint8:
		return widen(v)
	case []int8:
		return widen(v)
	case []uint16:
		return widen(v)
	case []int16:
		return widen(v)
	case []uint32:
		return widen(v)
	case []int32:
		return widen(v)
	case []uint64:
		return widen(v)
	case []int64:
		return widen(v)
	case []bool:
		list := make([]int64, len(v))
		for i, on := range v {
			if on {
				list[i] = 1
			}
		}
		return list, true
	}
	return nil, false
}

func widen[T uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64](v []T) ([]int64, bool) {
	list := make([]int64, len(v))
	for i, n := range v {
		wide, ok := asInt(n)
		if !ok {
			return nil, false
		}
		list[i] = wide
	}
	return list, true
}

func asInt(v any) (int64, bool) {
	switch n := v.(type) {
	case uint8:
		return int64(n), true
	case int8:
		return int64(n), true
	case uint16:
		return int64(n), true
	case int16:
		return int64(n), true
	case uint32:
		return int64(n), true
	case int32:
		return int64(n), true
	case uint64:
		return int64(n), n <= math.MaxInt64
	case int64:
		return n, true
	}
	return 0, false
}

// maxKey is the format's limit for a key's length in bytes.
const maxKey = 1<<16 - 1

func (r *reader) metadata(n int) (Metadata, error) {
	m := Metadata{values: map[string]any{}}
	for i := range n {
		key, err := r.str("a metadata key")
		if err != nil {
			return m, fmt.Errorf("metadata entry %d: %w", i, err)
		}
		if key == "" || len(key) > maxKey {
			return m, fmt.Errorf("metadata entry %d: key of %d bytes (1 to %d allowed)", i, len(key), maxKey)
		}
		if _, twice := m.values[key]; twice {
			return m, fmt.Errorf("metadata key %q occurs twice", key)
		}
		typ, err := r.u32("a value type")
		if err != nil {
			return m, fmt.Errorf("metadata key %q: %w", key, err)
		}
		value, err := r.value(typ, 0)
		if err != nil {
			return m, fmt.Errorf("metadata key %q: %w", key, err)
		}
		m.keys = append(m.keys, key)
		m.values[key] = value
	}
	return m, nil
}
