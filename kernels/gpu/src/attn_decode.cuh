// Attention of one query token a request: the heads of a group are the rows of a product, so keys are read once a group. Each warp takes
// its own 16 positions at a time, in two stages of cp.async without a block barrier; the context is split over blocks, which
// attn_merge joins.
#pragma once
#include "attention.cuh"

// Split is a block's part [t0, t1) of a row's pages of 16 positions, of which those from lo on count.
struct Split {
	int lo, t0, t1;
};
__device__ __forceinline__ Split split_of(const AttnParams& p, int len, int split) {
	const int lo = p.window > 0 ? imax(0, len - p.window) : 0;
	const int first = lo / 16, pages = div_up(len, 16) - first, each = div_up(pages, p.splits);
	const int t0 = imin(first + split * each, first + pages);
	return {lo, t0, imin(t0 + each, first + pages)};
}

template <class T, int D, int WARPS> __device__ __forceinline__ void attn_decode(const AttnParams& p) {
	constexpr int TILE = 16 * D;
	DYN_SHARED(T, smem);
	__shared__ float sm[WARPS][16], sl[WARPS][16];
	T* sq = smem;
	const int i = blockIdx.y, split = blockIdx.z, tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
	if (i >= p.n) return;
	const int group = p.heads / p.kv_heads, parts = div_up(group, 16), kv_head = blockIdx.x / parts, g0 = blockIdx.x % parts * 16;
	const int rows = imin(16, group - g0), h0 = kv_head * group + g0;
	const int row = p.work != nullptr ? p.work[i] : i, len = p.seq_lens[row], token = p.query_start[row];
	T* out = static_cast<T*>(p.out) + (size_t)token * p.ldo + (size_t)h0 * D;
	if (len <= 0) { // a graph's padding
		if (split == 0)
			for (int c = tid; c < rows * D; c += WARPS * 32) out[c] = T{};
		if (p.splits > 1 && tid < rows) p.part[(((size_t)i * p.heads + h0 + tid) * p.splits + split) * (D + 2) + D] = -infinity();
		return;
	}
	const Split s = split_of(p, len, split);
	const KVRow<T> kv(p, row, kv_head);
	T *sk = smem + TILE + warp * 4 * TILE, *sv = sk + 2 * TILE;
	for (int c = tid; c < TILE / 8; c += WARPS * 32) {
		const int r = c / (D / 8), col = c % (D / 8);
		const bool ok = r < rows;
		cp_async16(sq + at_chunk<D>(r, col), static_cast<const T*>(p.q) + (size_t)token * p.ldq + (size_t)(h0 + (ok ? r : 0)) * D + col * 8, ok);
	}
	cp_async_commit();
	cp_async_wait<0>();
	__syncthreads();
	Rows16<T, D, 16> x;
	x.clear();
	const int lo[2] = {s.lo, s.lo}, hi[2] = {len, len};
	int t = s.t0 + warp;
	if (t < s.t1) load_keys<T, D, 16, 32>(sk, sv, kv, t * 16, len, lane);
	cp_async_commit();
	for (int stage = 0; t < s.t1; t += WARPS, stage ^= 1) {
		if (t + WARPS < s.t1) load_keys<T, D, 16, 32>(sk + (stage ^ 1) * TILE, sv + (stage ^ 1) * TILE, kv, (t + WARPS) * 16, len, lane);
		cp_async_commit();
		cp_async_wait<1>();
		__syncwarp();
		x.scores(sq, sk + stage * TILE);
		x.soften(p.scale, p.softcap);
		if (t * 16 < s.lo || t * 16 + 16 > len) x.keep(t * 16, lo, hi);
		x.softmax();
		x.values(sv + stage * TILE);
		__syncwarp();
	}
	cp_async_wait<0>();
	x.total();
	__syncthreads(); // the keys' memory becomes the warps' outputs
	float* so = reinterpret_cast<float*>(smem + TILE) + warp * 16 * D;
#pragma unroll
	for (int k = 0; k < 2; k++) {
		const int r = (lane >> 2) + 8 * k;
		if ((lane & 3) == 0) {
			sm[warp][r] = x.m[k];
			sl[warp][r] = x.l[k];
		}
		if (r < rows)
#pragma unroll
			for (int d = 0; d < D / 8; d++) store_pair(so + r * D + ((d ^ (r & 7)) * 8) + (lane & 3) * 2, x.o[d][2 * k], x.o[d][2 * k + 1]);
	}
	__syncthreads();
	so = reinterpret_cast<float*>(smem + TILE);
	for (int c = tid; c < rows * D; c += WARPS * 32) {
		const int r = c / D, d = c % D;
		float top = -infinity(), l = 0.f, o = 0.f;
#pragma unroll
		for (int w = 0; w < WARPS; w++) top = fmaxf(top, sm[w][r]);
#pragma unroll
		for (int w = 0; w < WARPS; w++) {
			const float f = sm[w][r] == -infinity() ? 0.f : exp2_fast(sm[w][r] - top);
			l += f * sl[w][r];
			o += f * so[w * 16 * D + r * D + (((d >> 3) ^ (r & 7)) << 3) + (d & 7)];
		}
		if (p.splits == 1) {
			out[(size_t)r * D + d] = from_f32<T>(o / l);
			continue;
		}
		float* part = p.part + (((size_t)i * p.heads + h0 + r) * p.splits + split) * (D + 2);
		part[d] = o;
		if (d == 0) {
			part[D] = top;
			part[D + 1] = l;
		}
	}
}

// attn_merge joins the parts of a row and head.
template <class T> __device__ __forceinline__ void attn_merge(const AttnParams& p) {
	const int h = blockIdx.x, i = blockIdx.y, D = p.dim;
	if (i >= p.n) return;
	const int row = p.work != nullptr ? p.work[i] : i;
	if (p.seq_lens[row] <= 0) return; // attn_decode wrote zeros
	const float* part = p.part + ((size_t)i * p.heads + h) * p.splits * (D + 2);
	float top = -infinity(), l = 0.f;
	for (int s = 0; s < p.splits; s++) top = fmaxf(top, part[s * (D + 2) + D]);
	for (int s = 0; s < p.splits; s++) l += exp2_fast(part[s * (D + 2) + D] - top) * part[s * (D + 2) + D + 1];
	T* out = static_cast<T*>(p.out) + (size_t)p.query_start[row] * p.ldo + (size_t)h * D;
	for (int d = threadIdx.x; d < D; d += 64) {
		float o = 0.f;
		for (int s = 0; s < p.splits; s++) o += exp2_fast(part[s * (D + 2) + D] - top) * part[s * (D + 2) + d];
		out[d] = from_f32<T>(o / l);
	}
}

#define X(T) \
	KERNEL(attn_decode_##T##_64, AttnParams, 128, attn_decode<T, 64, 4>) \
	KERNEL(attn_decode_##T##_128, AttnParams, 128, attn_decode<T, 128, 4>) \
	KERNEL(attn_decode_##T##_256, AttnParams, 64, attn_decode<T, 256, 2>) \
	KERNEL(attn_merge_##T, AttnParams, 64, attn_merge<T>)
FOR_HALF_TYPES(X)
#undef X
