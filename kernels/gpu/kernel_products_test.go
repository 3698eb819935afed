//go:build !nocuda && linux && amd64

package gpu

import (
	"fmt"
	"math"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/cuda"
	"omni-engine/internal/tensor"
	"omni-engine/internal/weights/quant"
)

// product is the float64 reference.
func product(a, b, bias []float32, m, n, k int) []float64 {
	out := make([]float64, m*n)
	for i := range m {
		for j := range n {
			var s float64
			for c := range k {
				s += float64(a[i*k+c]) * float64(b[j*k+c])
			}
			if bias != nil {
				s += float64(bias[j])
			}
			out[i*n+j] = s
		}
	}
	return out
}

type shape struct{ m, n, k int }

// checkProduct runs a dense product and compares. The output lies in wider rows, whose other columns must stay.
func checkProduct(t *testing.T, x *lab, kernel string, e element, s shape, kind int32, withBias bool, grid func() []int) {
	t.Helper()
	pa, a := putT(x, e, randoms(1, s.m*s.k, 1))
	pb, b := putT(x, e, randoms(2, s.n*s.k, 0.2))
	p := gemmParams{A: pa, B: pb, M: int32(s.m), N: int32(s.n), K: int32(s.k), LDA: int32(s.k), LDC: int32(s.n + 6), OutKind: kind}
	var bias []float32
	if withBias {
		bias = randoms(3, s.n, 1)
		p.Bias = put(x, bias, 0)
	}
	want := product(a, b, bias, s.m, s.n, s.k)
	out := e
	if kind == outF32 || kind == outAddF32 {
		out = elements()[0]
	}
	before := randoms(4, s.m*(s.n+6), 1)
	var held []float32
	p.Out, held = putT(x, out, before)
	launchKernel(x, kernel, p, grid()...)
	got := getT(x, out, p.Out, s.m*(s.n+6))
	scale := 0.3 * float64(s.k) // of the sum of magnitudes, for float32 sums
	for i := range s.m {
		for j := s.n; j < s.n+6; j++ {
			require.Equal(t, held[i*(s.n+6)+j], got[i*(s.n+6)+j], "%s writes beside its columns", kernel)
		}
		if kind == outAddF32 {
			for j := range s.n {
				want[i*s.n+j] += float64(held[i*(s.n+6)+j])
			}
		}
		near(t, fmt.Sprint(kernel, s, " row ", i), want[i*s.n:(i+1)*s.n], got[i*(s.n+6):i*(s.n+6)+s.n], out.eps, 2e-6*scale)
	}
}

func TestKernelGemm(t *testing.T) {
	x := newLab(t)
	tiles := map[string][2]int{"16": {16, 32}, "64": {64, 64}, "128": {128, 128}}
	for _, e := range halves() {
		for tile, b := range tiles {
			for i, s := range []shape{{1, 1, 8}, {17, 70, 72}, {33, 131, 200}, {5, 64, 61}, {130, 129, 64}} {
				kind := []int32{e.kind, outF32, outAddF32}[i%3]
				checkProduct(t, x, "gemm_"+e.name+"_"+tile, e, s, kind, i%2 == 1, func() []int { return []int{ceilDiv(s.n, b[1]), ceilDiv(s.m, b[0])} })
			}
		}
	}
	for i, s := range []shape{{1, 1, 1}, {65, 70, 33}, {3, 130, 64}, {64, 64, 20}} {
		checkProduct(t, x, "gemm_f32", elements()[0], s, []int32{outF32, outAddF32}[i%2], i%2 == 0, func() []int { return []int{ceilDiv(s.n, 64), ceilDiv(s.m, 64)} })
	}
}

func TestKernelGemv(t *testing.T) {
	x := newLab(t)
	for _, e := range elements() {
		for _, m := range []int{1, 2, 3, 4, 5, 8} {
			top := 1
			for top < m {
				top *= 2
			}
			for i, s := range []shape{{m, 9, 264}, {m, 17, 61}, {m, 8, 8}} {
				checkProduct(t, x, fmt.Sprintf("gemv_%s_%d", e.name, top), e, s, []int32{outF32, e.kind, outAddF32}[i], i == 0, func() []int { return []int{ceilDiv(s.n, 8)} })
			}
		}
	}
}

// blockTypes are the quantised types by the kernels' names.
func blockTypes() map[string]tensor.DType {
	return map[string]tensor.DType{"q4_0": tensor.Q4_0, "q4_1": tensor.Q4_1, "q5_0": tensor.Q5_0, "q8_0": tensor.Q8_0, "q4_k": tensor.Q4_K, "q5_k": tensor.Q5_K, "q6_k": tensor.Q6_K}
}

// randomBlocks makes rows of blocks of any bits with scales that are tame, and the values that they stand for.
func randomBlocks(t testing.TB, d tensor.DType, rows, k int) ([]byte, []float32) {
	t.Helper()
	r := rand.New(rand.NewSource(int64(d)))
	data := make([]byte, rows*k/d.BlockElems()*d.BlockBytes())
	for i := range data {
		data[i] = byte(r.Intn(256))
	}
	half := func(at int) {
		h := quant.F32ToF16(0.002 + 0.02*r.Float32())
		data[at], data[at+1] = byte(h), byte(h>>8)
	}
	for at := 0; at < len(data); at += d.BlockBytes() {
		switch d {
		case tensor.Q6_K:
			half(at + 208)
		case tensor.Q4_0, tensor.Q5_0, tensor.Q8_0:
			half(at)
		default:
			half(at)
			half(at + 2)
		}
	}
	out := make([]float32, rows*k)
	require.NoError(t, quant.Dequantize(out, d, data))
	return data, out
}

