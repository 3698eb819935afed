package models

// llamaNames are the names that most Hugging Face decoders use.
func llamaNames() Names {
	return Names{
		Embed: "model.embed_tokens", FinalNorm: "model.norm", Head: "lm_head", Layer: "model.layers.%d.",
		InputNorm: "input_layernorm", PreMLPNorm: "post_attention_layernorm",
		Q: "self_attn.q_proj", K: "self_attn.k_proj", V: "self_attn.v_proj", O: "self_attn.o_proj",
		QKV: "self_attn.qkv_proj", QNorm: "self_attn.q_norm", KNorm: "self_attn.k_norm",
		Sinks: []string{"self_attn.sinks", "self_attn.attention_sink_bias"},
		MLP:   "mlp.", Gate: "gate_proj", Up: "up_proj", GateUp: "gate_up_proj", Down: "down_proj",
		Router: "gate", SelectBias: "gate.e_score_correction_bias",
		ExpertGate: "gate_proj", ExpertUp: "up_proj", ExpertDown: "down_proj",
		Shared: "shared_experts.", SharedGate: "shared_expert_gate",
	}
}

// bareNames are those of a decoder saved without its head's class: no "model." before them.
func bareNames() Names {
	n := llamaNames()
	n.Embed, n.FinalNorm, n.Layer = "embed_tokens", "norm", "layers.%d."
	return n
}

// postNames: no input norms, both blocks' outputs are normalised (OLMo 2, EXAONE 4).
func postNames() Names {
	n := llamaNames()
	n.InputNorm, n.PostAttentionNorm, n.PreMLPNorm, n.PostMLPNorm = "", "post_attention_layernorm", "", "post_feedforward_layernorm"
	return n
}

// sandwichNames: both blocks' inputs and outputs are normalised (Gemma 2 and 3).
func sandwichNames() Names {
	n := llamaNames()
	n.PostAttentionNorm, n.PreMLPNorm, n.PostMLPNorm = "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
	return n
}

func glm4Names() Names {
	n := llamaNames()
	n.PostAttentionNorm, n.PostMLPNorm = "post_self_attn_layernorm", "post_mlp_layernorm"
	return n
}

func mixtralNames() Names {
	n := llamaNames()
	n.MLP, n.ExpertGate, n.ExpertUp, n.ExpertDown = "block_sparse_moe.", "w1", "w3", "w2"
	n.SelectBias = "e_score_correction_bias"
	return n
}

func qwenMoENames() Names {
	n := llamaNames()
	n.Shared = "shared_expert."
	return n
}

func gptOssNames() Names {
	n := llamaNames()
	n.Router = "router"
	return n
}

func llama4Names() Names {
	n := qwenMoENames()
	n.MLP, n.Router = "feed_forward.", "router"
	return n
}

func graniteMoENames() Names {
	n := llamaNames()
	n.MLP, n.Router, n.Shared = "block_sparse_moe.", "router.layer", ""
	return n
}

func hunyuanNames() Names {
	n := llamaNames()
	n.QNorm, n.KNorm = "self_attn.query_layernorm", "self_attn.key_layernorm"
	return n
}

func starcoder2Names() Names {
	n := llamaNames()
	n.Gate, n.Up, n.Down = "", "c_fc", "c_proj"
	return n
}

func cohere2Names() Names {
	n := llamaNames()
	n.PreMLPNorm = ""
	return n
}

func neoxNames() Names {
	n := llamaNames()
	n.Embed, n.FinalNorm, n.Head, n.Layer = "gpt_neox.embed_in", "gpt_neox.final_layer_norm", "embed_out", "gpt_neox.layers.%d."
	n.QKV, n.O = "attention.query_key_value", "attention.dense"
	n.Gate, n.Up, n.Down = "", "dense_h_to_4h", "dense_4h_to_h"
	return n
}

// ggufNames are llama.cpp's names.
func ggufNames() Names {
	return Names{
		Embed: "token_embd", FinalNorm: "output_norm", Head: "output", Layer: "blk.%d.", RopeFreqs: "rope_freqs",
		InputNorm: "attn_norm", PreMLPNorm: "ffn_norm",
		Q: "attn_q", K: "attn_k", V: "attn_v", O: "attn_output", QNorm: "attn_q_norm", KNorm: "attn_k_norm",
		Gate: "ffn_gate", Up: "ffn_up", Down: "ffn_down",
	}
}

func ggufGemmaNames() Names {
	n := ggufNames()
	n.PostAttentionNorm, n.PostMLPNorm = "post_attention_norm", "post_ffw_norm"
	return n
}
