package models

import (
	"fmt"
	"math"

	"omni-engine/kernels"
)

// moe returns an adjustment that reads the shared keys of mixtures of experts into m.
func moe(m MoEConfig) func(*hf, *DecoderConfig) error {
	return func(c *hf, d *DecoderConfig) error {
		m.TopK = c.integer("num_experts_per_tok", c.integer("moe_k", 0))
		m.Renormalise = m.Renormalise || c.boolean("norm_topk_prob", false)
		m.Act = d.Layers[0].Act
		if m.TopK <= 0 {
			return fmt.Errorf("num_experts_per_tok is missing")
		}
		d.MoE = &m
		return nil
	}
}

func olmoe(c *hf, d *DecoderConfig) error {
	if c.has("clip_qkv") {
		return fmt.Errorf("clip_qkv is not supported")
	}
	return moe(MoEConfig{})(c, d)
}

func phimoe(c *hf, d *DecoderConfig) error {
	return moe(MoEConfig{Score: kernels.ScoreSparseMixer, Jitter: float32(c.float("router_jitter_noise", 0.01))})(c, d)
}

func graniteMoE(c *hf, d *DecoderConfig) error {
	if err := granite(c, d); err != nil {
		return err
	}
	return moe(MoEConfig{Score: kernels.ScoreTopKSoftmax})(c, d)
}

func gptOss(c *hf, d *DecoderConfig) error {
	return moe(MoEConfig{Score: kernels.ScoreTopKSoftmax, Limit: float32(c.float("swiglu_limit", 7)), InterleavedGU: true})(c, d)
}

func miniMax(c *hf, d *DecoderConfig) error {
	return moe(MoEConfig{Score: kernels.ScoreSigmoid, Renormalise: true})(c, d)
}

// sigmoidMoE is the router of DeepSeek-V3, GLM-4.5, dots.llm1 and MiMo.
func sigmoidMoE(c *hf, d *DecoderConfig) error {
	m := MoEConfig{Score: kernels.ScoreSigmoid, Factor: float32(c.float("routed_scaling_factor", 1))}
	if g := c.integer("n_group", 1); g > 1 {
		m.Groups, m.GroupTopK, m.GroupSum2 = g, c.integer("topk_group", g), true
	}
	return moe(m)(c, d)
}

func deepseekV3(c *hf, d *DecoderConfig) error {
	if err := sigmoidMoE(c, d); err != nil {
		return err
	}
	return latent(c, d)
}

func deepseekV2(c *hf, d *DecoderConfig) error {
	m := MoEConfig{Score: kernels.ScoreSoftmax, Factor: float32(c.float("routed_scaling_factor", 1))}
	switch method := c.str("topk_method", "greedy"); method {
	case "greedy":
	case "group_limited_greedy":
		m.Groups, m.GroupTopK = c.integer("n_group", 1), c.integer("topk_group", 1)
	default:
		return fmt.Errorf("topk_method %q is not supported", method)
	}
	if err := moe(m)(c, d); err != nil {
		return err
	}
	d.MoE.Renormalise = false // transformers' DeepSeek-V2 never does
	return latent(c, d)
}

// latent replaces attention by MLA.
func latent(c *hf, d *DecoderConfig) error {
	nope, dim := c.integer("qk_nope_head_dim", 0), c.integer("qk_rope_head_dim", 0)
	p := c.rope("full_attention")
	r, err := p.rope(dim, kernels.Pair)
	if err != nil {
		return err
	}
	scale := 1 / math.Sqrt(float64(nope+dim))
	if all := p.float("mscale_all_dim", 0); all != 0 {
		m := yarnMscale(all, p.float("factor", 1))
		scale *= m * m
	}
	if !sizes(nope, dim, c.integer("v_head_dim", 0), c.integer("kv_lora_rank", 0)) {
		return fmt.Errorf("latent attention of rank %d, heads of %d+%d and %d columns", c.integer("kv_lora_rank", 0), nope, dim, c.integer("v_head_dim", 0))
	}
	for i := range d.Layers {
		d.Layers[i].MLA = &MLAConfig{Heads: c.integer("num_attention_heads", 0), Nope: nope, RopeDim: dim, VDim: c.integer("v_head_dim", 0),
			KVRank: c.integer("kv_lora_rank", 0), Scale: float32(scale), Eps: 1e-6, Rope: r}
		d.Layers[i].Attention = nil
	}
	return nil
}

func mimo(c *hf, d *DecoderConfig) error {
	attentions(d, func(_ int, a *AttentionConfig) {
		a.VDim = c.positive("v_head_dim", a.HeadDim)
		a.ValueScale = float32(c.float("attention_value_scale", 0))
		a.KVHeads = 0 // by layer type: the projections say
	})
	return sigmoidMoE(c, d)
}

func llama4(c *hf, d *DecoderConfig) error {
	for i := range d.Layers {
		a := d.Layers[i].Attention
		a.L2Norm = a.Rope != nil && c.boolean("use_qk_norm", true)
		if a.Rope == nil && c.boolean("attn_temperature_tuning", true) {
			a.QScale = &QScaleConfig{Beta: float32(c.float("attn_scale", 0.1)), Floor: float32(c.float("floor_scale", 8192)), Plus: 1}
		}
	}
	return moe(MoEConfig{Score: kernels.ScoreTopKSigmoid, WeightInput: true})(c, d)
}

// qwen3Next: gated delta net and gated attention; also Qwen3.5, whose MLPs are dense and projections split.
func qwen3Next(c *hf, d *DecoderConfig) error {
	d.Norm.AddOne = true
	for i := range d.Layers {
		l := &d.Layers[i]
		if c.layerType(i) != "linear_attention" {
			l.Attention.OutputGate = true
			continue
		}
		l.Attention = nil
		l.Delta = &DeltaConfig{KeyHeads: c.integer("linear_num_key_heads", 0), ValueHeads: c.integer("linear_num_value_heads", 0),
			KDim: c.integer("linear_key_head_dim", 0), VDim: c.integer("linear_value_head_dim", 0),
			Kernel: c.integer("linear_conv_kernel_dim", 4), Eps: d.Norm.Eps}
		if v := l.Delta; !sizes(v.KeyHeads, v.ValueHeads, v.KDim, v.VDim) || v.ValueHeads%v.KeyHeads != 0 || v.Kernel < 2 || v.Kernel > 64 {
			return fmt.Errorf("layer %d: linear attention of %+v", i, *v)
		}
	}
	if !c.has("num_experts_per_tok") {
		return nil
	}
	return moe(MoEConfig{})(c, d)
}
