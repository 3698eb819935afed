// dot512.h: products of packed blocks and activation panels with VNNI on 512 bits: 2 tiles by up to 6 tokens, 12 integer and 12
// float accumulators. Per block and output: f = d*da*sum + (m*da*sum(a) + f), the same form in every variant, so that a token's
// bits do not depend on its neighbours.
#include "scales.h"

enum { AHEAD = 8192 }; // prefetch distance in bytes

INL __m512i bc4(const uint8_t *p) {
	int x;
	memcpy(&x, p, 4);
	return _mm512_set1_epi32(x);
}
INL float f32_at(const uint8_t *p, int i) { return ((const float *)p)[i]; }

// Vector j (of 8) of a block: unsigned bytes.
INL __m512i quants(const int fmt, const uint8_t *q, const int j) {
	if (fmt == W_Q8_0 || fmt == W_EXP || fmt == W_EXP16) return _mm512_loadu_si512(q + j * 64);
	const __m512i low = _mm512_set1_epi8(15);
	__m512i v = _mm512_loadu_si512(q + j % 4 * 64);
	v = _mm512_and_si512(j < 4 ? v : _mm512_srli_epi16(v, 4), low);
	if (fifth(fmt)) {
		uint64_t m;
		memcpy(&m, q + 256 + j * 8, 8);
		v = _mm512_mask_add_epi8(v, (__mmask64)m, v, _mm512_set1_epi8(16));
	}
	if (fmt == W_Q6_K) {
		__m512i h = _mm512_loadu_si512(q + 256 + j / 4 * 64);
		int s = j % 4 * 2;
		h = s <= 4 ? _mm512_slli_epi16(h, 4 - s) : _mm512_srli_epi16(h, 2);
		v = _mm512_or_si512(v, _mm512_and_si512(h, _mm512_set1_epi8(0x30)));
	}
	return v;
}

typedef struct {
	const float *d, *m;
} Flat; // scales of an expanded tile

#define FINISH(f, s, d, m, DA, DS) f = v_fma(_mm512_cvtepi32_ps(s), v_mul(d, DA), v_fma(m, DS, f))

INL void dot2(const int T, const int fmt, const int nb, const uint8_t *x, const uint8_t *y, Tail lx, Tail ly, Flat fx, Flat fy,
	const uint8_t *a, int t0, row16 *o, row16 *p) {
	const int by16 = fmt == W_Q6_K || fmt == W_EXP16, flat = fmt == W_EXP || fmt == W_EXP16;
	const size_t qb = flat ? 512 : quant_bytes(fmt);
	const uint8_t *c = a + PANEL_D + t0 * 4, *lo16 = a + PANEL_LO + t0 * 2; // scales, sums of halves
	V f[T], g[T];
	UNROLL for (int t = 0; t < T; t++) f[t] = g[t] = v_zero();
	a += t0 * 32;
	for (int b = 0; b < nb; b++, a += PANEL_BYTES, c += PANEL_BYTES, lo16 += PANEL_BYTES, x += qb, y += qb) {
		__m512i s[T], u[T];
		UNROLL for (int t = 0; t < T; t++) s[t] = u[t] = _mm512_setzero_si512();
		if (!flat)
			for (size_t i = 0; i < qb; i += 64) {
				v_prefetch(x + AHEAD + i);
				v_prefetch(y + AHEAD + i);
			}
		UNROLL for (int j = 0; j < 8; j++) {
			__m512i v = quants(fmt, x, j), w = quants(fmt, y, j);
			UNROLL for (int t = 0; t < T; t++) {
				__m512i k = bc4(a + t * 32 + j * 4);
				s[t] = _mm512_dpbusd_epi32(s[t], v, k);
				u[t] = _mm512_dpbusd_epi32(u[t], w, k);
			}
			if (by16 && j == 3) {
				V d = flat ? v_load(fx.d + b * 32) : scale_d6(lx, b, 0), e = flat ? v_load(fy.d + b * 32) : scale_d6(ly, b, 0);
				V m = v_mul(d, v_set(-32)), n = v_mul(e, v_set(-32));
				UNROLL for (int t = 0; t < T; t++) {
					float da = f32_at(c, t), lo = da * (float)((const int16_t *)lo16)[t];
					FINISH(f[t], s[t], d, m, v_set(da), v_set(lo));
					FINISH(g[t], u[t], e, n, v_set(da), v_set(lo));
					s[t] = u[t] = _mm512_setzero_si512();
				}
			}
		}
		V d, e, m, n;
		if (by16) {
			d = flat ? v_load(fx.d + b * 32 + 16) : scale_d6(lx, b, 1);
			e = flat ? v_load(fy.d + b * 32 + 16) : scale_d6(ly, b, 1);
			m = v_mul(d, v_set(-32));
			n = v_mul(e, v_set(-32));
		} else if (flat) {
			d = v_load(fx.d + b * 16);
			e = v_load(fy.d + b * 16);
			m = v_load(fx.m + b * 16);
			n = v_load(fy.m + b * 16);
		} else {
			d = scale_d(fmt, lx, b);
			e = scale_d(fmt, ly, b);
			m = scale_m(fmt, lx, b, d);
			n = scale_m(fmt, ly, b, e);
		}
		UNROLL for (int t = 0; t < T; t++) {
			float da = f32_at(c, t), ds = f32_at(c + PANEL_DS - PANEL_D, t);
			if (by16) ds = ds - da * (float)((const int16_t *)lo16)[t];
			FINISH(f[t], s[t], d, m, v_set(da), v_set(ds));
			FINISH(g[t], u[t], e, n, v_set(da), v_set(ds));
		}
	}
	UNROLL for (int t = 0; t < T; t++) {
		v_store(o[t], f[t]);
		v_store(p[t], g[t]);
	}
}

