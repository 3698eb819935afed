// abi.h: the parameters of every kernel. A kernel takes exactly one parameter, its structure by value. ../abi.go mirrors these
// structures and a test compares sizes and offsets. ABI.md says what the fields mean and how to launch.
#pragma once
#include <stdint.h>

// What a product writes.
enum OutKind { OUT_F32 = 0, OUT_BF16 = 1, OUT_F16 = 2, OUT_ADD_F32 = 3 };

// Activations, numbered as kernels.Act.
enum Act { ACT_IDENTITY, ACT_SILU, ACT_GELU, ACT_GELU_TANH, ACT_RELU, ACT_RELU2, ACT_SIGMOID, ACT_TANH, ACT_EXP, ACT_SOFTPLUS, ACT_QUICK };

enum { RECENT = 8 };           // samples that a slot remembers, newest first
enum { CHUNK = 4096 };         // logits of a row that one block of logits_process takes
enum { MAX_LOGPROBS = 1024 };  // most best tokens that logprobs reports

struct EmbedParams {
	float* out;             // [rows, width]
	const void* table;      // [vocab, width] in the kernel's type
	const int32_t* tokens;  // [rows]; -1-k: recent[slots[t]][k]
	const int32_t* slots;   // [rows] slot of each token's request
	const int32_t* recent;  // [slots, RECENT]
	int32_t rows, width, vocab;
	float scale;
};

struct NormParams {
	void* out;               // T [rows, width]; null: none
	const void* in;          // T [rows, width], or float with in_f32
	float* residual;         // [rows, width]; null: none
	const float* weight;     // [width]; group_norm: [group]
	const float* in_weight;  // [width]; null: in is added as it is, else rms(in)*in_weight is
	const int32_t* index;    // [rows] rows of in (only without residual); null: row i
	int32_t rows, width, group, in_f32;
	float eps, alpha;
};

struct GemmParams {
	void* out;          // [m, n] of kind, rows ldc apart
	const void* a;      // [m, k], rows lda apart
	const void* b;      // [n, k] in the kernel's weight type, rows without gaps
	const float* bias;  // [n]; null: none
	int32_t m, n, k, lda, ldc, kind;
};

struct GemvQParams {
	void* out;          // [m, n] of kind, rows ldc apart
	const int8_t* q;    // [m, k] activations as int8
	const float* ds;    // [m, k/32, 2] scale of 32 activations, and scale times their sum
	const void* b;      // [n, k] blocks
	const float* bias;  // [n]; null: none
	int32_t m, n, k, ldc, kind;
};

struct QuantizeParams {
	int8_t* q;      // [m, k]
	float* ds;      // [m, k/32, 2]
	const void* x;  // T [m, k], rows ldx apart
	int32_t m, k, ldx;
};

struct HeadsParams {
	void* q;                   // T [rows, heads*dim]
	const void* qkv;           // T [rows, (heads+2*kv_heads)*dim], rows ldqkv apart
	void *k, *v;               // T, of block 0: [block_size, kv_heads, dim]
	const float *q_norm, *k_norm;  // [dim]; null: none
	const double* turns;       // [rot_dim/2] frequencies / 2 pi; null: no rotation
	const int32_t* positions;  // [rows]
	const int32_t* slot_map;   // [rows] block*block_size + offset; negative: not stored
	int64_t block_stride;      // bytes from one block to the next
	int32_t rows, heads, kv_heads, dim, ldqkv, block_size;
	int32_t rot_from, rot_dim, rot_pair;  // rot_pair: 2i with 2i+1, else i with i+rot_dim/2
	float eps, factor;
};

