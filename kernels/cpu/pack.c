//go:build cgo && linux && amd64

// pack.c: ggml's blocks and plain elements become tiles (see omni.h). Packing moves bits and never rounds.
#include "omni.h"
#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

// Memory on 2 MiB pages where the kernel has them: weights are streamed, and small pages cost half the bandwidth.
void *arena_alloc(size_t bytes) {
	size_t n = (bytes + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1);
	uint8_t *p = mmap(0, n + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) return 0;
	uint8_t *q = (uint8_t *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
	if (q > p) munmap(p, (size_t)(q - p));
	if (p + HUGE_PAGE > q) munmap(q + n, (size_t)(p + HUGE_PAGE - q));
	madvise(q, n, MADV_HUGEPAGE);
	return q;
}

void arena_free(void *p, size_t bytes) {
	if (p) munmap(p, (bytes + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1));
}

static void put_nibbles(uint8_t *q, int r, const uint8_t *v) { // v: 32 numbers
	for (int j = 0; j < 4; j++)
		for (int i = 0; i < 4; i++) q[j * 64 + r * 4 + i] = (uint8_t)((v[4 * j + i] & 15) | (v[16 + 4 * j + i] & 15) << 4);
}

static void put_fifth(uint8_t *q, int r, const uint8_t *v) {
	for (int j = 0; j < 8; j++)
		for (int i = 0; i < 4; i++) {
			int bit = r * 4 + i;
			q[256 + j * 8 + bit / 8] |= (uint8_t)((v[4 * j + i] >> 4 & 1) << (bit % 8));
		}
}

// The 32 numbers v of output r, kept together.
static void put_row(uint8_t *q, int fmt, int r, const uint8_t *v) {
	uint8_t *n = q + r * 16, *f = q + 256 + r * 4, *two = q + 256 + r * 8;
	int table = fmt == W_Q4_0 || fmt == W_Q4_1 || fmt == W_Q4_K;
	for (int w = 0; w < 32; w++) {
		int at = table ? nibble_place(w) : w / 2 * 2 + w % 2, k = word_k(w);
		n[at / 2] |= (uint8_t)((v[k] & 15) << (at % 2 * 4));
	}
	for (int k = 0; k < 32; k++) {
		if (fmt == W_Q5_0 || fmt == W_Q5_1 || fmt == W_Q5_K) f[k / 8] |= (uint8_t)((v[k] >> 4 & 1) << (k % 8));
		if (fmt == W_Q6_K) two[k % 8] |= (uint8_t)((v[k] >> 4) << (k / 8 * 2));
	}
}

static void put_two(uint8_t *q, int r, const uint8_t *v) {
	for (int j = 0; j < 8; j++)
		for (int i = 0; i < 4; i++) q[256 + j / 4 * 64 + r * 4 + i] |= (uint8_t)((v[4 * j + i] >> 4) << (j % 4 * 2));
}

static void scale_min(const uint8_t *p, int g, uint8_t *s, uint8_t *m) { // the 6-bit scales of Q4_K and Q5_K
	if (g < 4) {
		*s = p[g] & 63;
		*m = p[g + 4] & 63;
	} else {
		*s = (uint8_t)((p[g + 4] & 15) | p[g - 4] >> 6 << 4);
		*m = (uint8_t)(p[g + 4] >> 4 | p[g] >> 6 << 4);
	}
}

static const uint8_t raw_bytes[] = {[W_Q4_0] = 18, [W_Q4_1] = 20, [W_Q5_0] = 22, [W_Q5_1] = 24, [W_Q8_0] = 34, [W_Q4_K] = 144, [W_Q5_K] = 176, [W_Q6_K] = 210};

static void pack_legacy(uint8_t *tile, int fmt, int nb, int by_rows, int r, const uint8_t *raw) {
	size_t qb = quant_bytes(fmt);
	uint8_t *s = tile + (size_t)nb * qb, *m = s + (size_t)nb * 32;
	for (int b = 0; b < nb; b++, raw += raw_bytes[fmt]) {
		uint8_t *q = tile + (size_t)b * qb, v[32];
		const uint8_t *x = raw;
		memcpy(s + b * 32 + r * 2, x, 2);
		x += 2;
		if (fmt == W_Q4_1 || fmt == W_Q5_1) {
			memcpy(m + b * 32 + r * 2, x, 2);
			x += 2;
		}
		if (fmt == W_Q8_0 && by_rows) {
			for (int i = 0; i < 32; i++) q[r * 32 + i] = x[i] ^ 0x80;
			continue;
		}
		if (fmt == W_Q8_0) {
			for (int j = 0; j < 8; j++)
				for (int i = 0; i < 4; i++) q[j * 64 + r * 4 + i] = x[4 * j + i] ^ 0x80;
			continue;
		}
		uint32_t high = 0;
		if (fmt == W_Q5_0 || fmt == W_Q5_1) {
			memcpy(&high, x, 4);
			x += 4;
		}
		for (int i = 0; i < 16; i++) {
			v[i] = (uint8_t)((x[i] & 15) | (high >> i & 1) << 4);
			v[i + 16] = (uint8_t)(x[i] >> 4 | (high >> (i + 16) & 1) << 4);
		}
		if (by_rows) {
			put_row(q, fmt, r, v);
			continue;
		}
		put_nibbles(q, r, v);
		if (fmt == W_Q5_0 || fmt == W_Q5_1) put_fifth(q, r, v);
	}
}

static void pack_super(uint8_t *tile, int fmt, int nb, int by_rows, int r, const uint8_t *raw) {
	size_t qb = quant_bytes(fmt);
	uint8_t *s = tile + (size_t)nb * qb, *t = s + (size_t)nb * 32;
	for (int sb = 0; sb < nb / 8; sb++, raw += raw_bytes[fmt]) {
		if (fmt == W_Q6_K) memcpy(t + sb * 32 + r * 2, raw + 208, 2);
		else {
			memcpy(t + sb * 64 + r * 2, raw, 2);
			memcpy(t + sb * 64 + 32 + r * 2, raw + 2, 2);
		}
		for (int g = 0; g < 8; g++) {
			int b = sb * 8 + g;
			uint8_t *q = tile + (size_t)b * qb, v[32];
			if (fmt == W_Q6_K) {
				int part = g % 4;
				const uint8_t *low = raw + g / 4 * 64 + part % 2 * 32, *high = raw + 128 + g / 4 * 32;
				for (int i = 0; i < 32; i++) v[i] = (uint8_t)((low[i] >> (part / 2 * 4) & 15) | (high[i] >> (part * 2) & 3) << 4);
				s[b * 32 + r] = raw[192 + g * 2];
				s[b * 32 + 16 + r] = raw[192 + g * 2 + 1];
				if (by_rows) {
					put_row(q, fmt, r, v);
					continue;
				}
				put_nibbles(q, r, v);
				put_two(q, r, v);
				continue;
			}
			const uint8_t *high = raw + 16, *low = raw + (fmt == W_Q5_K ? 48 : 16) + g / 2 * 32;
			for (int i = 0; i < 32; i++) {
				v[i] = low[i] >> (g % 2 * 4) & 15;
				if (fmt == W_Q5_K) v[i] |= (uint8_t)((high[i] >> g & 1) << 4);
			}
			scale_min(raw + 4, g, &s[b * 32 + r], &s[b * 32 + 16 + r]);
			if (by_rows) {
				put_row(q, fmt, r, v);
				continue;
			}
			put_nibbles(q, r, v);
			if (fmt == W_Q5_K) put_fifth(q, r, v);
		}
	}
}

// Rows [from, to) of a matrix in rows of ggml blocks (or elements) of type dtype, which must be w->fmt. The tiles must be zero.
// raw points at row `from`.
void pack_rows(Weight *w, int dtype, const uint8_t *raw, int from, int to) {
	if (dtype != w->fmt) abort();
	size_t row = is_float(w->fmt) ? (size_t)w->k * (w->fmt == W_F32 ? 4 : 2)
		: w->fmt >= W_Q4_K ? (size_t)w->nb / 8 * raw_bytes[w->fmt] : (size_t)w->nb * raw_bytes[w->fmt];
	for (int i = from; i < to; i++, raw += row) {
		uint8_t *tile = w->p + (size_t)(i / 16) * (size_t)w->stride;
		if (w->fmt == W_F32)
			for (int k = 0; k < w->k; k++) memcpy(tile + ((size_t)k * 16 + (size_t)(i % 16)) * 4, raw + (size_t)k * 4, 4);
		else if (is_float(w->fmt))
			for (int k = 0; k < w->k; k++) memcpy(tile + ((size_t)k * 16 + (size_t)(i % 16)) * 2, raw + (size_t)k * 2, 2);
		else if (w->fmt >= W_Q4_K) pack_super(tile, w->fmt, w->nb, w->by_rows, i % 16, raw);
		else pack_legacy(tile, w->fmt, w->nb, w->by_rows, i % 16, raw);
	}
}

void arena_string_free(char *p) { free(p); }
