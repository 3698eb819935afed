// What the attention kernels share: where a position's keys lie, tiles of them in shared memory, and the two products of a warp.
// Shared rows of D elements are chunks of 16 bytes whose order is turned by the row (conflict-free ldmatrix).
#pragma once
#include "gpu.h"

constexpr float LOG2E = 1.4426950408889634f;

template <int D> __device__ __forceinline__ int at_chunk(int row, int chunk) { return row * D + ((chunk ^ (row & 7)) << 3); }

// KVRow finds the keys and values of positions of one request and one KV head.
template <class T> struct KVRow {
	const char *k, *v;
	const int32_t* blocks;
	int64_t stride;
	int size, step, head;
	__device__ __forceinline__ KVRow(const AttnParams& p, int row, int kv_head)
	    : k(static_cast<const char*>(p.k)), v(static_cast<const char*>(p.v)), blocks(p.blocks + p.table_start[row]), stride(p.block_stride), size(p.block_size), step(p.kv_heads * p.dim), head(kv_head * p.dim) {}
	__device__ __forceinline__ int64_t offset(int pos) const { return (int64_t)blocks[pos / size] * stride + ((int64_t)(pos % size) * step + head) * (int64_t)sizeof(T); }
	__device__ __forceinline__ const T* key(int64_t offset) const { return reinterpret_cast<const T*>(k + offset); }
	__device__ __forceinline__ const T* value(int64_t offset) const { return reinterpret_cast<const T*>(v + offset); }
};

// load_keys issues ROWS positions from p0 on, those at or behind `end` as zeros, with THREADS threads.
template <class T, int D, int ROWS, int THREADS> __device__ __forceinline__ void load_keys(T* sk, T* sv, const KVRow<T>& kv, int p0, int end, int thread) {
	constexpr int CHUNKS = D / 8;
#pragma unroll
	for (int i = 0; i < ROWS * CHUNKS / THREADS; i++) {
		const int c = thread + i * THREADS, r = c / CHUNKS, col = c % CHUNKS;
		const bool ok = p0 + r < end;
		const int64_t at = ok ? kv.offset(p0 + r) : 0;
		const int to = at_chunk<D>(r, col);
		cp_async16(sk + to, kv.key(at) + (ok ? col * 8 : 0), ok);
		cp_async16(sv + to, kv.value(at) + (ok ? col * 8 : 0), ok);
	}
}

// Rows16 is the running softmax and output of 16 query rows of a warp; a lane holds parts of rows lane/4 and lane/4+8.
template <class T, int D, int KEYS> struct Rows16 {
	float o[D / 8][4];
	float m[2], l[2]; // in units of log2; l of this lane's columns only
	float s[KEYS / 8][4];

	__device__ __forceinline__ void clear() {
#pragma unroll
		for (int i = 0; i < D / 8; i++)
#pragma unroll
			for (int e = 0; e < 4; e++) o[i][e] = 0.f;
		m[0] = m[1] = -infinity();
		l[0] = l[1] = 0.f;
	}

	// scores: s = q k^T of KEYS keys; q are 16 rows in shared memory.
	__device__ __forceinline__ void scores(const T* q, const T* k) {
		const int lane = threadIdx.x & 31;
#pragma unroll
		for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
			for (int e = 0; e < 4; e++) s[j][e] = 0.f;
#pragma unroll
		for (int kk = 0; kk < D / 16; kk++) {
			unsigned a[4];
			ldmatrix_x4(a, q + at_chunk<D>(lane & 15, kk * 2 + (lane >> 4)));
#pragma unroll
			for (int j = 0; j < KEYS / 16; j++) {
				unsigned b[4];
				ldmatrix_x4(b, k + at_chunk<D>(j * 16 + (lane >> 4) * 8 + (lane & 7), kk * 2 + ((lane >> 3) & 1)));
				mma_m16n8k16<T>(s[2 * j], a, b[0], b[1]);
				mma_m16n8k16<T>(s[2 * j + 1], a, b[2], b[3]);
			}
		}
	}

	// soften scales into log2 and caps.
	__device__ __forceinline__ void soften(float scale, float cap) {
		const bool soft = cap > 0.f;
		const float before = soft ? scale / cap : scale * LOG2E, after = cap * LOG2E;
#pragma unroll
		for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
			for (int e = 0; e < 4; e++) s[j][e] *= before;
		if (!soft) return;
#pragma unroll
		for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
			for (int e = 0; e < 4; e++) s[j][e] = after * tanhf(s[j][e]);
	}

	// keep drops keys outside [lo[i], hi[i]) of the lane's two rows; keys start at p0.
	__device__ __forceinline__ void keep(int p0, const int (&lo)[2], const int (&hi)[2]) {
		const int col = (threadIdx.x & 3) * 2;
#pragma unroll
		for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
			for (int e = 0; e < 4; e++) {
				const int p = p0 + j * 8 + col + (e & 1);
				if (p < lo[e >> 1] || p >= hi[e >> 1]) s[j][e] = -infinity();
			}
	}

	// softmax makes s probabilities relative to the new maximum, and rescales what was summed.
	__device__ __forceinline__ void softmax() {
#pragma unroll
		for (int i = 0; i < 2; i++) {
			float top = m[i];
#pragma unroll
			for (int j = 0; j < KEYS / 8; j++) top = fmaxf(top, fmaxf(s[j][2 * i], s[j][2 * i + 1]));
			top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
			top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
			const float base = top == -infinity() ? 0.f : top, c = exp2_fast(m[i] - base);
			m[i] = top;
			l[i] *= c;
#pragma unroll
			for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
				for (int e = 0; e < 2; e++) {
					s[j][2 * i + e] = exp2_fast(s[j][2 * i + e] - base);
					l[i] += s[j][2 * i + e];
				}
#pragma unroll
			for (int d = 0; d < D / 8; d++) {
				o[d][2 * i] *= c;
				o[d][2 * i + 1] *= c;
			}
		}
	}

	// values: o += s v.
	__device__ __forceinline__ void values(const T* v) {
		const int lane = threadIdx.x & 31;
#pragma unroll
		for (int j = 0; j < KEYS / 16; j++) {
			const unsigned a[4] = {pack2<T>(s[2 * j][0], s[2 * j][1]), pack2<T>(s[2 * j][2], s[2 * j][3]), pack2<T>(s[2 * j + 1][0], s[2 * j + 1][1]), pack2<T>(s[2 * j + 1][2], s[2 * j + 1][3])};
#pragma unroll
			for (int d = 0; d < D / 16; d++) {
				unsigned b[4];
				ldmatrix_x4_trans(b, v + at_chunk<D>(j * 16 + (lane & 15), d * 2 + (lane >> 4)));
				mma_m16n8k16<T>(o[2 * d], a, b[0], b[1]);
				mma_m16n8k16<T>(o[2 * d + 1], a, b[2], b[3]);
			}
		}
	}

	// total adds l over the lanes of a row.
	__device__ __forceinline__ void total() {
#pragma unroll
		for (int i = 0; i < 2; i++) {
			l[i] += __shfl_xor_sync(0xffffffffu, l[i], 1);
			l[i] += __shfl_xor_sync(0xffffffffu, l[i], 2);
		}
	}
};
