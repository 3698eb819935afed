package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// maxDepth bounds arrays within arrays; no known writer nests at all.
const maxDepth = 4

// Value type ids of the format.
const (
	typeU8 uint32 = iota
	typeI8
	typeU16
	typeI16
	typeU32
	typeI32
	typeF32
	typeBool
	typeString
	typeArray
	typeU64
	typeI64
	typeF64
)

// minBytes is the least that a value of the type occupies: what a claimed count is checked against before anything is allocated.
func minBytes(typ uint32) int {
	switch typ {
	case typeU8, typeI8, typeBool:
		return 1
	case typeU16, typeI16:
		return 2
	case typeU32, typeI32, typeF32:
		return 4
	case typeU64, typeI64, typeF64, typeString:
		return 8
	case typeArray:
		return 12
	}
	return 0
}

// reader walks the header. Every read checks that the bytes exist; the first failure is returned as it is.
type reader struct {
	data []byte
	pos  int
}

func (r *reader) take(n uint64, what string) ([]byte, error) {
	if n > uint64(len(r.data)-r.pos) {
		return nil, fmt.Errorf("file ends at byte %d within %s, which needs %d bytes from byte %d", len(r.data), what, n, r.pos)
	}
	b := r.data[r.pos : r.pos+int(n)]
	r.pos += int(n)
	return b, nil
}

func (r *reader) u32(what string) (uint32, error) {
	b, err := r.take(4, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (r *reader) u64(what string) (uint64, error) {
	b, err := r.take(8, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

func (r *reader) str(what string) (string, error) {
	n, err := r.u64(what)
	if err != nil {
		return "", err
	}
	b, err := r.take(n, what)
	return string(b), err
}

// count reads a 64-bit count of things that occupy at least each bytes and refuses one that the rest of the file cannot hold.
func (r *reader) count(each int, what string) (int, error) {
	n, err := r.u64(what)
	if err != nil {
		return 0, err
	}
	if left := uint64(len(r.data) - r.pos); n > left/uint64(each) {
		return 0, fmt.Errorf("%s is %d, but the %d bytes left hold at most %d", what, n, left, left/uint64(each))
	}
	return int(n), nil
}

func (r *reader) value(typ uint32, depth int) (any, error) {
	switch typ {
	case typeString:
		return r.str("a string")
	case typeArray:
		return r.array(depth)
	}
	size := minBytes(typ)
	if size == 0 {
		return nil, fmt.Errorf("unknown value type %d", typ)
	}
	b, err := r.take(uint64(size), "a value")
	if err != nil {
		return nil, err
	}
	return scalar(typ, b)
}

func scalar(typ uint32, b []byte) (any, error) {
	le := binary.LittleEndian
	switch typ {
	case typeU8:
		return b[0], nil
	case typeI8:
		return int8(b[0]), nil
	case typeU16:
		return le.Uint16(b), nil
	case typeI16:
		return int16(le.Uint16(b)), nil
	case typeU32:
		return le.Uint32(b), nil
	case typeI32:
		return int32(le.Uint32(b)), nil
	case typeU64:
		return le.Uint64(b), nil
	case typeI64:
		return int64(le.Uint64(b)), nil
	case typeF32:
		return math.Float32frombits(le.Uint32(b)), nil
	case typeF64:
		return math.Float64frombits(le.Uint64(b)), nil
	case typeBool:
		if b[0] > 1 {
			return nil, fmt.Errorf("boolean with byte value %d", b[0])
		}
		return b[0] == 1, nil
	}
	return nil, fmt.Errorf("unknown value type %d", typ)
}

func (r *reader) array(depth int) (any, error) {
	if depth >= maxDepth {
		return nil, fmt.Errorf("arrays nested deeper than %d", maxDepth)
	}
	typ, err := r.u32("an array's element type")
	if err != nil {
		return nil, err
	}
	each := minBytes(typ)
	if each == 0 {
		return nil, fmt.Errorf("unknown array element type %d", typ)
	}
	n, err := r.count(each, "an array's length")
	if err != nil {
		return nil, err
	}
	switch typ {
	case typeString:
		return r.strings(n)
	case typeArray:
		list := make([]any, n)
		for i := range list {
			if list[i], err = r.array(depth + 1); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	b, err := r.take(uint64(n)*uint64(each), "an array")
	if err != nil {
		return nil, err
	}
	return numbers(typ, b, each)
}

// strings copies the array's bytes once and cuts the strings out of the copy: a vocabulary has a quarter of a million of them.
func (r *reader) strings(n int) ([]string, error) {
	start := r.pos
	for i := range n {
		size, err := r.u64("a string's length")
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		if _, err = r.take(size, "a string"); err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
	}
	all, list := string(r.data[start:r.pos]), make([]string, n)
	at := 0
	for i := range list {
		size := int(binary.LittleEndian.Uint64(r.data[start+at:]))
		list[i] = all[at+8 : at+8+size]
		at += 8 + size
	}
	return list, nil
}

func numbers(typ uint32, b []byte, each int) (any, error) {
	switch typ {
	case typeU8:
		return collect[uint8](typ, b, each)
	case typeI8:
		return collect[int8](typ, b, each)
	case typeU16:
		return collect[uint16](typ, b, each)
	case typeI16:
		return collect[int16](typ, b, each)
	case typeU32:
		return collect[uint32](typ, b, each)
	case typeI32:
		return collect[int32](typ, b, each)
	case typeU64:
		return collect[uint64](typ, b, each)
	case typeI64:
		return collect[int64](typ, b, each)
	case typeF32:
		return collect[float32](typ, b, each)
	case typeF64:
		return collect[float64](typ, b, each)
	}
	return collect[bool](typ, b, each)
}

func collect[T any](typ uint32, b []byte, each int) ([]T, error) {
	list := make([]T, len(b)/each)
	for i := range list {
		v, err := scalar(typ, b[i*each:])
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		list[i] = v.(T)
	}
	return list, nil
}
