package models

import (
	"fmt"
	"math"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// talker is Qwen3-Omni's talker with its code predictor.
type talker struct {
	decoder
	groups  int // codes a frame
	codes   kernels.StateID
	predict predictor
}

// predictor is the code predictor: a small decoder that runs over the frame's own positions.
type predictor struct {
	layers        int
	attention     AttentionConfig
	act           kernels.Act
	norm          NormConfig
	hidden, vocab int
}

// loadTalker builds the talker. A step takes rows named "embeds" for the prompt; after it, the sum of the embeddings of the request's last
// frame and of the row named "text". Entries: "text_projection" (rows "embeds" of thinker embeddings to output "projected"), "forward", "sample"
// and, after it, "code_predictor", whose output "codes" [LogitRows, groups] is the frame: -1 in the first column where nothing was sampled.
func loadTalker(c object, src Source) (*Model, error) {
	f := families()["Qwen3MoeForCausalLM"]
	text := c.object("text_config")
	h := &hf{object: text, family: f, arch: "Qwen3OmniMoeTalker", maxModelLen: src.MaxModelLen}
	cfg, err := h.decoder()
	if err != nil {
		return nil, err
	}
	cfg.EOS = c.ids("codec_eos_token_id")
	names := under("talker.", qwenMoENames())
	names.Embed, names.Head = "talker.model.codec_embedding", "talker.codec_head"
	t := &talker{decoder: decoder{builder: newBuilder(cfg.Architecture, src.Weights), cfg: cfg, names: names, opts: src.BuildOptions, lastOutput: "hidden"},
		groups: c.integer("num_code_groups", 0)}
	if err := t.readPredictor(c.object("code_predictor_config"), src); err != nil {
		return nil, err
	}
	if t.groups < 2 || t.groups > 64 {
		return nil, fmt.Errorf("num_code_groups is %d", t.groups)
	}
	t.m.Vocab = cfg.Vocab
	t.build(c.integer("thinker_hidden_size", 0))
	module, err := t.module()
	if err != nil {
		return nil, err
	}
	return facts(cfg, module), nil
}

func (t *talker) readPredictor(c object, src Source) error {
	h := &hf{object: c, family: families()["Qwen3ForCausalLM"], arch: "Qwen3OmniMoeCodePredictor", maxModelLen: src.MaxModelLen}
	cfg, err := h.decoder()
	if err != nil {
		return fmt.Errorf("code_predictor_config: %w", err)
	}
	if cfg.Hidden != t.cfg.Hidden {
		return fmt.Errorf("code_predictor_config: hidden size %d, the talker's is %d", cfg.Hidden, t.cfg.Hidden)
	}
	t.predict = predictor{layers: len(cfg.Layers), attention: *cfg.Layers[0].Attention, act: cfg.Layers[0].Act, norm: cfg.Norm, hidden: cfg.Hidden, vocab: cfg.Vocab}
	return nil
}

func (t *talker) build(thinkerHidden int) {
	t.codes = t.state(kernels.StateSpec{Name: "codes", Kind: kernels.Slot, Floats: t.groups})
	t.open("forward")
	t.embed()
	t.op(&kernels.InputRows{Out: t.x, Input: "embeds"})
	ids := t.buffer(kernels.Buffer{Name: "last_codes", DType: tensor.I32, Rows: kernels.Of(kernels.Tokens), Width: t.groups})
	t.op(&kernels.SlotLoad{Out: ids, State: t.codes})
	for g := 1; g < t.groups; g++ {
		t.op(&kernels.Lookup{Out: t.x, IDs: ids, Column: g, Table: t.codeTable(g), Scale: 1, Accumulate: true})
	}
	t.op(&kernels.AddRows{Out: t.x, Input: "text"})
	for i := range t.cfg.Layers {
		t.layer(i)
	}
	t.head()
	t.finish()

	t.open("sample")
	t.op(&kernels.Sample{Logits: t.logits()})
	t.finish()
	t.open("code_predictor")
	t.frame()
	t.finish()

	t.open("text_projection")
	x := t.buf("thinker", kernels.Tokens, thinkerHidden)
	t.op(&kernels.InputRows{Out: x, Input: "embeds"})
	y := t.mlp2("projected_rows", x, "talker.text_projection.linear_fc1", "talker.text_projection.linear_fc2", kernels.Silu)
	out := t.buffer(kernels.Buffer{Name: "projected", DType: tensor.F32, Rows: kernels.Of(kernels.Tokens), Width: t.cfg.Hidden, Role: kernels.Output})
	t.op(&kernels.Copy{Out: out, In: y, Groups: 1, Width: t.cfg.Hidden})
	t.finish()
}

// codeTable is the embedding of codes of group g > 0.
func (t *talker) codeTable(g int) kernels.WeightID {
	return t.vector(fmt.Sprintf("talker.code_predictor.model.codec_embedding.%d.weight", g-1), t.predict.vocab*t.predict.hidden)
}

// frame unrolls the code predictor: position 0 is the talker's hidden state, position g the embedding of code g-1; position g gives code g.
func (t *talker) frame() {
	hidden := t.hiddenOutput()
	codes := t.buffer(kernels.Buffer{Name: "codes", DType: tensor.I32, Rows: kernels.Of(kernels.LogitRows), Width: t.groups, Role: kernels.Output})
	t.op(&kernels.Sampled{Out: codes, Column: 0})
	x := t.like("px", hidden, t.predict.hidden)
	for pos := range t.groups {
		switch pos {
		case 0:
			t.op(&kernels.Copy{Out: x, In: hidden, Groups: 1, Width: t.predict.hidden})
		case 1:
			t.op(&kernels.Lookup{Out: x, IDs: codes, Column: 0, Table: t.vector(t.names.Embed+".weight", 0), Scale: 1})
		default:
			t.op(&kernels.Lookup{Out: x, IDs: codes, Column: pos - 1, Table: t.codeTable(pos - 1), Scale: 1})
		}
		for i := range t.predict.layers {
			t.predictLayer(x, i, pos)
		}
		if pos == 0 {
			continue
		}
		h := t.norm("ph", x, t.predict.norm, "talker.code_predictor.model.norm")
		logits := t.like("code_logits", x, t.predict.vocab)
		if t.opts.CodeLogits {
			logits = t.buffer(kernels.Buffer{Name: fmt.Sprintf("code_logits@%d", pos), DType: tensor.F32, Rows: kernels.Of(kernels.LogitRows), Width: t.predict.vocab, Role: kernels.Output})
		}
		t.linearInto(logits, h, t.proj(fmt.Sprintf("talker.code_predictor.lm_head.%d", pos-1)))
		// What transformers samples with; greedy where the talker is.
		t.op(&kernels.SampleCode{IDs: codes, Logits: logits, Column: pos, TopK: 50, TopP: 0.8})
	}
	t.op(&kernels.SlotStore{In: codes, State: t.codes})
}

func (t *talker) predictLayer(x kernels.BufferID, i, pos int) {
	p, a := fmt.Sprintf("talker.code_predictor.model.layers.%d.", i), t.predict.attention
	at := p + "self_attn."
	h := t.norm("ph", x, t.predict.norm, p+"input_layernorm")
	q := t.linear("pq", h, t.proj(at+"q_proj"), a.Heads*a.HeadDim)
	k := t.linear("pk", h, t.proj(at+"k_proj"), a.KVHeads*a.HeadDim)
	v := t.linear("pv", h, t.proj(at+"v_proj"), a.KVHeads*a.VDim)
	t.groupNorm(q, kernels.RMS, a.HeadDim, t.predict.norm.Eps, false, at+"q_norm")
	t.groupNorm(k, kernels.RMS, a.HeadDim, t.predict.norm.Eps, false, at+"k_norm")
	for _, r := range []struct {
		x     kernels.BufferID
		heads int
	}{{q, a.Heads}, {k, a.KVHeads}} {
		t.op(&kernels.RopeAt{X: r.x, Heads: r.heads, HeadDim: a.HeadDim, RotDim: a.Rope.Dim, Pairing: a.Rope.Pairing, InvFreq: a.Rope.InvFreq,
			Factor: a.Rope.Factor, Position: pos})
	}
	kw, vw := a.KVHeads*a.HeadDim, a.KVHeads*a.VDim
	keys, values := t.like(fmt.Sprintf("pkeys%d", i), x, t.groups*kw), t.like(fmt.Sprintf("pvalues%d", i), x, t.groups*vw)
	o := t.like("pattn", x, a.Heads*a.VDim)
	t.op(&kernels.Copy{Out: keys, In: k, Groups: 1, Width: kw, OutFrom: pos * kw},
		&kernels.Copy{Out: values, In: v, Groups: 1, Width: vw, OutFrom: pos * vw},
		&kernels.RowAttention{Out: o, Q: q, K: keys, V: values, Heads: a.Heads, KVHeads: a.KVHeads, KDim: a.HeadDim, VDim: a.VDim, Count: pos + 1,
			Scale: float32(1 / math.Sqrt(float64(a.HeadDim)))})
	o = t.linear("po", o, t.proj(at+"o_proj"), t.predict.hidden)
	t.op(&kernels.Binary{Out: x, A: x, B: o, Kind: kernels.Add})
	h = t.norm("ph", x, t.predict.norm, p+"post_attention_layernorm")
	g := t.linear("pgate", h, t.proj(p+"mlp.gate_proj"), 0)
	u := t.linear("pup", h, t.proj(p+"mlp.up_proj"), t.width(g))
	t.op(&kernels.Gated{Out: g, Gate: g, Up: u, Act: t.predict.act})
	d := t.linear("pdown", g, t.proj(p+"mlp.down_proj"), t.predict.hidden)
	t.op(&kernels.Binary{Out: x, A: x, B: d, Kind: kernels.Add})
}
