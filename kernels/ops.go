package kernels

// Op is one operation. Its struct is the whole of its meaning; kernels/ref is its definition.
// Buffers are [rows, width] row-major; "per row" means over the buffer's rows.
type Op interface {
	Name() string
	Uses() Uses
}

// Uses lists what an operation touches, for layout, liveness and checks. None entries are allowed.
type Uses struct {
	In, Out []BufferID
	Weights []WeightID
	States  []StateID
}

// Embed: Out[t] = Table[Batch.Tokens[t]] * Scale. Table is [V, width], any weight type.
type Embed struct {
	Out   BufferID
	Table WeightID
	Scale float32
}

// Lookup: Out[t] = Table[IDs[t]] * Scale, ids from a buffer; rows of a negative id become zero. Accumulate adds instead.
type Lookup struct {
	Out, IDs   BufferID
	Column     int // column of IDs
	Table      WeightID
	Scale      float32
	Accumulate bool
}

// InputRows overwrites rows of Out with Batch.Inputs of that name (embeddings from an encoder or an upstream stage).
type InputRows struct {
	Out   BufferID
	Input string
}

// NormKind is how a row is normalised.
type NormKind uint8

// The kinds.
const (
	RMS       NormKind = iota // x / sqrt(mean(x^2) + eps)
	LayerNorm                 // (x - mean) / sqrt(var + eps)
	L2Norm                    // x / sqrt(sum(x^2) + eps)
)

// Norm: each group of GroupSize columns (0: the whole row) is normalised, then times the weight (1+w with AddOne; None: 1), plus
// the bias. A weight of GroupSize entries serves every group, one of the row's width is used whole.
type Norm struct {
	Out, In      BufferID
	Kind         NormKind
	Weight, Bias WeightID
	Eps          float32
	AddOne       bool
	GroupSize    int
}

// Linear: Out = In · Wᵀ + bias. W is [out, in], any weight type. Site names it for adapters and shards.
type Linear struct {
	Out, In      BufferID
	Weight, Bias WeightID
	Site         string
}

// BinaryKind is an element-wise operation of two buffers.
type BinaryKind uint8

// The kinds.
const (
	Add      BinaryKind = iota // A + Alpha*B
	Mul                        // A * B
	MulFirst                   // A * B[:,0]: B has one column
)

// Binary: Out = A op B, element-wise; Out may be A. Alpha of 0 means 1.
type Binary struct {
	Out, A, B BufferID
	Kind      BinaryKind
	Alpha     float32
}

// Act is an activation function.
type Act uint8

// The activations.
const (
	Identity Act = iota
	Silu
	Gelu     // exact, with erf
	GeluTanh // tanh approximation
	Relu
	Relu2 // relu squared
	Sigmoid
	Tanh
	Exp
	Softplus
	Quick // x * sigmoid(1.702 x)
)

// Unary: Out = Act(In*Scale)*PostScale + Offset, clamped to +-Clamp when Clamp > 0; scales of 0 mean 1. A soft cap c is
// {Tanh, Scale: 1/c, PostScale: c}. Out may be In.
type Unary struct {
	Out, In                         BufferID
	Act                             Act
	Scale, PostScale, Offset, Clamp float32
}

// Gated: Out = Act(Gate) * Up. With Limit > 0 (gpt-oss): gate <= limit, up in +-limit, and Out = gate*sigmoid(1.702 gate)*(up+1).
type Gated struct {
	Out, Gate, Up BufferID
	Act           Act
	Limit         float32
}

// Copy moves column groups: for g < Groups, i < Width: Out[t][g*OutStride+OutFrom+i] = In[t][g*InStride+InFrom+i].
// A zero InStride replicates. Splits fused projections and interleaved heads, joins rope and nope parts.
type Copy struct {
	Out, In            BufferID
	Groups, Width      int
	InStride, InFrom   int
	OutStride, OutFrom int
}

// RopePairing says which dimensions rotate together.
type RopePairing uint8

// The pairings.
const (
	Half RopePairing = iota // i with i+RotDim/2 (rotate_half)
	Pair                    // 2i with 2i+1 (interleaved)
)

// Rope rotates X in place: for each of Heads heads of HeadDim columns, the RotDim columns that start at From. Angle of pair i
// at position p is p*InvFreq[i]; cosine and sine are scaled by Factor (0: 1). Above LongFrom tokens of context (longrope; 0: never) LongFreq
// is used. With Sections (mrope) pair i takes its position from axis 0, 1 or 2.
type Rope struct {
	X                    BufferID
	Heads, HeadDim, From int
	RotDim               int
	Pairing              RopePairing
	InvFreq              []float64 // [RotDim/2]
	LongFreq             []float64
	LongFrom             int
	Factor, LongFactor   float32
	Axis                 []uint8 // [RotDim/2], nil: all 0
}

