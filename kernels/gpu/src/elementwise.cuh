// Activations, products with gates, and rows moved.
#pragma once
#include "gpu.h"

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
			for (int j = 0; j < N; j++) g[j] = activate(p.act, g[j]) * u[j];
			store_vec(out + i, g);
		}
		return;
	}
	for (int i = from + threadIdx.x; i < to; i += 128) out[i] = from_f32<T>(activate(p.act, to_f32(gate[i])) * to_f32(up[i]));
}

template <class T> __device__ __forceinline__ void unary(const UnaryParams& p) {
	const T* in = static_cast<const T*>(p.in);
	T* out = static_cast<T*>(p.out);
	const int64_t from = (int64_t)blockIdx.x * 1024;
	for (int i = threadIdx.x; i < 1024; i += 128) {
		if (from + i >= p.n) return;
		float v = activate(p.act, to_f32(in[from + i]) * p.scale) * p.post_scale + p.offset;
		if (p.clamp > 0.f) v = fminf(fmaxf(v, -p.clamp), p.clamp);
		out[from + i] = from_f32<T>(v);
	}
}

// copy_bytes copies n bytes (a multiple of 4) with all threads of a block.
__device__ __forceinline__ void copy_bytes(void* dst, const void* src, int64_t n) {
	if (aligned16(dst) && aligned16(src) && n % 16 == 0) {
		for (int64_t i = threadIdx.x; i < n / 16; i += 128) static_cast<uint4*>(dst)[i] = static_cast<const uint4*>(src)[i];
		return;
	}
	for (int64_t i = threadIdx.x; i < n / 4; i += 128) static_cast<unsigned*>(dst)[i] = static_cast<const unsigned*>(src)[i];
}

__device__ __forceinline__ void gather(const GatherParams& p) {
	const int row = blockIdx.x;
	if (row >= p.rows) return;
	copy_bytes(static_cast<char*>(p.out) + row * p.bytes, static_cast<const char*>(p.in) + p.index[row] * p.bytes, p.bytes);
}

__device__ __forceinline__ void copy_block(const CopyBlocksParams& p) {
	const int i = blockIdx.x;
	const int64_t at = (int64_t)blockIdx.y * 16384;
	if (i >= p.n || at >= p.block_stride) return;
	char* base = static_cast<char*>(p.base) + at;
	const int64_t n = p.block_stride - at < 16384 ? p.block_stride - at : 16384;
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
