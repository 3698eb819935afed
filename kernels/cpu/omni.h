// omni.h: what the C side of the CPU backend shares: packed weights, activation panels, phases, and the table of one
// dispatch level.
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Element formats of packed weights. The block formats hold ggml's blocks bit for bit, regrouped.
enum { W_F32, W_F16, W_BF16, W_Q4_0, W_Q4_1, W_Q5_0, W_Q5_1, W_Q8_0, W_Q4_K, W_Q5_K, W_Q6_K, W_EXP, W_EXP16 };

// A packed matrix of n outputs by k inputs: tiles of 16 outputs, an even number of them, the missing outputs zero.
// Floats: [k][16]. Blocks of 32 k: first all quants [k/32][quant_bytes], then the scales (see scale_bytes):
//   nibbles   four vectors of 64 bytes; vector j holds for output r at bytes 4r..4r+3 the k 4j..4j+3 (low) and 16+4j.. (high)
//   fifth bit eight 64-bit masks; mask j has bit 4r+i for output r and k 4j+i
//   two bits  (Q6_K) two vectors; in byte 4r+i of vector p, bits 2s..2s+1 belong to k 4(4p+s)+i
//   bytes     (Q8_0) eight vectors in the order of k, xor 0x80
// Levels whose products read weights row by row (Level.by_rows) keep each output's share of a block together instead:
//   nibbles   [16][16 bytes]; Q4_0, Q4_1, Q4_K in the order of nibble_place, the others k (low) and 16+k (high) in byte k
//   fifth bit [16][4 bytes]; bit k
//   two bits  [16][8 bytes]; k 8i+j at bits 2i of byte j
//   bytes     [16][32 bytes], xor 0x80
typedef struct {
	uint8_t *p;
	int64_t stride; // bytes a tile
	int32_t n, k, nb, fmt, by_rows;
} Weight;

// Where word w (of 32) of an expanded row finds its nibble among the row's 16 bytes: one 64-bit half feeds every second quadword.
// Word w belongs to k word_k(w): a pair of words is k j and 16+j.
static inline int nibble_place(int w) { return w / 4 % 2 * 16 + w / 8 * 4 + w % 4; }
static inline int word_k(int w) { return w / 2 + w % 2 * 16; }

static inline int is_float(int fmt) { return fmt <= W_BF16; }

static inline size_t quant_bytes(int fmt) {
	switch (fmt) {
	case W_Q4_0: case W_Q4_1: case W_Q4_K: return 256;
	case W_Q5_0: case W_Q5_1: case W_Q5_K: return 320;
	case W_Q6_K: return 384;
	}
	return 512;
}

// Scales of a tile: f16 d[nb][16], then f16 m[nb][16] (Q4_1, Q5_1); K-quants: u8 [nb][scale 16, min 16], then
// f16 [nb/8][d 16, dmin 16]; Q6_K: i8 [nb][16 of the first half, 16 of the second], then f16 d[nb/8][16].
static inline size_t scale_bytes(int fmt, int nb) {
	switch (fmt) {
	case W_Q4_1: case W_Q5_1: return (size_t)nb * 64;
	case W_Q4_K: case W_Q5_K: return (size_t)nb * 32 + (size_t)nb / 8 * 64;
	case W_Q6_K: return (size_t)nb * 32 + (size_t)nb / 8 * 32;
	}
	return (size_t)nb * 32;
}

static inline size_t tile_bytes(int fmt, int k) {
	if (is_float(fmt)) return (size_t)k * 16 * (fmt == W_F32 ? 4 : 2);
	size_t s = (size_t)(k / 32) * quant_bytes(fmt) + scale_bytes(fmt, k / 32);
	return (s + 63) & ~(size_t)63;
}

// Activations for block formats lie in panels of P tokens, 6 or on the AMX level 16. Per panel and 32-k block, in whole cache lines
// that one producer writes: int8 q[P][32], f32 d[P], f32 d*sum(q)[P], i16 sum(q[0..15])[P].
enum { DOT_ROWS = 6 }; // tokens of one vector product
#ifdef TILES
enum { PANEL = 16, PANEL_BYTES = 704, PANEL_D = 512, PANEL_DS = 576, PANEL_LO = 640 };
#else
enum { PANEL = 6, PANEL_BYTES = 256, PANEL_D = 192, PANEL_DS = 216, PANEL_LO = 240 };
#endif

// Panels of the amx-bf16 level hold bfloat16, `wide` tokens (1, 2, 4, 8 or 16, by the rows of the step): per panel and 32-k block 16 rows of one pair
// (k j, k 16+j) a token.
enum { BF16_WIDE = 16, BF16_BYTES = 64 }; // bytes a token and block

// A buffer of a step: float rows (ld floats apart, a multiple of 32) and its panels; either may be absent.
typedef struct {
	float *f;
	uint8_t *q;
	int32_t ld, nb, width, rows_kind;
	int32_t wide; // set by each step
} Buf;

