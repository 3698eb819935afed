package models

import (
	"fmt"
	"math"
	"slices"

	"omni-engine/kernels"
)

// families is the registry of Hugging Face architectures. To add a decoder, add an entry.
func families() map[string]family {
	llama := family{names: llamaNames}
	mistral := family{names: llamaNames, layers: slidingIfSet}
	qwen := family{names: llamaNames, layers: qwenSliding}
	deepseek := family{names: llamaNames, pairing: kernels.Pair, adjust: deepseekV3}
	return map[string]family{
		"LlamaForCausalLM":          llama,
		"SeedOssForCausalLM":        llama,
		"Ernie4_5ForCausalLM":       {names: llamaNames, pairing: kernels.Pair},
		"MistralForCausalLM":        mistral,
		"Ministral3ForCausalLM":     {names: llamaNames, layers: slidingIfSet, adjust: ministral3},
		"Qwen2ForCausalLM":          qwen,
		"Qwen3ForCausalLM":          qwen,
		"Qwen3Model":                {names: bareNames, layers: qwenSliding}, // Z-Image's text encoder
		"GemmaForCausalLM":          {names: llamaNames, adjust: gemma},
		"Gemma2ForCausalLM":         {names: sandwichNames, layers: every(2), adjust: gemma},
		"Gemma3ForCausalLM":         {names: sandwichNames, layers: gemma3Sliding, adjust: gemma},
		"Gemma4ForCausalLM":         {names: sandwichNames, layers: gemma3Sliding, adjust: gemma4},
		"Phi3ForCausalLM":           {names: llamaNames, layers: slidingIfSet},
		"GlmForCausalLM":            {names: llamaNames, pairing: kernels.Pair},
		"Glm4ForCausalLM":           {names: glm4Names, pairing: kernels.Pair},
		"Olmo2ForCausalLM":          {names: postNames},
		"Olmo3ForCausalLM":          {names: postNames, layers: every(4), adjust: olmo3},
		"Exaone4ForCausalLM":        {names: postNames, layers: exaoneSliding, rope: onSliding},
		"GraniteForCausalLM":        {names: llamaNames, adjust: granite},
		"GraniteMoeForCausalLM":     {names: graniteMoENames, adjust: graniteMoE},
		"SmolLM3ForCausalLM":        {names: llamaNames, layers: qwenSliding, rope: noRopeLayers},
		"Cohere2ForCausalLM":        {names: cohere2Names, layers: every(4), rope: onSliding, pairing: kernels.Pair, norm: kernels.LayerNorm, adjust: cohere2},
		"HunYuanDenseV1ForCausalLM": {names: hunyuanNames, adjust: hunyuan},
		"Starcoder2ForCausalLM":     {names: starcoder2Names, layers: slidingIfSet, norm: kernels.LayerNorm},
		"StableLmForCausalLM":       {names: llamaNames, norm: kernels.LayerNorm, adjust: stablelm},
		"GPTNeoXForCausalLM":        {names: neoxNames, norm: kernels.LayerNorm, adjust: neox},
		"MixtralForCausalLM":        {names: mixtralNames, layers: slidingIfSet, adjust: moe(MoEConfig{Renormalise: true})},
		"Qwen2MoeForCausalLM":       {names: qwenMoENames, layers: qwenSliding, adjust: moe(MoEConfig{})},
		"Qwen3MoeForCausalLM":       {names: qwenMoENames, layers: qwenSliding, adjust: moe(MoEConfig{})},
		"OlmoeForCausalLM":          {names: llamaNames, adjust: olmoe},
		"PhimoeForCausalLM":         {names: mixtralNames, layers: slidingIfSet, norm: kernels.LayerNorm, adjust: phimoe},
		"GptOssForCausalLM":         {names: gptOssNames, layers: every(2), adjust: gptOss},
		"DeepseekV2ForCausalLM":     {names: llamaNames, pairing: kernels.Pair, adjust: deepseekV2},
		"DeepseekV3ForCausalLM":     deepseek,
		"Glm4MoeForCausalLM":        {names: llamaNames, adjust: sigmoidMoE},
		"Dots1ForCausalLM":          {names: llamaNames, layers: qwenSliding, adjust: sigmoidMoE},
		"MiniMaxM2ForCausalLM":      {names: mixtralNames, adjust: miniMax},
		"MiMoV2FlashForCausalLM":    {names: llamaNames, adjust: mimo},
		"Llama4ForCausalLM":         {names: llama4Names, layers: llama4Chunks, rope: noRopeLayers, pairing: kernels.Pair, adjust: llama4},
		"Qwen3NextForCausalLM":      {names: qwenMoENames, layers: hybrid, adjust: qwen3Next},
		"Qwen3_5ForCausalLM":        {names: qwenMoENames, layers: hybrid, adjust: qwen3Next},
	}
}