func TestKernelQuantisedProducts(t *testing.T) {
	x := newLab(t)
	for name, d := range blockTypes() {
		for _, k := range []int{256, 768} {
			const n = 70
			raw, w := randomBlocks(t, d, n, k)
			pw := put(x, raw, 256)
			for _, e := range halves() {
				for _, m := range []int{9, 65} {
					pa, a := putT(x, e, randoms(5, m*k, 1))
					bias := randoms(6, n, 1)
					p := gemmParams{Out: x.alloc(m * n * 4), A: pa, B: pw, Bias: put(x, bias, 0), M: int32(m), N: n, K: int32(k), LDA: int32(k), LDC: n, OutKind: outF32}
					launchKernel(x, "mmq_"+name+"_"+e.name, p, ceilDiv(n, 64), ceilDiv(m, 64))
					// Weights are rounded to the activations' type: an error of eps of each product's magnitude.
					near(t, "mmq_"+name, product(a, w, bias, m, n, k), get[float32](x, p.Out, m*n), e.eps, e.eps*magnitude(a, w, k))
				}
				if e.name == "bf16" {
					checkGemvQ(t, x, name, e, pw, w, n, k)
				}
			}
		}
	}
}

// checkGemvQ compares with the activations that the int8 blocks stand for.
func checkGemvQ(t *testing.T, x *lab, name string, e element, pw cuda.DevicePtr, w []float32, n, k int) {
	t.Helper()
	for _, m := range []int{1, 2, 3, 8} {
		top := 1
		for top < m {
			top *= 2
		}
		px, act := putT(x, e, randoms(8, m*k, 1))
		q := quantizeParams{Q: x.alloc(m * k), DS: x.alloc(m * k / 32 * 8), X: px, M: int32(m), K: int32(k), LDX: int32(k)}
		launchKernel(x, "quantize_"+e.name, q, ceilDiv(m*k/32, 8))
		ints, ds := get[int8](x, q.Q, m*k), get[float32](x, q.DS, m*k/16)
		a := make([]float32, m*k)
		for g := range m * k / 32 {
			sum, top := 0, 0.
			for i := g * 32; i < g*32+32; i++ {
				a[i] = ds[2*g] * float32(ints[i])
				sum += int(ints[i])
				top = max(top, math.Abs(float64(act[i])))
				require.InDelta(t, act[i], a[i], float64(ds[2*g])*0.501, "activation %d", i)
			}
			require.InEpsilon(t, top/127, ds[2*g], 1e-6)
			require.InDelta(t, ds[2*g]*float32(sum), ds[2*g+1], 1e-4)
		}
		p := gemvQParams{Out: x.alloc(m * n * 4), Q: q.Q, DS: q.DS, B: pw, M: int32(m), N: int32(n), K: int32(k), LDC: int32(n), OutKind: outF32}
		kernel := fmt.Sprintf("gemv_%s_%d", name, top)
		launchKernel(x, kernel, p, ceilDiv(n, 4))
		near(t, kernel, product(a, w, nil, m, n, k), get[float32](x, p.Out, m*n), 1e-5, 1e-5*magnitude(a, w, k))
	}
}

// magnitude is a bound of a dot product's rounding in units of the relative error: a few times sqrt(k) products.
func magnitude(a, w []float32, k int) float64 {
	var top float64
	for i := 0; i+k <= len(w); i += k {
		var s float64
		for c := range k {
			v := float64(a[c]) * float64(w[i+c])
			s += v * v
		}
		top = max(top, s)
	}
	return 6 * math.Sqrt(top)
}

func TestKernelEmbed(t *testing.T) {
	x := newLab(t)
	const vocab, width = 11, 256
	tokens, slots, recent := []int32{3, 10, -1, 0, -3, 99, 7}, []int32{0, 0, 1, 0, 1, 0, 0}, make([]int32, 16)
	recent[8], recent[10] = 5, 9
	want := []int{3, 10, 5, 0, 9, -1, 7}
	check := func(kernel string, table []float32, raw any, e element) {
		p := embedParams{Out: x.alloc(len(tokens) * width * 4), Tokens: put(x, tokens, 0), Slots: put(x, slots, 0), Recent: put(x, recent, 0),
			Rows: int32(len(tokens)), Width: width, Vocab: vocab, Scale: 1.5}
		if b, ok := raw.([]byte); ok {
			p.Table = put(x, b, 256)
		} else {
			p.Table, table = putT(x, e, table)
		}
		launchKernel(x, kernel, p, len(tokens)+1)
		got := get[float32](x, p.Out, len(tokens)*width)
		for i, id := range want {
			row := make([]float64, width)
			for c := range row {
				if id >= 0 {
					row[c] = 1.5 * float64(table[id*width+c])
				}
			}
			near(t, kernel, row, got[i*width:(i+1)*width], 1e-6, 1e-7)
		}
	}
	for _, e := range elements() {
		check("embed_"+e.name, randoms(7, vocab*width, 1), nil, e)
	}
	for name, d := range blockTypes() {
		raw, w := randomBlocks(t, d, vocab, width)
		check("embed_"+name, w, raw, element{})
	}
}

// Every kernel of the table exists.
func TestKernelTableIsComplete(t *testing.T) {
	x := newLab(t)
	for name := range launches() {
		x.do(func() error { _, err := x.ModuleFunction(x.module, name); return err })
	}
}
