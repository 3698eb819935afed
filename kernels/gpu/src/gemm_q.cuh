// Products with weights in GGUF blocks. Few rows: activations as int8 and dp4a, bound by the weights' bandwidth. Many: weights become T
// in shared memory a tile at a time, then as dense ones.
#pragma once
#include "gemm.cuh"
#include "quant.cuh"

// quantize: a warp a group of 32 activations. ds holds the scale, and the scale times the sum of the integers.
template <class T> __device__ __forceinline__ void quantize(const QuantizeParams& p) {
	const int groups = p.k / 32, g = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
	if (g >= p.m * groups) return;
	const int m = g / groups, i = g % groups * 32 + lane;
	const float x = to_f32(static_cast<const T*>(p.x)[(size_t)m * p.ldx + i]);
	const float top = warp_max(fabsf(x)), d = top / 127.f;
	const int q = d > 0.f ? (int)rintf(x / d) : 0;
	int sum = q;
#pragma unroll
	for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
	p.q[(size_t)m * p.k + i] = (int8_t)q;
	if (lane == 0) *reinterpret_cast<float2*>(p.ds + 2 * (size_t)g) = make_float2(top != top ? top : d, d * (float)sum);
}

// gemv_q: a warp a row of b, a lane a group of 32 weights.
template <class Q, int M> __device__ __forceinline__ void gemv_q(const GemvQParams& p) {
	const int n = blockIdx.x * 4 + (threadIdx.x >> 5), lane = threadIdx.x & 31, groups = p.k / 32;
	if (n >= p.n) return;
	const uint8_t* row = static_cast<const uint8_t*>(p.b) + (size_t)n * row_bytes<Q>(p.k);
	float acc[M] = {};
	constexpr int UNROLL = M <= 2 ? 2 : 1; // loads of a second group on their way
#pragma unroll UNROLL
	for (int g = lane; g < groups; g += 32) {
		Group w;
		Q::group(row, g, w);
#pragma unroll
		for (int m = 0; m < M; m++) {
			if (m >= p.m) break;
			const int4* x = reinterpret_cast<const int4*>(p.q + (size_t)m * p.k + g * 32);
			const int4 a = x[0], b = x[1];
			const float2 ds = *reinterpret_cast<const float2*>(p.ds + 2 * ((size_t)m * groups + g));
			int lo = __dp4a(w.q[0], a.x, 0), hi = __dp4a(w.q[4], b.x, 0);
			lo = __dp4a(w.q[1], a.y, lo), hi = __dp4a(w.q[5], b.y, hi);
			lo = __dp4a(w.q[2], a.z, lo), hi = __dp4a(w.q[6], b.z, hi);
			lo = __dp4a(w.q[3], a.w, lo), hi = __dp4a(w.q[7], b.w, hi);
			acc[m] += ds.x * (w.d[0] * (float)lo + w.d[1] * (float)hi) + w.m * ds.y;
		}
	}
	float mine = 0.f; // lane m writes row m
#pragma unroll
	for (int m = 0; m < M; m++) {
		const float v = warp_sum(acc[m]);
		if (lane == m) mine = v;
	}
	if (lane < M && lane < p.m) write_out(p.out, p.kind, (size_t)lane * p.ldc + n, mine + (p.bias != nullptr ? p.bias[n] : 0.f));
}

// mmq: 64x64 tiles. While a stage is multiplied, the next one's weights are unpacked into the other buffer: a thread a group of 32.
template <class Q, class T> __device__ __forceinline__ void mmq(const GemmParams& p) {
	constexpr int BM = 64, BN = 64, STAGES = 3;
	DYN_SHARED(T, smem);
	T *sa = smem, *sb = smem + STAGES * BM * BK;
	const T* a = static_cast<const T*>(p.a);
	const Tile at = tile_of_block<BM, BN>();
	if (at.m0 >= p.m || at.n0 >= p.n) return;
	const int warp = threadIdx.x >> 5, wm = (warp >> 1) * 32, wn = (warp & 1) * 32, steps = div_up(p.k, BK);
	const int r = threadIdx.x >> 1, half = threadIdx.x & 1;
	const bool row_ok = at.n0 + r < p.n;
	const uint8_t* row = static_cast<const uint8_t*>(p.b) + (size_t)(row_ok ? at.n0 + r : 0) * row_bytes<Q>(p.k);
	const bool va = p.lda % 8 == 0 && aligned16(a);
	auto load = [&](int s) {
		if (s < steps) load_tile<T, BM, 128>(sa + s % STAGES * BM * BK, a, p.lda, at.m0, p.m, s * BK, p.k, va);
		cp_async_commit();
	};
	auto unpack_weights = [&](int s) {
		if (s >= steps) return;
		T* to = sb + (s & 1) * BN * BK;
		const int g = s * 2 + half;
		Group w;
		const bool ok = row_ok && g < p.k / 32;
		Q::group(row, ok ? g : 0, w);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			float f[4], h[4];
			w.floats(2 * i, f);
			w.floats(2 * i + 1, h);
			uint4 v = make_uint4(pack2<T>(f[0], f[1]), pack2<T>(f[2], f[3]), pack2<T>(h[0], h[1]), pack2<T>(h[2], h[3]));
			if (!ok) v = make_uint4(0, 0, 0, 0);
			store_16(to + swizzled(r, half * 4 + i), v);
		}
	};
	WarpTile<T, 2, 4> tile;
	tile.clear();
	for (int s = 0; s < STAGES - 1; s++) load(s);
	unpack_weights(0);
	for (int s = 0; s < steps; s++) {
		cp_async_wait<STAGES - 2>();
		__syncthreads();
		load(s + STAGES - 1);
		unpack_weights(s + 1);
		tile.step(sa + s % STAGES * BM * BK, sb + (s & 1) * BN * BK, wm, wn);
	}
	cp_async_wait<0>();
	__syncthreads();
	float* staged = reinterpret_cast<float*>(smem);
	tile.template stage<BN + 8>(staged, wm, wn);
	__syncthreads();
	write_tile<BM, BN, BN + 8, 128>(p, staged, at);
}

#define X(T) KERNEL(quantize_##T, QuantizeParams, 256, quantize<T>)
FOR_HALF_TYPES(X)
#undef X
#define X(Q) \
	KERNEL(gemv_##Q##_1, GemvQParams, 128, gemv_q<Q, 1>) \
	KERNEL(gemv_##Q##_2, GemvQParams, 128, gemv_q<Q, 2>) \
	KERNEL(gemv_##Q##_4, GemvQParams, 128, gemv_q<Q, 4>) \
	KERNEL(gemv_##Q##_8, GemvQParams, 128, gemv_q<Q, 8>) \
	KERNEL(mmq_##Q##_bf16, GemmParams, 128, mmq<Q, bf16>) \
	KERNEL(mmq_##Q##_f16, GemmParams, 128, mmq<Q, f16>)
FOR_BLOCK_TYPES(X)
#undef X
