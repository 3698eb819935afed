package template

import (
	"math"
	"strconv"
)

// Dict is a mapping that keeps the order of first insertion, as Python's dict and JSON objects in vLLM's templates do. The zero value
// is an empty one. Templates cannot change it.
type Dict struct {
	keys  []Value
	vals  []Value
	index map[dictKey]int // built once a dict outgrows a linear search
}

// dictIndexFrom is the size from which a lookup goes through a map: below it, comparing strings is faster than hashing.
const dictIndexFrom = 9

// dictKey identifies a key up to Python's equality: 1, 1.0 and True are one key.
type dictKey struct {
	kind byte
	s    string
	n    int64
}

// NewDict makes an empty dict.
func NewDict() *Dict { return &Dict{} }

// Len gives the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

// Set puts v under a string key; an existing key keeps its place.
func (d *Dict) Set(key string, v Value) *Dict {
	d.put(String(key), dictKey{kind: 's', s: key}, v)
	return d
}

// Get finds a string key.
func (d *Dict) Get(key string) (Value, bool) {
	if i := d.findString(key); i >= 0 {
		return d.vals[i], true
	}
	return nil, false
}

// All walks keys and values in order. Keys that are not strings (possible only in dicts that a template built) are skipped.
func (d *Dict) All() func(yield func(string, Value) bool) {
	return func(yield func(string, Value) bool) {
		for i, k := range d.keys {
			if s, ok := text(k); ok && !yield(s, d.vals[i]) {
				return
			}
		}
	}
}

// clone copies the dict, not the values in it.
func (d *Dict) clone() *Dict {
	c := &Dict{}
	for i, k := range d.keys {
		key, _ := hashKey(k)
		c.put(k, key, d.vals[i])
	}
	return c
}

// without copies the dict, leaving one key out.
func (d *Dict) without(drop func(key string, v Value) bool) *Dict {
	c := &Dict{}
	for k, v := range d.All() {
		if !drop(k, v) {
			c.Set(k, v)
		}
	}
	return c
}

func (d *Dict) findString(key string) int {
	if d.index != nil {
		if i, ok := d.index[dictKey{kind: 's', s: key}]; ok {
			return i
		}
		return -1
	}
	for i, k := range d.keys {
		switch s := k.(type) {
		case String:
			if string(s) == key {
				return i
			}
		case markup:
			if string(s) == key {
				return i
			}
		}
	}
	return -1
}

func (d *Dict) find(k dictKey) int {
	if k.kind == 's' {
		return d.findString(k.s)
	}
	if d.index != nil {
		if i, ok := d.index[k]; ok {
			return i
		}
		return -1
	}
	for i := range d.keys {
		if h, err := hashKey(d.keys[i]); err == nil && h == k {
			return i
		}
	}
	return -1
}

func (d *Dict) put(key Value, k dictKey, v Value) {
	if i := d.find(k); i >= 0 {
		d.vals[i] = v
		return
	}
	d.keys = append(d.keys, key)
	d.vals = append(d.vals, v)
	if d.index != nil {
		d.index[k] = len(d.keys) - 1
	} else if len(d.keys) >= dictIndexFrom {
		d.index = make(map[dictKey]int, 2*len(d.keys))
		for i := range d.keys {
			h, _ := hashKey(d.keys[i])
			d.index[h] = i
		}
	}
}

// putValue is d[key] = v for any key; unhashable keys are a TypeError.
func (d *Dict) putValue(key, v Value) error {
	k, err := hashKey(key)
	if err != nil {
		return err
	}
	d.put(key, k, v)
	return nil
}

// getValue is d[key] for any key.
func (d *Dict) getValue(key Value) (Value, bool, error) {
	if s, ok := key.(String); ok {
		v, ok := d.Get(string(s))
		return v, ok, nil
	}
	k, err := hashKey(key)
	if err != nil {
		return nil, false, err
	}
	if i := d.find(k); i >= 0 {
		return d.vals[i], true, nil
	}
	return nil, false, nil
}

// maxHashDepth bounds the nesting of tuples in a key.
const maxHashDepth = 20

func hashKey(v Value) (dictKey, error) { return hashKeyDepth(v, 0) }

func hashKeyDepth(v Value, depth int) (dictKey, error) {
	switch x := v.(type) {
	case String:
		return dictKey{kind: 's', s: string(x)}, nil
	case markup:
		return dictKey{kind: 's', s: string(x)}, nil
	case Int:
		return dictKey{kind: 'i', n: int64(x)}, nil
	case Bool:
		if x {
			return dictKey{kind: 'i', n: 1}, nil
		}
		return dictKey{kind: 'i'}, nil
	case bigInt:
		return dictKey{kind: 'b', s: x.v.String()}, nil
	case Float:
		if f := float64(x); f == math.Trunc(f) && !math.IsInf(f, 0) {
			whole, _ := floatToInt(f)
			return hashKeyDepth(whole, depth)
		}
		return dictKey{kind: 'f', n: int64(math.Float64bits(float64(x)))}, nil
	case None:
		return dictKey{kind: 'n'}, nil
	case *undefined:
		return dictKey{kind: 'u'}, nil
	case *tuple:
		if depth >= maxHashDepth || len(x.items) > 1024 {
			return dictKey{}, errorf(RecursionError, "tuple too large to be a key")
		}
		var b []byte
		for _, it := range x.items {
			k, err := hashKeyDepth(it, depth+1)
			if err != nil {
				return dictKey{}, err
			}
			if len(b)+len(k.s) > 1<<16 {
				return dictKey{}, errorf(RecursionError, "tuple too large to be a key")
			}
			b = append(b, k.kind)
			b = strconv.AppendInt(b, k.n, 10)
			b = append(b, ':')
			b = strconv.AppendInt(b, int64(len(k.s)), 10)
			b = append(b, ':')
			b = append(b, k.s...)
		}
		return dictKey{kind: 't', s: string(b)}, nil
	}
	return dictKey{}, typeErrorf("unhashable type: '%s'", v.typeName())
}
