// intrinsics.h: the instructions that kernels use, computed on the CPU: vector types, small floats, cp.async, ldmatrix, mma.
// kernels/gpu/src/gpu.h has the same names for nvcc; the conformance kernels compare the two on a GPU.
#pragma once
#include "sim.h"

#define __grid_constant__

struct alignas(16) float4 {
	float x, y, z, w;
};
struct alignas(8) float2 {
	float x, y;
};
struct alignas(16) uint4 {
	unsigned x, y, z, w;
};
struct alignas(8) uint2 {
	unsigned x, y;
};
struct alignas(16) int4 {
	int x, y, z, w;
};
struct alignas(8) int2 {
	int x, y;
};
static inline float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
static inline float2 make_float2(float a, float b) { return {a, b}; }
static inline uint4 make_uint4(unsigned a, unsigned b, unsigned c, unsigned d) { return {a, b, c, d}; }
static inline uint2 make_uint2(unsigned a, unsigned b) { return {a, b}; }
static inline int2 make_int2(int a, int b) { return {a, b}; }

static inline unsigned __float_as_uint(float f) {
	unsigned u;
	memcpy(&u, &f, 4);
	return u;
}
static inline float __uint_as_float(unsigned u) {
	float f;
	memcpy(&f, &u, 4);
	return f;
}

struct bf16 {
	uint16_t b;
};
struct f16 {
	uint16_t b;
};
static inline float to_f32(float v) { return v; }
static inline float to_f32(bf16 v) { return __uint_as_float((unsigned)v.b << 16); }
static inline float to_f32(f16 v) {
	unsigned s = (unsigned)(v.b & 0x8000) << 16, e = (v.b >> 10) & 31, m = v.b & 1023;
	if (e == 0) {
		float f = (float)m * 5.9604644775390625e-8f;
		return s ? -f : f;
	}
	return __uint_as_float(s | ((e == 31 ? 255u : e + 112u) << 23) | (m << 13));
}
static inline uint16_t f16_bits(float f) { // to the nearest, ties to even
	unsigned u = __float_as_uint(f), s = (u >> 16) & 0x8000, a = u & 0x7fffffff;
	if (a > 0x7f800000) return 0x7fff;
	if (a >= 0x477ff000) return (uint16_t)(s | 0x7c00);
	if (a < 0x38800000) { // subnormal: the float adder rounds
		float r = __uint_as_float(a) + 0.5f;
		return (uint16_t)(s | (__float_as_uint(r) - __float_as_uint(0.5f)));
	}
	a += 0xfff + ((a >> 13) & 1);
	return (uint16_t)(s | ((a - 0x38000000) >> 13));
}
template <class T> static inline T from_f32(float v);
template <> inline float from_f32<float>(float v) { return v; }
template <> inline bf16 from_f32<bf16>(float f) {
	unsigned u = __float_as_uint(f);
	if ((u & 0x7fffffff) > 0x7f800000) return {0x7fff};
	return {(uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16)};
}
template <> inline f16 from_f32<f16>(float f) { return {f16_bits(f)}; }
template <class T> static inline unsigned pack2(float lo, float hi) { return from_f32<T>(lo).b | (unsigned)from_f32<T>(hi).b << 16; }

// One access each, as on a GPU: the checker counts accesses of banks.
typedef unsigned v4u __attribute__((vector_size(16)));
static inline void store_pair(float* p, float a, float b) { *(uint64_t*)p = (uint64_t)__float_as_uint(b) << 32 | __float_as_uint(a); }
static inline float2 load_pair(const float* p) {
	uint64_t v = *(const uint64_t*)p;
	return {__uint_as_float((unsigned)v), __uint_as_float((unsigned)(v >> 32))};
}
static inline void store_16(void* p, const uint4& v) { *(v4u*)p = v4u{v.x, v.y, v.z, v.w}; }

