package models

import (
	"fmt"
	"math"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// vocoder is Qwen3-Omni's code2wav. A batch's tokens are frames; whatever their number a step, the samples are those of one pass over all
// frames: keys of the sliding window and the tails of the convolutions stay in the request's slot.
type vocoder struct {
	*builder
	hidden, groups, codes int
	eps                   float32
	rate, delay           int // of the current buffer, in rows a frame
}

// loadVocoder builds entry "vocode": rows named "codes" [frames, groups] to output "wav" [Rate*frames, 1] in [-1, 1]. The first Delay samples
// of a request come before the signal and are to be dropped; as many are lost at its end.
func loadVocoder(c object, src Source) (*Model, error) {
	v := &vocoder{builder: newBuilder("Qwen3OmniMoeCode2Wav", src.Weights), hidden: c.integer("hidden_size", 0), groups: c.integer("num_quantizers", 0),
		codes: c.integer("codebook_size", 0), eps: float32(c.float("rms_norm_eps", 1e-5)), rate: 1}
	heads, layers, window := c.integer("num_attention_heads", 0), c.integer("num_hidden_layers", 0), c.integer("sliding_window", 0)
	if !sizes(v.hidden, v.groups, v.codes, heads, layers, window) || v.groups > 1000 || layers > 1000 || v.hidden%heads != 0 {
		return nil, fmt.Errorf("hidden size %d, %d quantizers of %d codes, %d layers of %d heads, window %d", v.hidden, v.groups, v.codes, layers, heads, window)
	}
	a := AttentionConfig{Heads: heads, KVHeads: c.integer("num_key_value_heads", heads), HeadDim: c.integer("head_dim", v.hidden/heads), Window: window}
	if !sizes(a.KVHeads, a.HeadDim) || heads%a.KVHeads != 0 {
		return nil, fmt.Errorf("%d heads of %d columns, %d key-value heads", heads, a.HeadDim, a.KVHeads)
	}
	h := &hf{object: c, maxModelLen: src.MaxModelLen}
	var err error
	if a.Rope, err = h.rope("sliding_attention").rope(a.HeadDim, kernels.Half); err != nil {
		return nil, err
	}
	act, err := activation(c.str("hidden_act", "silu"))
	if err != nil {
		return nil, err
	}
	v.open("vocode")
	x := v.embedCodes()
	for i := range layers {
		v.transformer(x, i, &a, act)
	}
	x = v.norm("pre", x, NormConfig{Eps: v.eps}, "code2wav.pre_transformer.norm")
	for i, factor := range c.floats("upsampling_ratios") {
		p := fmt.Sprintf("code2wav.upsample.%d.", i)
		x = v.transposed(p+"0.conv", x, int(factor), int(factor))
		x = v.convNeXt(p+"1.", x)
	}
	v.decoder(x, c)
	v.finish()
	m, err := v.module()
	if err != nil {
		return nil, err
	}
	out := facts(&DecoderConfig{Architecture: m.Name, Hidden: v.hidden, MaxModelLen: c.integer("max_position_embeddings", 0)}, m)
	out.Rate, out.Delay = v.rate, v.delay
	return out, nil
}

// embedCodes is the mean of the codes' embeddings; each quantizer has its own part of the one table.
func (v *vocoder) embedCodes() kernels.BufferID {
	ids := v.buffer(kernels.Buffer{Name: "codes", DType: tensor.I32, Rows: kernels.Of(kernels.Tokens), Width: v.groups})
	x := v.buf("x", kernels.Tokens, v.hidden)
	v.op(&kernels.InputIDs{Out: ids, Input: "codes"})
	const name = "code2wav.code_embedding"
	table := v.tensor(name + ".weight")
	for g := range v.groups {
		part, err := pickRows(table, []span{{g * v.codes, (g + 1) * v.codes}})
		if err != nil {
			v.fail("%s: %w", name, err)
			return x
		}
		v.op(&kernels.Lookup{Out: x, IDs: ids, Column: g, Table: v.add(fmt.Sprintf("%s.%d", name, g), part), Scale: 1 / float32(v.groups), Accumulate: g > 0})
	}
	return x
}

func (v *vocoder) transformer(x kernels.BufferID, i int, a *AttentionConfig, act kernels.Act) {
	p := fmt.Sprintf("code2wav.pre_transformer.layers.%d.", i)
	at := p + "self_attn."
	h := v.norm("h", x, NormConfig{Eps: v.eps}, p+"input_layernorm")
	q := v.linear("q", h, v.proj(at+"q_proj"), a.Heads*a.HeadDim)
	k := v.linear("k", h, v.proj(at+"k_proj"), a.KVHeads*a.HeadDim)
	val := v.linear("v", h, v.proj(at+"v_proj"), a.KVHeads*a.HeadDim)
	for _, r := range []struct {
		x     kernels.BufferID
		heads int
	}{{q, a.Heads}, {k, a.KVHeads}} {
		v.op(&kernels.Rope{X: r.x, Heads: r.heads, HeadDim: a.HeadDim, RotDim: a.Rope.Dim, Pairing: a.Rope.Pairing, InvFreq: a.Rope.InvFreq, Factor: a.Rope.Factor})
	}
	o := v.like("attn", q, a.Heads*a.HeadDim)
	ring := v.state(kernels.StateSpec{Name: p + "ring", Kind: kernels.Slot, Floats: 2 * a.Window * a.KVHeads * a.HeadDim})
	v.op(&kernels.RingAttention{Out: o, Q: q, K: k, V: val, State: ring, Heads: a.Heads, KVHeads: a.KVHeads, KDim: a.HeadDim, VDim: a.HeadDim,
		Window: a.Window, Scale: float32(1 / math.Sqrt(float64(a.HeadDim)))})
	o = v.linear("o", o, v.proj(at+"o_proj"), v.hidden)
	v.scaledAdd(x, o, p+"self_attn_layer_scale.scale")
	h = v.norm("h", x, NormConfig{Eps: v.eps}, p+"post_attention_layernorm")
	g := v.linear("gate", h, v.proj(p+"mlp.gate_proj"), 0)
	u := v.linear("up", h, v.proj(p+"mlp.up_proj"), v.width(g))
	v.op(&kernels.Gated{Out: g, Gate: g, Up: u, Act: act})
	v.scaledAdd(x, v.linear("down", g, v.proj(p+"mlp.down_proj"), v.hidden), p+"mlp_layer_scale.scale")
}

// scaledAdd adds y, scaled by column, to x.
func (v *vocoder) scaledAdd(x, y kernels.BufferID, scale string) {
	v.op(&kernels.ColumnScale{Out: y, In: y, Scale: v.vector(scale, v.width(y)), Shift: kernels.None},
		&kernels.Binary{Out: x, A: x, B: y, Kind: kernels.Add})
}

// at makes a buffer of the current rate.
func (v *vocoder) at(name string, width int) kernels.BufferID {
	return v.buffer(kernels.Buffer{Name: name, DType: tensor.F32, Rows: kernels.Dim{Sym: kernels.Tokens, Mul: v.rate}, Width: width})
}

// transposed up-samples and trims; a kernel beyond the stride looks ahead, which delays what follows.
func (v *vocoder) transposed(name string, x kernels.BufferID, kernel, stride int) kernels.BufferID {
	w := v.tensor(name + ".weight")
	if len(w.Shape) != 3 || w.Shape[0] != v.width(x) || w.Shape[2] != kernel || stride <= 0 || kernel%stride != 0 {
		v.fail("tensor %s.weight has shape %v for %d columns, kernel %d, stride %d", name, w.Shape, v.width(x), kernel, stride)
		return x
	}
	op := &kernels.ConvTranspose1d{In: x, Weight: v.add(name+".weight", w), Bias: v.optional(name+".bias", w.Shape[1]), Kernel: kernel, Stride: stride,
		Rate: v.rate, Delay: v.delay, State: kernels.None}
	ahead := kernel/stride - 1
	if ahead > 0 {
		op.State = v.state(kernels.StateSpec{Name: name, Kind: kernels.Slot, Floats: ahead * w.Shape[0]})
	}
	v.rate, v.delay = v.rate*stride, (v.delay+ahead)*stride
	op.Out = v.at("up", w.Shape[1])
	v.op(op)
	return op.Out
}

// conv is a causal convolution.
func (v *vocoder) conv(dst, name string, x kernels.BufferID, dilation int, depthwise bool) kernels.BufferID {
	w := v.tensor(name + ".weight")
	in := v.width(x)
	if depthwise {
		in = 1
	}
	if len(w.Shape) != 3 || w.Shape[1] != in {
		v.fail("tensor %s.weight has shape %v for %d columns", name, w.Shape, v.width(x))
		return x
	}
	if w.Shape[2] == 1 {
		p := proj{name: name, site: name, w: tensor.View{DType: w.DType, Shape: w.Shape[:2], Data: w.Data}}
		if v.has(name + ".bias") {
			b := v.tensor(name + ".bias")
			p.bias = &b
		}
		return v.linear(dst, x, p, 0)
	}
	y := v.at(dst, w.Shape[0])
	state := v.state(kernels.StateSpec{Name: name, Kind: kernels.Slot, Floats: (w.Shape[2] - 1) * dilation * v.width(x)})
	v.op(&kernels.Conv1d{Out: y, In: x, Weight: v.add(name+".weight", w), Bias: v.optional(name+".bias", w.Shape[0]), Kernel: w.Shape[2], Dilation: dilation,
		Depthwise: depthwise, Rate: v.rate, Delay: v.delay, State: state})
	return y
}

func (v *vocoder) convNeXt(p string, x kernels.BufferID) kernels.BufferID {
	h := v.conv("dw", p+"dwconv.conv", x, 1, true)
	h = v.norm("dwnorm", h, NormConfig{Kind: kernels.LayerNorm, Eps: 1e-6}, p+"norm")
	y := v.mlp2("pw", h, p+"pwconv1", p+"pwconv2", kernels.Gelu)
	v.scaledAdd(x, y, p+"gamma")
	return x
}

func (v *vocoder) snake(dst, p string, x kernels.BufferID) kernels.BufferID {
	y := v.at(dst, v.width(x))
	v.op(&kernels.Snake{Out: y, In: x, Alpha: v.vector(p+"alpha", v.width(x)), Beta: v.vector(p+"beta", v.width(x))})
	return y
}

// decoder emits the waveform decoder.
func (v *vocoder) decoder(x kernels.BufferID, c object) {
	const p = "code2wav.decoder."
	x = v.conv("dec", p+"0.conv", x, 1, false)
	rates := c.floats("upsample_rates")
	for i, rate := range rates {
		b := fmt.Sprintf("%s%d.block.", p, i+1)
		x = v.snake("snake", b+"0.", x)
		x = v.transposed(b+"1.conv", x, 2*int(rate), int(rate))
		for u, dilation := range []int{1, 3, 9} {
			r := fmt.Sprintf("%s%d.", b, u+2)
			h := v.snake("snake", r+"act1.", x)
			h = v.conv("unit", r+"conv1.conv", h, dilation, false)
			h = v.snake("snake", r+"act2.", h)
			h = v.conv("unit2", r+"conv2.conv", h, 1, false)
			v.op(&kernels.Binary{Out: x, A: x, B: h, Kind: kernels.Add})
		}
	}
	x = v.snake("snake", fmt.Sprintf("%s%d.", p, len(rates)+1), x)
	x = v.conv("wave", fmt.Sprintf("%s%d.conv", p, len(rates)+2), x, 1, false)
	wav := v.buffer(kernels.Buffer{Name: "wav", DType: tensor.F32, Rows: kernels.Dim{Sym: kernels.Tokens, Mul: v.rate}, Width: 1, Role: kernels.Output})
	v.op(&kernels.Unary{Out: wav, In: x, Act: kernels.Identity, Clamp: 1})
}
