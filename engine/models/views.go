package models

import (
	"fmt"
	"math"
	"unsafe"

	"omni-engine/internal/tensor"
)

// span is rows [From, To) of a weight's first dimension.
type span struct{ From, To int }

// pickRows takes rows of a view: in place where they are one run, else copied. Rows of quantised weights are whole blocks.
func pickRows(v tensor.View, spans []span) (tensor.View, error) {
	if len(v.Shape) == 0 {
		return tensor.View{}, fmt.Errorf("a scalar has no rows")
	}
	n := 0
	joined := spans[:0:0]
	for _, s := range spans {
		if s.From < 0 || s.To < s.From || s.To > v.Shape[0] {
			return tensor.View{}, fmt.Errorf("rows %d to %d of %d", s.From, s.To, v.Shape[0])
		}
		n += s.To - s.From
		if k := len(joined); k > 0 && joined[k-1].To == s.From {
			joined[k-1].To = s.To
		} else {
			joined = append(joined, s)
		}
	}
	shape := append([]int{n}, v.Shape[1:]...)
	if len(joined) == 1 {
		return tensor.NewView(v.DType, shape, v.Row(joined[0].From, joined[0].To))
	}
	var data []byte
	for _, s := range joined {
		data = append(data, v.Row(s.From, s.To)...)
	}
	return tensor.NewView(v.DType, shape, data)
}

// byHead lists a part of each head's rows: rows [from, from+n) of each stride.
func byHead(heads, stride, from, n int) []span {
	out := make([]span, heads)
	for h := range out {
		out[h] = span{h*stride + from, h*stride + from + n}
	}
	return out
}

// index takes entry i of the first dimension: one expert of a stack.
func index(v tensor.View, i int) (tensor.View, error) {
	if len(v.Shape) < 2 || i < 0 || i >= v.Shape[0] {
		return tensor.View{}, fmt.Errorf("entry %d of %v", i, v.Shape)
	}
	return tensor.NewView(v.DType, v.Shape[1:], v.Row(i, i+1))
}

// transpose copies a matrix [in, out] to [out/step, in], taking columns from, from+step, ...
func transpose(v tensor.View, from, step, n int) (tensor.View, error) {
	if len(v.Shape) != 2 || v.DType.BlockElems() != 1 || n > 0 && from+(n-1)*step >= v.Shape[1] {
		return tensor.View{}, fmt.Errorf("%s%v cannot be transposed", v.DType, v.Shape)
	}
	size, in, width := v.DType.BlockBytes(), v.Shape[0], v.Shape[1]
	data := make([]byte, n*in*size)
	for o := range n {
		for i := range in {
			copy(data[(o*in+i)*size:][:size], v.Data[(i*width+from+o*step)*size:][:size])
		}
	}
	return tensor.NewView(v.DType, []int{n, in}, data)
}

// every second entry of a vector, as a vector.
func stride(v tensor.View, from, step, n int) (tensor.View, error) {
	if len(v.Shape) != 1 {
		return tensor.View{}, fmt.Errorf("%v is no vector", v.Shape)
	}
	t, err := transpose(tensor.View{DType: v.DType, Shape: []int{1, v.Shape[0]}, Data: v.Data}, from, step, n)
	if err != nil {
		return t, err
	}
	return tensor.NewView(v.DType, []int{n}, t.Data)
}

// floats reads a small plain tensor.
func floats(v tensor.View) ([]float32, error) {
	n, err := tensor.Elems(v.Shape)
	if err != nil {
		return nil, err
	}
	if size, err := v.DType.Bytes(n); err != nil || int(size) != len(v.Data) {
		return nil, fmt.Errorf("%s%v holds %d bytes", v.DType, v.Shape, len(v.Data))
	}
	out := make([]float32, n)
	for i := range out {
		switch v.DType {
		case tensor.F32:
			out[i] = math.Float32frombits(uint32(v.Data[4*i]) | uint32(v.Data[4*i+1])<<8 | uint32(v.Data[4*i+2])<<16 | uint32(v.Data[4*i+3])<<24)
		case tensor.BF16:
			out[i] = math.Float32frombits(uint32(v.Data[2*i])<<16 | uint32(v.Data[2*i+1])<<24)
		case tensor.F16:
			out[i] = half(uint16(v.Data[2*i]) | uint16(v.Data[2*i+1])<<8)
		default:
			return nil, fmt.Errorf("%s is not supported here", v.DType)
		}
	}
	return out, nil
}

// half widens an IEEE 754 binary16 number.
func half(h uint16) float32 {
	sign, exp, frac := float64(1), int(h>>10&31), float64(h&1023)
	if h>>15 == 1 {
		sign = -1
	}
	switch exp {
	case 0:
		return float32(sign * math.Ldexp(frac, -24))
	case 31:
		if frac != 0 {
			return float32(math.NaN())
		}
		return float32(math.Inf(int(sign)))
	}
	return float32(sign * math.Ldexp(1+frac/1024, exp-15))
}

// ofFloats wraps values that were worked out.
func ofFloats(shape []int, v []float32) tensor.View {
	return tensor.View{DType: tensor.F32, Shape: shape, Data: unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))}
}
