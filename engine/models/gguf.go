package models

import (
	"fmt"
	"math"

	"omni-engine/kernels"
)

// loadGGUF reads llama.cpp's metadata. Its llama checkpoints have the rows of q and k permuted so that pairs rotate together, its
// Gemma norms hold 1+w.
func loadGGUF(src Source) (*Model, error) {
	arch, _ := src.Metadata.String("general.architecture")
	g := &gguf{Metadata: src.Metadata, arch: arch}
	var names Names
	var cfg *DecoderConfig
	var err error
	switch arch {
	case "llama":
		names = ggufNames()
		cfg, err = g.decoder(src, names, kernels.Pair)
	case "gemma3":
		names = ggufGemmaNames()
		if cfg, err = g.decoder(src, names, kernels.Half); err == nil {
			g.gemma3(cfg)
		}
	case "qwen2", "qwen3":
		names = ggufNames()
		cfg, err = g.decoder(src, names, kernels.Half)
	default:
		return nil, fmt.Errorf("GGUF: architecture %q is not supported; supported are gemma3, llama, qwen2, qwen3", arch)
	}
	if err != nil {
		return nil, fmt.Errorf("GGUF: %w", err)
	}
	m, err := finish(cfg, names, src)
	if err != nil {
		return nil, err
	}
	if id, ok := src.Metadata.Int("tokenizer.ggml.bos_token_id"); ok {
		m.BOS = []int32{int32(id)}
	}
	return m, nil
}

type gguf struct {
	Metadata
	arch string
}

func (g *gguf) integer(key string, def int) int {
	if v, ok := g.Int(g.arch + "." + key); ok && v >= 0 && v < 1<<31 {
		return int(v)
	}
	return def
}

func (g *gguf) float(key string, def float64) float64 {
	if v, ok := g.Float(g.arch + "." + key); ok {
		return v
	}
	return def
}

func (g *gguf) decoder(src Source, names Names, pairing kernels.RopePairing) (*DecoderConfig, error) {
	table, err := src.Weights.Tensor(names.Embed + ".weight")
	if err != nil {
		return nil, err
	}
	n, hidden, heads := g.integer("block_count", 0), g.integer("embedding_length", 0), g.integer("attention.head_count", 0)
	if len(table.Shape) != 2 || n <= 0 || n > 1000 || hidden <= 0 || heads <= 0 {
		return nil, fmt.Errorf("%d layers, %d heads, hidden size %d, embeddings of %v", n, heads, hidden, table.Shape)
	}
	eps := g.float("attention.layer_norm_rms_epsilon", 1e-5)
	if !(eps >= 0 && eps < 1) { // NaN too: every answer would be an error
		return nil, fmt.Errorf("attention.layer_norm_rms_epsilon is %v", eps)
	}
	d := &DecoderConfig{Architecture: g.arch, Vocab: table.Shape[0], Hidden: hidden, MaxModelLen: g.integer("context_length", 0),
		Norm: NormConfig{Kind: kernels.RMS, Eps: float32(eps)}, DType: table.DType.String()}
	for _, k := range []string{"eos", "eot", "eom"} {
		if id, ok := g.Int("tokenizer.ggml." + k + "_token_id"); ok {
			d.EOS = append(d.EOS, int32(id))
		}
	}
	a := AttentionConfig{Heads: heads, KVHeads: g.integer("attention.head_count_kv", heads), HeadDim: g.integer("attention.key_length", hidden/heads)}
	a.VDim = g.integer("attention.value_length", a.HeadDim)
	a.Scale = float32(1 / math.Sqrt(float64(a.HeadDim)))
	if !sizes(heads, a.KVHeads, a.HeadDim, a.VDim, hidden) || heads%a.KVHeads != 0 {
		return nil, fmt.Errorf("%d heads of %d columns, %d key-value heads", heads, a.HeadDim, a.KVHeads)
	}
	if g.integer("expert_count", 0) > 0 {
		return nil, fmt.Errorf("mixtures of experts are not supported")
	}
	if a.Rope, err = g.rope(src, names, g.integer("rope.dimension_count", a.HeadDim), pairing); err != nil {
		return nil, err
	}
	for range n {
		layer := a
		d.Layers = append(d.Layers, LayerConfig{Attention: &layer, Act: kernels.Silu})
	}
	return d, nil
}

func (g *gguf) rope(src Source, names Names, dim int, pairing kernels.RopePairing) (*RopeConfig, error) {
	o := object{"rope_theta": g.float("rope.freq_base", 10000)}
	if kind, ok := g.String(g.arch + ".rope.scaling.type"); ok && kind != "none" {
		o["rope_type"], o["factor"] = kind, g.float("rope.scaling.factor", 1)
		if n := g.integer("rope.scaling.original_context_length", 0); n > 0 {
			o["original_max_position_embeddings"] = float64(n)
		}
		if kind != "linear" && kind != "yarn" {
			return nil, fmt.Errorf("rope scaling %q is not supported", kind)
		}
	}
	r, err := ropeParams{object: o, maxPosition: g.integer("context_length", 0)}.rope(dim, pairing)
	if err != nil {
		return nil, err
	}
	// llama3's scaling comes worked out, as divisors of the frequencies.
	for _, n := range src.Weights.Names() {
		if n != names.RopeFreqs+".weight" {
			continue
		}
		v, err := src.Weights.Tensor(n)
		if err != nil {
			return nil, err
		}
		f, err := floats(v)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", n, err)
		}
		if len(f) != len(r.InvFreq) {
			return nil, fmt.Errorf("tensor %s: %d factors for %d frequencies", n, len(f), len(r.InvFreq))
		}
		for i := range f {
			if f[i] == 0 {
				return nil, fmt.Errorf("tensor %s: factor %d is zero", n, i)
			}
			r.InvFreq[i] /= float64(f[i])
		}
	}
	return r, nil
}

// gemma3: five sliding layers, whose theta is 10,000, then a full one.
func (g *gguf) gemma3(d *DecoderConfig) {
	d.EmbedScale = float32(math.Sqrt(float64(d.Hidden)))
	d.LogitSoftcap = float32(g.float("final_logit_softcapping", 0))
	window, pattern := g.integer("attention.sliding_window", 0), max(g.integer("attention.sliding_window_pattern", 6), 1)
	theta := g.float("rope.freq_base_swa", 10000)
	for i := range d.Layers {
		a := d.Layers[i].Attention
		d.Layers[i].Act = kernels.GeluTanh
		if (i+1)%pattern != 0 && window > 0 {
			a.Window = window
			a.Rope = &RopeConfig{Dim: a.Rope.Dim, Pairing: a.Rope.Pairing, InvFreq: inverse(theta, a.Rope.Dim), Factor: 1}
		}
	}
}
