// Embeddings: a table's rows, dense or in blocks, and tokens that the device sampled itself.
#pragma once
#include "gpu.h"
#include "quant.cuh"

// token_id is what row t embeds: a token, or the k-th newest sample of the request's slot.
__device__ __forceinline__ int token_id(const EmbedParams& p, int t) {
	int id = p.tokens[t];
	if (id < 0) id = -1 - id < RECENT ? p.recent[p.slots[t] * RECENT - 1 - id] : -1;
	return id;
}

template <class T> __device__ __forceinline__ void embed(const EmbedParams& p) {
	const int t = blockIdx.x;
	if (t >= p.rows) return;
	float* out = p.out + (size_t)t * p.width;
	const int id = token_id(p, t);
	if (id < 0 || id >= p.vocab) { // a slot that never sampled, under a graph's padding
		for (int i = threadIdx.x; i < p.width; i += blockDim.x) out[i] = 0.f;
		return;
	}
	const T* in = static_cast<const T*>(p.table) + (size_t)id * p.width;
	if (p.width % 8 != 0) {
		for (int i = threadIdx.x; i < p.width; i += blockDim.x) out[i] = to_f32(in[i]) * p.scale;
		return;
	}
	constexpr int N = Vec<T>::N;
	for (int i = threadIdx.x * N; i < p.width; i += blockDim.x * N) {
		float v[N];
		load_vec(in + i, v);
#pragma unroll
		for (int j = 0; j < N; j += 4) *reinterpret_cast<float4*>(out + i + j) = make_float4(v[j] * p.scale, v[j + 1] * p.scale, v[j + 2] * p.scale, v[j + 3] * p.scale);
	}
}

template <class Q> __device__ __forceinline__ void embed_blocks(const EmbedParams& p) {
	const int t = blockIdx.x;
	if (t >= p.rows) return;
	float* out = p.out + (size_t)t * p.width;
	const int id = token_id(p, t);
	const bool known = id >= 0 && id < p.vocab;
	const uint8_t* row = static_cast<const uint8_t*>(p.table) + (size_t)(known ? id : 0) * row_bytes<Q>(p.width);
	for (int g = threadIdx.x; g < p.width / 32; g += blockDim.x) {
		Group v;
		Q::group(row, g, v);
#pragma unroll
		for (int i = 0; i < 8; i++) {
			float f[4];
			v.floats(i, f);
			const float s = known ? p.scale : 0.f;
			*reinterpret_cast<float4*>(out + g * 32 + i * 4) = make_float4(f[0] * s, f[1] * s, f[2] * s, f[3] * s);
		}
	}
}

#define X(T) KERNEL(embed_##T, EmbedParams, 128, embed<T>)
KERNEL(embed_f32, EmbedParams, 128, embed<float>)
FOR_HALF_TYPES(X)
#undef X
#define X(Q) KERNEL(embed_##Q, EmbedParams, 128, embed_blocks<Q>)
FOR_BLOCK_TYPES(X)
#undef X