static inline int wide_for(int rows) { return rows <= 1 ? 1 : rows <= 2 ? 2 : rows <= 4 ? 4 : rows <= 8 ? 8 : BF16_WIDE; }

static inline uint8_t *panel(const Buf *b, int t, int block) {
#ifdef BF16_PANELS
	return b->q + ((size_t)(t / b->wide) * (size_t)b->nb + (size_t)block) * (size_t)(b->wide * BF16_BYTES) + (size_t)(t % b->wide) * 4;
#else
	return b->q + ((size_t)(t / PANEL) * b->nb + block) * PANEL_BYTES;
#endif
}

enum { ROWS_TOKENS, ROWS_LOGITS, ROWS_REQUESTS };

// A paged cache of one layer. Block b of the group lies at base + b*block_stride; its pages of 16 tokens follow each other, a
// page holds per head K [kdim][16] and V [16][vdim]; with pairs, bfloat16 K [kdim/2][16][2] and V [8][vdim][2].
enum { KV_F32, KV_F16, KV_PAIRS };
typedef struct {
	uint8_t *base;
	int64_t block_stride;
	int32_t block_size, heads, kdim, vdim, group, kind;
} Cache;

static inline size_t kv_bytes(int kind) { return kind == KV_F32 ? 4 : 2; }

typedef struct {
	int32_t *start, *blocks;
} Table;

// One step's batch. The first part is filled by Go, the rest by batch_prepare.
typedef struct {
	int32_t T, R, L, groups;
	int32_t *tokens, *pos[3], *qstart, *seqlens, *logit_rows;
	Table tables[16];
	int32_t *row;   // [T] request of each token
	int32_t *kvpos; // [T] position in the cache
	struct RowTile *tiles;
	int32_t ntiles[2]; // of the two GQA ratios in use
	// Few tiles with long contexts are cut into parts, one a chunk of the context.
	struct Part *parts;
	int32_t nparts[2], most_kv; // most_kv: KV heads of an attention, at most
	int32_t few, most_parts;    // cut where there are fewer tiles than few and room for the parts
	int64_t partial_rows;       // room in partial
	float *partial;             // [part, KV head, row][vdim + 16]
	int32_t *left;              // [2 * few, most_kv] parts of a tile that are not finished
} Batch;

// Query rows of one request and KV head that one attention unit serves: pairs (token, head of the group) [p0, p0+n) in token order.
typedef struct RowTile {
	int32_t row, p0, n;
	int32_t parts, rows; // how many parts; rows of partial results before the first
} RowTile;

typedef struct Part {
	int32_t tile, chunk, rows, left; // left: of KV head 0 in the batch's list
} Part;

enum { CHUNK = 256, CHUNK_BLOCKS = CHUNK / 16 }; // positions of a chunk, pages

typedef struct {
	double *freq, *long_freq; // [n]
	uint8_t *axis;            // [n] or null
	int32_t n, long_from;
	float factor, long_factor;
	float *cos, *sin; // [tokens][n16]
	int32_t n16;      // n rounded up to 16
} RopeTable;

enum { ACT_IDENTITY, ACT_SILU, ACT_GELU, ACT_GELU_TANH, ACT_RELU, ACT_RELU2, ACT_SIGMOID, ACT_TANH, ACT_EXP, ACT_SOFTPLUS, ACT_QUICK };

enum { P_ROPE_TABLE, P_EMBED, P_NORM, P_LINEAR, P_ATTENTION, P_QUANTISE, P_ROPE, P_KV_WRITE, P_BINARY, P_UNARY, P_GATED,
	P_COPY, P_GATHER, P_LOGITS, P_KINDS };

// What a linear does with its outputs.
enum { E_STORE, E_ADD, E_HEAD_Q, E_HEAD_K, E_HEAD_V, E_GATED };

// A run of a linear's units: unit u of the run computes tiles [u*tiles, (u+1)*tiles) of w (and of w2 for gated outputs).
typedef struct {
	Weight w, w2;
	const float *bias, *bias2; // padded to whole tiles, or null
	int32_t units, tiles, epilogue;
	Buf *out;
	int32_t column; // of the first output in out
	// E_STORE: f = act(y*scale)*post + offset, clamped; E_ADD: out += alpha*y
	int32_t act;
	float scale, post, offset, clamp, alpha;
	// heads: optional norm over the head, then rope
	const float *norm;
	float eps;
	int32_t norm_on, head_dim, rot_from, rot_dim, rot_pair;
	RopeTable *rope;
	Cache *cache;
} Segment;

