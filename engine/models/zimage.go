package models

import (
	"fmt"
	"math"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// The inputs of a Z-Image step. A request's tokens are its image patches, padded to a multiple of 32, then its caption, padded likewise.
const (
	InputLatents    = "latents"     // image rows: patches
	InputLatentsPad = "latents_pad" // padding rows of the image; no data
	InputCaption    = "caption"     // caption rows: features for "encode_prompt", its output for "denoise"
	InputCaptionPad = "caption_pad" // padding rows of the caption for "encode_prompt"; no data
)

// zimage is Z-Image's single-stream diffusion transformer.
type zimage struct {
	*builder
	dim, heads int
	eps        float32
	rope       *RopeConfig
	time       kernels.BufferID // [Rows, width of the modulation's input]
}

// loadZImage builds two entries. "encode_prompt": caption features to output "caption", once a prompt. "denoise": latents and caption to output
// "velocity", the model's answer by patch; its scalar is 1 - timestep/1000.
func loadZImage(c object, src Source) (*Model, error) {
	z := &zimage{builder: newBuilder("ZImageTransformer2DModel", src.Weights), dim: c.integer("dim", 0), heads: c.integer("n_heads", 0), eps: float32(c.float("norm_eps", 1e-5))}
	features, channels := c.integer("cap_feat_dim", 0), c.integer("in_channels", 0)
	if !sizes(z.dim, z.heads, features, channels) || z.dim%z.heads != 0 {
		return nil, fmt.Errorf("dim %d, %d heads, caption width %d, %d channels", z.dim, z.heads, features, channels)
	}
	if c.integer("n_kv_heads", z.heads) != z.heads || !c.boolean("qk_norm", true) || c.has("siglip_feat_dim") {
		return nil, fmt.Errorf("grouped heads, heads without norms and SigLIP inputs are not supported")
	}
	patch, frames := c.floats("all_patch_size"), c.floats("all_f_patch_size")
	if len(patch) != 1 || len(frames) != 1 || frames[0] != 1 {
		return nil, fmt.Errorf("all_patch_size %v and all_f_patch_size %v: one patch size and one frame are supported", patch, frames)
	}
	if err := z.axes(c); err != nil {
		return nil, err
	}
	refiners, layers := c.integer("n_refiner_layers", 2), c.integer("n_layers", 0)
	if refiners < 0 || refiners > 1000 || layers <= 0 || layers > 1000 || !sizes(int(patch[0])) {
		return nil, fmt.Errorf("%d layers, %d refiners, patches of %g", layers, refiners, patch[0])
	}
	key := fmt.Sprintf("%d-1", int(patch[0]))

	z.open("encode_prompt")
	f := z.buf("features", kernels.Tokens, features)
	z.op(&kernels.InputRows{Out: f, Input: InputCaption})
	f = z.norm("features_norm", f, NormConfig{Eps: z.eps}, "cap_embedder.0")
	x := z.linear("x", f, z.proj("cap_embedder.1"), z.dim)
	z.op(&kernels.FillRows{Out: x, Input: InputCaptionPad, Value: z.vector("cap_pad_token", z.dim)})
	for i := range refiners {
		z.block(fmt.Sprintf("context_refiner.%d.", i), x, nil, false)
	}
	z.show("caption", x)
	z.finish()

	z.open("denoise")
	z.timestep(c.float("t_scale", 1000))
	patches := z.buf("patches", kernels.Tokens, int(patch[0]*patch[0])*channels)
	z.op(&kernels.InputRows{Out: patches, Input: InputLatents})
	x = z.linear("x", patches, z.proj("all_x_embedder."+key), z.dim)
	z.op(&kernels.FillRows{Out: x, Input: InputLatentsPad, Value: z.vector("x_pad_token", z.dim)})
	for i := range refiners {
		z.block(fmt.Sprintf("noise_refiner.%d.", i), x, []string{InputLatents, InputLatentsPad}, true)
	}
	z.op(&kernels.InputRows{Out: x, Input: InputCaption})
	for i := range layers {
		z.block(fmt.Sprintf("layers.%d.", i), x, nil, true)
	}
	z.final("all_final_layer."+key+".", x)
	z.finish()
	m, err := z.module()
	if err != nil {
		return nil, err
	}
	return facts(&DecoderConfig{Architecture: m.Name, Hidden: z.dim}, m), nil
}

// axes lays the three position axes' frequencies side by side.
func (z *zimage) axes(c object) error {
	dims, theta := c.floats("axes_dims"), c.float("rope_theta", 256)
	z.rope = &RopeConfig{Pairing: kernels.Pair, Factor: 1}
	for a, d := range dims {
		if d < 0 || d > 1<<16 {
			return fmt.Errorf("axes_dims %v", dims)
		}
		for i := 0; i < int(d); i += 2 {
			z.rope.InvFreq = append(z.rope.InvFreq, 1/math.Pow(theta, float64(i)/d))
			z.rope.Axis = append(z.rope.Axis, uint8(a))
		}
	}
	z.rope.Dim = 2 * len(z.rope.InvFreq)
	if len(dims) != 3 || z.rope.Dim != z.dim/z.heads {
		return fmt.Errorf("axes_dims %v for heads of %d columns", dims, z.dim/z.heads)
	}
	return nil
}

func (z *zimage) show(name string, x kernels.BufferID) {
	out := z.buffer(kernels.Buffer{Name: name, DType: tensor.F32, Rows: kernels.Of(kernels.Tokens), Width: z.width(x), Role: kernels.Output})
	z.op(&kernels.Copy{Out: out, In: x, Groups: 1, Width: z.width(x)})
}

func (z *zimage) timestep(scale float64) {
	const width = 256
	t := z.buf("timestep", kernels.Rows, width)
	z.op(&kernels.TimestepEmbed{Out: t, Dim: width, Scale: scale, MaxPeriod: 10000})
	z.time = z.mlp2("time", t, "t_embedder.mlp.0", "t_embedder.mlp.2", kernels.Silu)
}

// block is one transformer block on x, modulated by the timestep or not.
func (z *zimage) block(p string, x kernels.BufferID, keys []string, modulated bool) {
	var scale, gate [2]kernels.BufferID // attention, MLP
	if modulated {
		mod := z.linear("mod", z.time, z.proj(p+"adaLN_modulation.0"), 4*z.dim)
		for i := range 2 {
			scale[i], gate[i] = z.like(fmt.Sprintf("scale%d", i), mod, z.dim), z.like(fmt.Sprintf("gate%d", i), mod, z.dim)
			z.op(&kernels.Copy{Out: scale[i], In: mod, Groups: 1, Width: z.dim, InFrom: 2 * i * z.dim},
				&kernels.Copy{Out: gate[i], In: mod, Groups: 1, Width: z.dim, InFrom: (2*i + 1) * z.dim},
				&kernels.Unary{Out: gate[i], In: gate[i], Act: kernels.Tanh})
		}
	}
	part := func(i int, in, out string, f func(kernels.BufferID) kernels.BufferID) {
		h := z.norm("h", x, NormConfig{Eps: z.eps}, p+in)
		if modulated {
			z.op(&kernels.ScaleByRow{Out: h, In: h, By: scale[i], Plus: 1})
		}
		y := z.norm("post", f(h), NormConfig{Eps: z.eps}, p+out)
		if modulated {
			z.op(&kernels.ScaleByRow{Out: y, In: y, By: gate[i]})
		}
		z.op(&kernels.Binary{Out: x, A: x, B: y, Kind: kernels.Add})
	}
	part(0, "attention_norm1", "attention_norm2", func(h kernels.BufferID) kernels.BufferID { return z.attention(p+"attention.", h, keys) })
	part(1, "ffn_norm1", "ffn_norm2", func(h kernels.BufferID) kernels.BufferID {
		g := z.linear("gate", h, z.proj(p+"feed_forward.w1"), 0)
		u := z.linear("up", h, z.proj(p+"feed_forward.w3"), z.width(g))
		z.op(&kernels.Gated{Out: g, Gate: g, Up: u, Act: kernels.Silu})
		return z.linear("down", g, z.proj(p+"feed_forward.w2"), z.dim)
	})
}

func (z *zimage) attention(p string, h kernels.BufferID, keys []string) kernels.BufferID {
	head := z.dim / z.heads
	q, k, v := z.linear("q", h, z.proj(p+"to_q"), z.dim), z.linear("k", h, z.proj(p+"to_k"), z.dim), z.linear("v", h, z.proj(p+"to_v"), z.dim)
	z.groupNorm(q, kernels.RMS, head, 1e-5, false, p+"norm_q")
	z.groupNorm(k, kernels.RMS, head, 1e-5, false, p+"norm_k")
	for _, x := range []kernels.BufferID{q, k} {
		z.op(&kernels.Rope{X: x, Heads: z.heads, HeadDim: head, RotDim: z.rope.Dim, Pairing: z.rope.Pairing, InvFreq: z.rope.InvFreq, Factor: 1, Axis: z.rope.Axis})
	}
	o := z.like("attn", q, z.dim)
	z.op(&kernels.FullAttention{Out: o, Q: q, K: k, V: v, Heads: z.heads, KVHeads: z.heads, KDim: head, VDim: head, Scale: float32(1 / math.Sqrt(float64(head))), Keys: keys})
	return z.linear("o", o, z.proj(p+"to_out.0"), z.dim)
}

func (z *zimage) final(p string, x kernels.BufferID) {
	c := z.like("silu", z.time, z.width(z.time))
	z.op(&kernels.Unary{Out: c, In: z.time, Act: kernels.Silu})
	scale := z.linear("final_scale", c, z.proj(p+"adaLN_modulation.1"), z.dim)
	h := z.like("h", x, z.dim)
	z.op(&kernels.Norm{Out: h, In: x, Kind: kernels.LayerNorm, Eps: 1e-6, Weight: kernels.None, Bias: kernels.None},
		&kernels.ScaleByRow{Out: h, In: h, By: scale, Plus: 1})
	z.show("velocity", z.linear("final", h, z.proj(p+"linear"), 0))
}

// Patchify cuts latents [channels, height, width] into rows [height/p * width/p, p*p*channels].
func Patchify(latents []float32, channels, height, width, p int) []float32 {
	out := make([]float32, len(latents))
	eachPatch(channels, height, width, p, func(row, latent int) { out[row] = latents[latent] })
	return out
}

// Unpatchify is the reverse of Patchify.
func Unpatchify(rows []float32, channels, height, width, p int) []float32 {
	out := make([]float32, channels*height*width)
	eachPatch(channels, height, width, p, func(row, latent int) { out[latent] = rows[row] })
	return out
}

func eachPatch(channels, height, width, p int, f func(row, latent int)) {
	for y := range height {
		for x := range width {
			patch := y/p*(width/p) + x/p
			for c := range channels {
				f(((patch*p+y%p)*p+x%p)*channels+c, (c*height+y)*width+x)
			}
		}
	}
}
