// Attention by plain float32 arithmetic, for float32 programs and for head sizes that the tensor core kernels lack: a block a query token
// and head, 128 keys at a time.
#pragma once
#include "attention.cuh"

template <class T> __device__ __forceinline__ void attn_any(const AttnParams& p) {
	constexpr int KEYS = 128, DIM_MAX = 512, N = Vec<T>::N;
	__shared__ __align__(16) float q[DIM_MAX];
	__shared__ float s[KEYS], scratch[2][4];
	if ((int)blockIdx.x >= p.n) return;
	const int row = p.work[2 * blockIdx.x], h = blockIdx.y, tid = threadIdx.x, D = p.dim, warp = tid >> 5, lane = tid & 31;
	const int count = p.query_start[row + 1] - p.query_start[row], qi = p.work[2 * blockIdx.x + 1], token = p.query_start[row] + qi;
	const int end = p.seq_lens[row] - count + qi + 1; // positions that the query sees
	T* out = static_cast<T*>(p.out) + (size_t)token * p.ldo + (size_t)h * D;
	if (qi >= count || end <= 0) {
		if (qi < count)
			for (int d = tid; d < D; d += KEYS) out[d] = T{};
		return;
	}
	const KVRow<T> kv(p, row, h / (p.heads / p.kv_heads));
	for (int d = tid; d < D; d += KEYS) q[d] = to_f32(static_cast<const T*>(p.q)[(size_t)token * p.ldq + (size_t)h * D + d]);
	__syncthreads();
	float o[DIM_MAX / KEYS] = {}, m = -infinity(), l = 0.f;
	for (int p0 = p.window > 0 ? imax(0, end - p.window) : 0; p0 < end; p0 += KEYS) {
		float v = -infinity();
		if (p0 + tid < end) {
			const T* k = kv.key(kv.offset(p0 + tid));
			v = 0.f;
			for (int d = 0; d < D; d += N) {
				float x[N];
				load_vec(k + d, x);
#pragma unroll
				for (int j = 0; j < N; j++) v += q[d + j] * x[j];
			}
			v *= p.scale;
			if (p.softcap > 0.f) v = p.softcap * tanhf(v / p.softcap);
		}
		const float wm = warp_max(v);
		if (lane == 0) scratch[0][warp] = wm;
		__syncthreads();
		const float top = fmaxf(m, fmaxf(fmaxf(scratch[0][0], scratch[0][1]), fmaxf(scratch[0][2], scratch[0][3])));
		const float e = expf(v - top), c = expf(m - top), ws = warp_sum(e);
		s[tid] = e;
		if (lane == 0) scratch[1][warp] = ws;
		__syncthreads();
		l = l * c + scratch[1][0] + scratch[1][1] + scratch[1][2] + scratch[1][3];
		m = top;
		const int n = imin(KEYS, end - p0);
		for (int j = 0; j < DIM_MAX / KEYS; j++) o[j] *= c;
		for (int i = 0; i < n; i++) {
			const T* v1 = kv.value(kv.offset(p0 + i));
#pragma unroll
			for (int j = 0; j < DIM_MAX / KEYS; j++)
				if (tid + j * KEYS < D) o[j] += s[i] * to_f32(v1[tid + j * KEYS]);
		}
		__syncthreads();
	}
#pragma unroll
	for (int j = 0; j < DIM_MAX / KEYS; j++)
		if (tid + j * KEYS < D) out[tid + j * KEYS] = from_f32<T>(o[j] / l);
}

#define X(T) KERNEL(attn_any_##T, AttnParams, 128, attn_any<T>)
KERNEL(attn_any_f32, AttnParams, 128, attn_any<float>)
FOR_HALF_TYPES(X)
#undef X
