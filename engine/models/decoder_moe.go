package models

import (
	"fmt"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// experts emits router, experts and shared experts.
func (d *decoder) experts(base string, h kernels.BufferID) kernels.BufferID {
	m, n := d.cfg.MoE, d.names
	router := d.proj(base + n.Router)
	count := router.w.Shape[0]
	logits := d.linear("router", h, router, count)
	ids := d.buffer(kernels.Buffer{Name: "experts", DType: tensor.I32, Rows: d.rows(h), Width: m.TopK})
	weights := d.like("expert_weights", h, m.TopK)
	bias := kernels.WeightID(kernels.None)
	if n.SelectBias != "" && m.Score == kernels.ScoreSigmoid {
		bias = d.optional(base+n.SelectBias, count)
	}
	if m.TopK > count || m.Groups > 0 && (count%m.Groups != 0 || m.GroupTopK < 1 || m.GroupTopK > m.Groups) {
		d.fail("%s: %d of %d experts, %d of %d groups", base, m.TopK, count, m.GroupTopK, m.Groups)
	}
	d.op(&kernels.Route{IDs: ids, Weights: weights, Logits: logits, Score: m.Score, TopK: m.TopK, SelectBias: bias, Groups: m.Groups,
		GroupTopK: m.GroupTopK, GroupSum2: m.GroupSum2, Renormalise: m.Renormalise, Factor: m.Factor, Jitter: m.Jitter})
	out := d.like("moe", h, d.cfg.Hidden)
	op := &kernels.Experts{Out: out, In: h, IDs: ids, Weights: weights, Act: m.Act, Limit: m.Limit, WeightInput: m.WeightInput, Site: base + "experts"}
	d.expertWeights(op, base, count)
	d.op(op)
	d.sharedExperts(base, h, out)
	return out
}

// sharedExperts adds the experts that every token visits, gated where the model has a gate.
func (d *decoder) sharedExperts(base string, h, out kernels.BufferID) {
	for _, shared := range []string{d.names.Shared, "shared_expert."} {
		if shared == "" || !d.has(base+shared+d.names.Down+".weight") {
			continue
		}
		y := d.dense("shared_", base+shared, h, d.cfg.MoE.Act)
		if d.has(base + d.names.SharedGate + ".weight") {
			g := d.linear("shared_weight", h, d.proj(base+d.names.SharedGate), 1)
			d.op(&kernels.Unary{Out: g, In: g, Act: kernels.Sigmoid},
				&kernels.Binary{Out: y, A: y, B: g, Kind: kernels.MulFirst})
		}
		d.op(&kernels.Binary{Out: out, A: out, B: y, Kind: kernels.Add})
		return
	}
}

// expertWeights lists the experts' weights, whichever way the checkpoint stores them.
func (d *decoder) expertWeights(op *kernels.Experts, base string, count int) {
	n := d.names
	for e := range count {
		p := fmt.Sprintf("%sexperts.%d.", base, e)
		switch {
		case d.has(p + n.ExpertDown + ".weight"):
			op.Gate = append(op.Gate, d.vector(p+n.ExpertGate+".weight", 0))
			op.Up = append(op.Up, d.vector(p+n.ExpertUp+".weight", 0))
			op.Down = append(op.Down, d.vector(p+n.ExpertDown+".weight", 0))
		case d.has(base + "experts.gate_up_proj"):
			d.stackedExpert(op, base+"experts.", e)
		case d.has(base + "input_linear.weight"):
			d.fusedExpert(op, base, e)
		default:
			d.fail("%s: expert %d: no weights under a known name", base, e)
			return
		}
	}
	for e := range op.Down {
		d.checkExpert(op, base, e)
	}
}

func (d *decoder) checkExpert(op *kernels.Experts, base string, e int) {
	g, u, w := d.m.Weights[op.Gate[e]].View.Shape, d.m.Weights[op.Up[e]].View.Shape, d.m.Weights[op.Down[e]].View.Shape
	if len(g) != 2 || len(u) != 2 || len(w) != 2 || g[0] != u[0] || g[1] != d.cfg.Hidden || u[1] != g[1] || w[0] != d.cfg.Hidden || w[1] != g[0] {
		d.fail("%s: expert %d has shapes %v, %v, %v", base, e, g, u, w)
	}
}

// stackedExpert reads tensors [E, in, out]: gate and up side by side or interleaved. They are transposed once.
func (d *decoder) stackedExpert(op *kernels.Experts, base string, e int) {
	name := func(part string) string { return fmt.Sprintf("%s%d.%s", base, e, part) }
	fused, down := d.tensor(base+"gate_up_proj"), d.tensor(base+"down_proj")
	gu, err := index(fused, e)
	dn, err2 := index(down, e)
	if err != nil || err2 != nil || len(gu.Shape) != 2 || len(dn.Shape) != 2 {
		d.fail("%sgate_up_proj and down_proj have shapes %v and %v", base, fused.Shape, down.Shape)
		return
	}
	inner := gu.Shape[1] / 2
	from, step := inner, 1
	if d.cfg.MoE.InterleavedGU {
		from, step = 1, 2
	}
	add := func(list *[]kernels.WeightID, part string, v tensor.View, err error) {
		if err != nil {
			d.fail("%s: %w", name(part), err)
		}
		*list = append(*list, d.add(name(part), v))
	}
	g, err := transpose(gu, 0, step, inner)
	add(&op.Gate, "gate", g, err)
	u, err := transpose(gu, from, step, inner)
	add(&op.Up, "up", u, err)
	w, err := transpose(dn, 0, 1, dn.Shape[1])
	add(&op.Down, "down", w, err)
	if !d.has(base + "gate_up_proj_bias") {
		return
	}
	both, err := index(d.tensor(base+"gate_up_proj_bias"), e)
	if err != nil {
		d.fail("%sgate_up_proj_bias: %w", base, err)
		return
	}
	gb, err := stride(both, 0, step, inner)
	add(&op.GateBias, "gate_bias", gb, err)
	ub, err := stride(both, from, step, inner)
	add(&op.UpBias, "up_bias", ub, err)
	db, err := index(d.tensor(base+"down_proj_bias"), e)
	add(&op.DownBias, "down_bias", db, err)
}

// fusedExpert reads Granite's stacks [E, 2*inner, in] and [E, hidden, inner].
func (d *decoder) fusedExpert(op *kernels.Experts, base string, e int) {
	in, err := index(d.tensor(base+"input_linear.weight"), e)
	out, err2 := index(d.tensor(base+"output_linear.weight"), e)
	if err != nil || err2 != nil {
		d.fail("%s: expert %d of input_linear and output_linear cannot be read", base, e)
		return
	}
	half := in.Shape[0] / 2
	gate, err := pickRows(in, []span{{0, half}})
	up, err2 := pickRows(in, []span{{half, 2 * half}})
	if err != nil || err2 != nil {
		d.fail("%s: expert %d has shape %v", base, e, in.Shape)
		return
	}
	op.Gate = append(op.Gate, d.add(fmt.Sprintf("%sexperts.%d.gate", base, e), gate))
	op.Up = append(op.Up, d.add(fmt.Sprintf("%sexperts.%d.up", base, e), up))
	op.Down = append(op.Down, d.add(fmt.Sprintf("%sexperts.%d.down", base, e), out))
}
