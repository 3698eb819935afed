// Products of activations with dense weights: out[m,n] = a[m,k] * b[n,k]^T. Tensor cores through ldmatrix and mma, tiles brought by a
// multi-stage cp.async pipeline; rows of 64 elements are 8 chunks of 16 bytes, whose order is turned by the row, so that ldmatrix
// and the stores meet no bank twice.
#pragma once
#include "gpu.h"

enum { BK = 64 };

// write_out stores one value of a product.
__device__ __forceinline__ void write_out(void* out, int kind, size_t at, float v) {
	switch (kind) {
	case OUT_F32: static_cast<float*>(out)[at] = v; break;
	case OUT_BF16: static_cast<bf16*>(out)[at] = from_f32<bf16>(v); break;
	case OUT_F16: static_cast<f16*>(out)[at] = from_f32<f16>(v); break;
	case OUT_ADD_F32: static_cast<float*>(out)[at] += v; break;
	}
}
// write_pair stores two neighbours; at is even and rows are of even distance.
__device__ __forceinline__ void write_pair(void* out, int kind, size_t at, float a, float b) {
	switch (kind) {
	case OUT_F32: *reinterpret_cast<float2*>(static_cast<float*>(out) + at) = make_float2(a, b); break;
	case OUT_BF16: *reinterpret_cast<unsigned*>(static_cast<bf16*>(out) + at) = pack2<bf16>(a, b); break;
	case OUT_F16: *reinterpret_cast<unsigned*>(static_cast<f16*>(out) + at) = pack2<f16>(a, b); break;
	case OUT_ADD_F32: {
		float2* o = reinterpret_cast<float2*>(static_cast<float*>(out) + at);
		const float2 v = *o;
		*o = make_float2(v.x + a, v.y + b);
		break;
	}
	}
}

// Tile is where a block works. Blocks that run together share rows of a and b: eight rows of tiles go down before the next column.
struct Tile {
	int m0, n0;
};
template <int BM, int BN> __device__ __forceinline__ Tile tile_of_block() {
	const int id = blockIdx.y * gridDim.x + blockIdx.x, group = 8 * gridDim.x, g = id / group;
	const int first = g * 8, rows = imin((int)gridDim.y - first, 8), in = id - g * group;
	return {(first + in % rows) * BM, in / rows * BN};
}

// swizzled is the element offset of chunk c of row r in a tile of rows of 64 elements.
__device__ __forceinline__ int swizzled(int r, int c) { return r * BK + ((c ^ (r & 7)) << 3); }

// load_tile issues ROWS rows of 64 columns from k0 on; rows and columns outside are zero.
template <class T, int ROWS, int THREADS> __device__ __forceinline__ void load_tile(T* dst, const T* src, size_t ld, int r0, int rows, int k0, int k, bool vec) {
	if (vec) {
#pragma unroll
		for (int i = 0; i < ROWS * 8 / THREADS; i++) {
			const int c = threadIdx.x + i * THREADS, r = c >> 3, col = (c & 7) * 8;
			const bool ok = r0 + r < rows && k0 + col < k;
			cp_async16(dst + swizzled(r, c & 7), ok ? src + (size_t)(r0 + r) * ld + k0 + col : src, ok);
		}
		return;
	}
#pragma unroll 1
	for (int i = threadIdx.x; i < ROWS * BK; i += THREADS) {
		const int r = i / BK, col = i % BK;
		const bool ok = r0 + r < rows && k0 + col < k;
		dst[swizzled(r, col >> 3) + (col & 7)] = ok ? src[(size_t)(r0 + r) * ld + k0 + col] : T{};
	}
}

// WarpTile is a warp's part of a product: MI times 16 rows, NI times 8 columns.
template <class T, int MI, int NI> struct WarpTile {
	float acc[MI][NI][4];
	__device__ __forceinline__ void clear() {
#pragma unroll
		for (int i = 0; i < MI; i++)
#pragma unroll
			for (int j = 0; j < NI; j++)
#pragma unroll
				for (int e = 0; e < 4; e++) acc[i][j][e] = 0.f;
	}
	// step multiplies one stage: 64 columns of a's rows from wm and b's rows from wn.
	__device__ __forceinline__ void step(const T* a, const T* b, int wm, int wn) {
		const int lane = threadIdx.x & 31;
#pragma unroll
		for (int kk = 0; kk < BK / 16; kk++) {
			unsigned fa[MI][4], fb[NI / 2][4];
#pragma unroll
			for (int i = 0; i < MI; i++) ldmatrix_x4(fa[i], a + swizzled(wm + i * 16 + (lane & 15), kk * 2 + (lane >> 4)));
#pragma unroll
			for (int j = 0; j < NI / 2; j++) ldmatrix_x4(fb[j], b + swizzled(wn + j * 16 + (lane >> 4) * 8 + (lane & 7), kk * 2 + ((lane >> 3) & 1)));
#pragma unroll
			for (int i = 0; i < MI; i++)
#pragma unroll
				for (int j = 0; j < NI; j++) mma_m16n8k16<T>(acc[i][j], fa[i], fb[j >> 1][(j & 1) * 2], fb[j >> 1][(j & 1) * 2 + 1]);
		}
	}
	// stage puts the values into rows of LD floats of shared memory, from where write_tile takes them a row at a time.
	template <int LD> __device__ __forceinline__ void stage(float* to, int wm, int wn) {
		const int lane = threadIdx.x & 31;
#pragma unroll
		for (int i = 0; i < MI; i++)
#pragma unroll
			for (int j = 0; j < NI; j++)
#pragma unroll
				for (int e = 0; e < 4; e += 2)
					store_pair(to + (wm + i * 16 + (lane >> 2) + e * 4) * LD + wn + j * 8 + (lane & 3) * 2, acc[i][j][e], acc[i][j][e + 1]);
	}
};

