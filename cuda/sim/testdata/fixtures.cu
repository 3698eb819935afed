// Kernels for the tests of the software device: some right, and a broken twin of each mistake that it has to find.
#include "sim.h"

struct Params {
	float scale;
	int n;
};

// y[i] = a*x[i] + y[i]
extern "C" __global__ void axpy(float* y, const float* x, float a, int n) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) y[i] = a * x[i] + y[i];
}
EXPORT_KERNEL(axpy)

// A structure as a parameter: y[i] *= p.scale
extern "C" __global__ void scale(float* y, Params p) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < p.n) y[i] *= p.scale;
}
EXPORT_KERNEL(scale)

// One block's sum by shuffles and shared memory. MISSING leaves out the barrier between the warps' sums and their reading.
template <bool MISSING> __device__ __forceinline__ void sum(float* out, const float* x, int n) {
	__shared__ float part[32];
	float s = 0;
	for (int i = threadIdx.x; i < n; i += blockDim.x) s += x[i];
	for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
	if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = s;
	if (!MISSING) __syncthreads();
	if (threadIdx.x == 0) {
		float t = 0;
		for (unsigned w = 0; w < blockDim.x / 32; w++) t += part[w];
		out[blockIdx.x] = t;
	}
}
extern "C" __global__ void block_sum(float* out, const float* x, int n) { sum<false>(out, x, n); }
EXPORT_KERNEL(block_sum)
extern "C" __global__ void missing_barrier(float* out, const float* x, int n) { sum<true>(out, x, n); }
EXPORT_KERNEL(missing_barrier)

// A two-stage pipeline over tiles of blockDim.x*4 floats: each thread reads another thread's part of the tile. REUSE leaves out
// the barrier that keeps the next copy from overwriting a buffer that is still read; WAIT is how many groups may stay in flight.
template <bool REUSE, int WAIT> __device__ __forceinline__ void pipeline(float* out, const float* x, int tiles) {
	DYN_SHARED(float, buf); // [2][blockDim.x*4]
	int n = blockDim.x * 4, t = threadIdx.x;
	float s = 0;
	cusim::cp_async(&buf[t * 4], x + t * 4, 16, 16, CUSIM_HERE);
	cusim::cp_async_commit_group();
	for (int k = 0; k < tiles; k++) {
		if (k + 1 < tiles) cusim::cp_async(&buf[(k + 1) % 2 * n + t * 4], x + (k + 1) * n + t * 4, 16, 16, CUSIM_HERE);
		cusim::cp_async_commit_group();
		cusim::retire(WAIT, CUSIM_HERE);
		__syncthreads();
		for (int j = 0; j < 4; j++) s += buf[k % 2 * n + (t * 4 + 37 + j) % n];
		if (!REUSE) __syncthreads();
	}
	cusim::retire(0, CUSIM_HERE);
	out[t] = s;
}
extern "C" __global__ void pipelined(float* out, const float* x, int tiles) { pipeline<false, 1>(out, x, tiles); }
EXPORT_KERNEL(pipelined)
extern "C" __global__ void missing_reuse_barrier(float* out, const float* x, int tiles) { pipeline<true, 1>(out, x, tiles); }
EXPORT_KERNEL(missing_reuse_barrier)
extern "C" __global__ void read_before_wait(float* out, const float* x, int tiles) { pipeline<false, 2>(out, x, tiles); }
EXPORT_KERNEL(read_before_wait)

// Lanes of one warp exchange values through shared memory, which needs __syncwarp.
template <bool MISSING> __device__ __forceinline__ void exchange(float* y) {
	__shared__ float s[32];
	s[threadIdx.x] = threadIdx.x;
	if (!MISSING) __syncwarp();
	y[threadIdx.x] = s[threadIdx.x ^ 1];
}
extern "C" __global__ void warp_exchange(float* y) { exchange<false>(y); }
EXPORT_KERNEL(warp_exchange)
extern "C" __global__ void missing_syncwarp(float* y) { exchange<true>(y); }
EXPORT_KERNEL(missing_syncwarp)

// Two warps hand over through a named barrier, with the other two waiting elsewhere; FEW gives it a count that never comes.
template <unsigned COUNT> __device__ __forceinline__ void hand_over(float* y) {
	__shared__ float s[64];
	if (threadIdx.x < 64) {
		s[threadIdx.x] = threadIdx.x;
		cusim::named_barrier(1, COUNT, CUSIM_HERE);
		y[threadIdx.x] = s[63 - threadIdx.x];
	}
	__syncthreads();
}
extern "C" __global__ void named(float* y) { hand_over<64>(y); }
EXPORT_KERNEL(named)
extern "C" __global__ void named_deadlock(float* y) { hand_over<96>(y); }
EXPORT_KERNEL(named_deadlock)

// Half of the threads leave out a barrier.
extern "C" __global__ void divergent_barrier(float* y) {
	if (threadIdx.x < 16) __syncthreads();
	y[threadIdx.x] = 1;
	if (threadIdx.x >= 16) __syncthreads();
}
EXPORT_KERNEL(divergent_barrier)

// The mask names lanes that do not come.
extern "C" __global__ void wrong_mask(float* y) {
	float v = threadIdx.x;
	if (threadIdx.x < 16) v += __shfl_xor_sync(0xffffffffu, v, 1);
	y[threadIdx.x] = v;
}
EXPORT_KERNEL(wrong_mask)

// The mask leaves out the caller.
extern "C" __global__ void mask_without_caller(float* y) { y[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, (float)threadIdx.x, 1); }
EXPORT_KERNEL(mask_without_caller)

// The bound is off by one.
extern "C" __global__ void out_of_bounds(float* y, int n) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i <= n) y[i] = 1;
}
EXPORT_KERNEL(out_of_bounds)

// Beyond the launch's dynamic shared memory.
extern "C" __global__ void shared_out_of_bounds(float* y) {
	DYN_SHARED(float, s);
	s[threadIdx.x + 1] = 1;
	__syncthreads();
	y[threadIdx.x] = s[threadIdx.x + 1];
}
EXPORT_KERNEL(shared_out_of_bounds)

// Only the even threads write.
extern "C" __global__ void uninitialised_shared(float* y) {
	__shared__ float s[64];
	if (threadIdx.x % 2 == 0) s[threadIdx.x] = 1;
	__syncthreads();
	y[threadIdx.x] = s[threadIdx.x];
}
EXPORT_KERNEL(uninitialised_shared)

// A transposition through shared memory, with rows of 32 floats (all of a column in one bank) or of 33.
template <int LD> __device__ __forceinline__ void turn(float* y, const float* x) {
	__shared__ float s[32 * LD];
	for (int r = 0; r < 32; r++) s[r * LD + threadIdx.x] = x[r * 32 + threadIdx.x];
	__syncthreads();
	for (int r = 0; r < 32; r++) y[r * 32 + threadIdx.x] = s[threadIdx.x * LD + r];
}
extern "C" __global__ void transpose_conflicts(float* y, const float* x) { turn<32>(y, x); }
EXPORT_KERNEL(transpose_conflicts)
extern "C" __global__ void transpose_padded(float* y, const float* x) { turn<33>(y, x); }
EXPORT_KERNEL(transpose_padded)

// Which thread of two warps writes last shows the order in which threads run.
extern "C" __global__ void order(int* y) { *y = (int)threadIdx.x; }
EXPORT_KERNEL(order)
