// Package tensor names element types, their block geometry and views of memory. It computes nothing.
package tensor

import "fmt"

// DType is an element type or a quantised block format (GGUF's names).
type DType uint8

// The element types and block formats that weights, buffers and caches may have.
const (
	Invalid DType = iota
	F32
	F16
	BF16
	F64
	I8
	I16
	I32
	I64
	U8
	Bool
	F8E4M3
	F8E5M2
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q8_0
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
	Q8_K
)

type geometry struct {
	name  string
	elems int // elements a block
	bytes int // bytes a block
}

func (d DType) geometry() geometry {
	switch d {
	case F32:
		return geometry{"F32", 1, 4}
	case F16:
		return geometry{"F16", 1, 2}
	case BF16:
		return geometry{"BF16", 1, 2}
	case F64:
		return geometry{"F64", 1, 8}
	case I8:
		return geometry{"I8", 1, 1}
	case I16:
		return geometry{"I16", 1, 2}
	case I32:
		return geometry{"I32", 1, 4}
	case I64:
		return geometry{"I64", 1, 8}
	case U8:
		return geometry{"U8", 1, 1}
	case Bool:
		return geometry{"BOOL", 1, 1}
	case F8E4M3:
		return geometry{"F8_E4M3", 1, 1}
	case F8E5M2:
		return geometry{"F8_E5M2", 1, 1}
	case Q4_0:
		return geometry{"Q4_0", 32, 18}
	case Q4_1:
		return geometry{"Q4_1", 32, 20}
	case Q5_0:
		return geometry{"Q5_0", 32, 22}
	case Q5_1:
		return geometry{"Q5_1", 32, 24}
	case Q8_0:
		return geometry{"Q8_0", 32, 34}
	case Q2_K:
		return geometry{"Q2_K", 256, 84}
	case Q3_K:
		return geometry{"Q3_K", 256, 110}
	case Q4_K:
		return geometry{"Q4_K", 256, 144}
	case Q5_K:
		return geometry{"Q5_K", 256, 176}
	case Q6_K:
		return geometry{"Q6_K", 256, 210}
	case Q8_K:
		return geometry{"Q8_K", 256, 292}
	}
	return geometry{"invalid", 0, 0}
}

func (d DType) String() string { return d.geometry().name }

// BlockElems is the number of elements in one block; 1 for plain types, 0 for an invalid type.
func (d DType) BlockElems() int { return d.geometry().elems }

// BlockBytes is the number of bytes in one block.
func (d DType) BlockBytes() int { return d.geometry().bytes }

// Quantised reports whether d is a block format.
func (d DType) Quantised() bool { return d.geometry().elems > 1 }

// Bytes is the size of n elements; an error when n does not fill whole blocks or the size overflows.
func (d DType) Bytes(n int64) (int64, error) {
	g := d.geometry()
	switch {
	case g.elems == 0:
		return 0, fmt.Errorf("tensor: size of an invalid type")
	case n < 0 || n%int64(g.elems) != 0:
		return 0, fmt.Errorf("tensor: %d elements do not fill %s blocks of %d", n, g.name, g.elems)
	case n/int64(g.elems) > (1<<62)/int64(g.bytes):
		return 0, fmt.Errorf("tensor: size of %d %s elements overflows", n, g.name)
	}
	return n / int64(g.elems) * int64(g.bytes), nil
}

// View is a contiguous row-major tensor over memory that somebody else owns (a mapped file, an arena).
// The last dimension is the fastest; blocks of a quantised type lie along it.
type View struct {
	DType DType
	Shape []int
	Data  []byte
}

// NewView checks that data holds exactly the shape.
func NewView(d DType, shape []int, data []byte) (View, error) {
	n, err := Elems(shape)
	if err != nil {
		return View{}, err
	}
	if len(shape) > 0 && d.BlockElems() > 1 && shape[len(shape)-1]%d.BlockElems() != 0 {
		return View{}, fmt.Errorf("tensor: last dimension of %v does not fill %s blocks", shape, d)
	}
	size, err := d.Bytes(n)
	if err != nil {
		return View{}, err
	}
	if int64(len(data)) != size {
		return View{}, fmt.Errorf("tensor: %s%v needs %d bytes, got %d", d, shape, size, len(data))
	}
	return View{DType: d, Shape: shape, Data: data}, nil
}

// Elems multiplies the dimensions, refusing negative ones and overflow. A scalar (no dimensions) has one element.
func Elems(shape []int) (int64, error) {
	n := int64(1)
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("tensor: negative dimension in %v", shape)
		}
		if d != 0 && n > (1<<62)/int64(d) {
			return 0, fmt.Errorf("tensor: shape %v overflows", shape)
		}
		n *= int64(d)
	}
	return n, nil
}

// Row returns the bytes of rows [from, to) along the first dimension.
func (v View) Row(from, to int) []byte {
	if len(v.Shape) == 0 || v.Shape[0] == 0 {
		return nil
	}
	stride := len(v.Data) / v.Shape[0]
	return v.Data[from*stride : to*stride]
}
