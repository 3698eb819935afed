// Sampling as kernels/ref defines it: greedy, or temperature, min-p, top-k, top-p and a draw in the order of token ids, without a sort.
#pragma once
#include "select.cuh"

// uniform is ref's random number in [0, 1): Philox4x32-10, the seed as key, the position as counter (Salmon et al., SC 2011).
__device__ __forceinline__ double uniform(uint64_t seed, uint64_t position) {
	unsigned c0 = (unsigned)position, c1 = (unsigned)(position >> 32), c2 = 0, c3 = 0, k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
#pragma unroll
	for (int i = 0; i < 10; i++) {
		const unsigned h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0, h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
		c0 = h1 ^ c1 ^ k0, c1 = l1, c2 = h0 ^ c3 ^ k1, c3 = l0;
		k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
	}
	return (double)(((u64)c0 << 32 | c1) >> 11) / 9007199254740992.0;
}

// Filter says which tokens of a row are left. Ties at the lowest key that top-p keeps are kept from the lowest id on, `ties` of them.
struct Filter {
	const float* logits;
	float temperature, top, min_p;
	unsigned low; // of top-k
	unsigned cut; // of top-p
	u64 ties;
	bool nucleus;
	__device__ __forceinline__ float value(float logit) const { return logit / temperature; }
	// left reports whether a value survives min-p and top-k.
	__device__ __forceinline__ bool left(float v) const { return v > -infinity() && key_of(v) >= low && (min_p <= 0.f || expf(v - top) >= min_p); }
	// left_value is the value of a logit that is left, else NaN.
	__device__ __forceinline__ float left_value(float logit) const {
		const float v = value(logit);
		return left(v) ? v : nan_value();
	}
};

struct DrawScratch {
	u64 sum[SELECT_WARPS], ties[SELECT_WARPS];
	u64 goal, ties_before;
	int warp, token;
};

// draw inverts the distribution of what is left.
__device__ __forceinline__ int draw(const Filter& f, int vocab, double u, DrawScratch& d) {
	const Segment seg = segment_of(vocab);
	const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
	u64 sum = 0, ties = 0, one = 0;
	each_logit(f.logits, seg.from + lane, seg.to, 32, [&](int, float x) {
		const float v = f.value(x);
		const unsigned key = key_of(v);
		if ((f.nucleus && key < f.cut) || !f.left(v)) return;
		if (f.nucleus && key == f.cut) {
			ties++;
			one = weight_of(v, f.top);
		} else {
			sum += weight_of(v, f.top);
		}
	});
	sum = warp_sum64(sum);
	ties = warp_sum64(ties);
#pragma unroll
	for (int o = 16; o; o >>= 1) {
		const u64 v = __shfl_xor_sync(0xffffffffu, one, o);
		one = v > one ? v : one;
	}
	if (lane == 0) {
		d.sum[warp] = sum;
		d.ties[warp] = ties | one << 20; // fewer than 2^20 tokens; a weight is at most 2^40
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		u64 total = 0, before = 0;
		for (int w = 0; w < SELECT_WARPS; w++) {
			const u64 n = d.ties[w] & 0xfffff, kept = before >= f.ties ? 0 : n < f.ties - before ? n : f.ties - before;
			d.sum[w] += kept * (d.ties[w] >> 20);
			d.ties[w] = before;
			before += n;
			total += d.sum[w];
		}
		u64 goal = (u64)(u * (double)total);
		if (goal >= total) goal = total - 1;
		d.warp = -1;
		for (int w = 0; w < SELECT_WARPS && d.warp < 0; w++) {
			if (goal < d.sum[w]) {
				d.warp = w;
				d.goal = goal;
				d.ties_before = d.ties[w];
			} else {
				goal -= d.sum[w];
			}
		}
		d.token = -1;
	}
	__syncthreads();
	if (warp == d.warp) {
		u64 run = 0, seen = d.ties_before;
		for (int i0 = seg.from; i0 < seg.to; i0 += 32) {
			const int i = i0 + lane;
			u64 w = 0;
			bool tie = false;
			if (i < seg.to) {
				const float v = f.value(f.logits[i]);
				if (f.left(v)) {
					const unsigned key = key_of(v);
					tie = f.nucleus && key == f.cut;
					if (!f.nucleus || key >= f.cut) w = weight_of(v, f.top);
				}
			}
			const unsigned who = __ballot_sync(0xffffffffu, tie);
			if (tie && seen + (u64)__popc(who & ((1u << lane) - 1)) >= f.ties) w = 0;
			seen += (u64)__popc(who);
			u64 upto = w;
#pragma unroll
			for (int o = 1; o < 32; o <<= 1) {
				const u64 x = __shfl_up_sync(0xffffffffu, upto, o);
				if (lane >= o) upto += x;
			}
			const unsigned hit = __ballot_sync(0xffffffffu, run + upto > d.goal);
			if (hit != 0) {
				if (lane == 0) d.token = i0 + __ffs(hit) - 1;
				break;
			}
			run += __shfl_sync(0xffffffffu, upto, 31);
		}
	}
	__syncthreads();
	return d.token;
}

