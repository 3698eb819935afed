//go:build !nocuda && linux && amd64

package gpu

import (
	"math"
	"math/bits"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/cuda"
	"omni-engine/internal/weights/quant"
)

type conformanceParams struct{ Out, In cuda.DevicePtr }

func conform(x *lab, name string, in []uint32, out int) []uint32 {
	p := conformanceParams{Out: x.alloc(out * 4), In: put(x, in, 0)}
	launchKernel(x, "conform_"+name, p, 1)
	return get[uint32](x, p.Out, out)
}

func floatBits(f float32) uint32 { return math.Float32bits(f) }

// The layouts of fragments are those of the PTX manual, "Matrix Fragments for mma.m16n8k16".
func TestKernelConformanceOfMMA(t *testing.T) {
	x := newLab(t)
	for name, half := range map[string]struct {
		to   func(float32) uint16
		from func(uint16) float32
	}{"mma_bf16": {quant.F32ToBF16, quant.BF16ToF32}, "mma_f16": {quant.F32ToF16, quant.F16ToF32}} {
		r := rand.New(rand.NewSource(1))
		var a [16][16]uint16
		var b [16][8]uint16
		var c [16][8]float32
		for i := range 16 {
			for k := range 16 {
				a[i][k] = half.to(float32(r.NormFloat64()))
			}
			for j := range 8 {
				b[i][j], c[i][j] = half.to(float32(r.NormFloat64())), float32(r.NormFloat64())
			}
		}
		two := func(lo, hi uint16) uint32 { return uint32(lo) | uint32(hi)<<16 }
		var in []uint32
		for lane := range 32 {
			g, q := lane/4, lane%4*2
			in = append(in, two(a[g][q], a[g][q+1]), two(a[g+8][q], a[g+8][q+1]), two(a[g][q+8], a[g][q+9]), two(a[g+8][q+8], a[g+8][q+9]),
				two(b[q][g], b[q+1][g]), two(b[q+8][g], b[q+9][g]), floatBits(c[g][q]), floatBits(c[g][q+1]), floatBits(c[g+8][q]), floatBits(c[g+8][q+1]))
		}
		out := conform(x, name, in, 128)
		for lane := range 32 {
			for i, v := range out[lane*4 : lane*4+4] {
				row, col := lane/4+i/2*8, lane%4*2+i%2
				want := float64(c[row][col])
				for k := range 16 {
					want += float64(half.from(a[row][k])) * float64(half.from(b[k][col]))
				}
				require.InDelta(t, want, math.Float32frombits(v), 1e-4)
			}
		}
	}
}

func TestKernelConformanceOfMatrixLoads(t *testing.T) {
	x := newLab(t)
	in := make([]uint32, 128)
	element := func(m, row, col int) uint32 { return uint32(m*64 + row*8 + col) }
	for m := range 4 {
		for row := range 8 {
			for col := 0; col < 8; col += 2 {
				in[m*32+row*4+col/2] = element(m, row, col) | element(m, row, col+1)<<16
			}
		}
	}
	out := conform(x, "matrix", in, 256)
	for lane := range 32 {
		for m := range 4 {
			row, col := lane/4, lane%4*2
			require.Equal(t, element(m, row, col)|element(m, row, col+1)<<16, out[lane*8+m])
			require.Equal(t, element(m, col, row)|element(m, col+1, row)<<16, out[lane*8+4+m], "transposed")
		}
	}
}

func TestKernelConformanceOfCopies(t *testing.T) {
	x := newLab(t)
	in := make([]uint32, 256)
	for i := range in {
		in[i] = uint32(i + 1)
	}
	out := conform(x, "copy", in, 256)
	for i := range 256 {
		want := in[i]
		if i < 128 && i/4%2 == 1 {
			want = 0
		}
		require.Equal(t, want, out[i])
	}
}

func TestKernelConformanceOfWords(t *testing.T) {
	x := newLab(t)
	r := rand.New(rand.NewSource(2))
	in := make([]uint32, 64)
	for i := range in {
		switch i % 4 {
		case 0, 1: // any bits but NaN's, whose payload is free
			in[i] = r.Uint32() &^ (1 << 30)
		default: // where half precision is normal, subnormal, or halfway
			in[i] = floatBits(float32(r.NormFloat64()) * []float32{1, 1e-6, 60000, 1.0 / 4096}[r.Intn(4)])
		}
	}
	in[2], in[6], in[10] = floatBits(1+1.0/256), floatBits(1+3.0/256), floatBits(65519)
	out := conform(x, "word", in, 32*9)
	for lane := range 32 {
		a, b, o := in[lane*2], in[lane*2+1], out[lane*9:lane*9+9]
		dot := int32(7)
		for i := range 4 {
			dot += int32(int8(a>>(8*i))) * int32(int8(b>>(8*i)))
		}
		fa, fb := math.Float32frombits(a), math.Float32frombits(b)
		high, _ := bits.Mul32(a, b)
		want := []uint32{uint32(dot), a>>16 | b<<16, high, uint32(bits.OnesCount32(a)), uint32(bits.TrailingZeros32(b)+1) & 63,
			uint32(quant.F32ToBF16(fa)) | uint32(quant.F32ToBF16(fb))<<16, uint32(quant.F32ToF16(fa)) | uint32(quant.F32ToF16(fb))<<16, uint32(quant.F32ToBF16(fa)), uint32(quant.F32ToF16(fa))}
		require.Equal(t, want, o, "lane %d of %g %g", lane, fa, fb)
	}
}

func TestKernelConformanceOfLanes(t *testing.T) {
	x := newLab(t)
	in := make([]uint32, 32)
	odd := uint32(0)
	for i := range in {
		in[i] = uint32(100 + i*i)
		odd |= in[i] & 1 << i
	}
	out := conform(x, "lane", in, 32*7)
	or := func(lane, other int, ok bool) uint32 {
		if ok {
			return in[other]
		}
		return in[lane]
	}
	for l := range 32 {
		want := []uint32{in[l^5], or(l, l-5, l >= 5), or(l, l+5, l+5 < 32), in[9], in[l&^7|(l^5)&7], or(l, l+3, l%8+3 < 8), odd}
		require.Equal(t, want, out[l*7:l*7+7], "lane %d", l)
	}
}

func TestKernelConformanceOfFunctions(t *testing.T) {
	x := newLab(t)
	in := make([]uint32, 32)
	for i := range in {
		in[i] = floatBits(float32(i-20) * 0.37)
	}
	in[0] = floatBits(float32(math.Inf(-1)))
	out := conform(x, "function", in, 96)
	for i := range in {
		v := float64(math.Float32frombits(in[i]))
		require.InDelta(t, math.Exp2(v), math.Float32frombits(out[3*i]), 1e-6*math.Exp2(v), "2^%g", v)
		if i == 0 {
			continue
		}
		require.InDelta(t, math.Sin(math.Pi*v), math.Float32frombits(out[3*i+1]), 1e-6)
		require.InDelta(t, math.Cos(math.Pi*v), math.Float32frombits(out[3*i+2]), 1e-6)
	}
}
