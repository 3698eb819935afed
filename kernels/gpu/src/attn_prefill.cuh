// Attention of many query tokens over the paged cache: a block takes 64 rows, which are query tokens times the heads of a KV head's
// group, so that keys are read once a group. Keys and values come in two stages by cp.async.
#pragma once
#include "attention.cuh"

template <class T, int D> __device__ __forceinline__ void attn_prefill(const AttnParams& p) {
	constexpr int ROWS = 64, KEYS = D == 256 ? 32 : 64, TILE = KEYS * D;
	DYN_SHARED(T, smem);
	T *sq = smem, *sk = smem + ROWS * D, *sv = sk + 2 * TILE;
	if ((int)blockIdx.x >= p.n) return;
	const int row = p.work[2 * blockIdx.x], q0 = p.work[2 * blockIdx.x + 1], kv_head = blockIdx.y, group = p.heads / p.kv_heads;
	const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
	const int first = p.query_start[row], count = p.query_start[row + 1] - first, before = p.seq_lens[row] - count;
	const int tokens = imin(imax(ROWS / group, 1), count - q0);
	if (tokens <= 0) return;
	const KVRow<T> kv(p, row, kv_head);

	for (int c = tid; c < ROWS * D / 8; c += 128) {
		const int r = c / (D / 8), col = c % (D / 8), t = r / group, h = kv_head * group + r % group;
		const bool ok = t < tokens;
		const T* from = static_cast<const T*>(p.q) + (ok ? (size_t)(first + q0 + t) * p.ldq + (size_t)h * D + col * 8 : 0);
		cp_async16(sq + at_chunk<D>(r, col), from, ok);
	}
	// Positions of the tile's queries, and the keys that any of them sees.
	const int low = before + q0, high = low + tokens;
	const int from = p.window > 0 ? imax(0, low - p.window + 1) / KEYS * KEYS : 0;
	load_keys<T, D, KEYS, 128>(sk, sv, kv, from, high, tid);
	cp_async_commit();

	int lo[2], hi[2]; // of this lane's rows
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int pos = low + imin((warp * 16 + (lane >> 2) + 8 * i) / group, tokens - 1);
		hi[i] = pos + 1;
		lo[i] = p.window > 0 ? imax(0, pos - p.window + 1) : 0;
	}
	Rows16<T, D, KEYS> x;
	x.clear();
	for (int p0 = from, stage = 0; p0 < high; p0 += KEYS, stage ^= 1) {
		if (p0 + KEYS < high) {
			load_keys<T, D, KEYS, 128>(sk + (stage ^ 1) * TILE, sv + (stage ^ 1) * TILE, kv, p0 + KEYS, high, tid);
			cp_async_commit();
			cp_async_wait<1>();
		} else {
			cp_async_wait<0>();
		}
		__syncthreads();
		x.scores(sq + warp * 16 * D, sk + stage * TILE);
		x.soften(p.scale, p.softcap);
		if (p0 + KEYS > low + 1 || (p.window > 0 && p0 <= high - 1 - p.window)) x.keep(p0, lo, hi);
		x.softmax();
		x.values(sv + stage * TILE);
		__syncthreads();
	}
	x.total();
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int r = warp * 16 + (lane >> 2) + 8 * i, t = r / group, h = kv_head * group + r % group;
		if (t >= tokens) continue;
		const float inv = 1.f / x.l[i];
		T* out = static_cast<T*>(p.out) + (size_t)(first + q0 + t) * p.ldo + (size_t)h * D + (lane & 3) * 2;
#pragma unroll
		for (int d = 0; d < D / 8; d++) *reinterpret_cast<unsigned*>(out + d * 8) = pack2<T>(x.o[d][2 * i] * inv, x.o[d][2 * i + 1] * inv);
	}
}

#define X(T) \
	KERNEL(attn_prefill_##T##_64, AttnParams, 128, attn_prefill<T, 64>) \
	KERNEL(attn_prefill_##T##_128, AttnParams, 128, attn_prefill<T, 128>) \
	KERNEL(attn_prefill_##T##_256, AttnParams, 128, attn_prefill<T, 256>)
FOR_HALF_TYPES(X)
#undef X
