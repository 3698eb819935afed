// dot256.h: the same products on 256 bits, a half tile (8 outputs) by up to 4 tokens. VNNI256 selects vpdpbusd; without it
// vpmaddubsw, whose 16-bit sums hold two steps of numbers up to 63, and bytes as |w| times the activation with w's sign.
#include "scales.h"

INL __m256i bc4(const uint8_t *p) {
	int x;
	memcpy(&x, p, 4);
	return _mm256_set1_epi32(x);
}
INL float f32_at(const uint8_t *p, int i) { return ((const float *)p)[i]; }

INL __m256i load32(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }

// Half h of vector j of a block: unsigned bytes.
INL __m256i quants(const int fmt, const uint8_t *q, const int j, const int h) {
	if (fmt == W_Q8_0) return load32(q + j * 64 + h * 32);
	const __m256i low = _mm256_set1_epi8(15);
	__m256i v = load32(q + j % 4 * 64 + h * 32);
	v = _mm256_and_si256(j < 4 ? v : _mm256_srli_epi16(v, 4), low);
	if (fifth(fmt)) {
		int m;
		memcpy(&m, q + 256 + j * 8 + h * 4, 4);
		const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
		const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
		__m256i s = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(m), spread), bit);
		v = _mm256_or_si256(v, _mm256_and_si256(_mm256_cmpeq_epi8(s, bit), _mm256_set1_epi8(16)));
	}
	if (fmt == W_Q6_K) {
		__m256i u = load32(q + 256 + j / 4 * 64 + h * 32);
		int s = j % 4 * 2;
		u = s <= 4 ? _mm256_slli_epi16(u, 4 - s) : _mm256_srli_epi16(u, 2);
		v = _mm256_or_si256(v, _mm256_and_si256(u, _mm256_set1_epi8(0x30)));
	}
	return v;
}

#ifdef VNNI256
enum { SIGNED_BYTES = 0 };
INL __m256i mac2(const int fmt, __m256i s, __m256i v, __m256i w, __m256i k, __m256i l) {
	(void)fmt;
	return _mm256_dpbusd_avx_epi32(_mm256_dpbusd_avx_epi32(s, v, k), w, l);
}
#else
enum { SIGNED_BYTES = 1 };
// Two steps: v*k + w*l.
INL __m256i mac2(const int fmt, __m256i s, __m256i v, __m256i w, __m256i k, __m256i l) {
	const __m256i one = _mm256_set1_epi16(1);
	if (fmt == W_Q8_0) {
		const __m256i flip = _mm256_set1_epi8(-128);
		v = _mm256_xor_si256(v, flip);
		w = _mm256_xor_si256(w, flip);
		s = _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(v), _mm256_sign_epi8(k, v)), one));
		return _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(l, w)), one));
	}
	return _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_add_epi16(_mm256_maddubs_epi16(v, k), _mm256_maddubs_epi16(w, l)), one));
}
#endif

INL __m256 half_of(V v, int h) { return h ? v.b : v.a; }

#define FINISH(f, s, d, m, DA, DS) \
	f = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s), _mm256_mul_ps(d, _mm256_set1_ps(DA)), _mm256_fmadd_ps(m, _mm256_set1_ps(DS), f))

INL void dot1(const int T, const int fmt, const int h, const int nb, const uint8_t *x, Tail l, const uint8_t *a, int t0, row16 *o) {
	const size_t qb = quant_bytes(fmt);
	__m256 f[T];
	UNROLL for (int t = 0; t < T; t++) f[t] = _mm256_setzero_ps();
	for (int b = 0; b < nb; b++, a += PANEL_BYTES, x += qb) {
		__m256i s[T];
		const uint8_t *c = a + t0 * 32;
		UNROLL for (int t = 0; t < T; t++) s[t] = _mm256_setzero_si256();
		if (h == 0)
			for (size_t i = 0; i < qb; i += 64) v_prefetch(x + 4096 + i);
		UNROLL for (int j = 0; j < 8; j += 2) {
			__m256i v = quants(fmt, x, j, h), w = quants(fmt, x, j + 1, h);
			UNROLL for (int t = 0; t < T; t++) s[t] = mac2(fmt, s[t], v, w, bc4(c + t * 32 + j * 4), bc4(c + t * 32 + j * 4 + 4));
			if (fmt == W_Q6_K && j == 2) {
				__m256 d = half_of(scale_d6(l, b, 0), h), m = _mm256_mul_ps(d, _mm256_set1_ps(-32));
				UNROLL for (int t = 0; t < T; t++) {
					float da = f32_at(a + PANEL_D, t0 + t), lo = da * (float)((const int16_t *)(a + PANEL_LO))[t0 + t];
					FINISH(f[t], s[t], d, m, da, lo);
					s[t] = _mm256_setzero_si256();
				}
			}
		}
		__m256 d, m;
		if (fmt == W_Q6_K) {
			d = half_of(scale_d6(l, b, 1), h);
			m = _mm256_mul_ps(d, _mm256_set1_ps(-32));
		} else {
			V e = scale_d(fmt, l, b);
			d = half_of(e, h);
			m = half_of(scale_m(fmt, l, b, e), h);
		}
		UNROLL for (int t = 0; t < T; t++) {
			float da = f32_at(a + PANEL_D, t0 + t), ds = f32_at(a + PANEL_DS, t0 + t);
			if (fmt == W_Q6_K) ds = ds - da * (float)((const int16_t *)(a + PANEL_LO))[t0 + t];
			if (SIGNED_BYTES && fmt == W_Q8_0) f[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s[t]), _mm256_mul_ps(d, _mm256_set1_ps(da)), f[t]);
			else FINISH(f[t], s[t], d, m, da, ds);
		}
	}
	UNROLL for (int t = 0; t < T; t++) _mm256_storeu_ps(o[t0 + t] + h * 8, f[t]);
}

#define DOT_FMT(fmt) \
	case fmt: \
		for (int h = 0; h < 2; h++) { \
			int t = 0; \
			Tail l = tail_of(fmt, x, w->nb); \
			for (; t + 4 <= T; t += 4) dot1(4, fmt, h, w->nb, x, l, a, t, o[i]); \
			for (; t + 2 <= T; t += 2) dot1(2, fmt, h, w->nb, x, l, a, t, o[i]); \
			if (t < T) dot1(1, fmt, h, w->nb, x, l, a, t, o[i]); \
		} \
		break

static void dot(const Weight *w, int tile, int nt, const uint8_t *a, int t0, int T, tile_out *o) {
	(void)t0; // a panel is DOT_ROWS tokens
	for (int i = 0; i < nt; i++) {
		const uint8_t *x = w->p + (size_t)(tile + i) * (size_t)w->stride;
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
}
