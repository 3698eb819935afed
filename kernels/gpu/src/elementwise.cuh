// Activations, products with gates, and rows moved.
#pragma once
#include "gpu.h"

// activate_rare is out of line: unrolled eleven times it would be most of the code.
__device__ __noinline__ float activate_rare(int act, float x) { return activate(act, x); }
__device__ __forceinline__ float activate_any(int act, float x) { return act == ACT_SILU ? x / (1.f + expf(-x)) : activate_rare(act, x); }

template <class T> __device__ __forceinline__ void gated(const GatedParams& p) {
	constexpr int N = Vec<T>::N;
	const int row = blockIdx.y;
	if (row >= p.rows) return;
	const T* gate = static_cast<const T*>(p.gate) + (size_t)row * p.ld;
	const T* up = static_cast<const T*>(p.up) + (size_t)row * p.ld;
	T* out = static_cast<T*>(p.out) + (size_t)row * p.ldo;
	const int from = blockIdx.x * 1024, to = imin(p.width, from + 1024);
	if (p.width % N == 0 && aligned16(gate) && aligned16(up) && aligned16(out)) {
		for (int i = from + threadIdx.x * N; i < to; i += 128 * N) {
			float g[N], u[N];
			load_vec(gate + i, g);
			load_vec(up + i, u);
#pragma unroll
			for (int j = 0; j < N; j++) g[j] = activate_any(p.act, g[j]) * u[j];
			store_vec(out + i, g);
		}
		return;
	}
	for (int i = from + threadIdx.x; i < to; i += 128) out[i] = from_f32<T>(activate_any(p.act, to_f32(gate[i])) * to_f32(up[i]));
}

template <class T> __device__ __forceinline__ void unary(const UnaryParams& p) {
	const T* in = static_cast<const T*>(p.in);
	T* out = static_cast<T*>(p.out);
	const int64_t from = (int64_t)blockIdx.x * 1024;
	for (int i = threadIdx.x; i < 1024; i += 128) {
		if (from + i >= p.n) return;
		float v = activate_any(p.act, to_f32(in[from + i]) * p.scale) * p.post_scale + p.offset;
		if (p.clamp > 0.f) v = fminf(fmaxf(v, -p.clamp), p.clamp);
		out[from + i] = from_f32<T>(v);
	}
}

// copy_bytes copies n bytes (a multiple of 4) with all threads of a block.
__device__ __forceinline__ void copy_bytes(char* dst, const char* src, int n) {
	if (((uintptr_t)dst & 15) == 0 && ((uintptr_t)src & 15) == 0 && n % 16 == 0) {
		for (int i = threadIdx.x * 16; i < n; i += 128 * 16) *reinterpret_cast<uint4*>(dst + i) = *reinterpret_cast<const uint4*>(src + i);
		return;
	}
	for (int i = threadIdx.x * 4; i < n; i += 128 * 4) *reinterpret_cast<unsigned*>(dst + i) = *reinterpret_cast<const unsigned*>(src + i);
}

__device__ __forceinline__ void gather(const GatherParams& p) {
	const int row = blockIdx.x;
	if (row >= p.rows) return;
	copy_bytes(static_cast<char*>(p.out) + row * p.bytes, static_cast<const char*>(p.in) + p.index[row] * p.bytes, (int)p.bytes);
}

__device__ __forceinline__ void copy_block(const CopyBlocksParams& p) {
	const int i = blockIdx.x;
	const int64_t at = (int64_t)blockIdx.y * 16384;
	if (i >= p.n || at >= p.block_stride) return;
	char* base = static_cast<char*>(p.base) + at;
	const int n = p.block_stride - at < 16384 ? (int)(p.block_stride - at) : 16384;
	copy_bytes(base + p.pairs[2 * i + 1] * p.block_stride, base + p.pairs[2 * i] * p.block_stride, n);
}

#define X(T) \
	KERNEL(gated_##T, GatedParams, 128, gated<T>) \
	KERNEL(unary_##T, UnaryParams, 128, unary<T>)
KERNEL(gated_f32, GatedParams, 128, gated<float>)
KERNEL(unary_f32, UnaryParams, 128, unary<float>)
FOR_HALF_TYPES(X)
#undef X
KERNEL(gather_rows, GatherParams, 128, gather)
KERNEL(copy_blocks, CopyBlocksParams, 128, copy_block)
