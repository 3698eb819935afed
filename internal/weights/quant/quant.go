// Package quant turns stored elements and ggml's quantised blocks into float32. The block layouts are those of ggml's
// ggml-common.h; results equal the reference dequantisation bit for bit, so products are rounded before they are added
// (explicit conversions keep a compiler from fusing them).
package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"omni-engine/internal/tensor"
)

// Dequantize converts src, whole blocks of type d, to exactly len(dst) float32 values. 64-bit numbers are rounded.
func Dequantize(dst []float32, d tensor.DType, src []byte) error {
	size, err := d.Bytes(int64(len(dst)))
	if err != nil {
		return fmt.Errorf("dequantise: %w", err)
	}
	if int64(len(src)) != size {
		return fmt.Errorf("dequantise: %d elements of %s are %d bytes, got %d", len(dst), d, size, len(src))
	}
	if block := blockFunc(d); block != nil {
		elems, bytes := d.BlockElems(), d.BlockBytes()
		for i := 0; i*elems < len(dst); i++ {
			block(dst[i*elems:(i+1)*elems], src[i*bytes:(i+1)*bytes])
		}
		return nil
	}
	return plain(dst, d, src)
}

func blockFunc(d tensor.DType) func(dst []float32, src []byte) {
	switch d {
	case tensor.Q4_0:
		return q4_0
	case tensor.Q4_1:
		return q4_1
	case tensor.Q5_0:
		return q5_0
	case tensor.Q5_1:
		return q5_1
	case tensor.Q8_0:
		return q8_0
	case tensor.Q2_K:
		return q2K
	case tensor.Q3_K:
		return q3K
	case tensor.Q4_K:
		return q4K
	case tensor.Q5_K:
		return q5K
	case tensor.Q6_K:
		return q6K
	case tensor.Q8_K:
		return q8K
	}
	return nil
}

func plain(dst []float32, d tensor.DType, src []byte) error {
	le := binary.LittleEndian
	switch d {
	case tensor.F32:
		for i := range dst {
			dst[i] = math.Float32frombits(le.Uint32(src[4*i:]))
		}
	case tensor.F16:
		for i := range dst {
			dst[i] = F16ToF32(le.Uint16(src[2*i:]))
		}
	case tensor.BF16:
		for i := range dst {
			dst[i] = BF16ToF32(le.Uint16(src[2*i:]))
		}
	case tensor.F64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(le.Uint64(src[8*i:])))
		}
	case tensor.F8E4M3:
		for i := range dst {
			dst[i] = F8E4M3ToF32(src[i])
		}
	case tensor.F8E5M2:
		for i := range dst {
			dst[i] = F8E5M2ToF32(src[i])
		}
	default:
		return integers(dst, d, src)
	}
	return nil
}

func integers(dst []float32, d tensor.DType, src []byte) error {
	le := binary.LittleEndian
	switch d {
	case tensor.I8:
		for i := range dst {
			dst[i] = float32(int8(src[i]))
		}
	case tensor.I16:
		for i := range dst {
			dst[i] = float32(int16(le.Uint16(src[2*i:])))
		}
	case tensor.I32:
		for i := range dst {
			dst[i] = float32(int32(le.Uint32(src[4*i:])))
		}
	case tensor.I64:
		for i := range dst {
			dst[i] = float32(int64(le.Uint64(src[8*i:])))
		}
	case tensor.U8:
		for i := range dst {
			dst[i] = float32(src[i])
		}
	case tensor.Bool:
		for i := range dst {
			dst[i] = 0
			if src[i] != 0 {
				dst[i] = 1
			}
		}
	default:
		return fmt.Errorf("dequantise: type %s is not supported", d)
	}
	return nil
}

// Float32s converts a view to float32 in a new slice, in row-major order.
func Float32s(v tensor.View) ([]float32, error) {
	n, err := tensor.Elems(v.Shape)
	if err != nil {
		return nil, fmt.Errorf("dequantise: %w", err)
	}
	// Checked before allocating: a View may be made by hand.
	if size, err := v.DType.Bytes(n); err != nil || size != int64(len(v.Data)) {
		return nil, fmt.Errorf("dequantise: %s%v does not match its %d bytes", v.DType, v.Shape, len(v.Data))
	}
	dst := make([]float32, n)
	return dst, Dequantize(dst, v.DType, v.Data)
}
