package models

import (
	"math"

	"omni-engine/kernels"
)

// perLayerInputs works out Gemma 4's second embeddings, one of PerLayerInput columns a layer: of the token's id and of its first embedding,
// half of each.
func (d *decoder) perLayerInputs() {
	n, width := d.cfg.PerLayerInput, d.cfg.PerLayerInput*len(d.cfg.Layers)
	d.ple = d.buf("ple", kernels.Tokens, width)
	d.op(&kernels.Embed{Out: d.ple, Table: d.vector("model.embed_tokens_per_layer.weight", 0), Scale: float32(math.Sqrt(float64(n)))})
	y := d.linear("ple_projected", d.x, d.proj("model.per_layer_model_projection"), width)
	d.op(&kernels.Unary{Out: y, In: y, Act: kernels.Identity, Scale: float32(1 / math.Sqrt(float64(d.cfg.Hidden)))})
	d.groupNorm(y, kernels.RMS, n, d.cfg.Norm.Eps, false, "model.per_layer_projection_norm")
	d.op(&kernels.Binary{Out: d.ple, A: d.ple, B: y, Kind: kernels.Add},
		&kernels.Unary{Out: d.ple, In: d.ple, Act: kernels.Identity, Scale: float32(1 / math.Sqrt2)})
	if v := d.m.Weights[d.weights["model.embed_tokens_per_layer.weight"]].View; len(v.Shape) != 2 || v.Shape[1] != width {
		d.fail("tensor model.embed_tokens_per_layer.weight has shape %v for %d columns", v.Shape, width)
	}
}

// perLayerBlock adds layer i's part to the residual stream.
func (d *decoder) perLayerBlock(p string, i int, act kernels.Act) {
	n := d.cfg.PerLayerInput
	g := d.linear("ple_gate", d.x, d.proj(p+"per_layer_input_gate"), n)
	part := d.like("ple_layer", d.x, n)
	d.op(&kernels.Copy{Out: part, In: d.ple, Groups: 1, Width: n, InFrom: i * n},
		&kernels.Gated{Out: g, Gate: g, Up: part, Act: act})
	y := d.linear("ple_out", g, d.proj(p+"per_layer_projection"), d.cfg.Hidden)
	d.residual(d.norm("post", y, d.cfg.Norm, p+"post_per_layer_input_norm"))
}

// scalar reads a tensor of one number.
func (d *decoder) scalar(name string) float32 {
	v, err := floats(d.tensor(name))
	if err != nil || len(v) != 1 {
		d.fail("tensor %s is no single number", name)
		return 1
	}
	return v[0]
}
