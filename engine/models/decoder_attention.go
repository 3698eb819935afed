package models

import (
	"omni-engine/kernels"
)

func (d *decoder) attention(p string, h kernels.BufferID, a *AttentionConfig) kernels.BufferID {
	n, cfg := d.names, *a
	qp, kp, vp := d.qkv(p, &cfg)
	if cfg.KVHeads <= 0 || cfg.Heads%cfg.KVHeads != 0 {
		d.fail("%s: %d heads over %d key-value heads", p, cfg.Heads, cfg.KVHeads)
		return h
	}
	var gate kernels.BufferID
	if cfg.OutputGate {
		whole := qp
		qp = d.part(whole, "q", byHead(cfg.Heads, 2*cfg.HeadDim, 0, cfg.HeadDim)...)
		gate = d.linear("attn_gate", h, d.part(whole, "gate", byHead(cfg.Heads, 2*cfg.HeadDim, cfg.HeadDim, cfg.HeadDim)...), 0)
	}
	if cfg.SharedWith > 0 {
		return d.sharedAttention(p, h, qp, &cfg)
	}
	q := d.linear("q", h, qp, cfg.Heads*cfg.HeadDim)
	k := d.linear("k", h, kp, cfg.KVHeads*cfg.HeadDim)
	v := d.linear("v", h, vp, cfg.KVHeads*cfg.VDim)
	if s := cfg.ValueScale; s != 0 {
		d.op(&kernels.Unary{Out: v, In: v, Act: kernels.Identity, Scale: s})
	}
	norms := func() {
		if n.QNorm != "" && d.has(p+n.QNorm+".weight") {
			d.groupNorm(q, kernels.RMS, cfg.HeadDim, d.cfg.Norm.Eps, d.cfg.Norm.AddOne, p+n.QNorm)
			d.groupNorm(k, kernels.RMS, cfg.HeadDim, d.cfg.Norm.Eps, d.cfg.Norm.AddOne, p+n.KNorm)
		}
	}
	if cfg.VNorm {
		d.groupNorm(v, kernels.RMS, cfg.VDim, d.cfg.Norm.Eps, false, "")
	}
	if !cfg.QKNormLate {
		norms()
	}
	if r := cfg.Rope; r != nil {
		d.rope(q, cfg.Heads, cfg.HeadDim, 0, r)
		d.rope(k, cfg.KVHeads, cfg.HeadDim, 0, r)
	}
	if cfg.QKNormLate {
		norms()
	}
	if cfg.L2Norm {
		d.groupNorm(q, kernels.RMS, cfg.HeadDim, d.cfg.Norm.Eps, false, "")
		d.groupNorm(k, kernels.RMS, cfg.HeadDim, d.cfg.Norm.Eps, false, "")
	}
	if s := cfg.QScale; s != nil {
		d.op(&kernels.PositionScale{X: q, Beta: s.Beta, Floor: s.Floor, Plus: s.Plus})
	}
	o := d.attend(p, q, k, v, &cfg)
	if cfg.OutputGate {
		y := d.like("attn_gated", o, d.width(o))
		d.op(&kernels.Gated{Out: y, Gate: gate, Up: o, Act: kernels.Sigmoid})
		o = y
	}
	return d.linear("o", o, d.proj(p+n.O), d.cfg.Hidden)
}

// attend writes keys and values and attends over them.
func (d *decoder) attend(p string, q, k, v kernels.BufferID, a *AttentionConfig) kernels.BufferID {
	state := d.paged(p+"kv", a.Window, a.KVHeads, a.HeadDim, a.VDim)
	d.kv = append(d.kv, state)
	d.op(&kernels.KVWrite{K: k, V: v, State: state})
	return d.read(p, q, state, a)
}

// sharedAttention reads the keys and values of an earlier layer.
func (d *decoder) sharedAttention(p string, h kernels.BufferID, qp proj, a *AttentionConfig) kernels.BufferID {
	if a.SharedWith > len(d.kv) {
		d.fail("%s: layer %d has no keys to share", p, a.SharedWith-1)
		return h
	}
	q := d.linear("q", h, qp, a.Heads*a.HeadDim)
	d.groupNorm(q, kernels.RMS, a.HeadDim, d.cfg.Norm.Eps, d.cfg.Norm.AddOne, p+d.names.QNorm)
	if a.Rope != nil {
		d.rope(q, a.Heads, a.HeadDim, 0, a.Rope)
	}
	state := d.kv[a.SharedWith-1]
	if s := d.m.States[state]; s.Heads != a.KVHeads || s.KDim != a.HeadDim || s.VDim != a.VDim || d.m.Groups[s.Group].Window != a.Window {
		d.fail("%s: cannot read the keys of layer %d", p, a.SharedWith-1)
	}
	d.kv = append(d.kv, state)
	return d.linear("o", d.read(p, q, state, a), d.proj(p+d.names.O), d.cfg.Hidden)
}