// Instances: a count of 3 or 5 computes one column more, whose result nobody reads.
#define DOT_CASES(fmt, ...) \
	switch (T) { \
	case 1: dot2(1, fmt, __VA_ARGS__); break; \
	case 2: dot2(2, fmt, __VA_ARGS__); break; \
	case 3: case 4: dot2(4, fmt, __VA_ARGS__); break; \
	default: dot2(6, fmt, __VA_ARGS__); \
	} \
	break
#define DOT_FMT(fmt) \
	case fmt: DOT_CASES(fmt, w->nb, x, y, tail_of(fmt, x, w->nb), tail_of(fmt, y, w->nb), none, none, a, t0, o[0] + t0, o[nt - 1] + t0)

static void dot(const Weight *w, int tile, int nt, const uint8_t *a, int t0, int T, tile_out *o) {
	const uint8_t *x = w->p + (size_t)tile * (size_t)w->stride, *y = x + (nt - 1) * w->stride;
	const Flat none = {0, 0};
	switch (w->fmt) {
		DOT_FMT(W_Q4_0);
		DOT_FMT(W_Q4_1);
		DOT_FMT(W_Q5_0);
		DOT_FMT(W_Q5_1);
		DOT_FMT(W_Q8_0);
		DOT_FMT(W_Q4_K);
		DOT_FMT(W_Q5_K);
		DOT_FMT(W_Q6_K);
	}
}

// A tile as bytes and float scales: [nb][512], d [nb][16] (Q6_K: [nb][32]), m [nb][16].
static void expand(const Weight *w, int tile, uint8_t *to) {
	const uint8_t *q = w->p + (size_t)tile * (size_t)w->stride;
	const int nb = w->nb;
	const size_t qb = quant_bytes(w->fmt);
	float *d = (float *)(to + (size_t)nb * 512), *m = d + (size_t)nb * 16;
#define EXPAND(fmt) \
	case fmt: { \
		Tail l = tail_of(fmt, q, nb); \
		for (int b = 0; b < nb; b++) { \
			UNROLL for (int j = 0; j < 8; j++) _mm512_store_si512(to + b * 512 + j * 64, quants(fmt, q + b * qb, j)); \
			if (fmt == W_Q6_K) { \
				v_store(d + b * 32, scale_d6(l, b, 0)); \
				v_store(d + b * 32 + 16, scale_d6(l, b, 1)); \
			} else { \
				V e = scale_d(fmt, l, b); \
				v_store(d + b * 16, e); \
				v_store(m + b * 16, scale_m(fmt, l, b, e)); \
			} \
		} \
		break; \
	}
	switch (w->fmt) {
		EXPAND(W_Q4_0)
		EXPAND(W_Q4_1)
		EXPAND(W_Q5_0)
		EXPAND(W_Q5_1)
		EXPAND(W_Q8_0)
		EXPAND(W_Q4_K)
		EXPAND(W_Q5_K)
		EXPAND(W_Q6_K)
	}
}

static void dot_expanded(const Weight *w, const uint8_t *x, const uint8_t *y, const uint8_t *a, int t0, int T, tile_out *o) {
	const int nb = w->nb;
	const Tail none = {0, 0};
	const float *dx = (const float *)(x + (size_t)nb * 512), *dy = (const float *)(y + (size_t)nb * 512);
	Flat fx = {dx, dx + (size_t)nb * 16}, fy = {dy, dy + (size_t)nb * 16};
	row16 *p = (x == y ? o[0] : o[1]) + t0;
	switch (w->fmt) {
	case W_Q6_K: DOT_CASES(W_EXP16, nb, x, y, none, none, fx, fy, a, t0, o[0] + t0, p);
	default: DOT_CASES(W_EXP, nb, x, y, none, none, fx, fy, a, t0, o[0] + t0, p);
	}
}
