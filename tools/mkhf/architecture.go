package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"omni-engine/internal/tensor"
	"omni-engine/internal/weights/gguf"
)

// architecture is what one GGUF architecture is called and how its tensors are kept in a Hugging Face checkpoint.
type architecture struct {
	file  *gguf.File
	name  string
	slots map[string]string // tensor names; blk.N. and model.layers.N. left out for those of a layer
	// permuted: rows of q and k were rearranged for interleaved rotation; shifted: norm weights had one added.
	permuted, shifted bool
}

func architectureOf(f *gguf.File) (architecture, error) {
	a := architecture{file: f, name: f.Architecture(), slots: map[string]string{
		"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight",
		"attn_norm.weight": "input_layernorm.weight", "attn_q.weight": "self_attn.q_proj.weight", "attn_k.weight": "self_attn.k_proj.weight",
		"attn_v.weight": "self_attn.v_proj.weight", "attn_output.weight": "self_attn.o_proj.weight", "ffn_gate.weight": "mlp.gate_proj.weight",
		"ffn_up.weight": "mlp.up_proj.weight", "ffn_down.weight": "mlp.down_proj.weight",
	}}
	switch a.name {
	case "llama":
		a.permuted = true
		a.slots["ffn_norm.weight"] = "post_attention_layernorm.weight"
	case "gemma3":
		a.shifted = true
		a.slots["post_attention_norm.weight"] = "post_attention_layernorm.weight"
		a.slots["ffn_norm.weight"] = "pre_feedforward_layernorm.weight"
		a.slots["post_ffw_norm.weight"] = "post_feedforward_layernorm.weight"
		a.slots["attn_q_norm.weight"] = "self_attn.q_norm.weight"
		a.slots["attn_k_norm.weight"] = "self_attn.k_norm.weight"
	default:
		return a, fmt.Errorf("architecture %q is not supported (llama and gemma3 are)", a.name)
	}
	for _, key := range f.Meta.Keys() {
		if strings.HasPrefix(key, a.name+".rope.scaling.") || strings.HasPrefix(key, a.name+".expert") {
			return a, fmt.Errorf("metadata key %s: rope scaling and experts are not supported", key)
		}
	}
	return a, nil
}

// slot is a tensor's name in the Hugging Face checkpoint.
func (a architecture) slot(name string) (string, error) {
	layer, rest := "", name
	if after, ok := strings.CutPrefix(name, "blk."); ok {
		number, tail, _ := strings.Cut(after, ".")
		layer, rest = "model.layers."+number+".", tail
	}
	slot, ok := a.slots[rest]
	if !ok || (layer == "") != (strings.HasPrefix(slot, "model.") || strings.HasPrefix(slot, "lm_head.")) {
		return "", fmt.Errorf("tensor %q has no place in a %s checkpoint", name, a.name)
	}
	return layer + slot, nil
}

func (a architecture) int(key string) (int64, error) {
	n, ok := a.file.Meta.Int(a.name + "." + key)
	if !ok || n < 1 {
		return 0, fmt.Errorf("metadata has no %s.%s", a.name, key)
	}
	return n, nil
}

// float gives a 32-bit number as its shortest decimals: 1e-05, not 9.999999747378752e-06.
func (a architecture) float(key string) (json.Number, error) {
	x, ok := a.file.Meta.Float(a.name + "." + key)
	if !ok {
		return "", fmt.Errorf("metadata has no %s.%s", a.name, key)
	}
	s := strconv.FormatFloat(x, 'g', -1, 32)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return json.Number(s), nil
}

func (a architecture) maxPositions() int64 {
	n, _ := a.int("context_length")
	return n
}

func (a architecture) headDim() (int64, error) {
	if n, err := a.int("attention.key_length"); err == nil {
		return n, nil
	}
	hidden, err := a.int("embedding_length")
	if err != nil {
		return 0, err
	}
	heads, err := a.int("attention.head_count")
	if err != nil {
		return 0, err
	}
	if hidden%heads != 0 {
		return 0, fmt.Errorf("%d heads do not divide the width %d", heads, hidden)
	}
	return hidden / heads, nil
}

// config is config.json, with the keys that transformers writes.
func (a architecture) config(v gguf.Vocab, d tensor.DType) (map[string]any, error) {
	_, headless := a.file.Tensor("output.weight")
	c := map[string]any{
		"attention_bias": false, "attention_dropout": json.Number("0.0"), "initializer_range": json.Number("0.02"), "rope_scaling": nil,
		"tie_word_embeddings": headless != nil, "use_cache": true, "vocab_size": len(v.Tokens),
		"torch_dtype":  map[tensor.DType]string{tensor.F32: "float32", tensor.F16: "float16", tensor.BF16: "bfloat16"}[d],
		"bos_token_id": id(v.BOS), "eos_token_id": id(v.EOS), "pad_token_id": id(v.PAD),
	}
	var err error
	if c["head_dim"], err = a.headDim(); err != nil {
		return nil, err
	}
	for key, from := range map[string]string{
		"hidden_size": "embedding_length", "intermediate_size": "feed_forward_length", "num_hidden_layers": "block_count",
		"num_attention_heads": "attention.head_count", "num_key_value_heads": "attention.head_count_kv", "max_position_embeddings": "context_length",
	} {
		if c[key], err = a.int(from); err != nil {
			return nil, err
		}
	}
	for key, from := range map[string]string{"rms_norm_eps": "attention.layer_norm_rms_epsilon", "rope_theta": "rope.freq_base"} {
		if c[key], err = a.float(from); err != nil {
			return nil, err
		}
	}
	if a.name == "gemma3" {
		return c, a.gemma(c)
	}
	c["architectures"], c["model_type"], c["hidden_act"] = []string{"LlamaForCausalLM"}, "llama", "silu"
	c["mlp_bias"], c["pretraining_tp"] = false, 1
	return c, nil
}

// gemma adds what is gemma3's own. The file does not say which layers are global or how local ones rotate: both are fixed.
func (a architecture) gemma(c map[string]any) (err error) {
	const pattern = 6
	c["architectures"], c["model_type"], c["hidden_activation"] = []string{"Gemma3ForCausalLM"}, "gemma3_text", "gelu_pytorch_tanh"
	c["attn_logit_softcapping"], c["final_logit_softcapping"] = nil, nil
	c["query_pre_attn_scalar"], c["rope_local_base_freq"] = c["head_dim"], json.Number("10000.0")
	if c["sliding_window"], err = a.int("attention.sliding_window"); err != nil {
		return err
	}
	layers := make([]string, c["num_hidden_layers"].(int64))
	for i := range layers {
		layers[i] = "sliding_attention"
		if (i+1)%pattern == 0 {
			layers[i] = "full_attention"
		}
	}
	c["layer_types"], c["_sliding_window_pattern"] = layers, pattern
	return nil
}

func generationConfig(v gguf.Vocab) map[string]any {
	c := map[string]any{"_from_model_config": true}
	for key, n := range map[string]int32{"bos_token_id": v.BOS, "eos_token_id": v.EOS, "pad_token_id": v.PAD} {
		if n != gguf.NoToken {
			c[key] = n
		}
	}
	return c
}

func id(n int32) any {
	if n == gguf.NoToken {
		return nil
	}
	return n
}
