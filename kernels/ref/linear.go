package ref

import (
	"omni-engine/internal/tensor"
	"omni-engine/internal/weights/quant"
	"omni-engine/kernels"
)

// linear dequantises a few rows of the weight at a time and uses them for every row of the input.
func linear(e *Env, o *kernels.Linear) error {
	out, in := e.Buffers[o.Out], e.Buffers[o.In]
	bias := e.Weights.Vector(o.Bias)
	e.parallel(out.Width, out.Width*in.Width*max(out.Rows, 1), func(from, to int) {
		e.matmul(out, in, o.Weight, from, to, bias)
	})
	return e.adapt(out, in, o.Site)
}

// matmul computes out[:, from:to] = in · W[from:to]ᵀ + bias.
func (e *Env) matmul(out, in Value, w kernels.WeightID, from, to int, bias []float32) {
	var scratch [4][]float32
	var rows [4][]float32
	for n := from; n < to; n += 4 {
		k := min(4, to-n)
		for i := range k {
			scratch[i] = e.Weights.Row(w, n+i, scratch[i])
			rows[i] = scratch[i]
		}
		for t := range in.Rows {
			x, y := in.Row(t), out.Row(t)[n:n+k]
			if k == 4 {
				y[0], y[1], y[2], y[3] = dot4(x, rows[0], rows[1], rows[2], rows[3])
			} else {
				for i := range k {
					y[i], _, _, _ = dot4(x, rows[i], rows[i], rows[i], rows[i])
				}
			}
			if bias != nil {
				for i := range y {
					y[i] += bias[n+i]
				}
			}
		}
		for i := range k { // a row in place must not become scratch
			if e.Weights.small[w] != nil {
				scratch[i] = nil
			}
		}
	}
}

// dot4 is four dot products with one x. Each sums even and odd columns apart, then both: the order of every product.
func dot4(x, a, b, c, d []float32) (p, q, r, s float32) {
	n := len(x)
	a, b, c, d = a[:n], b[:n], c[:n], d[:n]
	var p1, q1, r1, s1 float32
	i := 0
	for ; i+1 < n; i += 2 {
		x0, x1 := x[i], x[i+1]
		p += x0 * a[i]
		q += x0 * b[i]
		r += x0 * c[i]
		s += x0 * d[i]
		p1 += x1 * a[i+1]
		q1 += x1 * b[i+1]
		r1 += x1 * c[i+1]
		s1 += x1 * d[i+1]
	}
	if i < n {
		p += x[i] * a[i]
		q += x[i] * b[i]
		r += x[i] * c[i]
		s += x[i] * d[i]
	}
	return p + p1, q + q1, r + r1, s + s1
}

func dot(x, y []float32) float32 {
	var s0, s1 float32
	y = y[:len(x)]
	i := 0
	for ; i+1 < len(x); i += 2 {
		s0 += x[i] * y[i]
		s1 += x[i+1] * y[i+1]
	}
	if i < len(x) {
		s0 += x[i] * y[i]
	}
	return s0 + s1
}

// adapt adds the low-rank updates of the rows that name an adapter.
func (e *Env) adapt(out, in Value, site string) error {
	b := e.Batch
	if site == "" || len(b.Adapters) != len(b.SeqLens) || out.Rows != len(b.Tokens) {
		return nil
	}
	for r, slot := range b.Adapters {
		if slot < 0 || int(slot) >= len(e.Adapters) || e.Adapters[slot] == nil {
			continue
		}
		a := e.Adapters[slot]
		va, ok := a.A[site]
		if !ok {
			continue
		}
		if err := lowRank(out, in, va, a.B[site], a.Scale, int(b.QueryStart[r]), int(b.QueryStart[r+1])); err != nil {
			return err
		}
	}
	return nil
}

func lowRank(out, in Value, va, vb tensor.View, scale float32, from, to int) error {
	rank := va.Shape[0]
	fa, fb := make([]float32, rank*in.Width), make([]float32, out.Width*rank)
	if err := quant.Dequantize(fa, va.DType, va.Data); err != nil {
		return err
	}
	if err := quant.Dequantize(fb, vb.DType, vb.Data); err != nil {
		return err
	}
	h := make([]float32, rank)
	for t := from; t < to; t++ {
		for i := range h {
			h[i] = dot(in.Row(t), fa[i*in.Width:(i+1)*in.Width])
		}
		y := out.Row(t)
		for i := range y {
			y[i] += scale * dot(h, fb[i*rank:(i+1)*rank])
		}
	}
	return nil
}
