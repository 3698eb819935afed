// dot_tiles.h: products of an expanded tile and a panel of 16 tokens with AMX: an instruction makes the 16 by 16 integer sums of one
// 32-k block, exact as VNNI's, and the float finish is dot512.h's, operation by operation. So a token's bits are the same by either.
#include "tiles.h"

// Accumulators in tiles 0 to 3; activations in 4 (32 k) and 5 (16 k), 16 rows; weights in 6 and 7, one row per 4 k.
static void tiles_for_blocks(void) {
	if (tiles_set == 1) return;
	TileConfig c __attribute__((aligned(64)));
	memset(&c, 0, sizeof c);
	c.palette = 1;
	for (int i = 0; i < 8; i++) {
		c.rows[i] = (uint8_t)(i < 6 ? 16 : i == 6 ? 8 : 4);
		c.colsb[i] = (uint16_t)(i == 4 ? 32 : i == 5 ? 16 : 64);
	}
	tiles_load(&c, 1);
}

// Tiles or vectors: the bits are the same, so each thread takes what it measures to be faster. The tile unit of some machines runs at
// a quarter of its rate for milliseconds (a power licence, a neighbour on the same core), which nothing announces.
typedef struct {
	uint64_t until;  // cycles: the end of this round
	double cost[2];  // cycles a tile of sums, by vectors and by tiles; 0: not known
	int tiles, trial; // what is used; whether this round only tries it
} Choice;

static _Thread_local Choice choice;

enum { TRIAL = 3 << 20, ROUND = 256 << 20 }; // cycles: 1 to 2 ms, and 0.1 s

static int use_tiles(void) {
	Choice *c = &choice;
	uint64_t now = __rdtsc();
	if (now < c->until) return c->tiles;
	if (c->trial && c->cost[0] > 0 && c->cost[1] > 0) {
		c->trial = 0;
		c->tiles = c->cost[1] < c->cost[0];
		c->until = now + ROUND;
	} else {
		c->tiles = c->until ? !c->tiles : 1;
		c->trial = 1;
		c->cost[c->tiles] = 0;
		c->until = now + TRIAL;
	}
	return c->tiles;
}

// What a unit cost. The first third of a trial does not count; a thread that lost the processor counts as three times slower at most.
static void note_cost(uint64_t cycles, int work) {
	Choice *c = &choice;
	if (c->trial && __rdtsc() + TRIAL * 2 / 3 < c->until) return;
	double x = (double)cycles / work, *cost = &c->cost[c->tiles];
	if (*cost > 0) *cost += ((x < 3 * *cost ? x : 3 * *cost) - *cost) / 16;
	else *cost = x;
}

typedef int32_t Sums[256]; // [16 tokens][16 outputs]

enum { AHEAD_BLOCKS = 4 }; // whose sums are under way while earlier ones are finished

// Integer sums of n blocks from b on; with by16 two a block.
INL void sums_of(const int by16, const uint8_t *x, const uint8_t *a, int n, Sums *s) {
	for (int i = 0; i < n; i++, x += 512, a += PANEL_BYTES) {
		if (by16) {
			_tile_zero(0);
			_tile_loadd(5, a, 32);
			_tile_loadd(7, x, 64);
			_tile_dpbsud(0, 5, 7);
			_tile_stored(0, s[2 * i], 64);
			_tile_zero(1);
			_tile_loadd(5, a + 16, 32);
			_tile_loadd(7, x + 256, 64);
			_tile_dpbsud(1, 5, 7);
			_tile_stored(1, s[2 * i + 1], 64);
			continue;
		}
		_tile_zero(0);
		_tile_loadd(4, a, 32);
		_tile_loadd(6, x, 64);
		_tile_dpbsud(0, 4, 6);
		_tile_stored(0, s[i], 64);
	}
}

#define SUM_AT(s, t) _mm512_load_si512((s) + (t) * 16)

// The float share of block b, whose scales are d and m.
INL void finish(const int by16, const Flat x, int b, const uint8_t *a, const Sums *s, V *f) {
	const float *da = (const float *)(a + PANEL_D), *ds = (const float *)(a + PANEL_DS);
	if (!by16) {
		V d = v_load(x.d + b * 16), m = v_load(x.m + b * 16);
		UNROLL for (int t = 0; t < 16; t++) FINISH(f[t], SUM_AT(s[0], t), d, m, v_set(da[t]), v_set(ds[t]));
		return;
	}
	const int16_t *lo16 = (const int16_t *)(a + PANEL_LO);
	V d = v_load(x.d + b * 32), m = v_mul(d, v_set(-32)), e = v_load(x.d + b * 32 + 16), n = v_mul(e, v_set(-32));
	UNROLL for (int t = 0; t < 16; t++) {
		float lo = da[t] * (float)lo16[t];
		FINISH(f[t], SUM_AT(s[0], t), d, m, v_set(da[t]), v_set(lo));
		FINISH(f[t], SUM_AT(s[1], t), e, n, v_set(da[t]), v_set(ds[t] - lo));
	}
}

INL void tile_dot(const int by16, int nb, const uint8_t *x, Flat fx, const uint8_t *a, row16 *o) {
	Sums s[2][AHEAD_BLOCKS * 2] __attribute__((aligned(64)));
	V f[16];
	UNROLL for (int t = 0; t < 16; t++) f[t] = v_zero();
	int n = nb < AHEAD_BLOCKS ? nb : AHEAD_BLOCKS;
	sums_of(by16, x, a, n, s[0]);
	for (int b = 0, k = 0; b < nb; b += n, k ^= 1) {
		n = nb - b < AHEAD_BLOCKS ? nb - b : AHEAD_BLOCKS;
		int next = b + n, more = nb - next < AHEAD_BLOCKS ? nb - next : AHEAD_BLOCKS;
		sums_of(by16, x + (size_t)next * 512, a + (size_t)next * PANEL_BYTES, more, s[k ^ 1]);
		for (int i = 0; i < n; i++) finish(by16, fx, b + i, a + (size_t)(b + i) * PANEL_BYTES, (const Sums *)s[k] + (by16 ? 2 * i : i), f);
	}
	UNROLL for (int t = 0; t < 16; t++) v_store(o[t], f[t]);
}

// Two expanded tiles (or one, twice) by a whole panel: rows past the last token hold what earlier steps left, and nobody reads their
// outputs.
static void dot_tiles(const Weight *w, const uint8_t *x, const uint8_t *y, const uint8_t *a, tile_out *o) {
	const int nb = w->nb, two = x != y;
	tiles_for_blocks();
	for (int i = 0; i <= two; i++, x = y) {
		const float *d = (const float *)(x + (size_t)nb * 512);
		Flat f = {d, d + (size_t)nb * 16};
		if (w->fmt == W_Q6_K) tile_dot(1, nb, x, f, a, o[i]);
		else tile_dot(0, nb, x, f, a, o[i]);
	}
}
