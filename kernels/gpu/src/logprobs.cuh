// Logprobs of the raw logits: the chosen token's, its rank, and the best.
#pragma once
#include "select.cuh"

// pair_of orders by value, then by the lower id.
__device__ __forceinline__ u64 pair_of(unsigned key, int id) { return (u64)key << 32 | (unsigned)~id; }

__device__ __forceinline__ void logprobs_row(const SampleParams& p) {
	__shared__ SelectScratch scratch;
	__shared__ u64 pairs[MAX_LOGPROBS];
	__shared__ int ties[SELECT_WARPS], ranks[SELECT_WARPS], filled;
	__shared__ float sums[SELECT_WARPS], tops[SELECT_WARPS];
	const int row = blockIdx.x, tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
	if (row >= p.rows) return;
	const SampleRow& r = p.row[row];
	if (!(r.flags & ROW_LOGPROBS) || p.faults[row] != FAULT_NONE) return;
	const float* raw = p.logits + (size_t)row * p.vocab;
	const ChunkStat* stats = p.stats + (size_t)row * p.chunks;
	float top = -infinity(), sum = 0.f;
	for (int c = tid; c < p.chunks; c += SELECT_THREADS) top = fmaxf(top, stats[c].raw_max);
	top = warp_max(top);
	if (lane == 0) tops[warp] = top;
	__syncthreads();
#pragma unroll
	for (int w = 0; w < SELECT_WARPS; w++) top = fmaxf(top, tops[w]);
	for (int c = tid; c < p.chunks; c += SELECT_THREADS) sum += stats[c].raw_sum * expf(stats[c].raw_max - top);
	const float lse = logf(block_sum<SELECT_THREADS>(sum, sums));
	const int token = r.flags & ROW_SKIP ? r.target : p.tokens[row], n = imin(imin(r.logprobs, p.vocab), imin(MAX_LOGPROBS, p.top_stride - 1));
	int32_t* ids = p.top_ids + (size_t)row * p.top_stride;
	float* values = p.top_values + (size_t)row * p.top_stride;
	const bool known = token >= 0 && token < p.vocab;
	const float chosen = known ? raw[token] : 0.f;
	int rank = 0;
	if (known)
		each_logit(raw, tid, p.vocab, SELECT_THREADS, [&](int, float v) { rank += v >= chosen; });
#pragma unroll
	for (int o = 16; o; o >>= 1) rank += __shfl_xor_sync(0xffffffffu, rank, o);
	if (lane == 0) ranks[warp] = rank;
	if (tid == 0) filled = 0;
	__syncthreads();
	if (tid == 0) {
		int all = 0;
		for (int w = 0; w < SELECT_WARPS; w++) all += ranks[w];
		p.ranks[row] = all;
		ids[0] = known ? token : -1;
		values[0] = known ? chosen - top - lse : 0.f;
	}
	if (n <= 0) return;
	const Selected s = select(
	    scratch, raw, p.vocab, [](float v) { return v; }, [](float) { return (u64)1; }, [&](u64) { return (u64)n; });
	// Better ones in any order, then the ties of the lowest ids: warps walk their parts in order.
	for (int i = tid; i < MAX_LOGPROBS; i += SELECT_THREADS) pairs[i] = 0;
	__syncthreads();
	const Segment seg = segment_of(p.vocab);
	int mine = 0;
	each_logit(raw, seg.from + lane, seg.to, 32, [&](int i, float v) {
		const unsigned key = key_of(v);
		if (key > s.key) pairs[atomicAdd(&filled, 1)] = pair_of(key, i);
		mine += key == s.key;
	});
#pragma unroll
	for (int o = 16; o; o >>= 1) mine += __shfl_xor_sync(0xffffffffu, mine, o);
	if (lane == 0) ties[warp] = mine;
	__syncthreads();
	int seen = 0;
	for (int w = 0; w < warp; w++) seen += ties[w];
	const int better_ones = n - (int)s.rest;
	for (int i0 = seg.from; i0 < seg.to && seen < (int)s.rest; i0 += 32) {
		const int i = i0 + lane;
		const bool tie = i < seg.to && key_of(raw[i]) == s.key;
		const unsigned who = __ballot_sync(0xffffffffu, tie);
		const int at = seen + __popc(who & ((1u << lane) - 1));
		if (tie && at < (int)s.rest) pairs[better_ones + at] = pair_of(s.key, i);
		seen += __popc(who);
	}
	int size = 1;
	while (size < n) size <<= 1;
	for (int k = 2; k <= size; k <<= 1)
		for (int j = k >> 1; j > 0; j >>= 1) {
			__syncthreads();
			for (int i = tid; i < size; i += SELECT_THREADS) {
				const int o = i ^ j;
				if (o <= i) continue;
				const u64 a = pairs[i], b = pairs[o];
				if ((a < b) == ((i & k) == 0)) {
					pairs[i] = b;
					pairs[o] = a;
				}
			}
		}
	__syncthreads();
	for (int i = tid; i < n; i += SELECT_THREADS) {
		const int id = (int)~(unsigned)pairs[i];
		ids[1 + i] = id;
		values[1 + i] = raw[id] - top - lse;
	}
}
KERNEL(logprobs, SampleParams, SELECT_THREADS, logprobs_row)
