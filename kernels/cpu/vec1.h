// vec1.h: sixteen floats as an array, in plain C.
#include <math.h>
#define INL static inline
#define UNROLL
typedef struct {
	float f[16];
} V;
#define EACH(expr) \
	V r; \
	for (int i = 0; i < 16; i++) r.f[i] = (expr); \
	return r
INL V v_set(float x) { EACH(x); }
INL V v_zero(void) { return v_set(0); }
INL V v_load(const float *p) { EACH(p[i]); }
INL void v_store(float *p, V a) { memcpy(p, a.f, 64); }
INL V v_add(V a, V b) { EACH(a.f[i] + b.f[i]); }
INL V v_sub(V a, V b) { EACH(a.f[i] - b.f[i]); }
INL V v_mul(V a, V b) { EACH(a.f[i] * b.f[i]); }
INL V v_div(V a, V b) { EACH(a.f[i] / b.f[i]); }
INL V v_fma(V a, V b, V c) { EACH(a.f[i] * b.f[i] + c.f[i]); }
INL V v_max(V a, V b) { EACH(a.f[i] > b.f[i] ? a.f[i] : b.f[i]); }
INL V v_min(V a, V b) { EACH(a.f[i] < b.f[i] ? a.f[i] : b.f[i]); }
INL V v_abs(V a) { EACH(fabsf(a.f[i])); }
INL V v_round(V a) { EACH(rintf(a.f[i])); }
INL V v_scale2(V a, V n) { EACH(ldexpf(a.f[i], (int)n.f[i])); }
INL float v_sum(V a) {
	float s = 0;
	for (int i = 0; i < 16; i++) s += a.f[i];
	return s;
}
INL float v_top(V a) {
	float m = a.f[0];
	for (int i = 1; i < 16; i++) m = a.f[i] > m ? a.f[i] : m;
	return m;
}
INL float bits_float(uint32_t u) {
	float f;
	memcpy(&f, &u, 4);
	return f;
}
INL float from_half(uint16_t h) {
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 1023;
	if (e == 0) {
		float f = (float)m * 0x1p-24f;
		return sign ? -f : f;
	}
	return bits_float(sign | (e == 31 ? 0x7f800000u : (e + 112) << 23) | m << 13);
}
INL uint16_t to_half(float f) {
	uint32_t u;
	memcpy(&u, &f, 4);
	uint16_t sign = (uint16_t)((u >> 16) & 0x8000);
	u &= 0x7fffffff;
	if (u > 0x7f800000) return sign | 0x7e00;
	if (u >= 0x477ff000) return sign | 0x7c00;
	if (u < 0x38800000) return (uint16_t)(sign | (int)rintf(bits_float(u) * 0x1p24f));
	return (uint16_t)(sign | ((u + 0xfff + ((u >> 13) & 1) - (112u << 23)) >> 13));
}
INL V v_half(const uint16_t *p) { EACH(from_half(p[i])); }
INL V v_bhalf(const uint16_t *p) { EACH(bits_float((uint32_t)p[i] << 16)); }
INL void v_store_half(uint16_t *p, V a) {
	for (int i = 0; i < 16; i++) p[i] = to_half(a.f[i]);
}
INL V v_bytes(const uint8_t *p) { EACH((float)p[i]); }
INL V v_sbytes(const uint8_t *p) { EACH((float)(int8_t)p[i]); }
// The lanes from a to b-1 of x, the others of y.
INL V v_between(int a, int b, V x, V y) { EACH(i >= a && i < b ? x.f[i] : y.f[i]); }
// Sixteen floats to int8, times s; returns their sum.
INL int v_quantise(V a, V s, int8_t *to) {
	int sum = 0;
	for (int i = 0; i < 16; i++) {
		float v = a.f[i] * s.f[i];
		int q = v == v ? (int)rintf(v) : 0;
		to[i] = (int8_t)q;
		sum += q;
	}
	return sum;
}
INL int v_any_nan(V a) {
	for (int i = 0; i < 16; i++)
		if (a.f[i] != a.f[i]) return 1;
	return 0;
}
INL int v_count_greater(V a, V b) {
	int n = 0;
	for (int i = 0; i < 16; i++) n += a.f[i] > b.f[i];
	return n;
}
INL int v_any_greater(V a, V b) { return v_count_greater(a, b) > 0; }
INL void v_prefetch(const void *p) { (void)p; }
// Pairs of lanes: their halves exchanged; and eight floats, each twice.
INL V v_swap_pairs(V a) { EACH(a.f[i ^ 1]); }
INL V v_twice(const float *p) { EACH(p[i / 2]); }