// read attends over a state.
func (d *decoder) read(p string, q kernels.BufferID, state kernels.StateID, a *AttentionConfig) kernels.BufferID {
	o := d.like("attn", q, a.Heads*a.VDim)
	sinks := kernels.WeightID(kernels.None)
	for _, s := range d.names.Sinks {
		if d.has(p + s) {
			sinks = d.vector(p+s, a.Heads)
		}
	}
	d.op(&kernels.Attention{Out: o, Q: q, State: state, Heads: a.Heads, KVHeads: a.KVHeads, KDim: a.HeadDim, VDim: a.VDim,
		Scale: a.Scale, Softcap: a.Softcap, Window: a.Window, Chunk: a.Chunk, Sinks: sinks})
	return o
}

// qkv finds the three projections, fused or not. KVHeads of 0 becomes what the key projection says.
func (d *decoder) qkv(p string, a *AttentionConfig) (q, k, v proj) {
	n := d.names
	if n.QKV == "" || !d.has(p+n.QKV+".weight") {
		if q = d.proj(p + n.Q); a.SharedWith > 0 {
			return q, k, v
		}
		if k = d.proj(p + n.K); a.KeyIsValue {
			return q, k, k
		}
		v = d.proj(p + n.V)
		if a.KVHeads == 0 {
			a.KVHeads = max(k.w.Shape[0]/a.HeadDim, 1)
		}
		return q, k, v
	}
	fused := d.proj(p + n.QKV)
	if a.FusedByHead {
		size := 3 * a.HeadDim
		take := func(label string, i int) proj {
			return d.part(fused, label, byHead(a.Heads, size, i*a.HeadDim, a.HeadDim)...)
		}
		return take("q", 0), take("k", 1), take("v", 2)
	}
	nq, nk, nv := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim, a.KVHeads*a.VDim
	return d.part(fused, "q", span{0, nq}), d.part(fused, "k", span{nq, nq + nk}), d.part(fused, "v", span{nq + nk, nq + nk + nv})
}

func (d *decoder) rope(x kernels.BufferID, heads, headDim, from int, r *RopeConfig) {
	d.op(&kernels.Rope{X: x, Heads: heads, HeadDim: headDim, From: from, RotDim: r.Dim, Pairing: r.Pairing, InvFreq: r.InvFreq, Factor: r.Factor, Axis: r.Axis})
}

// latent emits MLA with expanded keys and values: k of each head is [its own part, the rotated part that all heads share].
func (d *decoder) latent(p string, h kernels.BufferID, a *MLAConfig) kernels.BufferID {
	dim, at := a.Nope+a.RopeDim, p+"self_attn."
	var q kernels.BufferID
	if d.has(at + "q_a_proj.weight") {
		low := d.linear("q_a", h, d.proj(at+"q_a_proj"), 0)
		low = d.norm("q_a_norm", low, NormConfig{Eps: a.Eps}, at+"q_a_layernorm")
		q = d.linear("q", low, d.proj(at+"q_b_proj"), a.Heads*dim)
	} else {
		q = d.linear("q", h, d.proj(at+"q_proj"), a.Heads*dim)
	}
	down := d.proj(at + "kv_a_proj_with_mqa")
	c := d.linear("kv_a", h, d.part(down, "latent", span{0, a.KVRank}), a.KVRank)
	shared := d.linear("k_rope", h, d.part(down, "rope", span{a.KVRank, a.KVRank + a.RopeDim}), a.RopeDim)
	c = d.norm("kv_a_norm", c, NormConfig{Eps: a.Eps}, at+"kv_a_layernorm")
	up := d.proj(at + "kv_b_proj")
	own := d.linear("k_nope", c, d.part(up, "k", byHead(a.Heads, a.Nope+a.VDim, 0, a.Nope)...), a.Heads*a.Nope)
	v := d.linear("v", c, d.part(up, "v", byHead(a.Heads, a.Nope+a.VDim, a.Nope, a.VDim)...), a.Heads*a.VDim)
	d.rope(q, a.Heads, dim, a.Nope, a.Rope)
	d.rope(shared, 1, a.RopeDim, 0, a.Rope)
	k := d.like("k", h, a.Heads*dim)
	d.op(&kernels.Copy{Out: k, In: own, Groups: a.Heads, Width: a.Nope, InStride: a.Nope, OutStride: dim},
		&kernels.Copy{Out: k, In: shared, Groups: a.Heads, Width: a.RopeDim, OutStride: dim, OutFrom: a.Nope})
	o := d.attend(p, q, k, v, &AttentionConfig{Heads: a.Heads, KVHeads: a.Heads, HeadDim: dim, VDim: a.VDim, Scale: a.Scale})
	return d.linear("o", o, d.proj(at+"o_proj"), d.cfg.Hidden)
}
