// GGUF's block types as groups of 32 weights, w = d*q + m with q in eight words of four int8. Blocks lie as in the file, so some are
// only aligned to two bytes: words are then read in pairs and shifted.
#pragma once
#include "gpu.h"

struct Group {
	int q[8];
	float d[2]; // of the first and the last 16
	float m;
	// floats gives four weights.
	__device__ __forceinline__ void floats(int i, float (&f)[4]) const {
		const float s = d[i >> 2];
#pragma unroll
		for (int j = 0; j < 4; j++) f[j] = s * (float)(int8_t)(q[i] >> (8 * j)) + m;
	}
};

template <class Q> __device__ __forceinline__ size_t row_bytes(int k) { return (size_t)(k / Q::ELEMS) * Q::BYTES; }

// load_words reads N words that are aligned to two bytes.
template <int N> __device__ __forceinline__ void load_words(const uint8_t* p, unsigned (&w)[N]) {
	const unsigned* a = reinterpret_cast<const unsigned*>((uintptr_t)p & ~(uintptr_t)3);
	const unsigned shift = (unsigned)((uintptr_t)p & 2) * 8;
	unsigned v[N + 1];
#pragma unroll
	for (int i = 0; i <= N; i++) v[i] = __ldg(a + i);
#pragma unroll
	for (int i = 0; i < N; i++) w[i] = __funnelshift_r(v[i], v[i + 1], shift);
}
__device__ __forceinline__ void load_aligned32(const uint8_t* p, unsigned (&w)[8]) {
	const uint4 a = __ldg(reinterpret_cast<const uint4*>(p)), b = __ldg(reinterpret_cast<const uint4*>(p) + 1);
	w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w, w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
}
__device__ __forceinline__ float half_at(const uint8_t* p) { return to_f32(f16{__ldg(reinterpret_cast<const uint16_t*>(p))}); }

// sub_bytes subtracts c from each of four bytes below 128.
__device__ __forceinline__ int sub_bytes(unsigned v, unsigned c) { return (int)(((v | 0x80808080u) - c * 0x01010101u) ^ 0x80808080u); }
// spread4 puts four bits at bit 4 of four bytes.
__device__ __forceinline__ unsigned spread4(unsigned bits) {
	return ((bits & 1) << 4) | ((bits & 2) << 11) | ((bits & 4) << 18) | ((bits & 8) << 25);
}

struct q4_0 {
	static constexpr int ELEMS = 32, BYTES = 18;
	static __device__ __forceinline__ void group(const uint8_t* row, int g, Group& o) {
		const uint8_t* b = row + (size_t)g * BYTES;
		unsigned w[4];
		load_words(b + 2, w);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			o.q[i] = sub_bytes(w[i] & 0x0f0f0f0fu, 8);
			o.q[4 + i] = sub_bytes(w[i] >> 4 & 0x0f0f0f0fu, 8);
		}
		o.d[0] = o.d[1] = half_at(b);
		o.m = 0.f;
	}
};

struct q4_1 {
	static constexpr int ELEMS = 32, BYTES = 20;
	static __device__ __forceinline__ void group(const uint8_t* row, int g, Group& o) {
		const unsigned* b = reinterpret_cast<const unsigned*>(row + (size_t)g * BYTES);
		const unsigned dm = __ldg(b);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const unsigned w = __ldg(b + 1 + i);
			o.q[i] = (int)(w & 0x0f0f0f0fu);
			o.q[4 + i] = (int)(w >> 4 & 0x0f0f0f0fu);
		}
		o.d[0] = o.d[1] = to_f32(f16{(uint16_t)dm});
		o.m = to_f32(f16{(uint16_t)(dm >> 16)});
	}
};

struct q5_0 {
	static constexpr int ELEMS = 32, BYTES = 22;
	static __device__ __forceinline__ void group(const uint8_t* row, int g, Group& o) {
		const uint8_t* b = row + (size_t)g * BYTES;
		unsigned w[5];
		load_words(b + 2, w);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			o.q[i] = sub_bytes((w[1 + i] & 0x0f0f0f0fu) | spread4(w[0] >> (4 * i)), 16);
			o.q[4 + i] = sub_bytes((w[1 + i] >> 4 & 0x0f0f0f0fu) | spread4(w[0] >> (16 + 4 * i)), 16);
		}
		o.d[0] = o.d[1] = half_at(b);
		o.m = 0.f;
	}
};

