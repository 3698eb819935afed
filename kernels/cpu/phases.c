//go:build cgo && linux && amd64

// phases.c: how much work a phase is, the batch's derived lists, and which levels this machine has.
#include "omni.h"
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

int linear_splits(const Phase *p, int M, int threads) {
	// Few units leave threads idle at a phase's end: cut the tokens too. Each part unpacks the weights again, so parts stay large.
	int splits = 1;
	while (M / (splits + 1) >= 24 && p->units * splits < 8 * threads) splits++;
	if (splits == 1 && M >= 16 && p->units < 12 * threads) splits = 2;
	return splits;
}

static int rows_of(const Exec *e, const Phase *p) {
	return p->rows == ROWS_LOGITS ? e->b->L : p->rows == ROWS_REQUESTS ? e->b->R : e->b->T;
}

// How many units a phase has, and how many a thread takes at a time (0: half its share of what is left).
int phase_units(const Exec *e, const Phase *p, int *chunk) {
	int M = rows_of(e, p);
	*chunk = 1;
	switch (p->kind) {
	case P_LINEAR: {
		if (M == 0) return 0;
		int n = p->units * linear_splits(p, M, e->threads);
		*chunk = M <= 4 ? 0 : M <= 16 && n > 16 * e->threads ? 2 : 1;
		return n;
	}
	case P_ATTENTION: {
		int parts = attention_parts(e->b, p);
		return (parts ? parts : e->b->ntiles[p->tile_list]) * p->kv_heads;
	}
	case P_LOGITS: return M;
	}
	*chunk = M >= 12 * e->threads ? e->lv->panel : 1;
	return M;
}

// Cuts the tiles of list k into parts where that gives idle threads something to do. The chunks are those that a whole tile walks
// through, and joined in the same order, so results do not change by a bit.
static void cut(Batch *b, int k, int from, int ratio) {
	int n = k ? b->nparts[0] : 0, first = n, rows = 0, longest = 0;
	b->nparts[k] = 0;
	if (!ratio || b->ntiles[k] >= b->few) return;
	for (int i = 0; i < b->ntiles[k]; i++) {
		RowTile *rt = &b->tiles[from + i];
		int last = b->kvpos[b->qstart[rt->row] + (rt->p0 + rt->n - 1) / ratio];
		rt->parts = last / CHUNK + 1;
		rt->rows = rows;
		rows += rt->parts * rt->n;
		if (rt->parts > longest) longest = rt->parts;
		if (n + rt->parts > b->most_parts || (int64_t)rows * b->most_kv > b->partial_rows) return;
		int left = (k * b->few + i) * b->most_kv;
		for (int c = 0; c < rt->parts; c++) b->parts[n++] = (Part){from + i, c, rt->rows + c * rt->n, left};
		for (int h = 0; h < b->most_kv; h++) b->left[left + h] = rt->parts;
	}
	if (longest > 2) b->nparts[k] = n - first;
}

// tile_rows: query rows of an attention unit; ratios: query heads per KV head of the module's attentions (0: none).
void batch_prepare(Batch *b, int tile_rows, int ratio0, int ratio1) {
	int ratios[2] = {ratio0, ratio1}, n = 0;
	for (int r = 0; r < b->R; r++) {
		int len = b->qstart[r + 1] - b->qstart[r];
		for (int i = 0; i < len; i++) {
			b->row[b->qstart[r] + i] = r;
			b->kvpos[b->qstart[r] + i] = b->seqlens[r] - len + i;
		}
	}
	for (int k = 0; k < 2; k++) {
		int from = n;
		for (int r = 0; ratios[k] && r < b->R; r++) {
			int pairs = (b->qstart[r + 1] - b->qstart[r]) * ratios[k];
			for (int p = 0; p < pairs; p += tile_rows) b->tiles[n++] = (RowTile){r, p, pairs - p < tile_rows ? pairs - p : tile_rows, 0, 0};
		}
		b->ntiles[k] = n - from;
		cut(b, k, from, ratios[k]);
	}
}

// The instructions, and the registers that the kernel saves (XGETBV).
typedef struct {
	int avx2, vnni256, vnni512, amx;
} Features;

// Tiles are a large state that a process asks the kernel for; threads that it starts later inherit the permission.
static int may_use_tiles(void) {
	enum { REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
	return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA) == 0;
}

static Features features(void) {
	Features f = {0, 0, 0, 0};
	unsigned a, b, c, d, lo, hi;
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_FMA) || !(c & bit_F16C) || !(c & bit_POPCNT)) return f;
	__asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	if ((lo & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return f;
	f.avx2 = (b & bit_AVX2) != 0;
	int wide = (bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ);
	f.vnni512 = f.avx2 && (lo & 0xe6) == 0xe6 && ((int)b & wide) == wide && (c & bit_AVX512VNNI);
	unsigned a1, b1, c1, d1;
	if (a < 1 || !__get_cpuid_count(7, 1, &a1, &b1, &c1, &d1)) return f;
	f.vnni256 = f.avx2 && (a1 & bit_AVXVNNI);
	f.amx = f.vnni512 && (lo & 0x60000) == 0x60000 && (c & bit_AVX512VBMI) && (a1 & bit_AVX512BF16) && (d & bit_AMX_TILE) && (d & bit_AMX_BF16) && (d & bit_AMX_INT8) && may_use_tiles();
	return f;
}

const Level *level_find(const char *name) {
	Features f = features();
	const Level *have[] = {f.amx ? &level_amx : 0, f.amx ? &level_amxbf16 : 0, f.vnni512 ? &level_avx512 : 0, f.vnni256 ? &level_avxvnni : 0, f.avx2 ? &level_avx2 : 0, &level_scalar};
	for (size_t i = 0; i < sizeof have / sizeof *have; i++)
		if (have[i] && (!*name || !strcmp(name, have[i]->name))) return have[i];
	return 0;
}
