//go:build cgo && linux && amd64

// probe.c: 16 independent chains of one instruction, so that its rate is seen and not its latency, and plain reads.
#define _GNU_SOURCE
#include "probe.h"
#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vnni")
static void vnni512(long steps) {
	__m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(2);
#define X(i) __m512i s##i = _mm512_setzero_si512();
	CHAINS(X)
#undef X
	for (long n = 0; n < steps; n++) {
#define X(i) __asm__ volatile("vpdpbusd %2,%1,%0" : "+v"(s##i) : "v"(a), "v"(b));
		CHAINS(X)
#undef X
	}
}
static void fma512(long steps) {
	__m512 a = _mm512_set1_ps(0.5f), b = a;
#define X(i) __m512 s##i = _mm512_setzero_ps();
	CHAINS(X)
#undef X
	for (long n = 0; n < steps; n++) {
#define X(i) __asm__ volatile("vfmadd231ps %2,%1,%0" : "+v"(s##i) : "v"(a), "v"(b));
		CHAINS(X)
#undef X
	}
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma,avxvnni")
static void vnni256(long steps) {
	__m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(2);
#define X(i) __m256i s##i = _mm256_setzero_si256();
	CHAINS(X)
#undef X
	for (long n = 0; n < steps; n++) {
		// 14 chains: two registers hold the factors.
#define X(i) if (i < 14) __asm__ volatile("%{vex%} vpdpbusd %2,%1,%0" : "+x"(s##i) : "x"(a), "x"(b));
		CHAINS(X)
#undef X
	}
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
static void avx2(long steps) {
	__m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(2), one = _mm256_set1_epi16(1), s[6];
	for (int i = 0; i < 6; i++) s[i] = _mm256_setzero_si256();
	for (long n = 0; n < steps; n++) {
#pragma GCC unroll 6
		for (int i = 0; i < 6; i++) {
			__m256i t;
			__asm__ volatile("vpmaddubsw %2,%1,%0" : "=x"(t) : "x"(a), "x"(b));
			__asm__ volatile("vpmaddwd %1,%0,%0" : "+x"(t) : "x"(one));
			__asm__ volatile("vpaddd %1,%0,%0" : "+x"(s[i]) : "x"(t));
		}
	}
}
static void fma256(long steps) {
	__m256 a = _mm256_set1_ps(0.5f), b = a, s[12];
	for (int i = 0; i < 12; i++) s[i] = _mm256_setzero_ps();
	for (long n = 0; n < steps; n++) {
#pragma GCC unroll 12
		for (int i = 0; i < 12; i++) __asm__ volatile("vfmadd231ps %2,%1,%0" : "+x"(s[i]) : "x"(a), "x"(b));
	}
}
static void readAll(const char *p, long bytes, long steps) {
	__m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
	for (long n = 0; n < steps; n++) {
		for (long k = 0; k + 256 <= bytes; k += 256) {
			__asm__ volatile("vpxor %1,%0,%0" : "+x"(a) : "m"(*(const __m256i *)(p + k)));
			__asm__ volatile("vpxor %1,%0,%0" : "+x"(b) : "m"(*(const __m256i *)(p + k + 64)));
			__asm__ volatile("vpxor %1,%0,%0" : "+x"(c) : "m"(*(const __m256i *)(p + k + 128)));
			__asm__ volatile("vpxor %1,%0,%0" : "+x"(d) : "m"(*(const __m256i *)(p + k + 192)));
		}
	}
}
#pragma GCC pop_options

typedef struct {
	_Alignas(64) uint8_t palette;
	uint8_t start_row, reserved[14];
	uint16_t columns[16];
	uint8_t rows[16];
} Tiles;

_Static_assert(sizeof(Tiles) == 64, "what ldtilecfg reads");

#pragma GCC push_options
#pragma GCC target("amx-tile,amx-int8,amx-bf16")
// Four sums, so that each waits for none: a tile product takes 16 cycles and gives its result after 52.
static void tiles(int kind, long steps) {
	Tiles t = {.palette = 1};
	for (int i = 0; i < 8; i++) t.columns[i] = 64, t.rows[i] = 16;
	__asm__ volatile("ldtilecfg %0" ::"m"(t));
	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(2);
	_tile_zero(3);
	_tile_zero(4);
	_tile_zero(5);
	for (long n = 0; n < steps; n++) {
		if (kind == TILE_INT8) {
			_tile_dpbusd(0, 4, 5);
			_tile_dpbusd(1, 4, 5);
			_tile_dpbusd(2, 4, 5);
			_tile_dpbusd(3, 4, 5);
		} else {
			_tile_dpbf16ps(0, 4, 5);
			_tile_dpbf16ps(1, 4, 5);
			_tile_dpbf16ps(2, 4, 5);
			_tile_dpbf16ps(3, 4, 5);
		}
	}
	_tile_release();
}
#pragma GCC pop_options

double probe_ops(int kind) {
	switch (kind) {
	case VNNI512: return 16 * 128;
	case VNNI256: return 14 * 64;
	case AVX2: return 6 * 64;
	case TILE_INT8: return 4 * 2 * 16 * 16 * 64;
	case TILE_BF16: return 4 * 2 * 16 * 16 * 32;
	case FMA512: return 16 * 32;
	case FMA256: return 12 * 16;
	}
	return 0;
}

// What the processor has and the kernel keeps; tiles must be asked for (arch_prctl, ARCH_REQ_XCOMP_PERM of XTILEDATA).
int probe_has(int kind) {
	unsigned a, b, c, d, lo, hi, a1 = 0;
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_FMA)) return 0;
	__asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	if ((lo & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2)) return 0;
	unsigned b1, c1, d1;
	if (a >= 1) __get_cpuid_count(7, 1, &a1, &b1, &c1, &d1);
	int wide = (lo & 0xe6) == 0xe6 && (b & bit_AVX512F) && (b & bit_AVX512BW);
	int tile = (lo & 0x60000) == 0x60000 && (d & (1u << 24)) && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
	switch (kind) {
	case VNNI512: return wide && (c & bit_AVX512VNNI);
	case VNNI256: return (a1 & (1u << 4)) != 0;
	case FMA512: return wide;
	case TILE_INT8: return tile && (d & (1u << 25));
	case TILE_BF16: return tile && (d & (1u << 22));
	}
	return 1;
}

