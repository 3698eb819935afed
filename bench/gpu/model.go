package main

import (
	"encoding/json"
	"fmt"

	"omni-engine/engine/models"
	"omni-engine/internal/tensor"
)

// shape is a llama's dimensions.
type shape struct {
	Name                                            string
	Layers, Hidden, Heads, KVHeads, Dim, FFN, Vocab int
	Context                                         int
}

// small has the launches of a decoder and few bytes: for what the host does in a step.
func small() shape {
	return shape{Name: "small", Layers: 4, Hidden: 256, Heads: 4, KVHeads: 1, Dim: 64, FFN: 512, Vocab: 8192, Context: 1024}
}

// eightB has the dimensions of Llama 3.1 8B.
func eightB() shape {
	return shape{Name: "8B (Llama 3.1's shape, dummy weights)", Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, Dim: 128, FFN: 14336, Vocab: 128256, Context: 8192}
}

// dummy gives every weight of a shape from one piece of zeros: what a step costs does not depend on the values.
type dummy struct {
	names  []string
	shapes map[string][]int
	zeros  []byte
}

func newDummy(s shape) *dummy {
	d := &dummy{shapes: map[string][]int{}}
	add := func(name string, dims ...int) {
		d.names = append(d.names, name)
		d.shapes[name] = dims
		n := 2
		for _, k := range dims {
			n *= k
		}
		if n > len(d.zeros) {
			d.zeros = make([]byte, n)
		}
	}
	add("model.embed_tokens.weight", s.Vocab, s.Hidden)
	add("model.norm.weight", s.Hidden)
	add("lm_head.weight", s.Vocab, s.Hidden)
	for i := range s.Layers {
		p := fmt.Sprintf("model.layers.%d.", i)
		add(p+"input_layernorm.weight", s.Hidden)
		add(p+"post_attention_layernorm.weight", s.Hidden)
		add(p+"self_attn.q_proj.weight", s.Heads*s.Dim, s.Hidden)
		add(p+"self_attn.k_proj.weight", s.KVHeads*s.Dim, s.Hidden)
		add(p+"self_attn.v_proj.weight", s.KVHeads*s.Dim, s.Hidden)
		add(p+"self_attn.o_proj.weight", s.Hidden, s.Heads*s.Dim)
		add(p+"mlp.gate_proj.weight", s.FFN, s.Hidden)
		add(p+"mlp.up_proj.weight", s.FFN, s.Hidden)
		add(p+"mlp.down_proj.weight", s.Hidden, s.FFN)
	}
	return d
}

// Names lists the tensors.
func (d *dummy) Names() []string { return d.names }

// Tensor is a tensor of zeros in BF16.
func (d *dummy) Tensor(name string) (tensor.View, error) {
	dims, ok := d.shapes[name]
	if !ok {
		return tensor.View{}, fmt.Errorf("no tensor %s", name)
	}
	n := 2
	for _, k := range dims {
		n *= k
	}
	return tensor.NewView(tensor.BF16, dims, d.zeros[:n])
}

// load builds the module of a shape.
func (s shape) load() (*models.Model, error) {
	config, err := json.Marshal(map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "hidden_size": s.Hidden, "num_hidden_layers": s.Layers,
		"num_attention_heads": s.Heads, "num_key_value_heads": s.KVHeads, "head_dim": s.Dim, "intermediate_size": s.FFN, "vocab_size": s.Vocab,
		"max_position_embeddings": s.Context, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "bfloat16",
	})
	if err != nil {
		return nil, err
	}
	return models.Load(models.Source{Config: config, Weights: newDummy(s)})
}
