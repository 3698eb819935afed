// vec512.h: sixteen floats in one AVX-512 register.
#include <immintrin.h>
#define INL static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")
typedef __m512 V;
INL V v_set(float x) { return _mm512_set1_ps(x); }
INL V v_zero(void) { return _mm512_setzero_ps(); }
INL V v_load(const float *p) { return _mm512_loadu_ps(p); }
INL void v_store(float *p, V a) { _mm512_storeu_ps(p, a); }
INL V v_add(V a, V b) { return _mm512_add_ps(a, b); }
INL V v_sub(V a, V b) { return _mm512_sub_ps(a, b); }
INL V v_mul(V a, V b) { return _mm512_mul_ps(a, b); }
INL V v_div(V a, V b) { return _mm512_div_ps(a, b); }
INL V v_fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
INL V v_max(V a, V b) { return _mm512_max_ps(a, b); }
INL V v_min(V a, V b) { return _mm512_min_ps(a, b); }
INL V v_abs(V a) { return _mm512_abs_ps(a); }
INL V v_round(V a) { return _mm512_roundscale_ps(a, 8); }
INL V v_scale2(V a, V n) { return _mm512_scalef_ps(a, n); }
INL float v_sum(V a) { return _mm512_reduce_add_ps(a); }
INL float v_top(V a) { return _mm512_reduce_max_ps(a); }
INL V v_half(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INL V v_bhalf(const uint16_t *p) {
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
INL void v_store_half(uint16_t *p, V a) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, 0)); }
INL V v_bytes(const uint8_t *p) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p))); }
INL V v_sbytes(const uint8_t *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p))); }
// The lanes from a to b-1 of x, the others of y.
INL V v_between(int a, int b, V x, V y) {
	a = a < 0 ? 0 : a > 16 ? 16 : a;
	b = b < 0 ? 0 : b > 16 ? 16 : b;
	return _mm512_mask_mov_ps(y, (__mmask16)(((1u << b) - 1) & ~((1u << a) - 1)), x);
}
// Sixteen floats to int8, times s; returns their sum.
INL int v_quantise(V a, V s, int8_t *to) {
	__m512i i = _mm512_cvtps_epi32(_mm512_mul_ps(a, s));
	_mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8(i));
	return _mm512_reduce_add_epi32(i);
}
INL int v_any_nan(V a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0; }
INL int v_any_greater(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0; }
INL int v_count_greater(V a, V b) { return __builtin_popcount(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ)); }
INL void v_prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }
// Pairs of lanes: their halves exchanged; and eight floats, each twice.
INL V v_swap_pairs(V a) { return _mm512_permute_ps(a, 0xb1); }
INL V v_twice(const float *p) {
	const __m512i i = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
	return _mm512_permutexvar_ps(i, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}