static inline float infinity() { return __builtin_inff(); }
static inline float rsqrtf(float x) { return 1.f / sqrtf(x); }
static inline float exp2_fast(float x) { return exp2f(x); }
static inline void sincospif(float x, float* s, float* c) {
	*s = (float)sin(M_PI * (double)x);
	*c = (float)cos(M_PI * (double)x);
}
template <class T> static inline T __ldg(const T* p) { return *p; }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __ffs(unsigned v) { return __builtin_ffs((int)v); }
static inline int __clz(unsigned v) { return v ? __builtin_clz(v) : 32; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a * b) >> 32); }
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) { return (unsigned)(((uint64_t)hi << 32 | lo) >> (n & 31)); }
static inline int __dp4a(int a, int b, int c) {
	for (int i = 0; i < 4; i++) c += (int)(int8_t)(a >> (8 * i)) * (int)(int8_t)(b >> (8 * i));
	return c;
}
template <class T> static inline T atomic_add(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
static inline int atomicAdd(int* p, int v) { return atomic_add(p, v); }
static inline unsigned atomicAdd(unsigned* p, unsigned v) { return atomic_add(p, v); }
static inline unsigned long long atomicAdd(unsigned long long* p, unsigned long long v) { return atomic_add(p, v); }
static inline float atomicAdd(float* p, float v) {
	float o = *p, n;
	do n = o + v;
	while (!__atomic_compare_exchange(p, &o, &n, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return o;
}
static inline unsigned atomicOr(unsigned* p, unsigned v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }

#define cp_async16(dst, src, valid) cusim::cp_async(dst, src, 16, (valid) ? 16 : 0, CUSIM_HERE)
#define cp_async_commit() cusim::cp_async_commit_group()
template <int N> static inline void cp_async_wait() { cusim::retire(N, "cp.async.wait_group"); }

namespace cusim {
CUSIM_UNCHECKED static inline void ldmatrix(unsigned (&r)[4], const void* p, bool trans, const char* site) {
	if ((uintptr_t)p & 15) fail("%s: ldmatrix of a misaligned row %p", site, p);
#ifdef __SANITIZE_ADDRESS__
	(void)*(const volatile char*)p;
	(void)((const volatile char*)p)[15];
#endif
	CUSIM_TOUCH(p, 16, false, site);
	unsigned par = collective(0xffffffffu, site, &p, sizeof p, [](Slot&, unsigned) {});
	Slot& s = slot_of(0xffffffffu);
	unsigned lane = self()->lane;
	for (unsigned m = 0; m < 4; m++) {
		if (!trans) {
			const char* a;
			memcpy(&a, s.data[par][m * 8 + (lane >> 2)], sizeof a);
			memcpy(&r[m], a + (lane & 3) * 4, 4);
			continue;
		}
		r[m] = 0;
		for (unsigned k = 0; k < 2; k++) { // element (column lane/4) of rows 2*(lane%4) and the next
			const char* a;
			memcpy(&a, s.data[par][m * 8 + (lane & 3) * 2 + k], sizeof a);
			uint16_t e;
			memcpy(&e, a + (lane >> 2) * 2, 2);
			r[m] |= (unsigned)e << (16 * k);
		}
	}
}

typedef float v8f __attribute__((vector_size(32)));
template <class T> static inline float half_of(unsigned v, int hi) { return to_f32(T{(uint16_t)(hi ? v >> 16 : v)}); }
template <class T> static inline void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, const char* site) {
	struct In {
		unsigned a[4], b[2];
		float c[4];
	} in = {{a[0], a[1], a[2], a[3]}, {b0, b1}, {d[0], d[1], d[2], d[3]}};
	unsigned par = collective(0xffffffffu, site, &in, sizeof in, [](Slot& s, unsigned parity) {
		alignas(32) float A[16][16], B[16][8], C[16][8];
		for (int l = 0; l < 32; l++) {
			const In* x = (const In*)s.data[parity][l];
			int g = l >> 2, t = (l & 3) * 2;
			for (int i = 0; i < 2; i++) {
				A[g][t + i] = half_of<T>(x->a[0], i);
				A[g + 8][t + i] = half_of<T>(x->a[1], i);
				A[g][t + 8 + i] = half_of<T>(x->a[2], i);
				A[g + 8][t + 8 + i] = half_of<T>(x->a[3], i);
				B[t + i][g] = half_of<T>(x->b[0], i);
				B[t + 8 + i][g] = half_of<T>(x->b[1], i);
				C[g][t + i] = x->c[i];
				C[g + 8][t + i] = x->c[2 + i];
			}
		}
		for (int i = 0; i < 16; i++) {
			v8f acc = *(v8f*)C[i];
			for (int k = 0; k < 16; k++) acc += A[i][k] * *(v8f*)B[k];
			*(v8f*)C[i] = acc;
		}
		for (int l = 0; l < 32; l++) {
			In* x = (In*)s.data[parity][l];
			int g = l >> 2, t = (l & 3) * 2;
			for (int i = 0; i < 2; i++) {
				x->c[i] = C[g][t + i];
				x->c[2 + i] = C[g + 8][t + i];
			}
		}
	});
	memcpy(d, ((const In*)slot_of(0xffffffffu).data[par][self()->lane])->c, 16);
}
} // namespace cusim
#define ldmatrix_x4(r, p) cusim::ldmatrix(r, p, false, CUSIM_HERE)
#define ldmatrix_x4_trans(r, p) cusim::ldmatrix(r, p, true, CUSIM_HERE)
template <class T> static inline void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) { cusim::mma<T>(d, a, b0, b1, "mma.sync"); }
