// gpu.h: what kernels are written with. nvcc takes the instructions; g++ takes cuda/sim/intrinsics.h, which computes the same on a CPU.
#pragma once
#include "abi.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define EXPORT_KERNEL(k)
#define DYN_SHARED(T, name) \
	extern __shared__ __align__(128) unsigned char gpu_dyn_[]; \
	T* name = reinterpret_cast<T*>(gpu_dyn_)

struct bf16 {
	uint16_t b;
};
struct f16 {
	uint16_t b;
};
__device__ __forceinline__ float to_f32(float v) { return v; }
__device__ __forceinline__ float to_f32(bf16 v) { return __uint_as_float((unsigned)v.b << 16); }
__device__ __forceinline__ float to_f32(f16 v) { return __half2float(__ushort_as_half(v.b)); }
template <class T> __device__ __forceinline__ T from_f32(float v);
template <> __device__ __forceinline__ float from_f32<float>(float v) { return v; }
template <> __device__ __forceinline__ bf16 from_f32<bf16>(float v) { return {__bfloat16_as_ushort(__float2bfloat16_rn(v))}; }
template <> __device__ __forceinline__ f16 from_f32<f16>(float v) { return {__half_as_ushort(__float2half_rn(v))}; }
// pack2 rounds two values to T, the first in the low half.
template <class T> __device__ __forceinline__ unsigned pack2(float lo, float hi);
template <> __device__ __forceinline__ unsigned pack2<bf16>(float lo, float hi) {
	unsigned r;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
	return r;
}
template <> __device__ __forceinline__ unsigned pack2<f16>(float lo, float hi) {
	unsigned r;
	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
	return r;
}

__device__ __forceinline__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
// cp_async16 copies 16 bytes to shared memory, zeros where not valid.
__device__ __forceinline__ void cp_async16(void* dst, const void* src, bool valid) {
	int n = valid ? 16 : 0;
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(dst)), "l"(src), "r"(n) : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// cp_async_wait waits until at most N of the thread's groups are on their way.
template <int N> __device__ __forceinline__ void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// ldmatrix_x4 loads four 8x8 matrices of 2-byte elements; lane i gives the address of row i%8 of matrix i/8.
__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], const void* p) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)) : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&r)[4], const void* p) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)) : "memory");
}
// mma_m16n8k16: d += a*b; fragments as PTX numbers them.
template <class T> __device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
template <> __device__ __forceinline__ void mma_m16n8k16<bf16>(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
	             : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <> __device__ __forceinline__ void mma_m16n8k16<f16>(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
	             : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ float exp2_fast(float x) {
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}
__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }
// Two floats, or 16 bytes, as one access of shared memory.
__device__ __forceinline__ void store_pair(float* p, float a, float b) { *reinterpret_cast<float2*>(p) = make_float2(a, b); }
__device__ __forceinline__ float2 load_pair(const float* p) { return *reinterpret_cast<const float2*>(p); }
__device__ __forceinline__ void store_16(void* p, const uint4& v) { *static_cast<uint4*>(p) = v; }
#else
#include "intrinsics.h"
#endif

// KERNEL defines the kernel `name` of a parameter structure as a call of a device function (a template's instance). Asking for one block
// a multiprocessor keeps ptxas from spilling registers for the sake of an occupancy that nobody needs.
#define KERNEL(name, P, threads, ...) KERNEL_BLOCKS(name, P, threads, 1, __VA_ARGS__)
// KERNEL_BLOCKS asks for more blocks a multiprocessor.
#define KERNEL_BLOCKS(name, P, threads, blocks, ...) \
	extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ P p) { __VA_ARGS__(p); } \
	EXPORT_KERNEL(name)
#define FOR_HALF_TYPES(X) X(bf16) X(f16)

// Vec is 16 bytes of T.
template <class T> struct Vec {
	static constexpr int N = 16 / sizeof(T);
};

__device__ __forceinline__ float unpack_lo(bf16, unsigned v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float unpack_hi(bf16, unsigned v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ float unpack_lo(f16, unsigned v) { return to_f32(f16{(uint16_t)v}); }
__device__ __forceinline__ float unpack_hi(f16, unsigned v) { return to_f32(f16{(uint16_t)(v >> 16)}); }

template <class T> __device__ __forceinline__ void unpack(const uint4& u, float (&v)[8]) {
	const unsigned w[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
	for (int i = 0; i < 4; i++) {
		v[2 * i] = unpack_lo(T{}, w[i]);
		v[2 * i + 1] = unpack_hi(T{}, w[i]);
	}
}
// load_vec loads 16 aligned bytes of T as floats.
template <class T> __device__ __forceinline__ void load_vec(const T* p, float (&v)[Vec<T>::N]) {
	if constexpr (sizeof(T) == 4) {
		const float4 f = *reinterpret_cast<const float4*>(p);
		v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
	} else {
		unpack<T>(*reinterpret_cast<const uint4*>(p), v);
	}
}
template <class T> __device__ __forceinline__ void store_vec(T* p, const float (&v)[Vec<T>::N]) {
	if constexpr (sizeof(T) == 4) {
		*reinterpret_cast<float4*>(p) = make_float4(v[0], v[1], v[2], v[3]);
	} else {
		*reinterpret_cast<uint4*>(p) = make_uint4(pack2<T>(v[0], v[1]), pack2<T>(v[2], v[3]), pack2<T>(v[4], v[5]), pack2<T>(v[6], v[7]));
	}
}

__device__ __forceinline__ bool aligned16(const void* p) { return ((uintptr_t)p & 15) == 0; }
__device__ __forceinline__ int div_up(int a, int b) { return (a + b - 1) / b; }
__device__ __forceinline__ int imin(int a, int b) { return a < b ? a : b; }
__device__ __forceinline__ int imax(int a, int b) { return a > b ? a : b; }

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
	for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
	return v;
}
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
	for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
	return v;
}
// block_sum adds a value of every thread; scratch holds a float a warp. All threads get the sum. A barrier must separate two uses of one scratch.
template <int THREADS> __device__ __forceinline__ float block_sum(float v, float* scratch) {
	v = warp_sum(v);
	if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = v;
	__syncthreads();
	float s = 0.f;
#pragma unroll
	for (int w = 0; w < THREADS / 32; w++) s += scratch[w];
	return s;
}

// activate is kernels.Act.
__device__ __forceinline__ float activate(int act, float x) {
	switch (act) {
	case ACT_SILU: return x / (1.f + expf(-x));
	case ACT_GELU: return 0.5f * x * (1.f + erff(x * 0.70710678118654752f));
	case ACT_GELU_TANH: return 0.5f * x * (1.f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
	case ACT_RELU: return fmaxf(x, 0.f);
	case ACT_RELU2: x = fmaxf(x, 0.f); return x * x;
	case ACT_SIGMOID: return 1.f / (1.f + expf(-x));
	case ACT_TANH: return tanhf(x);
	case ACT_EXP: return expf(x);
	case ACT_SOFTPLUS: return x > 20.f ? x : log1pf(expf(x));
	case ACT_QUICK: return x / (1.f + expf(-1.702f * x));
	}
	return x;
}