typedef struct {
	int kind;
	long steps, bytes;
	const char *memory;
	pthread_barrier_t *start;
	double took;
} Job;

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *work(void *arg) {
	Job *j = arg;
	pthread_barrier_wait(j->start);
	double begin = now();
	switch (j->kind) {
	case VNNI512: vnni512(j->steps); break;
	case VNNI256: vnni256(j->steps); break;
	case AVX2: avx2(j->steps); break;
	case TILE_INT8:
	case TILE_BF16: tiles(j->kind, j->steps); break;
	case FMA512: fma512(j->steps); break;
	case FMA256: fma256(j->steps); break;
	case READ: readAll(j->memory, j->bytes, j->steps); break;
	}
	j->took = now() - begin;
	return 0;
}

double probe_run(int kind, int threads, long steps, const char *memory, long bytes) {
	enum { MOST = 1024 };
	static Job jobs[MOST];
	static pthread_t ids[MOST];
	pthread_barrier_t start;
	double slowest = 0;
	if (threads > MOST) threads = MOST;
	pthread_barrier_init(&start, 0, (unsigned)threads);
	for (int i = 0; i < threads; i++) {
		long share = bytes / threads & ~255l;
		jobs[i] = (Job){kind, steps, share, memory + i * share, &start, 0};
		if (pthread_create(&ids[i], 0, work, &jobs[i])) abort();
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(ids[i], 0);
		if (jobs[i].took > slowest) slowest = jobs[i].took;
	}
	pthread_barrier_destroy(&start);
	return slowest;
}
