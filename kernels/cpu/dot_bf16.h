// dot_bf16.h: products of packed blocks and bfloat16 panels with AMX tiles: 16 outputs by up to 16 tokens by 32 k an instruction,
// float accumulators over the whole of k. Weights are expanded to bfloat16 on the way. An output's bits depend on its row and its
// token's column alone, so that one token and 512 see the same sums.
//
// An expanded row of a block is 32 words in the order of word_k. A weight becomes bfloat16 by cutting off the lower half of its
// float; activations are raised by the mean of what is cut, so that sums are right on average.
#include "scales.h"
#include "tiles.h"

// Accumulators in tiles 0 to 3, weights in 4 and 5, activations of `wide` tokens in 6 and 7.
static void tiles_for(int wide) {
	if (tiles_set == wide) return;
	TileConfig c __attribute__((aligned(64)));
	memset(&c, 0, sizeof c);
	c.palette = 1;
	for (int i = 0; i < 8; i++) {
		c.rows[i] = 16;
		c.colsb[i] = (uint16_t)(i == 4 || i == 5 ? 64 : 4 * wide);
	}
	tiles_load(&c, wide);
}

// The mean of what cutting 16 bits takes off, over one binade of evenly distributed logarithms: 2^-8 * (1/2)/ln 2.
#define CUT (1 + 0.72134752f / 256)

static const uint8_t nibble_shift[64] = {
#define P(w) (nib(w) * 4 + 62) % 64, (nib(w) * 4 + 62) % 64
#define nib(w) ((w) / 8 * 4 + (w) % 4)
	P(0), P(1), P(2), P(3), P(4), P(5), P(6), P(7), P(8), P(9), P(10), P(11), P(12), P(13), P(14), P(15), P(16), P(17), P(18), P(19),
	P(20), P(21), P(22), P(23), P(24), P(25), P(26), P(27), P(28), P(29), P(30), P(31)
#undef P
#undef nib
};
static const uint8_t byte_place[64] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7,
	8, 8, 8, 8, 9, 9, 9, 9, 10, 10, 10, 10, 11, 11, 11, 11, 12, 12, 12, 12, 13, 13, 13, 13, 14, 14, 14, 14, 15, 15, 15, 15};

typedef row16 Scales[4]; // of the 16 outputs: d and m of k 0..15, d and m of k 16..31

INL int by_table(int fmt) { return fmt == W_Q4_0 || fmt == W_Q4_1 || fmt == W_Q4_K; }

// Scales of block b; for bytes the minimum also takes off the exponent trick's 2^15.
INL void scales_of(const int fmt, Tail l, int b, float (*s)[16]) {
	if (fmt == W_Q6_K) {
		V d = scale_d6(l, b, 0), e = scale_d6(l, b, 1), z = v_set(zero_point(fmt) - 32768);
		v_store(s[0], d);
		v_store(s[1], v_mul(d, z));
		v_store(s[2], e);
		v_store(s[3], v_mul(e, z));
	} else {
		V d = scale_d(fmt, l, b), m = scale_m(fmt, l, b, d);
		v_store(s[0], d);
		v_store(s[1], by_table(fmt) ? m : v_fma(d, v_set(-32768), m));
	}
	__asm__ volatile("" : : : "memory"); // broadcasts from memory are free, from a register they cost the shuffle port
}

// The 32 stored numbers of output r as bytes.
INL __m256i row_bytes(const int fmt, const uint8_t *q, const int r) {
	if (fmt == W_Q8_0) return _mm256_loadu_si256((const __m256i *)(q + r * 32));
	__m128i n = _mm_loadu_si128((const __m128i *)(q + r * 16));
	__m256i v = _mm256_and_si256(_mm256_inserti128_si256(_mm256_castsi128_si256(n), _mm_srli_epi16(n, 4), 1), _mm256_set1_epi8(15));
	if (fifth(fmt)) {
		uint32_t m;
		memcpy(&m, q + 256 + r * 4, 4);
		v = _mm256_mask_add_epi8(v, (__mmask32)m, v, _mm256_set1_epi8(16));
	}
	if (fmt == W_Q6_K) {
		uint64_t m;
		memcpy(&m, q + 256 + r * 8, 8);
		__m256i t = _mm256_srlv_epi64(_mm256_set1_epi64x((long long)m), _mm256_setr_epi64x(0, 2, 4, 6));
		v = _mm256_or_si256(v, _mm256_slli_epi16(_mm256_and_si256(t, _mm256_set1_epi8(3)), 4));
	}
	return v;
}