// write_tile stores a staged tile with the bias, two neighbours a thread where the output allows it.
template <int BM, int BN, int LD, int THREADS> __device__ __forceinline__ void write_tile(const GemmParams& p, const float* from, const Tile& at) {
	const bool pairs = p.ldc % 2 == 0 && ((uintptr_t)p.out & 7) == 0;
#pragma unroll 1
	for (int i = threadIdx.x; i < BM * BN / 2; i += THREADS) {
		const int row = i / (BN / 2), col = i % (BN / 2) * 2, r = at.m0 + row, c = at.n0 + col;
		if (r >= p.m || c >= p.n) continue;
		float2 v = load_pair(from + row * LD + col);
		const bool both = c + 1 < p.n;
		if (p.bias != nullptr) {
			v.x += p.bias[c];
			if (both) v.y += p.bias[c + 1];
		}
		const size_t o = (size_t)r * p.ldc + c;
		if (both && pairs) {
			write_pair(p.out, p.kind, o, v.x, v.y);
		} else {
			write_out(p.out, p.kind, o, v.x);
			if (both) write_out(p.out, p.kind, o + 1, v.y);
		}
	}
}

template <class T, int BM, int BN, int WM, int WN, int STAGES> __device__ __forceinline__ void gemm(const GemmParams& p) {
	constexpr int WARPS_N = BN / WN, THREADS = BM / WM * WARPS_N * 32;
	DYN_SHARED(T, smem);
	T *sa = smem, *sb = smem + STAGES * BM * BK;
	const T *a = static_cast<const T*>(p.a), *b = static_cast<const T*>(p.b);
	const Tile at = tile_of_block<BM, BN>();
	if (at.m0 >= p.m || at.n0 >= p.n) return;
	const int warp = threadIdx.x >> 5, wm = warp / WARPS_N * WM, wn = warp % WARPS_N * WN, steps = div_up(p.k, BK);
	const bool va = p.k % 8 == 0 && p.lda % 8 == 0 && aligned16(a), vb = p.k % 8 == 0 && aligned16(b);
	auto load = [&](int s) {
		if (s < steps) {
			load_tile<T, BM, THREADS>(sa + s % STAGES * BM * BK, a, p.lda, at.m0, p.m, s * BK, p.k, va);
			load_tile<T, BN, THREADS>(sb + s % STAGES * BN * BK, b, p.k, at.n0, p.n, s * BK, p.k, vb);
		}
		cp_async_commit();
	};
	WarpTile<T, WM / 16, WN / 8> tile;
	tile.clear();
	for (int s = 0; s < STAGES - 1; s++) load(s);
	for (int s = 0; s < steps; s++) {
		cp_async_wait<STAGES - 2>();
		__syncthreads();
		load(s + STAGES - 1);
		tile.step(sa + s % STAGES * BM * BK, sb + s % STAGES * BN * BK, wm, wn);
	}
	cp_async_wait<0>();
	__syncthreads();
	float* staged = reinterpret_cast<float*>(smem);
	tile.template stage<BN + 8>(staged, wm, wn);
	__syncthreads();
	write_tile<BM, BN, BN + 8, THREADS>(p, staged, at);
}

