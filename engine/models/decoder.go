package models

import (
	"fmt"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// BuildOptions choose what a decoder's module gives beside tokens.
type BuildOptions struct {
	// Hidden lists hidden states to keep as outputs "hidden@k": 0 is the embeddings, k the output of layer k, the number of layers
	// the last one after the final norm.
	Hidden []int
	// Inputs lets rows named "embeds" replace token embeddings.
	Inputs bool
	// CodeLogits keeps the code predictor's logits as outputs "code_logits@k" [LogitRows, codes], for comparisons.
	CodeLogits bool
}

// decoder builds one decoder.
type decoder struct {
	*builder
	cfg   *DecoderConfig
	names Names
	opts  BuildOptions
	x     kernels.BufferID  // the residual stream
	ple   kernels.BufferID  // embeddings by layer, side by side
	kv    []kernels.StateID // of each layer's keys and values

	lastOutput string // an output for the final hidden states of the logit rows; empty: none
}

// Build makes the module of a decoder: entry "forward" ends with output "logits" [LogitRows, vocabulary], entry "sample" samples it.
// Each layer is, in this order (devices look for it): Norm; Linear q, k, v; norms of q and k; Rope q, k; KVWrite; Attention; Linear o; norm;
// Binary Add to the residual stream; Norm; Linear gate, up; Gated; Linear down; norm; Binary Add.
func Build(cfg *DecoderConfig, names Names, w Weights, opts BuildOptions) (*kernels.Module, error) {
	d := &decoder{builder: newBuilder(cfg.Architecture, w), cfg: cfg, names: names, opts: opts}
	d.m.Vocab = cfg.Vocab
	d.open("forward")
	d.embed()
	for i := range cfg.Layers {
		d.layer(i)
		if i+1 < len(cfg.Layers) {
			d.keep(i+1, d.x)
		}
	}
	d.head()
	d.finish()
	d.open("sample")
	d.op(&kernels.Sample{Logits: d.logits()})
	d.finish()
	return d.module()
}

func (d *decoder) embed() {
	d.x = d.buf("x", kernels.Tokens, d.cfg.Hidden)
	scale := d.cfg.EmbedScale
	if scale == 0 {
		scale = 1
	}
	table := d.vector(d.names.Embed+".weight", d.cfg.Vocab*d.cfg.Hidden)
	d.op(&kernels.Embed{Out: d.x, Table: table, Scale: scale})
	if d.opts.Inputs {
		d.op(&kernels.InputRows{Out: d.x, Input: "embeds"})
	}
	d.keep(0, d.x)
	if d.cfg.PerLayerInput > 0 {
		d.perLayerInputs()
	}
}

// keep copies a hidden state to an output when it is asked for.
func (d *decoder) keep(k int, x kernels.BufferID) {
	for _, want := range d.opts.Hidden {
		if want == k {
			out := d.buffer(kernels.Buffer{Name: fmt.Sprintf("hidden@%d", k), DType: tensor.F32, Rows: kernels.Of(kernels.Tokens), Width: d.cfg.Hidden, Role: kernels.Output})
			d.op(&kernels.Copy{Out: out, In: x, Groups: 1, Width: d.cfg.Hidden})
			return
		}
	}
}

func (d *decoder) logits() kernels.BufferID {
	return d.buffer(kernels.Buffer{Name: "logits", DType: tensor.F32, Rows: kernels.Of(kernels.LogitRows), Width: d.cfg.Vocab, Role: kernels.Output})
}

// hiddenOutput is the output of the final hidden states of the logit rows.
func (d *decoder) hiddenOutput() kernels.BufferID {
	return d.buffer(kernels.Buffer{Name: d.lastOutput, DType: tensor.F32, Rows: kernels.Of(kernels.LogitRows), Width: d.cfg.Hidden, Role: kernels.Output})
}

func (d *decoder) head() {
	for _, k := range d.opts.Hidden {
		if k == len(d.cfg.Layers) {
			d.keep(k, d.norm("final", d.x, d.cfg.Norm, d.names.FinalNorm))
		}
	}
	last := d.buf("last", kernels.LogitRows, d.cfg.Hidden)
	d.op(&kernels.GatherRows{Out: last, In: d.x})
	h := d.norm("last_norm", last, d.cfg.Norm, d.names.FinalNorm)
	if d.lastOutput != "" {
		d.op(&kernels.Copy{Out: d.hiddenOutput(), In: h, Groups: 1, Width: d.cfg.Hidden})
	}
	p := proj{}
	if d.names.Head != "" && d.has(d.names.Head+".weight") {
		p = d.proj(d.names.Head)
	} else {
		p = d.proj(d.names.Embed) // tied
		p.site = d.names.Head
	}
	if p.w.Shape[0] != d.cfg.Vocab || p.w.Shape[1] != d.cfg.Hidden {
		d.fail("%s.weight has shape %v, not [%d %d]", p.name, p.w.Shape, d.cfg.Vocab, d.cfg.Hidden)
	}
	out := d.logits()
	d.linearInto(out, h, p)
	scale := d.cfg.LogitScale
	if scale == 0 {
		scale = 1
	}
	switch c := d.cfg.LogitSoftcap; {
	case c > 0:
		d.op(&kernels.Unary{Out: out, In: out, Act: kernels.Tanh, Scale: scale / c, PostScale: c})
	case scale != 1:
		d.op(&kernels.Unary{Out: out, In: out, Act: kernels.Identity, Scale: scale})
	}
}

// layer emits one layer. Which norms exist decides the placement: pre, post, sandwich.
func (d *decoder) layer(i int) {
	l := d.cfg.Layers[i]
	p := fmt.Sprintf(d.names.Layer, i)
	h := d.maybeNorm("h", d.x, p, d.names.InputNorm)
	var o kernels.BufferID
	switch {
	case l.MLA != nil:
		o = d.latent(p, h, l.MLA)
	case l.Delta != nil:
		o = d.delta(p, h, l.Delta)
	default:
		o = d.attention(p, h, l.Attention)
	}
	if l.Parallel {
		m := h
		if d.names.PreMLPNorm != "" && d.has(p+d.names.PreMLPNorm+".weight") {
			m = d.maybeNorm("h2", d.x, p, d.names.PreMLPNorm)
		}
		f := d.mlp(p, m, l)
		d.residual(o)
		d.residual(f)
		return
	}
	d.residual(d.maybeNorm("post", o, p, d.names.PostAttentionNorm))
	h = d.maybeNorm("h", d.x, p, d.names.PreMLPNorm)
	d.residual(d.maybeNorm("post", d.mlp(p, h, l), p, d.names.PostMLPNorm))
	if d.cfg.PerLayerInput > 0 {
		d.perLayerBlock(p, i, l.Act)
	}
	if d.has(p + "layer_scalar") {
		d.op(&kernels.Unary{Out: d.x, In: d.x, Act: kernels.Identity, Scale: d.scalar(p + "layer_scalar")})
	}
}

// maybeNorm is norm, or x itself where the model has none.
func (d *decoder) maybeNorm(dst string, x kernels.BufferID, prefix, name string) kernels.BufferID {
	if name == "" {
		return x
	}
	return d.norm(dst, x, d.cfg.Norm, prefix+name)
}

func (d *decoder) residual(y kernels.BufferID) {
	d.op(&kernels.Binary{Out: d.x, A: d.x, B: y, Kind: kernels.Add, Alpha: d.cfg.ResidualScale})
}

func (d *decoder) mlp(p string, h kernels.BufferID, l LayerConfig) kernels.BufferID {
	base := p + d.names.MLP
	if d.cfg.MoE != nil && d.has(base+d.names.Router+".weight") {
		return d.experts(base, h)
	}
	return d.dense("", base, h, l.Act)
}

// dense emits a gated or plain MLP; tag keeps the buffers of a shared expert apart.
func (d *decoder) dense(tag, base string, h kernels.BufferID, act kernels.Act) kernels.BufferID {
	n := d.names
	var gate, up proj
	switch {
	case n.GateUp != "" && d.has(base+n.GateUp+".weight"):
		fused := d.proj(base + n.GateUp)
		half := fused.w.Shape[0] / 2
		gate, up = d.part(fused, "gate", span{0, half}), d.part(fused, "up", span{half, 2 * half})
	case n.Gate == "":
		u := d.linear(tag+"up", h, d.proj(base+n.Up), 0)
		a := d.like(tag+"act", u, d.width(u))
		d.op(&kernels.Unary{Out: a, In: u, Act: act})
		return d.linear(tag+"down", a, d.proj(base+n.Down), d.cfg.Hidden)
	default:
		gate, up = d.proj(base+n.Gate), d.proj(base+n.Up)
	}
	g := d.linear(tag+"gate", h, gate, 0)
	u := d.linear(tag+"up", h, up, d.width(g))
	a := d.like(tag+"act", g, d.width(g))
	d.op(&kernels.Gated{Out: a, Gate: g, Up: u, Act: act})
	return d.linear(tag+"down", a, d.proj(base+n.Down), d.cfg.Hidden)
}