// Block b of a tile as 16 rows of 32 bfloat16.
INL void expand_block(const int fmt, const uint8_t *q, Tail l, int b, uint8_t *to) {
	Scales s __attribute__((aligned(64)));
	scales_of(fmt, l, b, s);
	if (by_table(fmt)) { // each row's sixteen values, of which a byte shuffle takes the upper halves
		const __m512i shift = _mm512_load_si512(nibble_shift), low = _mm512_set1_epi8(3), halves = _mm512_set1_epi16(0x0302);
		const V count = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
		UNROLL for (int r = 0; r < 16; r++) {
			V t = v_fma(count, v_set(s[0][r]), v_set(s[1][r]));
			__m512i x = _mm512_broadcast_i64x2(_mm_loadu_si128((const __m128i *)(q + r * 16)));
			x = _mm512_ternarylogic_epi32(_mm512_multishift_epi64_epi8(shift, x), low, halves, 0xba); // (x and not low) or halves
			_mm512_store_si512(to + r * 64, _mm512_permutexvar_epi8(x, _mm512_castps_si512(t)));
		}
		return;
	}
	// A byte at bits 8 to 15 under the exponent of 2^15 is the float 2^15 + byte.
	const __m512i first = _mm512_load_si512(byte_place), second = _mm512_add_epi8(first, _mm512_set1_epi8(16)), base = _mm512_set1_epi32(0x47000000);
	const __mmask64 at = 0x2222222222222222ull;
	const int e = fmt == W_Q6_K ? 2 : 0;
	UNROLL for (int r = 0; r < 16; r++) {
		__m512i v = _mm512_castsi256_si512(row_bytes(fmt, q, r));
		V x = _mm512_castsi512_ps(_mm512_mask_permutexvar_epi8(base, at, first, v));
		V y = _mm512_castsi512_ps(_mm512_mask_permutexvar_epi8(base, at, second, v));
		x = v_fma(x, v_set(s[0][r]), v_set(s[1][r]));
		y = v_fma(y, v_set(s[e][r]), v_set(s[e + 1][r]));
		_mm512_store_si512(to + r * 64, _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(_mm512_castps_si512(x), 16), _mm512_castps_si512(y)));
	}
}

// Tile x as bfloat16 blocks of 1024 bytes.
static void expand(const Weight *w, int tile, uint8_t *to) {
	const uint8_t *q = w->p + (size_t)tile * (size_t)w->stride;
	const int nb = w->nb;
#define EXPAND(fmt) \
	case fmt: { \
		Tail l = tail_of(fmt, q, nb); \
		for (int b = 0; b < nb; b++, q += quant_bytes(fmt)) expand_block(fmt, q, l, b, to + (size_t)b * 1024); \
		break; \
	}
#define FORMATS(X) X(W_Q4_0) X(W_Q4_1) X(W_Q5_0) X(W_Q5_1) X(W_Q8_0) X(W_Q4_K) X(W_Q5_K) X(W_Q6_K)
	switch (w->fmt) { FORMATS(EXPAND) }
}

enum { AHEAD = 6144, RING = 4 }; // prefetch distance in bytes; expanded blocks in flight

// Two tiles, expanded on the way, by one panel.
INL void stream2(const int fmt, const int nb, const uint8_t *x, const uint8_t *y, const uint8_t *a, int wide) {
	uint8_t ring[RING][2][1024] __attribute__((aligned(64)));
	const size_t qb = quant_bytes(fmt), step = (size_t)wide * BF16_BYTES;
	Tail lx = tail_of(fmt, x, nb), ly = tail_of(fmt, y, nb);
	_tile_zero(0);
	_tile_zero(1);
	for (int b = 0; b < nb; b++, x += qb, y += qb, a += step) {
		uint8_t *r = ring[b % RING][0], *s = ring[b % RING][1];
		for (size_t i = 0; i < qb; i += 64) {
			v_prefetch(x + AHEAD + i);
			v_prefetch(y + AHEAD + i);
		}
		expand_block(fmt, x, lx, b, r);
		expand_block(fmt, y, ly, b, s);
		_tile_loadd(6, a, 4 * wide);
		_tile_loadd(4, r, 64);
		_tile_dpbf16ps(0, 4, 6);
		_tile_loadd(5, s, 64);
		_tile_dpbf16ps(1, 5, 6);
	}
}

