// Queries, keys and values between their products and attention: head norms, rotation, the cache.
#pragma once
#include "gpu.h"

enum { HEAD_MAX = 512 };

template <class T> __device__ __forceinline__ void heads(const HeadsParams& p) {
	__shared__ float head[4][HEAD_MAX];
	__shared__ float2 turn[HEAD_MAX / 2];
	const int t = blockIdx.x, warp = threadIdx.x >> 5, lane = threadIdx.x & 31, half = p.rot_dim / 2;
	if (t >= p.rows) return;
	const bool rotate = p.turns != nullptr;
	if (rotate) {
		const double pos = p.positions[t];
		for (int i = threadIdx.x; i < half; i += 128) {
			// Whole turns are dropped in float64: at position 1e5 a float32 angle is off by 1e-2.
			const double a = pos * p.turns[i];
			float s, c;
			sincospif((float)(2.0 * (a - rint(a))), &s, &c);
			turn[i] = make_float2(c * p.factor, s * p.factor);
		}
		__syncthreads();
	}
	const int slot = p.slot_map[t], all = p.heads + 2 * p.kv_heads;
	const int64_t block = slot < 0 ? 0 : slot / p.block_size, offset = slot < 0 ? 0 : slot % p.block_size;
	float* x = head[warp];
	for (int h = warp; h < all; h += 4) {
		const bool is_q = h < p.heads, is_k = !is_q && h < p.heads + p.kv_heads;
		if (!is_q && slot < 0) continue;
		const T* in = static_cast<const T*>(p.qkv) + (size_t)t * p.ldqkv + (size_t)h * p.dim;
		T* out;
		if (is_q) {
			out = static_cast<T*>(p.q) + ((size_t)t * p.heads + h) * p.dim;
		} else {
			const int kv = h - p.heads - (is_k ? 0 : p.kv_heads);
			char* base = static_cast<char*>(is_k ? p.k : p.v) + block * p.block_stride;
			out = reinterpret_cast<T*>(base) + (offset * p.kv_heads + kv) * p.dim;
		}
		const float* w = is_q ? p.q_norm : is_k ? p.k_norm : nullptr;
		if (w == nullptr && (!rotate || (!is_q && !is_k))) { // a copy
			if (p.dim % 8 == 0 && aligned16(in) && aligned16(out)) {
				constexpr int N = Vec<T>::N;
				for (int i = lane * N; i < p.dim; i += 32 * N) *reinterpret_cast<uint4*>(out + i) = *reinterpret_cast<const uint4*>(in + i);
			} else {
				for (int i = lane; i < p.dim; i += 32) out[i] = in[i];
			}
			continue;
		}
		float s = 0.f;
		for (int i = lane; i < p.dim; i += 32) {
			x[i] = to_f32(in[i]);
			s += x[i] * x[i];
		}
		if (w != nullptr) {
			const float inv = 1.f / sqrtf(warp_sum(s) / (float)p.dim + p.eps);
			for (int i = lane; i < p.dim; i += 32) x[i] *= inv * w[i];
		}
		__syncwarp();
		for (int i = lane; i < p.dim; i += 32) {
			const int r = i - p.rot_from;
			float v = x[i];
			if (rotate && r >= 0 && r < p.rot_dim) {
				const bool second = p.rot_pair != 0 ? (r & 1) != 0 : r >= half;
				const float2 cs = turn[p.rot_pair != 0 ? r >> 1 : second ? r - half : r];
				const float u = x[p.rot_pair != 0 ? p.rot_from + (r ^ 1) : second ? i - half : i + half];
				v = second ? v * cs.x + u * cs.y : v * cs.x - u * cs.y;
			}
			out[i] = from_f32<T>(v);
		}
		__syncwarp();
	}
}

#define X(T) KERNEL(heads_##T, HeadsParams, 128, heads<T>)
KERNEL(heads_f32, HeadsParams, 128, heads<float>)
FOR_HALF_TYPES(X)
#undef X
