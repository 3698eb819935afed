package gpu

import "omni-engine/cuda"

// The kernels' parameters, as in src/abi.h: field by field, which a test compares. ABI.md says what they mean.

// What a product writes.
const (
	outF32    = 0
	outBF16   = 1
	outF16    = 2
	outAddF32 = 3
)

// Limits of the kernels.
const (
	logitChunk  = 4096 // logits of a row that one block processes
	maxLogprobs = 1024
)

// Faults of a sampled row.
const (
	faultNone     = 0
	faultNaN      = 1
	faultNoToken  = 2
	faultInfinite = 3
)

type embedParams struct {
	Out, Table, Tokens, Slots, Recent cuda.DevicePtr
	Rows, Width, Vocab                int32
	Scale                             float32
}

type normParams struct {
	Out, In, Residual, Weight, InWeight, Index cuda.DevicePtr
	Rows, Width, Group, InF32                  int32
	Eps, Alpha                                 float32
}

type gemmParams struct {
	Out, A, B, Bias            cuda.DevicePtr
	M, N, K, LDA, LDC, OutKind int32
}

type gemvQParams struct {
	Out, Q, DS, B, Bias   cuda.DevicePtr
	M, N, K, LDC, OutKind int32
	_                     int32
}

type quantizeParams struct {
	Q, DS, X  cuda.DevicePtr
	M, K, LDX int32
	_         int32
}

type headsParams struct {
	Q, QKV, K, V, QNorm, KNorm, Turns, Positions, SlotMap cuda.DevicePtr
	BlockStride                                           int64
	Rows, Heads, KVHeads, Dim, LDQKV, BlockSize           int32
	RotFrom, RotDim, RotPair                              int32
	Eps, Factor                                           float32
	_                                                     int32
}

type attnParams struct {
	Out, Q, K, V, TableStart, Blocks, QueryStart, SeqLens, Work, Part cuda.DevicePtr
	BlockStride                                                       int64
	N, Heads, KVHeads, Dim, BlockSize, LDQ, LDO, Window, Splits       int32
	Scale, Softcap                                                    float32
	_                                                                 int32
}

type gatedParams struct {
	Out, Gate, Up             cuda.DevicePtr
	Rows, Width, LD, LDO, Act int32
	_                         int32
}

type unaryParams struct {
	Out, In                         cuda.DevicePtr
	N                               int64
	Scale, PostScale, Offset, Clamp float32
	Act                             int32
	_                               int32
}

type gatherParams struct {
	Out, In, Index cuda.DevicePtr
	Bytes          int64
	Rows           int32
	_              int32
}

type copyBlocksParams struct {
	Base, Pairs cuda.DevicePtr
	BlockStride int64
	N           int32
	_           int32
}

// Flags of a sampleRow.
const (
	rowSkip     = 1
	rowProcess  = 2
	rowAllowed  = 4
	rowMask     = 8
	rowLogprobs = 16
)

type sampleRow struct {
	Seed, Position                          uint64
	Temperature, TopP, MinP                 float32
	Presence, Frequency, Repetition         float32
	TopK, Flags, Slot, Logprobs, Target     int32
	Prompt, Output, Allowed, Banned, Biased [2]int32
	_                                       int32
}

// chunkStatBytes is the size of one chunk's statistics, SampleParams.stats.
const chunkStatBytes = 16

type sampleParams struct {
	Logits, Work, Stats, Row, IDs, Bias, Masks, Recent, Tokens, Faults, TopIDs, TopValues, Ranks cuda.DevicePtr
	Rows, Vocab, Chunks, TopStride                                                               int32
}

// launch is what a kernel's launches have in common.
type launch struct {
	threads int
	shared  int // bytes of dynamic shared memory
}

// tileQueries is how many query tokens one tile of attn_prefill holds, for groups of g query heads a KV head; g is at most 64.
func tileQueries(g int) int { return max(1, prefillRows/g) }

// prefillRows is the rows (queries times heads of a group) of a tile of attn_prefill.
const prefillRows = 64

// launches gives every kernel by name.
func launches() map[string]launch {
	l := map[string]launch{
		"gemm_f32": {threads: 256}, "gather_rows": {threads: 128}, "copy_blocks": {threads: 128},
		"logits_process": {threads: 256}, "sample": {threads: 512}, "logprobs": {threads: 512},
	}
	for _, c := range []string{"mma_bf16", "mma_f16", "matrix", "copy", "word", "lane", "function"} {
		l["conform_"+c] = launch{threads: 32}
	}
	ms := []string{"1", "2", "4", "8"}
	for _, t := range []string{"f32", "bf16", "f16"} {
		l["embed_"+t], l["norm_"+t], l["group_norm_"+t] = launch{threads: 128}, launch{threads: 256}, launch{threads: 128}
		l["heads_"+t], l["attn_any_"+t], l["gated_"+t], l["unary_"+t] = launch{threads: 128}, launch{threads: 128}, launch{threads: 128}, launch{threads: 128}
		for _, m := range ms {
			l["gemv_"+t+"_"+m] = launch{threads: 256}
		}
	}
	quants := []string{"q4_0", "q4_1", "q5_0", "q8_0", "q4_k", "q5_k", "q6_k"}
	for _, q := range quants {
		l["embed_"+q] = launch{threads: 128}
		for _, m := range ms {
			l["gemv_"+q+"_"+m] = launch{threads: 128}
		}
	}
	for _, t := range []string{"bf16", "f16"} {
		l["quantize_"+t] = launch{threads: 256}
		l["gemm_"+t+"_16"] = launch{threads: 64, shared: 8 * (16 + 32) * 128}
		l["gemm_"+t+"_64"] = launch{threads: 128, shared: 4 * (64 + 64) * 128}
		l["gemm_"+t+"_128"] = launch{threads: 256, shared: 3 * (128 + 128) * 128}
		l["attn_merge_"+t] = launch{threads: 64}
		for _, q := range quants {
			l["mmq_"+q+"_"+t] = launch{threads: 128, shared: mmqShared}
		}
		for d, name := range map[int]string{64: "64", 128: "128", 256: "256"} {
			l["attn_decode_"+t+"_"+name] = decodeLaunch(d)
			l["attn_prefill_"+t+"_"+name] = launch{threads: 128, shared: prefillShared(d)}
		}
	}
	return l
}

const mmqShared = 3*64*128 + 2*64*128 // activations in three stages, weights in two

// decodeLaunch: a warp holds two stages of 16 keys and values, and the queries are shared.
func decodeLaunch(dim int) launch {
	warps := 4
	if dim == 256 {
		warps = 2
	}
	return launch{threads: 32 * warps, shared: 16*dim*2 + warps*2*2*16*dim*2}
}

// prefillShared: the queries, and two stages of 64 keys and values (32 where dim is 256).
func prefillShared(dim int) int {
	keys := 64
	if dim == 256 {
		keys = 32
	}
	return prefillRows*dim*2 + 2*2*keys*dim*2
}
