// Conformance: each instruction that cuda/sim emulates, alone. A test compares what a kernel writes with what the instruction is
// defined to give, on the software device and, by make test-gpu, on a GPU: so the two cannot differ unseen.
#pragma once
#include "gpu.h"

// Input and output are words; every kernel says which. One warp.
struct ConformanceParams {
	unsigned* out;
	const unsigned* in;
};

// in: per lane 4 words of a, 2 of b, 4 floats; out: per lane 4 floats.
template <class T> __device__ __forceinline__ void conform_mma(const ConformanceParams& p) {
	const int lane = threadIdx.x;
	const unsigned* in = p.in + lane * 10;
	const unsigned a[4] = {in[0], in[1], in[2], in[3]};
	float d[4];
	for (int i = 0; i < 4; i++) d[i] = __uint_as_float(in[6 + i]);
	mma_m16n8k16<T>(d, a, in[4], in[5]);
	for (int i = 0; i < 4; i++) p.out[lane * 4 + i] = __float_as_uint(d[i]);
}

// in: 128 words, four 8x8 matrices of half words; out: per lane 4 words, then 4 of the transposed load.
__device__ __forceinline__ void conform_ldmatrix(const ConformanceParams& p) {
	__shared__ __align__(16) unsigned s[128];
	const int lane = threadIdx.x;
	for (int i = 0; i < 4; i++) s[lane * 4 + i] = p.in[lane * 4 + i];
	__syncthreads();
	unsigned r[4];
	ldmatrix_x4(r, s + lane * 4);
	for (int i = 0; i < 4; i++) p.out[lane * 8 + i] = r[i];
	ldmatrix_x4_trans(r, s + lane * 4);
	for (int i = 0; i < 4; i++) p.out[lane * 8 + 4 + i] = r[i];
}

// in: 256 words; out: the first 128 as copied, zeros where the lane is odd, in two groups of which the first is waited for first.
__device__ __forceinline__ void conform_cp_async(const ConformanceParams& p) {
	__shared__ __align__(16) unsigned s[256];
	const int lane = threadIdx.x;
	cp_async16(s + lane * 4, p.in + lane * 4, lane % 2 == 0);
	cp_async_commit();
	cp_async16(s + 128 + lane * 4, p.in + 128 + lane * 4, true);
	cp_async_commit();
	cp_async_wait<1>();
	for (int i = 0; i < 4; i++) p.out[lane * 4 + i] = s[lane * 4 + i];
	cp_async_wait<0>();
	for (int i = 0; i < 4; i++) p.out[128 + lane * 4 + i] = s[128 + lane * 4 + i];
}

// in: per lane two words; out: dp4a, funnel shift by 16, high product, bits set, first bit, bf16 pair, f16 pair, bf16 and f16 of the first word read as a float.
__device__ __forceinline__ void conform_words(const ConformanceParams& p) {
	const int lane = threadIdx.x;
	const unsigned a = p.in[lane * 2], b = p.in[lane * 2 + 1];
	unsigned* out = p.out + lane * 9;
	out[0] = (unsigned)__dp4a((int)a, (int)b, 7);
	out[1] = __funnelshift_r(a, b, 16);
	out[2] = __umulhi(a, b);
	out[3] = (unsigned)__popc(a);
	out[4] = (unsigned)__ffs((int)b);
	out[5] = pack2<bf16>(__uint_as_float(a), __uint_as_float(b));
	out[6] = pack2<f16>(__uint_as_float(a), __uint_as_float(b));
	out[7] = from_f32<bf16>(__uint_as_float(a)).b;
	out[8] = from_f32<f16>(__uint_as_float(a)).b;
}

// in: per lane a word; out: the lane that xor, up and down by 5 read, those of width 8, and the ballot of odd words.
__device__ __forceinline__ void conform_lanes(const ConformanceParams& p) {
	const int lane = threadIdx.x;
	const unsigned v = p.in[lane];
	unsigned* out = p.out + lane * 7;
	out[0] = __shfl_xor_sync(0xffffffffu, v, 5);
	out[1] = __shfl_up_sync(0xffffffffu, v, 5);
	out[2] = __shfl_down_sync(0xffffffffu, v, 5);
	out[3] = __shfl_sync(0xffffffffu, v, 9);
	out[4] = __shfl_xor_sync(0xffffffffu, v, 5, 8);
	out[5] = __shfl_down_sync(0xffffffffu, v, 3, 8);
	out[6] = __ballot_sync(0xffffffffu, v & 1);
}

// in: per lane a float; out: 2^x, and sine and cosine of pi x.
__device__ __forceinline__ void conform_functions(const ConformanceParams& p) {
	const float x = __uint_as_float(p.in[threadIdx.x]);
	float s, c;
	sincospif(x, &s, &c);
	p.out[threadIdx.x * 3] = __float_as_uint(exp2_fast(x));
	p.out[threadIdx.x * 3 + 1] = __float_as_uint(s);
	p.out[threadIdx.x * 3 + 2] = __float_as_uint(c);
}

KERNEL(conform_mma_bf16, ConformanceParams, 32, conform_mma<bf16>)
KERNEL(conform_mma_f16, ConformanceParams, 32, conform_mma<f16>)
KERNEL(conform_matrix, ConformanceParams, 32, conform_ldmatrix)
KERNEL(conform_copy, ConformanceParams, 32, conform_cp_async)
KERNEL(conform_word, ConformanceParams, 32, conform_words)
KERNEL(conform_lane, ConformanceParams, 32, conform_lanes)
KERNEL(conform_function, ConformanceParams, 32, conform_functions)