__device__ __forceinline__ void finish(const SampleParams& p, const SampleRow& r, int row, int token, int fault) {
	if (threadIdx.x != 0) return;
	p.tokens[row] = token;
	p.faults[row] = fault;
	if (token < 0 || r.slot < 0) return;
	int32_t* recent = p.recent + (size_t)r.slot * RECENT;
#pragma unroll
	for (int i = RECENT - 1; i > 0; i--) recent[i] = recent[i - 1];
	recent[0] = token;
}

__device__ __forceinline__ void sample_row(const SampleParams& p) {
	__shared__ SelectScratch scratch;
	__shared__ DrawScratch drawing;
	__shared__ Best best[SELECT_WARPS];
	__shared__ int nans[SELECT_WARPS];
	const int row = blockIdx.x, tid = threadIdx.x;
	if (row >= p.rows) return;
	const SampleRow& r = p.row[row];
	const ChunkStat* stats = p.stats + (size_t)row * p.chunks;
	Best top = {-infinity(), -1};
	int nan = 0;
	for (int c = tid; c < p.chunks; c += SELECT_THREADS) {
		nan |= stats[c].raw_max != stats[c].raw_max;
		top = better(top, {stats[c].max, stats[c].argmax});
	}
	nan = __any_sync(0xffffffffu, nan);
	if ((tid & 31) == 0) nans[tid >> 5] = nan;
	top = block_best<SELECT_WARPS>(top, best);
	nan = 0;
#pragma unroll
	for (int w = 0; w < SELECT_WARPS; w++) nan |= nans[w];
	if (nan) return finish(p, r, row, -1, FAULT_NAN);
	if (r.flags & ROW_SKIP) return finish(p, r, row, -1, FAULT_NONE);
	if (top.id < 0) return finish(p, r, row, -1, FAULT_NO_TOKEN);
	if (r.temperature < 1e-5f) return finish(p, r, row, top.id, FAULT_NONE);
	Filter f = {(r.flags & ROW_PROCESS ? p.work : p.logits) + (size_t)row * p.vocab, r.temperature, top.v / r.temperature, r.min_p, 0, 0, 0, false};
	if (f.top == infinity() || f.top == -infinity()) return finish(p, r, row, -1, f.top > 0.f ? FAULT_INFINITE : FAULT_NO_TOKEN);
	if (r.top_k > 0 && r.top_k < p.vocab) {
		const Selected s = select(
		    scratch, f.logits, p.vocab, [&](float x) { return f.left_value(x); }, [](float) { return (u64)1; }, [&](u64) { return (u64)r.top_k; });
		if (!s.all) f.low = s.key;
	}
	if (r.top_p > 0.f && r.top_p < 1.f) {
		const Selected s = select(
		    scratch, f.logits, p.vocab, [&](float x) { return f.left_value(x); }, [&](float v) { return weight_of(v, f.top); },
		    [&](u64 total) {
			    const double goal = ceil((double)r.top_p * (double)total);
			    return goal < 1.0 ? (u64)1 : (u64)goal;
		    });
		if (!s.all) {
			f.nucleus = true;
			f.cut = s.key;
			const unsigned u = s.key & 0x80000000u ? s.key & 0x7fffffffu : ~s.key;
			const u64 one = weight_of(__uint_as_float(u), f.top);
			f.ties = (s.rest + one - 1) / one;
		}
	}
	finish(p, r, row, draw(f, p.vocab, uniform(r.seed, r.position), drawing), FAULT_NONE);
}
KERNEL(sample, SampleParams, SELECT_THREADS, sample_row)
