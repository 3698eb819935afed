// vec256.h: sixteen floats in two AVX registers.
#include <immintrin.h>
#define INL static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")
typedef struct {
	__m256 a, b;
} V;
#define V2(x, y) ((V){(x), (y)})
INL V v_set(float x) { return V2(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
INL V v_zero(void) { return V2(_mm256_setzero_ps(), _mm256_setzero_ps()); }
INL V v_load(const float *p) { return V2(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
INL void v_store(float *p, V x) {
	_mm256_storeu_ps(p, x.a);
	_mm256_storeu_ps(p + 8, x.b);
}
INL V v_add(V x, V y) { return V2(_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)); }
INL V v_sub(V x, V y) { return V2(_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)); }
INL V v_mul(V x, V y) { return V2(_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)); }
INL V v_div(V x, V y) { return V2(_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)); }
INL V v_fma(V x, V y, V z) { return V2(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)); }
INL V v_max(V x, V y) { return V2(_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)); }
INL V v_min(V x, V y) { return V2(_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)); }
INL V v_abs(V x) {
	__m256 m = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
	return V2(_mm256_and_ps(x.a, m), _mm256_and_ps(x.b, m));
}
INL V v_round(V x) { return V2(_mm256_round_ps(x.a, 8), _mm256_round_ps(x.b, 8)); }
INL __m256 pow2(__m256 n) { // n whole, -126..127
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
INL V v_scale2(V x, V n) { return V2(_mm256_mul_ps(x.a, pow2(n.a)), _mm256_mul_ps(x.b, pow2(n.b))); }
INL float v_sum(V x) {
	__m256 s = _mm256_add_ps(x.a, x.b);
	__m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
	t = _mm_add_ps(t, _mm_movehl_ps(t, t));
	return _mm_cvtss_f32(_mm_add_ss(t, _mm_shuffle_ps(t, t, 1)));
}
INL float v_top(V x) {
	__m256 s = _mm256_max_ps(x.a, x.b);
	__m128 t = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
	t = _mm_max_ps(t, _mm_movehl_ps(t, t));
	return _mm_cvtss_f32(_mm_max_ss(t, _mm_shuffle_ps(t, t, 1)));
}
INL __m128i load16(const void *p) { return _mm_loadu_si128((const __m128i *)p); }
INL V v_half(const uint16_t *p) { return V2(_mm256_cvtph_ps(load16(p)), _mm256_cvtph_ps(load16(p + 8))); }
INL __m256 widen_bhalf(__m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }
INL V v_bhalf(const uint16_t *p) { return V2(widen_bhalf(load16(p)), widen_bhalf(load16(p + 8))); }
INL void v_store_half(uint16_t *p, V x) {
	_mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, 0));
	_mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(x.b, 0));
}
INL V v_bytes(const uint8_t *p) {
	return V2(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p))),
		_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))));
}
INL V v_sbytes(const uint8_t *p) {
	return V2(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p))),
		_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))));
}
// The lanes from a to b-1 of x, the others of y.
INL V v_between(int a, int b, V x, V y) {
	__m256i i = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), j = _mm256_add_epi32(i, _mm256_set1_epi32(8));
	__m256i lo = _mm256_set1_epi32(a - 1), hi = _mm256_set1_epi32(b);
	__m256i m = _mm256_and_si256(_mm256_cmpgt_epi32(i, lo), _mm256_cmpgt_epi32(hi, i));
	__m256i n = _mm256_and_si256(_mm256_cmpgt_epi32(j, lo), _mm256_cmpgt_epi32(hi, j));
	return V2(_mm256_blendv_ps(y.a, x.a, _mm256_castsi256_ps(m)), _mm256_blendv_ps(y.b, x.b, _mm256_castsi256_ps(n)));
}
INL int hsum_i32(__m256i x) {
	__m128i t = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
	t = _mm_add_epi32(t, _mm_unpackhi_epi64(t, t));
	return _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 1)));
}
// Sixteen floats to int8, times s; returns their sum.
INL int v_quantise(V x, V s, int8_t *to) {
	__m256i i = _mm256_cvtps_epi32(_mm256_mul_ps(x.a, s.a)), j = _mm256_cvtps_epi32(_mm256_mul_ps(x.b, s.b));
	__m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(i, j), 0xd8);
	_mm_storeu_si128((__m128i *)to, _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
	return hsum_i32(_mm256_add_epi32(i, j));
}
INL int v_any_nan(V x) {
	return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q))) != 0;
}
INL int v_any_greater(V x, V y) {
	return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GT_OQ))) != 0;
}
INL int v_count_greater(V x, V y) {
	return __builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GT_OQ))) +
		__builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_GT_OQ)));
}
INL void v_prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }
// Pairs of lanes: their halves exchanged; and eight floats, each twice.
INL V v_swap_pairs(V x) { return V2(_mm256_permute_ps(x.a, 0xb1), _mm256_permute_ps(x.b, 0xb1)); }
INL V v_twice(const float *p) {
	__m256 x = _mm256_loadu_ps(p);
	return V2(_mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)), _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7)));
}
