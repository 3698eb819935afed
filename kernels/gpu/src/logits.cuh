// Logits before sampling: what may be sampled, biases and penalties, in the order of kernels.Sample; and of every chunk of a row the
// maxima and sums that greedy sampling and logprobs need, so that these do not read the row again.
#pragma once
#include "gpu.h"

__device__ __forceinline__ float nan_value() { return __uint_as_float(0x7fffffffu); }

enum : unsigned { TOKEN_COUNT = 0xffffffu, TOKEN_PROMPT = 1u << 30, TOKEN_ALLOWED = 1u << 29, TOKEN_BANNED = 1u << 28 };

// each calls f with the index of every id of a range that lies in [c0, c0+n), threads apart.
template <class F> __device__ __forceinline__ void each(const SampleParams& p, const int32_t (&range)[2], int c0, int n, F f) {
	for (int i = range[0] + (int)threadIdx.x; i < range[1]; i += 256) {
		const int at = p.ids[i] - c0;
		if (at >= 0 && at < n) f(at, i);
	}
}

// change applies everything that comes before temperature to a chunk in shared memory.
__device__ __forceinline__ void change(const SampleParams& p, const SampleRow& r, int row, int c0, int n, float* v, unsigned* seen) {
	const bool repeat = r.repetition != 0.f && r.repetition != 1.f, often = r.frequency != 0.f || r.presence != 0.f;
	for (int i = threadIdx.x; i < n; i += 256) seen[i] = 0;
	__syncthreads();
	if (repeat || often) each(p, r.output, c0, n, [&](int at, int) { atomicAdd(seen + at, 1u); });
	if (repeat) each(p, r.prompt, c0, n, [&](int at, int) { atomicOr(seen + at, TOKEN_PROMPT); });
	if (r.flags & ROW_ALLOWED) each(p, r.allowed, c0, n, [&](int at, int) { atomicOr(seen + at, TOKEN_ALLOWED); });
	each(p, r.banned, c0, n, [&](int at, int) { atomicOr(seen + at, TOKEN_BANNED); });
	__syncthreads();
	const uint32_t* mask = r.flags & ROW_MASK ? p.masks + (size_t)row * ((p.vocab + 31) / 32) : nullptr;
	for (int i = threadIdx.x; i < n; i += 256) {
		const int id = c0 + i;
		const bool masked = mask != nullptr && !(mask[id >> 5] >> (id & 31) & 1);
		if (masked || ((r.flags & ROW_ALLOWED) && !(seen[i] & TOKEN_ALLOWED)) || (seen[i] & TOKEN_BANNED)) v[i] = -infinity();
	}
	__syncthreads();
	each(p, r.biased, c0, n, [&](int at, int i) { atomicAdd(v + at, p.bias[i]); });
	__syncthreads();
	if (!repeat && !often) return;
	for (int i = threadIdx.x; i < n; i += 256) {
		const unsigned count = seen[i] & TOKEN_COUNT;
		if (repeat && (count > 0 || (seen[i] & TOKEN_PROMPT))) v[i] = v[i] > 0.f ? v[i] / r.repetition : v[i] * r.repetition;
		if (often && count > 0) v[i] -= r.frequency * (float)count + r.presence;
	}
	__syncthreads();
}

struct Best {
	float v;
	int id;
};
__device__ __forceinline__ Best better(Best a, Best b) { return b.id >= 0 && (a.id < 0 || b.v > a.v || (b.v == a.v && b.id < a.id)) ? b : a; }
// block_best is the maximum of all threads' values and the lowest id that has it; -1: none.
template <int WARPS> __device__ __forceinline__ Best block_best(Best b, Best* scratch) {
#pragma unroll
	for (int o = 16; o; o >>= 1) b = better(b, {__shfl_xor_sync(0xffffffffu, b.v, o), __shfl_xor_sync(0xffffffffu, b.id, o)});
	if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = b;
	__syncthreads();
	Best top = scratch[0];
#pragma unroll
	for (int w = 1; w < WARPS; w++) top = better(top, scratch[w]);
	__syncthreads();
	return top;
}

__device__ __forceinline__ void logits_chunk(const SampleParams& p) {
	__shared__ float v[CHUNK];
	__shared__ unsigned seen[CHUNK];
	__shared__ Best best[8];
	__shared__ float sums[8];
	__shared__ int nans[8];
	const int chunk = blockIdx.x, row = blockIdx.y, c0 = chunk * CHUNK, tid = threadIdx.x;
	if (row >= p.rows || chunk >= p.chunks) return;
	const SampleRow& r = p.row[row];
	const int n = imin(CHUNK, p.vocab - c0);
	const float* raw = p.logits + (size_t)row * p.vocab + c0;
	Best top = {-infinity(), -1};
	int nan = 0;
#pragma unroll 4
	for (int i = tid; i < n; i += 256) {
		const float x = raw[i];
		v[i] = x;
		nan |= x != x;
		if (x > top.v) top = {x, c0 + i};
	}
	nan = __any_sync(0xffffffffu, nan);
	if ((tid & 31) == 0) nans[tid >> 5] = nan;
	top = block_best<8>(top, best);
	nan = 0;
#pragma unroll
	for (int w = 0; w < 8; w++) nan |= nans[w];
	ChunkStat s = {nan ? nan_value() : top.v, 0.f, top.v, top.id};
	if (nan) {
		if (tid == 0) p.stats[(size_t)row * p.chunks + chunk] = s;
		return;
	}
	if (r.flags & ROW_LOGPROBS) {
		float sum = 0.f;
		for (int i = tid; i < n; i += 256) sum += top.id < 0 ? 0.f : expf(v[i] - top.v);
		s.raw_sum = block_sum<256>(sum, sums);
	}
	if (r.flags & ROW_PROCESS) {
		__syncthreads();
		change(p, r, row, c0, n, v, seen);
		float* work = p.work + (size_t)row * p.vocab + c0;
		top = {-infinity(), -1};
		for (int i = tid; i < n; i += 256) {
			work[i] = v[i];
			if (v[i] > top.v) top = {v[i], c0 + i};
		}
		top = block_best<8>(top, best);
		s.max = top.v;
		s.argmax = top.id;
	}
	if (tid == 0) p.stats[(size_t)row * p.chunks + chunk] = s;
}
KERNEL(logits_process, SampleParams, 256, logits_chunk)