#define X(T) \
	KERNEL(gemm_##T##_16, GemmParams, 64, gemm<T, 16, 32, 16, 16, 8>) \
	KERNEL(gemm_##T##_64, GemmParams, 128, gemm<T, 64, 64, 32, 32, 4>) \
	KERNEL_BLOCKS(gemm_##T##_128, GemmParams, 256, 2, gemm<T, 128, 128, 64, 32, 3>)
FOR_HALF_TYPES(X)
#undef X

// gemm_exact is float32 throughout: 64x64 tiles, 16 columns at a time, each thread 4x4 values.
__device__ __forceinline__ void gemm_exact(const GemmParams& p) {
	constexpr int LD = 66; // 4 rows of a column lie 8 banks apart
	__shared__ float sa[16 * LD], sb[16 * LD];
	const float *a = static_cast<const float*>(p.a), *b = static_cast<const float*>(p.b);
	const Tile at = tile_of_block<64, 64>();
	if (at.m0 >= p.m || at.n0 >= p.n) return;
	const int tid = threadIdx.x, ty = tid >> 4, tx = tid & 15, r = tid >> 2, c = (tid & 3) * 4;
	float acc[4][4] = {};
	const int ra = at.m0 + r, rb = at.n0 + r;
	const bool vec = p.k % 4 == 0 && p.lda % 4 == 0 && aligned16(a) && aligned16(b);
	for (int k0 = 0; k0 < p.k; k0 += 16) {
		float va[4] = {}, vb[4] = {};
		if (vec && k0 + c < p.k) {
			if (ra < p.m) load_vec(a + (size_t)ra * p.lda + k0 + c, va);
			if (rb < p.n) load_vec(b + (size_t)rb * p.k + k0 + c, vb);
		} else if (!vec) {
			for (int j = 0; j < 4; j++) {
				if (ra < p.m && k0 + c + j < p.k) va[j] = a[(size_t)ra * p.lda + k0 + c + j];
				if (rb < p.n && k0 + c + j < p.k) vb[j] = b[(size_t)rb * p.k + k0 + c + j];
			}
		}
#pragma unroll
		for (int j = 0; j < 4; j++) {
			sa[(c + j) * LD + r] = va[j];
			sb[(c + j) * LD + r] = vb[j];
		}
		__syncthreads();
#pragma unroll
		for (int kk = 0; kk < 16; kk++) {
			const float2 a0 = load_pair(sa + kk * LD + ty * 2), a1 = load_pair(sa + kk * LD + 32 + ty * 2);
			const float2 b0 = load_pair(sb + kk * LD + tx * 2), b1 = load_pair(sb + kk * LD + 32 + tx * 2);
			const float x[4] = {a0.x, a0.y, a1.x, a1.y}, y[4] = {b0.x, b0.y, b1.x, b1.y};
#pragma unroll
			for (int i = 0; i < 4; i++)
#pragma unroll
				for (int j = 0; j < 4; j++) acc[i][j] += x[i] * y[j];
		}
		__syncthreads();
	}
#pragma unroll
	for (int i = 0; i < 4; i++)
#pragma unroll
		for (int j = 0; j < 4; j++) {
			const int m = at.m0 + (i >> 1) * 32 + ty * 2 + (i & 1), n = at.n0 + (j >> 1) * 32 + tx * 2 + (j & 1);
			if (m < p.m && n < p.n) write_out(p.out, p.kind, (size_t)m * p.ldc + n, acc[i][j] + (p.bias != nullptr ? p.bias[n] : 0.f));
		}
}
KERNEL(gemm_f32, GemmParams, 256, gemm_exact)

// gemv is for up to M rows of activations: a warp reads one row of b once, 16 bytes a lane.
template <class T, int M> __device__ __forceinline__ void gemv(const GemmParams& p) {
	constexpr int N = Vec<T>::N;
	const int n = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
	if (n >= p.n) return;
	const T *a = static_cast<const T*>(p.a), *b = static_cast<const T*>(p.b) + (size_t)n * p.k;
	float acc[M] = {};
	if (p.k % N == 0 && p.lda % N == 0 && aligned16(a) && aligned16(p.b)) {
#pragma unroll 2
		for (int i = lane * N; i < p.k; i += 32 * N) {
			float w[N];
			load_vec(b + i, w);
#pragma unroll
			for (int m = 0; m < M; m++) {
				if (m >= p.m) break;
				float x[N];
				load_vec(a + (size_t)m * p.lda + i, x);
#pragma unroll
				for (int j = 0; j < N; j++) acc[m] += w[j] * x[j];
			}
		}
	} else {
		for (int i = lane; i < p.k; i += 32)
#pragma unroll
			for (int m = 0; m < M; m++)
				if (m < p.m) acc[m] += to_f32(b[i]) * to_f32(a[(size_t)m * p.lda + i]);
	}
	float mine = 0.f; // lane m writes row m
#pragma unroll
	for (int m = 0; m < M; m++) {
		const float v = warp_sum(acc[m]);
		if (lane == m) mine = v;
	}
	if (lane < M && lane < p.m) write_out(p.out, p.kind, (size_t)lane * p.ldc + n, mine + (p.bias != nullptr ? p.bias[n] : 0.f));
}

#define X(T) \
	KERNEL(gemv_##T##_1, GemmParams, 256, gemv<T, 1>) \
	KERNEL(gemv_##T##_2, GemmParams, 256, gemv<T, 2>) \
	KERNEL(gemv_##T##_4, GemmParams, 256, gemv<T, 4>) \
	KERNEL(gemv_##T##_8, GemmParams, 256, gemv<T, 8>)
FOR_HALF_TYPES(X)
typedef float f32;
X(f32)
#undef X
