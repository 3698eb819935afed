// sim.h: runs CUDA kernels on the CPU. One fiber a CUDA thread, blocks spread over operating system threads. A kernel source
// that nvcc compiles is compiled by g++ -x c++ with this header in place of CUDA's; intrinsics.h adds what is emulated above it.
//
// Found while a kernel runs (the launch then fails with CUDA_ERROR_LAUNCH_FAILED and a report): barriers and warp collectives
// that diverge or deadlock, shuffle masks that leave out the caller or name exited lanes, misaligned vector copies, copies by
// cp.async read before their wait (their destination holds NaN until then). Compiled with -DCUSIM_CHECK -fsanitize=thread, the
// compiler's access hooks come here instead of to a race detector: races on shared memory between barriers, reads of shared memory
// that nobody wrote, and counts of bank conflicts. Compiled with -fsanitize=address, out of bounds.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utility>

#define CUSIM 1
#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static thread_local // an operating system thread runs one block at a time

struct dim3 {
	unsigned x, y, z;
	constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

namespace cusim {

enum { MAXT = 1024, QUEUE = 256, NAMED = 16 };
struct Warp;
struct Block;
struct Check; // the checker's state of a block, in sim.cpp

// Async is one cp.async that has been issued and not waited for.
struct Async {
	void* dst;
	const void* src;
	int n, zero, group; // n bytes copied, then zero bytes of zeros
};

struct Fiber {
	void* sp;
	dim3 tid;
	unsigned lin, lane;
	Warp* warp;
	Block* blk;
	const volatile unsigned* wp; // waiting while *wp == wv
	unsigned wv;
	const char* site;
	bool done;
	int nq, group;
	Async q[QUEUE];
	unsigned char* stack;
};

// Slot is a meeting of lanes: the last to arrive computes, the others read. Two generations, so that a fast lane's next meeting
// does not overwrite what a slow lane still reads.
struct Slot {
	volatile unsigned gen;
	unsigned arrived, mask;
	const char* site;
	alignas(64) unsigned char data[2][32][64];
};

struct Warp {
	Slot slot[32]; // by the lowest lane of the mask
	unsigned alive, n, index, epoch;
	Fiber* f[32];
};

struct Barrier {
	volatile unsigned gen;
	unsigned arrived;
	const char* site;
};

struct Block {
	dim3 gridDim, blockDim, blockIdx;
	unsigned nthreads, nwarps, alive;
	Barrier bar[NAMED];
	unsigned char* dyn;
	size_t dynsize;
	void (*entry)(void**);
	void** params;
	void* main_sp;
	int reverse;
	bool failed;
	const char* kernel;
	Warp* warps;
	Check* check; // nullptr unless the kernel was compiled for checking
};

extern thread_local Fiber* cur __attribute__((tls_model("initial-exec")));
static inline Fiber* self() { return cur; }
extern "C" void cusim_switch(void** save, void* to);
void wait_until_changed(const volatile unsigned* p, unsigned v, const char* site);
// fail ends the launch with a report; it does not return.
[[noreturn]] void fail(const char* fmt, ...) __attribute__((format(printf, 1, 2)));
void barrier(const char* site);
// named_barrier is PTX's bar.sync id, threads.
void named_barrier(unsigned id, unsigned threads, const char* site);
// warp_ordered says that the warp's earlier accesses are ordered before its later ones (__syncwarp).
void warp_ordered(Warp* w);
// collected says that all lanes of a warp have met: accesses since the last meeting are paired for bank conflicts.
void collected(Warp* w);
// touched says that the calling thread reads or writes shared memory behind the compiler's back (memcpy, an emulated copy).
void touched(const void* p, size_t n, bool write, const char* site);
// pending marks bytes that a cp.async has yet to fill.
void pending(const void* p, size_t n, bool on, const char* site);

#ifdef CUSIM_CHECK
#define CUSIM_TOUCH(p, n, write, site) cusim::touched(p, n, write, site)
#define CUSIM_PENDING(p, n, on, site) cusim::pending(p, n, on, site)
#define CUSIM_UNCHECKED __attribute__((no_sanitize("thread")))
#else
#define CUSIM_TOUCH(p, n, write, site) ((void)0)
#define CUSIM_PENDING(p, n, on, site) ((void)0)
#define CUSIM_UNCHECKED
#endif

// trim drops lanes that a last, short warp does not have.
static inline unsigned trim(const Warp& w, unsigned mask) { return w.n < 32 ? mask & ((1u << w.n) - 1) : mask; }

// collective lets the lanes of a mask meet, each with n <= 64 bytes; fin(slot, parity) runs once, by the last lane, before any is
// let go. Returns the parity: what lane i brought (or fin wrote) is in slot.data[parity][i].
template <class F> static inline unsigned collective(unsigned mask, const char* site, const void* in, size_t n, F fin) {
	Fiber* f = self();
	Warp& w = *f->warp;
	unsigned bit = 1u << f->lane;
	mask = trim(w, mask);
	if (!(mask & bit)) fail("%s: lane %u is not in its own mask %08x", site, f->lane, mask);
	if (mask & ~w.alive) fail("%s: mask %08x names lanes that have exited (alive: %08x)", site, mask, w.alive);
	Slot& s = w.slot[__builtin_ctz(mask)];
	if (s.arrived == 0) {
		s.mask = mask;
		s.site = site;
	} else if (s.mask != mask || s.site != site) {
		fail("warp collective diverges: lane %u at %s with mask %08x, others at %s with mask %08x", f->lane, site, mask, s.site, s.mask);
	}
	unsigned g = s.gen, par = g & 1;
	memcpy(s.data[par][f->lane], in, n);
	s.arrived |= bit;
	if (s.arrived == mask) {
		fin(s, par);
		if (mask == w.alive) collected(&w);
		s.arrived = 0;
		s.gen = g + 1;
	} else {
		wait_until_changed(&s.gen, g, site);
	}
	return par;
}
static inline Slot& slot_of(unsigned mask) {
	Warp& w = *self()->warp;
	return w.slot[__builtin_ctz(trim(w, mask))];
}

template <class T> static inline T shfl_from(unsigned mask, T v, unsigned src, const char* site) {
	static_assert(sizeof(T) <= 64);
	unsigned par = collective(mask, site, &v, sizeof v, [](Slot&, unsigned) {});
	T r;
	// A lane outside the mask gives an undefined value, which a kernel may ignore; here a NaN.
	if (trim(*self()->warp, mask) >> (src & 31) & 1) memcpy(&r, slot_of(mask).data[par][src & 31], sizeof r);
	else memset(&r, 0xff, sizeof r);
	return r;
}
template <class T> static inline T shfl_xor(unsigned m, T v, int o, int w, const char* s) {
	unsigned l = self()->lane, t = l ^ (unsigned)o;
	return shfl_from(m, v, t <= (l | (unsigned)(w - 1)) ? t : l, s);
}
template <class T> static inline T shfl_down(unsigned m, T v, unsigned o, int w, const char* s) {
	unsigned l = self()->lane, t = l + o;
	return shfl_from(m, v, t <= (l | (unsigned)(w - 1)) ? t : l, s);
}
template <class T> static inline T shfl_up(unsigned m, T v, unsigned o, int w, const char* s) {
	unsigned l = self()->lane;
	int t = (int)l - (int)o;
	return shfl_from(m, v, t >= (int)(l & ~(unsigned)(w - 1)) ? (unsigned)t : l, s);
}
template <class T> static inline T shfl(unsigned m, T v, int src, int w, const char* s) {
	unsigned l = self()->lane;
	return shfl_from(m, v, (l & ~(unsigned)(w - 1)) | ((unsigned)src & (unsigned)(w - 1)), s);
}
static inline unsigned ballot(unsigned m, int p, const char* site) {
	unsigned char b = !!p;
	unsigned par = collective(m, site, &b, 1, [](Slot&, unsigned) {});
	Warp& w = *self()->warp;
	unsigned r = 0, t = trim(w, m);
	Slot& s = slot_of(m);
	for (unsigned i = 0; i < 32; i++)
		if (t >> i & 1) r |= (unsigned)s.data[par][i][0] << i;
	return r;
}
static inline void syncwarp(unsigned m, const char* site) {
	unsigned char b = 0;
	collective(m, site, &b, 1, [](Slot&, unsigned) { warp_ordered(self()->warp); });
}

// cp_async issues a copy of n bytes (4, 8 or 16) of which the first `valid` come from src and the others are zero. Nothing is
// copied before the group is waited for.
CUSIM_UNCHECKED static inline void cp_async(void* dst, const void* src, int n, int valid, const char* site) {
	Fiber* f = self();
	if (f->nq == QUEUE) fail("%s: more than %d cp.async without a wait", site, QUEUE);
	if (((uintptr_t)dst & (uintptr_t)(n - 1)) || (valid && ((uintptr_t)src & (uintptr_t)(n - 1)))) fail("%s: cp.async of %d bytes is misaligned (shared %p, global %p)", site, n, dst, src);
#ifdef __SANITIZE_ADDRESS__
	if (valid) { // out of bounds shows here, at the kernel's line, not at the wait
		(void)*(const volatile char*)src;
		(void)((const volatile char*)src)[valid - 1];
	}
	(void)((volatile char*)dst)[n - 1];
#endif
	CUSIM_TOUCH(dst, (size_t)n, true, site);
	CUSIM_PENDING(dst, (size_t)n, true, site);
	memset(dst, 0xff, (size_t)n); // NaN until the group has been waited for
	f->q[f->nq++] = {dst, src, valid, n - valid, f->group};
}
static inline void cp_async_commit_group() { self()->group++; }
// retire completes all but the newest `keep` committed groups.
CUSIM_UNCHECKED static inline void retire(int keep, [[maybe_unused]] const char* site) {
	Fiber* f = self();
	int upto = f->group - keep, k = 0;
	for (int i = 0; i < f->nq; i++) {
		Async& a = f->q[i];
		if (a.group >= upto) {
			f->q[k++] = a;
			continue;
		}
		CUSIM_PENDING(a.dst, (size_t)(a.n + a.zero), false, site);
		CUSIM_TOUCH(a.dst, (size_t)(a.n + a.zero), true, site);
		memcpy(a.dst, a.src, (size_t)a.n);
		memset((char*)a.dst + a.n, 0, (size_t)a.zero);
	}
	f->nq = k;
}

// Invoke calls a kernel with parameters that are given by address, as cuLaunchKernel gives them.
template <auto K> struct Invoke;
template <class... A, void (*K)(A...)> struct Invoke<K> {
	template <size_t... I> static void go(void** p, std::index_sequence<I...>) { K(*(A*)p[I]...); }
	static void call(void** p) { go(p, std::index_sequence_for<A...>{}); }
	static constexpr int nargs = sizeof...(A);
	static constexpr unsigned sizes[sizeof...(A) + 1] = {sizeof(A)..., 0};
};
// anchor is a variable in the block of static shared memory of the kernels' library, by which that block is found.
static inline char* anchor() {
	static thread_local char here;
	return &here;
}
#ifdef CUSIM_CHECK
enum { CHECKED = 1 };
#else
enum { CHECKED = 0 };
#endif
struct KernelDesc {
	const char* name;
	void (*entry)(void**);
	int nargs;
	const unsigned* sizes;
	char* (*anchor)();
	int checked;
};

} // namespace cusim

#define CUSIM_STR2(x) #x
#define CUSIM_STR(x) CUSIM_STR2(x)
#define CUSIM_HERE __FILE__ ":" CUSIM_STR(__LINE__) "#" CUSIM_STR(__COUNTER__)
#define CUSIM_DESC(sym, label, ...) \
	extern "C" { \
	extern const cusim::KernelDesc cusim_kernel_##sym; \
	const cusim::KernelDesc cusim_kernel_##sym = {label, &cusim::Invoke<&__VA_ARGS__>::call, cusim::Invoke<&__VA_ARGS__>::nargs, cusim::Invoke<&__VA_ARGS__>::sizes, &cusim::anchor, cusim::CHECKED}; \
	}
// EXPORT_KERNEL(k) makes the extern "C" kernel k known to cuModuleGetFunction. EXPORT_KERNEL_AS(name, instance) does so for a
// template's instance under a name (nvcc needs an extern "C" kernel of that name).
#define EXPORT_KERNEL(k) CUSIM_DESC(k, #k, k)
#define EXPORT_KERNEL_AS(name, ...) CUSIM_DESC(name, #name, __VA_ARGS__)
#define DYN_SHARED(T, name) T* name = reinterpret_cast<T*>(cusim::self()->blk->dyn)
#define threadIdx (cusim::self()->tid)
#define blockIdx (cusim::self()->blk->blockIdx)
#define blockDim (cusim::self()->blk->blockDim)
#define gridDim (cusim::self()->blk->gridDim)
#define warpSize 32
#define __syncthreads() cusim::barrier(CUSIM_HERE)
#define CUSIM_W(w, ...) w
#define __shfl_xor_sync(m, v, o, ...) cusim::shfl_xor(m, v, o, CUSIM_W(__VA_ARGS__ __VA_OPT__(, ) 32), CUSIM_HERE)
#define __shfl_down_sync(m, v, o, ...) cusim::shfl_down(m, v, o, CUSIM_W(__VA_ARGS__ __VA_OPT__(, ) 32), CUSIM_HERE)
#define __shfl_up_sync(m, v, o, ...) cusim::shfl_up(m, v, o, CUSIM_W(__VA_ARGS__ __VA_OPT__(, ) 32), CUSIM_HERE)
#define __shfl_sync(m, v, o, ...) cusim::shfl(m, v, o, CUSIM_W(__VA_ARGS__ __VA_OPT__(, ) 32), CUSIM_HERE)
#define __ballot_sync(m, p) cusim::ballot(m, p, CUSIM_HERE)
#define __any_sync(m, p) (cusim::ballot(m, p, CUSIM_HERE) != 0)
#define __all_sync(m, p) (cusim::ballot(m, !(p), CUSIM_HERE) == 0)
#define __syncwarp(...) cusim::syncwarp(CUSIM_W(__VA_ARGS__ __VA_OPT__(, ) 0xffffffffu), CUSIM_HERE)
