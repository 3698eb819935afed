// Package models builds modules from what a checkpoint says about itself: a Hugging Face config.json or GGUF metadata, and
// its tensors. One configurable decoder serves the text models: a registry entry maps an architecture's keys to the switches of
// [DecoderConfig] and its tensor names to slots.
package models

import "omni-engine/kernels"

// DecoderConfig is the switch list of the one decoder. What a checkpoint shows by its tensors (biases, query and key norms, fused
// projections, sinks, which layers have experts) is no switch.
type DecoderConfig struct {
	Architecture string
	Vocab        int
	Hidden       int
	MaxModelLen  int // positions that the model was made for
	Norm         NormConfig
	EmbedScale   float32 // 0: 1
	// ResidualScale multiplies what a block adds to the residual stream; 0: 1.
	ResidualScale float32
	LogitScale    float32 // 0: 1
	LogitSoftcap  float32 // 0: none; after LogitScale
	Layers        []LayerConfig
	MoE           *MoEConfig // of the layers that have a router
	PerLayerInput int        // width of Gemma 4's embeddings by layer; 0: none
	EOS           []int32
	DType         string // as the checkpoint names it
}

// NormConfig is the norm of the residual stream.
type NormConfig struct {
	Kind   kernels.NormKind
	AddOne bool // the weight is 1+w
	Eps    float32
}

// LayerConfig is one layer: exactly one of Attention, MLA and Delta is set.
type LayerConfig struct {
	Attention *AttentionConfig
	MLA       *MLAConfig
	Delta     *DeltaConfig
	Parallel  bool // attention and MLP both read the layer's input
	Act       kernels.Act
}

// AttentionConfig is multi-head or grouped-query attention.
type AttentionConfig struct {
	Heads, KVHeads, HeadDim, VDim int
	Scale, Softcap                float32
	Window, Chunk                 int
	Rope                          *RopeConfig // nil: no positions
	QKNormLate                    bool        // query and key norms follow the rotation
	L2Norm                        bool        // weightless RMS norm of q and k after the rotation
	QScale                        *QScaleConfig
	ValueScale                    float32 // 0: 1
	OutputGate                    bool    // q_proj yields [q, gate] by head; the output times sigmoid(gate)
	FusedByHead                   bool    // a fused projection is laid out [q, k, v] by head
	VNorm                         bool    // weightless RMS norm of v by head
	KeyIsValue                    bool    // there is no value projection: v is k before its norm
	SharedWith                    int     // 1 + the layer whose keys and values this one reads; 0: its own
}

// QScaleConfig scales queries by their position: 1 + Beta*ln(1 + floor((p+Plus)/Floor)).
type QScaleConfig struct{ Beta, Floor, Plus float32 }

// MLAConfig is multi-head latent attention (DeepSeek-V2). Keys and values are expanded before they are cached.
type MLAConfig struct {
	Heads, Nope, RopeDim, VDim, KVRank int
	Scale, Eps                         float32
	Rope                               *RopeConfig
}

// DeltaConfig is the gated delta net (Qwen3-Next).
type DeltaConfig struct {
	KeyHeads, ValueHeads, KDim, VDim, Kernel int
	Eps                                      float32
	FusedByHead                              bool // in_proj_qkvz and in_proj_ba are laid out by key head
}

// RopeConfig is a rotation with its frequencies worked out.
type RopeConfig struct {
	Dim     int // columns that rotate
	Pairing kernels.RopePairing
	InvFreq []float64 // [Dim/2]
	Factor  float32   // of cosine and sine
	Axis    []uint8   // mrope: the axis of each pair
}

// MoEConfig is a mixture of experts.
type MoEConfig struct {
	TopK                       int
	Score                      kernels.RouterScore
	Groups, GroupTopK          int
	GroupSum2                  bool
	Renormalise                bool
	Factor, Jitter, Limit      float32
	WeightInput, InterleavedGU bool
	Act                        kernels.Act
}

// Names are a checkpoint's tensor names by slot, without ".weight" and ".bias". Layer slots are relative to Layer, where %d is the
// layer's number; MLP slots to MLP. An empty name: the model has no such tensor. Tensors are taken where they exist, so alternatives
// (fused or not) may all be named.
type Names struct {
	Embed, FinalNorm, Head string
	Layer                  string

	InputNorm, PostAttentionNorm, PreMLPNorm, PostMLPNorm string
	Q, K, V, O, QKV, QNorm, KNorm                         string
	Sinks                                                 []string
	MLP                                                   string
	Gate, Up, GateUp, Down                                string
	Router, SelectBias                                    string
	ExpertGate, ExpertUp, ExpertDown                      string // below MLP.experts.N
	Shared, SharedGate                                    string
	RopeFreqs                                             string // GGUF: divisors of the frequencies
}