typedef struct Phase {
	int32_t kind, rows; // rows: ROWS_*
	Buf *in, *in2, *out;
	// linear
	Segment *seg;
	int32_t nseg, units;
	// norm: residual (out2 += alpha*norm(in)) before, gather through the logit rows
	const float *weight, *bias, *weight2, *bias2;
	float eps, eps2, alpha;
	int32_t norm_kind, group_size, norm_kind2, gather, add_first, weight_whole;
	Buf *res;
	// attention
	Cache *cache;
	int32_t heads, kv_heads, window, chunk, tile_list;
	float scale, softcap, post, offset, clamp;
	const float *sinks;
	// rope, copy, element-wise
	RopeTable *rope;
	int32_t head_dim, rot_from, rot_dim, rot_pair, act, op;
	int32_t groups, width, in_stride, in_from, out_stride, out_from;
	Weight table;
	struct LogitWork *logits;
} Phase;

// One row's question to the logits, and the answer.
typedef struct {
	int32_t want;  // 0: argmax only, 1: also the log-sum-exp and the rank of target, and the best
	int32_t target; // -1: the argmax
	int32_t nbest;
	int32_t argmax, nan, rank;
	float max, target_value;
	double lse;
	int32_t *best_ids;
	float *best_values;
} LogitRow;

// How to sample a row; lists may be null.
typedef struct {
	int32_t skip, edits, top_k, has_allowed; // edits: the logits change before the choice
	float temperature, top_p, min_p, presence, frequency, repetition;
	double u; // uniform in [0, 1)
	const uint32_t *mask;
	const int32_t *prompt, *output, *banned, *allowed, *bias_ids;
	const float *bias;
	int32_t nprompt, noutput, nbanned, nallowed, nbias;
	int32_t token, status;
} SampleRow;

typedef struct LogitWork {
	LogitRow *rows;
	SampleRow *samples;
	int32_t vocab;
} LogitWork;

typedef float row16[16];
enum { OUT_ROWS = 16 }; // tokens of an epilogue
typedef row16 tile_out[OUT_ROWS];

// Scratch of one thread.
enum { MAX_UNIT_TILES = 32 };
typedef struct {
	uint8_t *expand;      // bytes and scales of a unit's tiles
	float *scores;        // attention
	float *logits;        // [vocab], then counts [vocab] of zeros, then candidates [vocab]
	tile_out *out;        // [2*MAX_UNIT_TILES]
} Scratch;

typedef struct Exec {
	const struct Level *lv;
	Batch *b;
	Scratch *scratch; // [threads]
	int32_t threads;
	int32_t rope_tables;
} Exec;

typedef void (*PhaseFn)(const Exec *, const Phase *, int unit, int thread);

typedef struct Level {
	const char *name;
	int32_t att_rows, expand_from; // query rows of an attention unit; tokens from which tiles are expanded
	int32_t panel, panel_bytes;    // tokens of a panel at most, and its bytes a block
	int32_t kv;                    // cache elements where the user chose none
	int32_t by_rows, expand_bytes; // order of packed blocks; scratch of an expanded block
	void (*enter)(void), (*leave)(void); // or null: a thread's state around pieces of work (AMX tiles)
	PhaseFn run[P_KINDS];
	// for tests and benchmarks: nt (1 or 2) tiles by tokens [t0, t0+T) of one panel (T at most DOT_ROWS) / of float rows; null on the
	// amx-bf16 level
	void (*dot)(const Weight *, int tile, int nt, const uint8_t *a, int t0, int T, tile_out *o);
	void (*fdot)(const Weight *, int tile, int nt, const float *x, int ld, int T, tile_out *o);
	void (*expand)(const Weight *, int tile, uint8_t *to);
	void (*dot_expanded)(const Weight *, const uint8_t *x, const uint8_t *y, const uint8_t *a, int t0, int T, tile_out *o);
	void (*quantise)(const float *x, Buf *to, int t);
	void (*row)(const Weight *, int row, float *to);
} Level;

extern const Level level_amx, level_amxbf16, level_avx512, level_avxvnni, level_avx2, level_scalar;
const Level *level_find(const char *name); // null when this machine lacks it; "" the best

// phases.c
int phase_units(const Exec *, const Phase *, int *chunk);
static inline int attention_parts(const Batch *b, const Phase *p) { return p->window || p->chunk ? 0 : b->nparts[p->tile_list]; }
int linear_splits(const Phase *, int rows, int threads);
void batch_prepare(Batch *, int tile_rows, int ratio0, int ratio1);

// pack.c
void pack_rows(Weight *w, int dtype, const uint8_t *raw, int from, int to);
void *arena_alloc(size_t bytes);
void arena_string_free(char *);
void arena_free(void *p, size_t bytes);

// pool.c
typedef struct Pool Pool;
typedef struct {
	const Phase *phases;
	int32_t n;
} Span;
Pool *pool_new(int threads, int spin);
void pool_free(Pool *);
// Runs the spans' phases one after the other. Higher priorities first; the caller's memory is nobody's when it returns.
void pool_run(Pool *, Exec *, const Span *, int spans, int priority);
long pool_overtakes(Pool *); // pieces of work begun while a better run was open
