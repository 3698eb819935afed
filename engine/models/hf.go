package models

import (
	"fmt"
	"math"
	"strconv"

	"omni-engine/kernels"
)

// family is a registry entry: an architecture's names and what its config means beyond the keys that all share.
type family struct {
	names func() Names
	// layers says which layer types the model has when layer_types is absent; nil: full attention.
	layers func(c *hf, layer int) string
	// rope says whether a layer rotates; nil: all do.
	rope    func(c *hf, layer int, kind string) bool
	pairing kernels.RopePairing
	norm    kernels.NormKind
	adjust  func(c *hf, d *DecoderConfig) error // the rest
}

// hf is a Hugging Face config.json being read.
type hf struct {
	object
	family      family
	arch        string
	maxModelLen int
}

// decoder reads the shared keys, then lets the family adjust.
func (c *hf) decoder() (*DecoderConfig, error) {
	n := c.integer("num_hidden_layers", 0)
	d := &DecoderConfig{
		Architecture: c.arch, Vocab: c.integer("vocab_size", 0), Hidden: c.integer("hidden_size", 0),
		MaxModelLen: c.integer("max_position_embeddings", 0), EOS: c.ids("eos_token_id"),
		DType: c.str("dtype", c.str("torch_dtype", "")),
		Norm:  NormConfig{Kind: c.family.norm, Eps: c.eps()},
	}
	if n > 1000 || !sizes(n, d.Hidden, c.integer("num_attention_heads", 0)) || d.Vocab <= 0 {
		return nil, fmt.Errorf("config.json: %d layers, %d heads, vocabulary of %d, hidden size %d",
			n, c.integer("num_attention_heads", 0), d.Vocab, d.Hidden)
	}
	if c.maxModelLen == 0 {
		c.maxModelLen = d.MaxModelLen
	}
	act, err := activation(c.str("hidden_activation", c.str("hidden_act", "silu")))
	if err != nil {
		return nil, err
	}
	for i := range n {
		l, err := c.layer(i)
		if err != nil {
			return nil, fmt.Errorf("config.json: layer %d: %w", i, err)
		}
		l.Act = act
		d.Layers = append(d.Layers, l)
	}
	if c.family.adjust != nil {
		if err := c.family.adjust(c, d); err != nil {
			return nil, fmt.Errorf("config.json: %w", err)
		}
	}
	return d, nil
}

// sizes reports whether numbers are such as models have: configs are downloaded, and products of them must not overflow.
func sizes(n ...int) bool {
	for _, v := range n {
		if v <= 0 || v > 1<<20 {
			return false
		}
	}
	return true
}

func (c *hf) eps() float32 {
	for _, k := range []string{"rms_norm_eps", "layer_norm_eps", "norm_epsilon", "norm_eps", "layer_norm_epsilon"} {
		if c.has(k) {
			return float32(c.float(k, 0))
		}
	}
	return 1e-5
}

func activation(name string) (kernels.Act, error) {
	switch name {
	case "silu", "swish":
		return kernels.Silu, nil
	case "gelu":
		return kernels.Gelu, nil
	case "gelu_pytorch_tanh", "gelu_new", "gelu_fast":
		return kernels.GeluTanh, nil
	case "relu":
		return kernels.Relu, nil
	case "relu2":
		return kernels.Relu2, nil
	}
	return 0, fmt.Errorf("config.json: activation %q is not supported", name)
}

func (c *hf) layerType(i int) string {
	if types := c.strings("layer_types"); i < len(types) {
		return types[i]
	}
	if c.family.layers != nil {
		return c.family.layers(c, i)
	}
	return "full_attention"
}

func (c *hf) layer(i int) (LayerConfig, error) {
	kind := c.layerType(i)
	heads := c.integer("num_attention_heads", 0)
	a := &AttentionConfig{Heads: heads, KVHeads: c.integer("num_key_value_heads", heads)}
	a.HeadDim = c.integer("head_dim", c.integer("hidden_size", 0)/heads)
	if own := c.object.object("per_layer_config").object(strconv.Itoa(i)); own != nil {
		a.HeadDim, a.KVHeads = own.integer("head_dim", a.HeadDim), own.integer("num_key_value_heads", a.KVHeads)
	} else if kind == "full_attention" {
		a.HeadDim, a.KVHeads = c.positive("global_head_dim", a.HeadDim), c.positive("num_global_key_value_heads", a.KVHeads)
	}
	if !sizes(heads, a.KVHeads, a.HeadDim) || heads%a.KVHeads != 0 {
		return LayerConfig{}, fmt.Errorf("%d heads of %d columns, %d key-value heads", heads, a.HeadDim, a.KVHeads)
	}
	a.VDim = a.HeadDim
	a.Scale = float32(1 / math.Sqrt(float64(a.HeadDim)))
	switch kind {
	case "full_attention", "linear_attention":
	case "sliding_attention":
		a.Window = c.positive("sliding_window", 0)
	case "chunked_attention":
		a.Chunk = c.positive("attention_chunk_size", 0)
	default:
		return LayerConfig{}, fmt.Errorf("layer type %q is not supported", kind)
	}
	if c.family.rope == nil || c.family.rope(c, i, kind) {
		p := c.rope(kind)
		partial := p.float("partial_rotary_factor", c.float("partial_rotary_factor", c.float("rotary_pct", 1)))
		if p.str("rope_type", "") == "proportional" {
			partial = 1
		}
		r, err := p.rope(int(float64(a.HeadDim)*partial), c.family.pairing)
		if err != nil {
			return LayerConfig{}, err
		}
		if r.Dim > a.HeadDim {
			return LayerConfig{}, fmt.Errorf("%d of %d columns rotate", r.Dim, a.HeadDim)
		}
		a.Rope = r
	}
	return LayerConfig{Attention: a}, nil
}

// rope finds a layer type's parameters: rope_parameters (flat or by layer type), or the older rope_theta and rope_scaling.
func (c *hf) rope(kind string) ropeParams {
	p := ropeParams{object: object{}, maxModelLen: c.maxModelLen, maxPosition: c.integer("max_position_embeddings", 0)}
	params := c.object.object("rope_parameters")
	if nested := params.object(kind); nested != nil {
		params = nested
	}
	scaling := c.object.object("rope_scaling")
	if kind == "sliding_attention" && c.has("rope_local_base_freq") && params == nil {
		p.object["rope_theta"] = c.float("rope_local_base_freq", 0)
		return p
	}
	if c.has("rope_theta") {
		p.object["rope_theta"] = c.object["rope_theta"]
	}
	for _, k := range []string{"original_max_position_embeddings", "rotary_emb_base"} {
		if c.has(k) {
			p.object[k] = c.object[k]
		}
	}
	if c.has("rotary_emb_base") {
		p.object["rope_theta"] = c.object["rotary_emb_base"]
	}
	for _, src := range []object{scaling, params} {
		for k, v := range src {
			if v != nil {
				p.object[k] = v
			}
		}
	}
	return p
}
