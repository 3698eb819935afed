// Root-mean-square norms, with the residual stream's addition in the same pass.
#pragma once
#include "gpu.h"

// load_any loads N elements (one without vec) of T or of float as floats.
template <class T, int N> __device__ __forceinline__ void load_any(const void* base, bool f32, size_t at, bool vec, float (&v)[N]) {
	if (f32) {
		const float* f = static_cast<const float*>(base) + at;
		if (vec) {
#pragma unroll
			for (int j = 0; j < N; j += 4) load_vec(f + j, reinterpret_cast<float(&)[4]>(v[j]));
		} else {
			v[0] = f[0];
		}
		return;
	}
	const T* t = static_cast<const T*>(base) + at;
	if (vec) load_vec(t, v);
	else v[0] = to_f32(t[0]);
}
template <int N> __device__ __forceinline__ void load_floats(const float* f, bool vec, float (&v)[N]) {
	if (!vec) {
		v[0] = f[0];
		return;
	}
#pragma unroll
	for (int j = 0; j < N; j += 4) load_vec(f + j, reinterpret_cast<float(&)[4]>(v[j]));
}
template <int N> __device__ __forceinline__ void store_floats(float* f, bool vec, const float (&v)[N]) {
	if (!vec) {
		f[0] = v[0];
		return;
	}
#pragma unroll
	for (int j = 0; j < N; j += 4) *reinterpret_cast<float4*>(f + j) = make_float4(v[j], v[j + 1], v[j + 2], v[j + 3]);
}

// norm: a block a row. A thread reads back only what it wrote itself, so the residual needs no barrier.
template <class T> __device__ __forceinline__ void norm(const NormParams& p) {
	__shared__ float scratch[2][8];
	constexpr int N = Vec<T>::N;
	const int row = blockIdx.x;
	if (row >= p.rows) return;
	const int from = p.index != nullptr ? p.index[row] : row;
	const size_t in = (size_t)from * p.width, at = (size_t)row * p.width;
	const bool vec = p.width % N == 0 && aligned16(p.in) && aligned16(p.out) && aligned16(p.residual) && aligned16(p.weight) && aligned16(p.in_weight);
	const int step = vec ? N : 1, first = threadIdx.x * step, stride = 256 * step;
	const bool f32 = p.in_f32 != 0;
	float alpha = p.alpha;
	if (p.in_weight != nullptr) {
		float s = 0.f;
		for (int i = first; i < p.width; i += stride) {
			float v[N] = {};
			load_any<T>(p.in, f32, in + i, vec, v);
#pragma unroll
			for (int j = 0; j < N; j++) s += v[j] * v[j];
		}
		alpha *= 1.f / sqrtf(block_sum<256>(s, scratch[0]) / (float)p.width + p.eps);
	}
	float s = 0.f;
	for (int i = first; i < p.width; i += stride) {
		float v[N] = {};
		load_any<T>(p.in, f32, in + i, vec, v);
		if (p.residual != nullptr) {
			float r[N] = {}, w[N] = {};
			if (p.in_weight != nullptr) load_floats(p.in_weight + i, vec, w);
			load_floats(p.residual + at + i, vec, r);
#pragma unroll
			for (int j = 0; j < N; j++) {
				if (p.in_weight != nullptr) v[j] *= w[j];
				v[j] = r[j] + alpha * v[j];
			}
			store_floats(p.residual + at + i, vec, v);
		}
#pragma unroll
		for (int j = 0; j < N; j++)
			if (vec || j == 0) s += v[j] * v[j];
	}
	if (p.out == nullptr) return;
	const float inv = 1.f / sqrtf(block_sum<256>(s, scratch[1]) / (float)p.width + p.eps);
	T* out = static_cast<T*>(p.out) + at;
	for (int i = first; i < p.width; i += stride) {
		float v[N] = {}, w[N] = {};
		if (p.residual != nullptr) load_floats(p.residual + at + i, vec, v);
		else load_any<T>(p.in, f32, in + i, vec, v);
		load_floats(p.weight + i, vec, w);
#pragma unroll
		for (int j = 0; j < N; j++) v[j] = v[j] * inv * w[j];
		if (vec) store_vec(out + i, v);
		else out[i] = from_f32<T>(v[0]);
	}
}

// group_norm: a warp a group of columns.
template <class T> __device__ __forceinline__ void group_norm(const NormParams& p) {
	const int groups = p.width / p.group, g = blockIdx.x * 4 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
	if (g >= p.rows * groups) return;
	const T* in = static_cast<const T*>(p.in) + (size_t)g * p.group;
	T* out = static_cast<T*>(p.out) + (size_t)g * p.group;
	float s = 0.f;
	for (int i = lane; i < p.group; i += 32) {
		const float v = to_f32(in[i]);
		s += v * v;
	}
	const float inv = 1.f / sqrtf(warp_sum(s) / (float)p.group + p.eps);
	for (int i = lane; i < p.group; i += 32) out[i] = from_f32<T>(to_f32(in[i]) * inv * p.weight[i]);
}

#define X(T) \
	KERNEL(norm_##T, NormParams, 256, norm<T>) \
	KERNEL(group_norm_##T, NormParams, 128, group_norm<T>)
KERNEL(norm_f32, NormParams, 256, norm<float>)
KERNEL(group_norm_f32, NormParams, 128, group_norm<float>)
FOR_HALF_TYPES(X)
#undef X