// Architectures lists what Load serves from Hugging Face checkpoints, sorted.
func Architectures() []string {
	var out []string
	for name := range families() {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Patterns of layers.

func slidingIfSet(c *hf, _ int) string {
	if c.integer("sliding_window", 0) > 0 {
		return "sliding_attention"
	}
	return "full_attention"
}

func qwenSliding(c *hf, i int) string {
	if c.boolean("use_sliding_window", false) && c.integer("sliding_window", 0) > 0 && i >= c.integer("max_window_layers", 0) {
		return "sliding_attention"
	}
	return "full_attention"
}

// every makes each n-th layer full and the others sliding.
func every(n int) func(*hf, int) string {
	return func(c *hf, i int) string {
		if (i+1)%c.positive("sliding_window_pattern", n) == 0 {
			return "full_attention"
		}
		return "sliding_attention"
	}
}

func gemma3Sliding(c *hf, i int) string {
	return every(c.positive("_sliding_window_pattern", 6))(c, i)
}

func exaoneSliding(c *hf, i int) string {
	if c.integer("sliding_window", 0) == 0 {
		return "full_attention"
	}
	return every(4)(c, i)
}

func llama4Chunks(c *hf, i int) string {
	if noRopeLayers(c, i, "") {
		return "chunked_attention"
	}
	return "full_attention"
}

func hybrid(c *hf, i int) string {
	if (i+1)%c.positive("full_attention_interval", 4) == 0 {
		return "full_attention"
	}
	return "linear_attention"
}

// onSliding rotates in sliding layers alone, if there are any.
func onSliding(c *hf, _ int, kind string) bool {
	return kind == "sliding_attention" || c.integer("sliding_window", 0) == 0
}

func noRopeLayers(c *hf, i int, _ string) bool {
	if l := c.floats("no_rope_layers"); i < len(l) {
		return l[i] != 0
	}
	return (i+1)%c.positive("no_rope_layer_interval", 4) != 0
}

// What families add.

func attentions(d *DecoderConfig, f func(i int, a *AttentionConfig)) {
	for i := range d.Layers {
		f(i, d.Layers[i].Attention)
	}
}

func ministral3(c *hf, d *DecoderConfig) error {
	p := c.rope("")
	if beta := p.float("llama_4_scaling_beta", 0); beta != 0 {
		q := &QScaleConfig{Beta: float32(beta), Floor: float32(p.float("original_max_position_embeddings", 0))}
		if q.Floor <= 0 {
			return fmt.Errorf("llama_4_scaling_beta without original_max_position_embeddings")
		}
		attentions(d, func(_ int, a *AttentionConfig) { a.QScale = q })
	}
	return nil
}

func gemma(c *hf, d *DecoderConfig) error {
	d.Norm.AddOne = true
	d.EmbedScale = float32(math.Sqrt(float64(d.Hidden)))
	d.LogitSoftcap = float32(c.float("final_logit_softcapping", 0))
	for i := range d.Layers {
		a := d.Layers[i].Attention
		if c.family.layers != nil { // Gemma 2 and 3
			a.Scale = float32(1 / math.Sqrt(c.float("query_pre_attn_scalar", 256)))
			a.Softcap = float32(c.float("attn_logit_softcapping", 0))
		}
		d.Layers[i].Act = kernels.GeluTanh // the first configs say gelu and mean the approximation
	}
	return nil
}

// gemma4: embeddings by layer, wider heads in full layers, and last layers that read the keys and values of the last layer of their kind that has any.
func gemma4(c *hf, d *DecoderConfig) error {
	if c.boolean("enable_moe_block", false) {
		return fmt.Errorf("enable_moe_block is not supported")
	}
	d.EmbedScale = float32(math.Sqrt(float64(d.Hidden)))
	d.LogitSoftcap = float32(c.float("final_logit_softcapping", 0))
	d.PerLayerInput = max(c.integer("hidden_size_per_layer_input", 0), 0)
	own := len(d.Layers) - max(c.integer("num_kv_shared_layers", 0), 0)
	last := map[string]int{}
	for i := range d.Layers {
		a, kind := d.Layers[i].Attention, c.layerType(i)
		d.Layers[i].Act = kernels.GeluTanh
		a.Scale, a.VNorm = 1, true
		a.KeyIsValue = c.boolean("attention_k_eq_v", false) && kind == "full_attention"
		if i < own {
			last[kind] = i + 1
		} else if a.SharedWith = last[kind]; a.SharedWith == 0 {
			return fmt.Errorf("layer %d shares the keys of a %s layer, and none has its own", i, kind)
		}
	}
	return nil
}

// olmo3: flat rope parameters are for full layers; sliding ones rotate by the default with the same theta.
func olmo3(c *hf, d *DecoderConfig) error {
	if c.object.object("rope_parameters").object("sliding_attention") != nil {
		return nil
	}
	p := ropeParams{object: object{"rope_theta": c.rope("").float("rope_theta", 10000)}}
	var err error
	attentions(d, func(_ int, a *AttentionConfig) {
		if a.Window > 0 && err == nil {
			a.Rope, err = p.rope(a.HeadDim, kernels.Half)
		}
	})
	return err
}

func granite(c *hf, d *DecoderConfig) error {
	d.EmbedScale = float32(c.float("embedding_multiplier", 1))
	d.ResidualScale = float32(c.float("residual_multiplier", 1))
	if s := c.float("logits_scaling", 1); s != 0 {
		d.LogitScale = float32(1 / s)
	}
	if c.has("attention_multiplier") {
		attentions(d, func(_ int, a *AttentionConfig) { a.Scale = float32(c.float("attention_multiplier", 1)) })
	}
	return nil
}

func cohere2(c *hf, d *DecoderConfig) error {
	d.LogitScale = float32(c.float("logit_scale", 1))
	for i := range d.Layers {
		d.Layers[i].Parallel = true
	}
	return nil
}

func hunyuan(_ *hf, d *DecoderConfig) error {
	attentions(d, func(_ int, a *AttentionConfig) { a.QKNormLate = true })
	return nil
}

func stablelm(c *hf, d *DecoderConfig) error {
	if c.boolean("qk_layernorm", false) {
		return fmt.Errorf("qk_layernorm is not supported")
	}
	for i := range d.Layers {
		d.Layers[i].Parallel = c.boolean("use_parallel_residual", false)
	}
	return nil
}

func neox(c *hf, d *DecoderConfig) error {
	for i := range d.Layers {
		d.Layers[i].Parallel = c.boolean("use_parallel_residual", true)
		d.Layers[i].Attention.FusedByHead = true
	}
	return nil
}