struct q8_0 {
	static constexpr int ELEMS = 32, BYTES = 34;
	static __device__ __forceinline__ void group(const uint8_t* row, int g, Group& o) {
		const uint8_t* b = row + (size_t)g * BYTES;
		unsigned w[8];
		load_words(b + 2, w);
#pragma unroll
		for (int i = 0; i < 8; i++) o.q[i] = (int)w[i];
		o.d[0] = o.d[1] = half_at(b);
		o.m = 0.f;
	}
};

// scale_min gives the six-bit scale and minimum of group g (0..7) from the three words of twelve packed bytes.
__device__ __forceinline__ void scale_min(const uint4& head, int g, float& d, float& m) {
	const int s = 8 * (g & 3);
	const unsigned a = head.y >> s, b = head.z >> s, c = head.w >> s;
	unsigned sc, mn;
	if (g < 4) {
		sc = a & 63, mn = b & 63;
	} else {
		sc = (c & 15) | (a >> 2 & 0x30);
		mn = (c >> 4 & 15) | (b >> 2 & 0x30);
	}
	d = to_f32(f16{(uint16_t)head.x}) * (float)sc;
	m = -to_f32(f16{(uint16_t)(head.x >> 16)}) * (float)mn;
}

struct q4_k {
	static constexpr int ELEMS = 256, BYTES = 144;
	static __device__ __forceinline__ void group(const uint8_t* row, int g, Group& o) {
		const uint8_t* b = row + (size_t)(g >> 3) * BYTES;
		g &= 7;
		const uint4 head = __ldg(reinterpret_cast<const uint4*>(b));
		unsigned w[8];
		load_aligned32(b + 16 + (g >> 1) * 32, w);
		const int s = (g & 1) * 4;
#pragma unroll
		for (int i = 0; i < 8; i++) o.q[i] = (int)(w[i] >> s & 0x0f0f0f0fu);
		scale_min(head, g, o.d[0], o.m);
		o.d[1] = o.d[0];
	}
};

struct q5_k {
	static constexpr int ELEMS = 256, BYTES = 176;
	static __device__ __forceinline__ void group(const uint8_t* row, int g, Group& o) {
		const uint8_t* b = row + (size_t)(g >> 3) * BYTES;
		g &= 7;
		const uint4 head = __ldg(reinterpret_cast<const uint4*>(b));
		unsigned w[8], h[8];
		load_aligned32(b + 48 + (g >> 1) * 32, w);
		load_aligned32(b + 16, h);
		const int s = (g & 1) * 4;
#pragma unroll
		for (int i = 0; i < 8; i++) o.q[i] = (int)((w[i] >> s & 0x0f0f0f0fu) | (h[i] >> g & 0x01010101u) << 4);
		scale_min(head, g, o.d[0], o.m);
		o.d[1] = o.d[0];
	}
};

struct q6_k {
	static constexpr int ELEMS = 256, BYTES = 210;
	static __device__ __forceinline__ void group(const uint8_t* row, int g, Group& o) {
		const uint8_t* b = row + (size_t)(g >> 3) * BYTES;
		g &= 7;
		const int half = g >> 2, p = g & 3;
		unsigned w[8], h[8];
		load_words(b + half * 64 + (p & 1) * 32, w);
		load_words(b + 128 + half * 32, h);
		const int s = (p >> 1) * 4;
#pragma unroll
		for (int i = 0; i < 8; i++) o.q[i] = sub_bytes((w[i] >> s & 0x0f0f0f0fu) | (h[i] >> (2 * p) & 0x03030303u) << 4, 32);
		const float d = half_at(b + 208);
		const uint16_t sc = __ldg(reinterpret_cast<const uint16_t*>(b + 192 + 2 * g));
		o.d[0] = d * (float)(int8_t)sc;
		o.d[1] = d * (float)(int8_t)(sc >> 8);
		o.m = 0.f;
	}
};

#define FOR_BLOCK_TYPES(X) X(q4_0) X(q4_1) X(q5_0) X(q8_0) X(q4_k) X(q5_k) X(q6_k)
