package models

import (
	"fmt"
	"math"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// vae is the decoder of a diffusers AutoencoderKL.
type vae struct {
	*builder
	groups int
	scale  int // of the current buffer
}

// loadVAE builds entry "vae_decode": rows "latents" [pixels of the latent grid, channels], as the diffusion model leaves them, to output
// "image" [Rate*pixels, 3] in [0, 1]. Batch.Positions[1] and [2] are a latent pixel's row and column.
func loadVAE(c object, src Source) (*Model, error) {
	v := &vae{builder: newBuilder("AutoencoderKL", src.Weights), groups: c.integer("norm_num_groups", 32), scale: 1}
	channels, blocks := c.integer("latent_channels", 0), c.floats("block_out_channels")
	layers, scaling := c.integer("layers_per_block", 1), c.float("scaling_factor", 1)
	if !sizes(channels, v.groups, len(blocks), layers) || layers > 100 || len(blocks) > 10 || scaling == 0 {
		return nil, fmt.Errorf("%d latent channels, %d groups, %d blocks of %d layers, scaling factor %g", channels, v.groups, len(blocks), layers, scaling)
	}
	if c.boolean("use_post_quant_conv", true) || c.str("act_fn", "silu") != "silu" {
		return nil, fmt.Errorf("post-quantisation convolutions and activations other than silu are not supported")
	}
	for _, b := range c.strings("up_block_types") {
		if b != "UpDecoderBlock2D" {
			return nil, fmt.Errorf("block %s is not supported", b)
		}
	}
	v.open("vae_decode")
	x := v.buf("latents", kernels.Tokens, channels)
	v.op(&kernels.InputRows{Out: x, Input: InputLatents},
		&kernels.Unary{Out: x, In: x, Act: kernels.Identity, Scale: float32(1 / scaling), Offset: float32(c.float("shift_factor", 0))})
	x = v.conv("x", "decoder.conv_in", x)
	x = v.resnet("decoder.mid_block.resnets.0.", x)
	if c.boolean("mid_block_add_attention", true) {
		v.attention("decoder.mid_block.attentions.0.", x)
	}
	x = v.resnet("decoder.mid_block.resnets.1.", x)
	for i := range blocks {
		p := fmt.Sprintf("decoder.up_blocks.%d.", i)
		for j := range layers + 1 {
			x = v.resnet(fmt.Sprintf("%sresnets.%d.", p, j), x)
		}
		if i+1 < len(blocks) {
			v.scale *= 2
			up := v.at("up", v.width(x))
			v.op(&kernels.Upsample2d{Out: up, In: x, Scale: v.scale / 2})
			x = v.conv("x", p+"upsamplers.0.conv", up)
		}
	}
	x = v.normSilu("decoder.conv_norm_out", x)
	x = v.conv("out", "decoder.conv_out", x)
	image := v.buffer(kernels.Buffer{Name: "image", DType: tensor.F32, Rows: kernels.Dim{Sym: kernels.Tokens, Mul: v.scale * v.scale}, Width: v.width(x), Role: kernels.Output})
	v.op(&kernels.Unary{Out: image, In: x, Act: kernels.Identity, Clamp: 1},
		&kernels.Unary{Out: image, In: image, Act: kernels.Identity, PostScale: 0.5, Offset: 0.5})
	v.finish()
	m, err := v.module()
	if err != nil {
		return nil, err
	}
	out := facts(&DecoderConfig{Architecture: m.Name}, m)
	out.Rate = v.scale * v.scale
	return out, nil
}

// at makes a buffer of the current scale.
func (v *vae) at(name string, width int) kernels.BufferID {
	return v.buffer(kernels.Buffer{Name: name, DType: tensor.F32, Rows: kernels.Dim{Sym: kernels.Tokens, Mul: v.scale * v.scale}, Width: width})
}

func (v *vae) conv(dst, name string, x kernels.BufferID) kernels.BufferID {
	w := v.tensor(name + ".weight")
	if len(w.Shape) != 4 || w.Shape[1] != v.width(x) || w.Shape[2] != w.Shape[3] || w.Shape[2]%2 == 0 {
		v.fail("tensor %s.weight has shape %v for %d columns", name, w.Shape, v.width(x))
		return x
	}
	y := v.at(dst, w.Shape[0])
	if y == x {
		y = v.at(dst+"'", w.Shape[0])
	}
	v.op(&kernels.Conv2d{Out: y, In: x, Weight: v.add(name+".weight", w), Bias: v.optional(name+".bias", w.Shape[0]), Kernel: w.Shape[2], Scale: v.scale})
	return y
}

func (v *vae) groupNorm(name string, x kernels.BufferID) kernels.BufferID {
	y := v.at("norm", v.width(x))
	if v.width(x)%v.groups != 0 {
		v.fail("%s: %d groups of %d columns", name, v.groups, v.width(x))
	}
	v.op(&kernels.GroupNorm{Out: y, In: x, Weight: v.vector(name+".weight", v.width(x)), Bias: v.vector(name+".bias", v.width(x)), Groups: v.groups, Eps: 1e-6, Scale: v.scale})
	return y
}

func (v *vae) normSilu(name string, x kernels.BufferID) kernels.BufferID {
	y := v.groupNorm(name, x)
	v.op(&kernels.Unary{Out: y, In: y, Act: kernels.Silu})
	return y
}

// resnet adds to x, or to its projection where the width changes, what two convolutions make of it.
func (v *vae) resnet(p string, x kernels.BufferID) kernels.BufferID {
	h := v.conv("h", p+"conv1", v.normSilu(p+"norm1", x))
	h = v.conv("h2", p+"conv2", v.normSilu(p+"norm2", h))
	if v.has(p + "conv_shortcut.weight") {
		x = v.conv("x", p+"conv_shortcut", x)
	}
	if v.width(x) != v.width(h) {
		v.fail("%s: %d columns become %d without a shortcut", p, v.width(x), v.width(h))
		return x
	}
	v.op(&kernels.Binary{Out: x, A: x, B: h, Kind: kernels.Add})
	return x
}

// attention is over all pixels of the latent grid, with one head.
func (v *vae) attention(p string, x kernels.BufferID) {
	n := v.width(x)
	h := v.groupNorm(p+"group_norm", x)
	q, k, val := v.linear("q", h, v.proj(p+"to_q"), n), v.linear("k", h, v.proj(p+"to_k"), n), v.linear("v", h, v.proj(p+"to_v"), n)
	o := v.like("attn", q, n)
	v.op(&kernels.FullAttention{Out: o, Q: q, K: k, V: val, Heads: 1, KVHeads: 1, KDim: n, VDim: n, Scale: float32(1 / math.Sqrt(float64(n)))})
	o = v.linear("o", o, v.proj(p+"to_out.0"), n)
	v.op(&kernels.Binary{Out: x, A: x, B: o, Kind: kernels.Add})
}