// PositionScale multiplies row t of X by 1 + Beta*ln(1 + floor((p+Plus)/Floor)) (llama 4 and ministral 3 temperature tuning).
type PositionScale struct {
	X           BufferID
	Beta        float32
	Floor, Plus float32
}

// KVWrite stores K [T, Heads*KDim] and V [T, Heads*VDim] of this step's tokens in a paged state.
type KVWrite struct {
	K, V  BufferID
	State StateID
}

// Attention: causal attention of Q [T, Heads*KDim] over the paged state (this step's tokens are already written):
// softmax(Softcap(Scale * q·k)) · v, over positions of the same request with p_k <= p_q, and p_q - p_k < Window when Window > 0, and
// the same chunk p/Chunk when Chunk > 0. Sinks [Heads]: one logit a head that joins the softmax without a value.
// Query head h reads KV head h*KVHeads/Heads.
type Attention struct {
	Out, Q         BufferID
	State          StateID
	Heads, KVHeads int
	KDim, VDim     int
	Scale, Softcap float32
	Window, Chunk  int
	Sinks          WeightID
}

// GatherRows: Out [L, w] = In[Batch.LogitRows].
type GatherRows struct{ Out, In BufferID }

// Sample samples Batch.Sampling from Logits [L, V] into the step's Result. Order as in vLLM: raw logprobs, grammar mask and allowed
// ids, bad words and min_tokens bans, logit bias, penalties, temperature, min-p, top-k, top-p, Philox draw.
type Sample struct{ Logits BufferID }

// RouterScore is how router logits become expert scores.
type RouterScore uint8

// The scorings.
const (
	ScoreSoftmax     RouterScore = iota // softmax over all experts, then choose
	ScoreSigmoid                        // sigmoid, then choose
	ScoreTopKSoftmax                    // choose by logit, softmax over the chosen
	ScoreSparseMixer                    // phimoe
	ScoreTopKSigmoid                    // choose by logit, sigmoid of the chosen (llama 4)
)

// Route chooses TopK experts a row from Logits [T, E] into IDs (int32) and Weights [T, TopK]. SelectBias [E] is added for choosing only.
// Groups > 0: only experts of the best GroupTopK groups (a group's score: its maximum, or the sum of its two best with GroupSum2).
type Route struct {
	IDs, Weights, Logits BufferID
	Score                RouterScore
	TopK                 int
	SelectBias           WeightID
	Groups, GroupTopK    int
	GroupSum2            bool
	Renormalise          bool
	Factor               float32 // times the weights; 0: 1
	Jitter               float32 // sparse mixer's eps
}

// Experts: Out[t] = sum over k of weight * Down_e(Gated(Gate_e(x), Up_e(x))). Expert weights are listed per expert: GateUp[e] fused or Gate[e], Up[e].
type Experts struct {
	Out, In, IDs, Weights      BufferID
	Gate, Up, Down             []WeightID // [E], each [out, in]
	GateBias, UpBias, DownBias []WeightID // [E] or nil
	Act                        Act
	Limit                      float32
	WeightInput                bool // the weight scales the expert's input (llama 4)
	Site                       string
}

// ConvState: causal depthwise 1-d convolution over a request's tokens, with a slot state of (Kernel-1)*width floats:
// Out[t][c] = Act(bias[c] + sum_j W[c][j] * x[t-Kernel+1+j][c]). W is [width, Kernel].
type ConvState struct {
	Out, In      BufferID
	Weight, Bias WeightID
	Kernel       int
	State        StateID
	Act          Act
}

// DeltaRule is the gated delta net's recurrence (Qwen3-Next), per value head h of a request, state S [KDim, VDim] in a slot, in token order:
// S = exp(g)*S ; S += k ⊗ (beta*(v - kᵀS)) ; out = qᵀS * Scale. Q, K are [T, KHeads*KDim] (a value head reads key head h*KHeads/VHeads), V is [T, VHeads*VDim],
// G and Beta are [T, VHeads].
type DeltaRule struct {
	Out, Q, K, V, G, Beta BufferID
	KHeads, VHeads        int
	KDim, VDim            int
	Scale                 float32
	State                 StateID
}

// ColumnScale: Out[t][c] = In[t][c]*Scale[c] + Shift[c]; either may be None. Out may be In.
type ColumnScale struct {
	Out, In      BufferID
	Scale, Shift WeightID
}
