// Selection without sorting: a radix walk from the highest keys down finds the value at which a running count, or a running weight,
// reaches a target. Weights are integers, so sums do not depend on their order.
#pragma once
#include "logits.cuh"

enum { SELECT_THREADS = 512, SELECT_WARPS = SELECT_THREADS / 32, BINS = 2048 };
typedef unsigned long long u64;

// key_of orders floats as unsigned integers; zeros are one.
__device__ __forceinline__ unsigned key_of(float v) {
	const unsigned u = __float_as_uint(v + 0.f);
	return u & 0x80000000u ? ~u : u | 0x80000000u;
}

// weight_of is exp(v - top) in units of 2^-40.
__device__ __forceinline__ u64 weight_of(float v, float top) { return (u64)(expf(v - top) * 1099511627776.f); }

struct SelectScratch {
	u64 hist[BINS];
	u64 warp[SELECT_WARPS];
	u64 above, total;
	int bin;
};

// Selected is the key at which the target is reached, and what is left of the target among elements of that very key.
struct Selected {
	unsigned key;
	u64 rest;
	bool all; // the total does not reach the target
};

// find_bin finds, from the highest bin down, the one where the running sum reaches the target, which is a function of the total.
template <class Target> __device__ __forceinline__ void find_bin(SelectScratch& s, Target target) {
	constexpr int EACH = BINS / SELECT_THREADS;
	const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, high = BINS - 1 - tid * EACH;
	u64 mine = 0;
#pragma unroll
	for (int i = 0; i < EACH; i++) mine += s.hist[high - i];
	u64 upto = mine;
#pragma unroll
	for (int o = 1; o < 32; o <<= 1) {
		const u64 v = __shfl_up_sync(0xffffffffu, upto, o);
		if (lane >= o) upto += v;
	}
	if (lane == 31) s.warp[warp] = upto;
	if (tid == 0) s.bin = -1;
	__syncthreads();
	u64 before = 0, total = 0;
#pragma unroll
	for (int w = 0; w < SELECT_WARPS; w++) {
		if (w < warp) before += s.warp[w];
		total += s.warp[w];
	}
	const u64 goal = target(total);
	u64 run = before + upto - mine;
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		const u64 h = s.hist[high - i];
		if (run < goal && goal <= run + h) {
			s.bin = high - i;
			s.above = run;
			s.total = goal;
		}
		run += h;
	}
	__syncthreads();
}

// each_logit calls f with the indices and values of n elements of a row, from `first` on and `stride` apart. Four loads are on their way
// together, as one after the other would be all latency.
template <class F> __device__ __forceinline__ void each_logit(const float* row, int first, int n, int stride, F f) {
	int i = first;
	for (; i + 3 * stride < n; i += 4 * stride) {
		float x[4];
#pragma unroll
		for (int j = 0; j < 4; j++) x[j] = row[i + j * stride];
#pragma unroll
		for (int j = 0; j < 4; j++) f(i + j * stride, x[j]);
	}
	for (; i < n; i += stride) f(i, row[i]);
}

// select walks a row of n elements; value(x) gives an element's value from what is stored, or NaN where it does not count, and weight(v) its
// weight. Later passes look at the key first: few elements remain.
template <class Value, class Weight, class Target> __device__ __forceinline__ Selected select(SelectScratch& s, const float* row, int n, Value value, Weight weight, Target target) {
	Selected out = {0, 0, false};
	u64 goal = 0;
#pragma unroll 1
	for (int pass = 0; pass < 3; pass++) {
		const int shift = pass == 0 ? 21 : pass == 1 ? 10 : 0, bits = pass == 2 ? 10 : 11;
		for (int i = threadIdx.x; i < BINS; i += SELECT_THREADS) s.hist[i] = 0;
		__syncthreads();
		each_logit(row, threadIdx.x, n, SELECT_THREADS, [&](int, float x) {
			const float v = value(x);
			const unsigned key = key_of(v);
			if (v != v || (pass > 0 && (key ^ out.key) >> (shift + bits))) return;
			atomicAdd(&s.hist[key >> shift & ((1u << bits) - 1)], weight(v));
		});
		__syncthreads();
		find_bin(s, [&](u64 total) { return pass == 0 ? target(total) : goal; });
		if (s.bin < 0) {
			out.all = true;
			__syncthreads();
			return out;
		}
		out.key |= (unsigned)s.bin << shift;
		goal = s.total - s.above;
		__syncthreads();
	}
	out.rest = goal;
	return out;
}

// Segment is the part of a row that a warp walks in order.
struct Segment {
	int from, to;
};
__device__ __forceinline__ Segment segment_of(int n) {
	const int each = div_up(div_up(n, SELECT_WARPS), 32) * 32, warp = threadIdx.x >> 5;
	return {imin(n, warp * each), imin(n, (warp + 1) * each)};
}
__device__ __forceinline__ u64 warp_sum64(u64 v) {
#pragma unroll
	for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
	return v;
}