static void stream(const Weight *w, int tile, int nt, const uint8_t *a, int wide) {
	const uint8_t *x = w->p + (size_t)tile * (size_t)w->stride, *y = x + (nt - 1) * w->stride;
#define STREAM(fmt) \
	case fmt: stream2(fmt, w->nb, x, y, a, wide); break;
	switch (w->fmt) { FORMATS(STREAM) }
}

// Two expanded tiles by two panels of 16 tokens; tiles 0 to 3 are xa, xb, ya, yb.
static void block22(int nb, const uint8_t *x, const uint8_t *y, const uint8_t *a, const uint8_t *b) {
	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(2);
	_tile_zero(3);
	for (int i = 0; i < nb; i++) {
		size_t at = (size_t)i * 1024;
		_tile_loadd(6, a + at, 64);
		_tile_loadd(4, x + at, 64);
		_tile_dpbf16ps(0, 4, 6);
		_tile_loadd(7, b + at, 64);
		_tile_dpbf16ps(1, 4, 7);
		_tile_loadd(5, y + at, 64);
		_tile_dpbf16ps(2, 5, 6);
		_tile_dpbf16ps(3, 5, 7);
	}
}

static void block21(int nb, const uint8_t *x, const uint8_t *y, const uint8_t *a) {
	_tile_zero(0);
	_tile_zero(2);
	for (int i = 0; i < nb; i++) {
		size_t at = (size_t)i * 1024;
		_tile_loadd(6, a + at, 64);
		_tile_loadd(4, x + at, 64);
		_tile_dpbf16ps(0, 4, 6);
		_tile_loadd(5, y + at, 64);
		_tile_dpbf16ps(2, 5, 6);
	}
}

INL __m512i as_int(V v) { return _mm512_castps_si512(v); }
INL V as_float(__m512i v) { return _mm512_castsi512_ps(v); }

// [16 outputs][16 tokens] to [16 tokens][16 outputs].
INL void transpose16(const float *c, row16 *o) {
	V r[16], t[16];
	UNROLL for (int i = 0; i < 16; i++) r[i] = v_load(c + i * 16);
	UNROLL for (int i = 0; i < 16; i += 2) {
		t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
		t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
	}
	UNROLL for (int i = 0; i < 16; i += 4)
		UNROLL for (int k = 0; k < 2; k++) { // columns 4j + 2k and 4j + 2k + 1 of rows i..i+3 in lane j
			r[i + 2 * k] = as_float(_mm512_unpacklo_epi64(as_int(t[i + k]), as_int(t[i + 2 + k])));
			r[i + 2 * k + 1] = as_float(_mm512_unpackhi_epi64(as_int(t[i + k]), as_int(t[i + 2 + k])));
		}
	UNROLL for (int k = 0; k < 4; k++) {
		V a = _mm512_shuffle_f32x4(r[k], r[4 + k], 0x88), b = _mm512_shuffle_f32x4(r[k], r[4 + k], 0xdd);
		V c2 = _mm512_shuffle_f32x4(r[8 + k], r[12 + k], 0x88), d = _mm512_shuffle_f32x4(r[8 + k], r[12 + k], 0xdd);
		v_store(o[k], _mm512_shuffle_f32x4(a, c2, 0x88));
		v_store(o[8 + k], _mm512_shuffle_f32x4(a, c2, 0xdd));
		v_store(o[4 + k], _mm512_shuffle_f32x4(b, d, 0x88));
		v_store(o[12 + k], _mm512_shuffle_f32x4(b, d, 0xdd));
	}
}

// Accumulator n as rows of tokens.
#define TILE_OUT(n, wide, o) \
	{ \
		float c[256] __attribute__((aligned(64))); \
		_tile_stored(n, c, 4 * (wide)); \
		rows_of_tile(c, wide, o); \
	}

static void rows_of_tile(const float *c, int wide, row16 *o) {
	if (wide == 16) {
		transpose16(c, o);
		return;
	}
	const __m512i at = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_epi32(wide));
	for (int t = 0; t < wide; t++) v_store(o[t], wide == 1 ? v_load(c) : _mm512_i32gather_ps(at, c + t, 4));
}
