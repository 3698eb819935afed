package models

import (
	"fmt"
	"math"

	"omni-engine/kernels"
)

// delta emits the gated delta net: a short convolution over [q, k, v], the recurrence, a norm gated by z.
func (d *decoder) delta(p string, h kernels.BufferID, c *DeltaConfig) kernels.BufferID {
	at := p + "linear_attn."
	nk, nv, ratio := c.KeyHeads*c.KDim, c.ValueHeads*c.VDim, c.ValueHeads/c.KeyHeads
	qkv, z, beta, alpha := d.deltaProjections(at, c, nk, nv, ratio)

	x := d.linear("qkv", h, qkv, 2*nk+nv)
	gate := d.linear("z", h, z, nv)
	y := d.conv(at, x, c.Kernel)
	q, k, v := d.like("dq", x, nk), d.like("dk", x, nk), d.like("dv", x, nv)
	d.op(&kernels.Copy{Out: q, In: y, Groups: 1, Width: nk},
		&kernels.Copy{Out: k, In: y, Groups: 1, Width: nk, InFrom: nk},
		&kernels.Copy{Out: v, In: y, Groups: 1, Width: nv, InFrom: 2 * nk})
	d.groupNorm(q, kernels.L2Norm, c.KDim, 1e-6, false, "")
	d.groupNorm(k, kernels.L2Norm, c.KDim, 1e-6, false, "")

	b := d.linear("beta", h, beta, c.ValueHeads)
	d.op(&kernels.Unary{Out: b, In: b, Act: kernels.Sigmoid})
	g := d.linear("decay", h, alpha, c.ValueHeads)
	d.op(&kernels.Unary{Out: g, In: g, Act: kernels.Softplus},
		&kernels.ColumnScale{Out: g, In: g, Scale: d.negativeExp(at+"A_log", c.ValueHeads), Shift: kernels.None})

	o := d.like("delta", x, nv)
	state := d.state(kernels.StateSpec{Name: p + "delta", Kind: kernels.Slot, Floats: c.ValueHeads * c.KDim * c.VDim})
	d.op(&kernels.DeltaRule{Out: o, Q: q, K: k, V: v, G: g, Beta: b, KHeads: c.KeyHeads, VHeads: c.ValueHeads, KDim: c.KDim, VDim: c.VDim,
		Scale: float32(1 / math.Sqrt(float64(c.KDim))), State: state})
	d.groupNorm(o, kernels.RMS, c.VDim, c.Eps, false, at+"norm")
	d.op(&kernels.Gated{Out: o, Gate: gate, Up: o, Act: kernels.Silu})
	return d.linear("o", o, d.proj(at+"out_proj"), d.cfg.Hidden)
}

// deltaProjections finds the projections, split or fused by key head: [q, k, v of its value heads, z of them] and [b, a].
func (d *decoder) deltaProjections(at string, c *DeltaConfig, nk, nv, ratio int) (qkv, z, beta, alpha proj) {
	if d.has(at + "in_proj_qkv.weight") {
		qkv, z, beta, alpha = d.proj(at+"in_proj_qkv"), d.proj(at+"in_proj_z"), d.proj(at+"in_proj_b"), d.proj(at+"in_proj_a")
	} else {
		w := d.proj(at + "in_proj_qkvz")
		vs := ratio * c.VDim
		size := 2*c.KDim + 2*vs
		var spans []span
		for _, part := range []span{{0, c.KDim}, {c.KDim, c.KDim}, {2 * c.KDim, vs}} {
			spans = append(spans, byHead(c.KeyHeads, size, part.From, part.To)...)
		}
		qkv = d.part(w, "qkv", spans...)
		z = d.part(w, "z", byHead(c.KeyHeads, size, 2*c.KDim+vs, vs)...)
		ba := d.proj(at + "in_proj_ba")
		beta = d.part(ba, "b", byHead(c.KeyHeads, 2*ratio, 0, ratio)...)
		alpha = d.part(ba, "a", byHead(c.KeyHeads, 2*ratio, ratio, ratio)...)
	}
	bias := d.tensor(at + "dt_bias")
	if len(bias.Shape) != 1 || bias.Shape[0] != c.ValueHeads {
		d.fail("tensor %sdt_bias has shape %v for %d heads", at, bias.Shape, c.ValueHeads)
	}
	alpha.bias = &bias
	return qkv, z, beta, alpha
}

// conv emits the causal depthwise convolution with its tail in a slot; the weight is stored [width, 1, kernel].
func (d *decoder) conv(at string, x kernels.BufferID, kernel int) kernels.BufferID {
	width := d.width(x)
	y := d.like("conv", x, width)
	w := d.vector(at+"conv1d.weight", width*kernel)
	state := d.state(kernels.StateSpec{Name: at + "conv", Kind: kernels.Slot, Floats: (kernel - 1) * width})
	d.op(&kernels.ConvState{Out: y, In: x, Weight: w, Bias: d.optional(at+"conv1d.bias", width), Kernel: kernel, State: state, Act: kernels.Silu})
	return y
}

// negativeExp enters -exp(v) of a small tensor.
func (d *decoder) negativeExp(name string, n int) kernels.WeightID {
	v, err := floats(d.tensor(name))
	if err == nil && len(v) != n {
		err = fmt.Errorf("%d values, not %d", len(v), n)
	}
	if err != nil {
		d.fail("tensor %s: %w", name, err)
		v = make([]float32, n)
	}
	for i := range v {
		v[i] = -float32(math.Exp(float64(v[i])))
	}
	return d.add(name+".negative_exp", ofFloats([]int{n}, v))
}