struct AttnParams {
	void* out;                   // T [tokens, heads*dim], rows ldo apart
	const void* q;               // T [tokens, heads*dim], rows ldq apart
	const void *k, *v;           // T, of block 0: [block_size, kv_heads, dim]
	const int32_t* table_start;  // [R+1] into blocks
	const int32_t* blocks;
	const int32_t* query_start;  // [R+1]
	const int32_t* seq_lens;     // [R]
	const int32_t* work;         // decode: row of each y, null: y; prefill, any: pairs (row, first query of the tile)
	float* part;                 // decode with splits > 1: [n, heads, splits, dim+2]
	int64_t block_stride;        // bytes
	int32_t n;                   // decode: rows; prefill, any: tiles
	int32_t heads, kv_heads, dim, block_size, ldq, ldo, window, splits;
	float scale, softcap;        // softcap 0: none
};

struct GatedParams {
	void* out;              // T [rows, width], rows ldo apart
	const void *gate, *up;  // T [rows, width], rows ld apart
	int32_t rows, width, ld, ldo, act;
};

struct UnaryParams {
	void* out;       // T [n], may be in
	const void* in;  // T [n]
	int64_t n;
	float scale, post_scale, offset, clamp;
	int32_t act;
};

struct GatherParams {
	void* out;             // [rows] of bytes
	const void* in;
	const int32_t* index;  // [rows]
	int64_t bytes;         // of a row, a multiple of 4
	int32_t rows;
};

struct CopyBlocksParams {
	void* base;            // block 0
	const int32_t* pairs;  // [n, 2] from, to
	int64_t block_stride;  // bytes, a multiple of 16
	int32_t n;
};

// Flags of a SampleRow.
enum {
	ROW_SKIP = 1,       // sample nothing
	ROW_PROCESS = 2,    // something changes the logits before temperature: mask, allowed, banned, bias or a penalty
	ROW_ALLOWED = 4,    // the allowed list counts, even if it is empty
	ROW_MASK = 8,       // masks has a row for it
	ROW_LOGPROBS = 16,  // logprobs are wanted
};

struct SampleRow {
	uint64_t seed, position;
	float temperature, top_p, min_p;  // temperature below 1e-5: greedy; top_p 0 or 1, min_p 0: off
	float presence, frequency, repetition;  // repetition 0 or 1: off
	int32_t top_k;  // 0: off
	int32_t flags;
	int32_t slot;      // whose recent samples the token joins; negative: none
	int32_t logprobs;  // best tokens wanted, at most MAX_LOGPROBS
	int32_t target;    // token whose logprob is wanted with ROW_SKIP
	// Ranges [from, to) of ids: the request's prompt and output, allowed and banned tokens, biased tokens (their bias at the same index).
	int32_t prompt[2], output[2], allowed[2], banned[2], biased[2];
	int32_t reserved;
};

// One chunk of a row of logits.
struct ChunkStat {
	float raw_max;    // of the raw logits; NaN when any is
	float raw_sum;    // sum of exp(raw - raw_max)
	float max;        // of the processed logits
	int32_t argmax;   // lowest id that has it, -1: all are -inf
};

struct SampleParams {
	const float* logits;    // [rows, vocab] raw
	float* work;            // [rows, vocab] processed, for rows with ROW_PROCESS
	struct ChunkStat* stats;  // [rows, chunks]
	const struct SampleRow* row;  // [rows]
	const int32_t* ids;
	const float* bias;
	const uint32_t* masks;  // [rows, (vocab+31)/32]; null without ROW_MASK
	int32_t* recent;        // [slots, RECENT]
	int32_t* tokens;        // [rows] out; -1: none
	int32_t* faults;        // [rows] out: FAULT_*
	int32_t* top_ids;       // [rows, top_stride] out: chosen (or target), then the best
	float* top_values;      // [rows, top_stride] out: their logprobs
	int32_t* ranks;         // [rows] out: of the chosen, from 1
	int32_t rows, vocab, chunks, top_stride;
};

enum { FAULT_NONE = 0, FAULT_NAN = 1, FAULT_NO_TOKEN = 2, FAULT_INFINITE = 3 };
