// level.h: the phases, written once over sixteen-lane vectors. A level's .c file sets its target, its vectors and its block
// products, then includes this. Constants of the including file: LEVEL (the table's name), LEVEL_NAME, ROWS (query rows of an
// attention unit), WIDE (1: 32 registers of 16 lanes), EXPAND_FROM.
//
// Every reduction of a row runs in an order that depends on the row's own position and on shapes alone: over k in blocks, over
// cache positions in blocks of 16 and chunks of CHUNK. Batch, chunking and threads cannot change a bit.

INL V v_exp(V x) { // Cephes' expf: 2^n * p(f), relative error below 2e-7; clamped where float32 ends
	x = v_min(v_max(x, v_set(-87.f)), v_set(87.f));
	V n = v_round(v_mul(x, v_set(1.44269504f)));
	V f = v_fma(n, v_set(-0.693359375f), x);
	f = v_fma(n, v_set(2.12194440e-4f), f);
	V p = v_set(1.9875691500e-4f);
	p = v_fma(p, f, v_set(1.3981999507e-3f));
	p = v_fma(p, f, v_set(8.3334519073e-3f));
	p = v_fma(p, f, v_set(4.1665795894e-2f));
	p = v_fma(p, f, v_set(1.6666665459e-1f));
	p = v_fma(p, f, v_set(0.5f));
	p = v_fma(p, v_mul(f, f), v_add(f, v_set(1)));
	return v_scale2(p, n);
}

INL V v_tanh(V x) { // 1 - 2/(e^2x + 1)
	return v_sub(v_set(1), v_div(v_set(2), v_add(v_exp(v_add(x, x)), v_set(1))));
}

INL V v_sigmoid(V x) { return v_div(v_set(1), v_add(v_set(1), v_exp(v_sub(v_zero(), x)))); }

static float scalar_act(int act, float x) {
	switch (act) {
	case ACT_GELU: return 0.5f * x * (1 + erff(x * 0.70710678f));
	case ACT_TANH: return tanhf(x);
	case ACT_EXP: return expf(x);
	case ACT_SOFTPLUS: return x > 20 ? x : log1pf(expf(x));
	}
	return x;
}

INL V v_act(int act, V x) {
	switch (act) {
	case ACT_IDENTITY: return x;
	case ACT_SILU: return v_mul(x, v_sigmoid(x));
	case ACT_GELU_TANH: {
		V u = v_mul(v_mul(v_set(0.79788456f), x), v_fma(v_mul(x, x), v_set(0.044715f), v_set(1)));
		return v_mul(v_mul(v_set(0.5f), x), v_add(v_set(1), v_tanh(u)));
	}
	case ACT_RELU: return v_max(x, v_zero());
	case ACT_RELU2: x = v_max(x, v_zero()); return v_mul(x, x);
	case ACT_SIGMOID: return v_sigmoid(x);
	case ACT_QUICK: return v_mul(x, v_sigmoid(v_mul(x, v_set(1.702f))));
	}
	float f[16];
	v_store(f, x);
	for (int i = 0; i < 16; i++) f[i] = scalar_act(act, f[i]);
	return v_load(f);
}

INL int phase_rows(const Exec *e, const Phase *p) { return p->rows == ROWS_LOGITS ? e->b->L : p->rows == ROWS_REQUESTS ? e->b->R : e->b->T; }
INL float *row_of(const Buf *b, int t) { return b->f + (size_t)t * (size_t)b->ld; }

#ifdef BF16_CACHE
// Sixteen floats as bfloat16, to nearest even, in the lower halves.
INL __m512i bfloats(V v) { return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(v)); }
#endif

#ifdef BF16_PANELS
// Activations of k j (u) and 16+j (v), raised by what the weights were cut.
INL __m512i pairs_of(V u, V v) {
	return _mm512_or_si512(bfloats(v_mul(u, v_set(CUT))), _mm512_slli_epi32(bfloats(v_mul(v, v_set(CUT))), 16));
}

// 32 floats become block `block` of row t: one pair a panel row.
INL void quantise32(const Buf *to, int t, int block, V u, V v) {
	const int wide = to->wide;
	__m512i x = pairs_of(u, v);
	uint8_t *a = panel(to, t, block);
	if (wide == 1) {
		_mm512_storeu_si512(a, x);
		return;
	}
	const __m512i rows = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_epi32(wide));
	_mm512_i32scatter_epi32(a, rows, x, 4);
}
#else
// 32 floats become block `block` of row t.
INL void quantise32(const Buf *to, int t, int block, V u, V v) {
	float m = v_top(v_max(v_abs(u), v_abs(v))), d = m / 127, id = m > 0 ? 127 / m : 0;
	uint8_t *a = panel(to, t, block);
	int c = t % PANEL;
	V s = v_set(id);
	int lo = v_quantise(u, s, (int8_t *)a + c * 32), hi = v_quantise(v, s, (int8_t *)a + c * 32 + 16);
	((float *)(a + PANEL_D))[c] = d;
	((float *)(a + PANEL_DS))[c] = d * (float)(lo + hi);
	((int16_t *)(a + PANEL_LO))[c] = (int16_t)lo;
}
#endif

static void quantise_row(const float *x, Buf *to, int t) {
	for (int b = 0; b < to->nb; b++) quantise32(to, t, b, v_load(x + b * 32), v_load(x + b * 32 + 16));
}

static void run_quantise(const Exec *e, const Phase *p, int t, int thread) {
	(void)e, (void)thread;
	quantise_row(row_of(p->in, t), p->out, t);
}

// ---- products with float weights

INL V weight_at(int fmt, const uint8_t *w, int k) {
	if (fmt == W_F32) return v_load((const float *)w + (size_t)k * 16);
	if (fmt == W_F16) return v_half((const uint16_t *)w + (size_t)k * 16);
	return v_bhalf((const uint16_t *)w + (size_t)k * 16);
}

INL void fdot2(const int T, const int pair, const int fmt, const int K, const uint8_t *w, const uint8_t *z, const float *x, int ld, row16 *o, row16 *p) {
	V f[T], g[T];
	UNROLL for (int t = 0; t < T; t++) f[t] = g[t] = v_zero();
	for (int k = 0; k < K; k++) {
		V a = weight_at(fmt, w, k), b = pair ? weight_at(fmt, z, k) : a;
		UNROLL for (int t = 0; t < T; t++) {
			V c = v_set(x[(size_t)t * (size_t)ld + (size_t)k]);
			f[t] = v_fma(a, c, f[t]);
			if (pair) g[t] = v_fma(b, c, g[t]);
		}
	}
	UNROLL for (int t = 0; t < T; t++) {
		v_store(o[t], f[t]);
		if (pair) v_store(p[t], g[t]);
	}
}

#define FDOT(fmt, pair) \
	{ \
		int t = 0; \
		if (WIDE) \
			for (; t + 6 <= T; t += 6) fdot2(6, pair, fmt, w->k, x, z, a + (size_t)t * ld, ld, o[i] + t, q + t); \
		if (ROWS > 1) \
			for (; t + 4 <= T; t += 4) fdot2(4, pair, fmt, w->k, x, z, a + (size_t)t * ld, ld, o[i] + t, q + t); \
		if (ROWS > 1) \
			for (; t + 2 <= T; t += 2) fdot2(2, pair, fmt, w->k, x, z, a + (size_t)t * ld, ld, o[i] + t, q + t); \
		for (; t < T; t++) fdot2(1, pair, fmt, w->k, x, z, a + (size_t)t * ld, ld, o[i] + t, q + t); \
		break; \
	}

static void fdot(const Weight *w, int tile, int nt, const float *a, int ld, int T, tile_out *o) {
	for (int i = 0; i < nt; i += WIDE ? nt : 1) {
		const uint8_t *x = w->p + (size_t)(tile + i) * (size_t)w->stride, *z = x + (WIDE ? nt - 1 : 0) * w->stride;
		row16 *q = WIDE ? o[nt - 1] : o[i];
		switch (w->fmt) {
		case W_F32: FDOT(W_F32, WIDE)
		case W_F16: FDOT(W_F16, WIDE)
		case W_BF16: FDOT(W_BF16, WIDE)
		}
	}
}

// ---- linear

INL V norm_scale(V x, const float *w, int i, float r) { return v_mul(v_mul(x, v_set(r)), v_load(w + i)); }

static void rotate(float *x, const float *cos, const float *sin, int n, int pair) {
	int i = 0;
	if (pair) {
		static const float signs[16] = {-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1};
		for (; i + 8 <= n; i += 8) {
			V a = v_load(x + 2 * i);
			v_store(x + 2 * i, v_add(v_mul(a, v_twice(cos + i)), v_mul(v_swap_pairs(a), v_mul(v_twice(sin + i), v_load(signs)))));
		}
		for (; i < n; i++) {
			float a = x[2 * i], b = x[2 * i + 1];
			x[2 * i] = a * cos[i] - b * sin[i];
			x[2 * i + 1] = b * cos[i] + a * sin[i];
		}
		return;
	}
	for (; i + 16 <= n; i += 16) {
		V a = v_load(x + i), b = v_load(x + n + i), c = v_load(cos + i), s = v_load(sin + i);
		v_store(x + i, v_sub(v_mul(a, c), v_mul(b, s)));
		v_store(x + n + i, v_add(v_mul(b, c), v_mul(a, s)));
	}
	for (; i < n; i++) {
		float a = x[i], b = x[n + i];
		x[i] = a * cos[i] - b * sin[i];
		x[n + i] = b * cos[i] + a * sin[i];
	}
}

INL uint8_t *page_at(const Cache *c, const Batch *b, int row, int pos, int head) {
	const Table *tb = &b->tables[c->group];
	int block = tb->blocks[tb->start[row] + pos / c->block_size], in = pos % c->block_size / 16;
	size_t head_bytes = (size_t)(c->kdim + c->vdim) * 16 * kv_bytes(c->kind);
	return c->base + (size_t)block * (size_t)c->block_stride + ((size_t)in * (size_t)c->heads + (size_t)head) * head_bytes;
}

static void store_k(const Cache *c, const Batch *b, int t, int head, const float *x) {
	int pos = b->kvpos[t], n = c->kdim;
	uint8_t *p = page_at(c, b, b->row[t], pos, head);
#ifdef BF16_CACHE
	if (c->kind == KV_PAIRS) {
		uint32_t *k = (uint32_t *)p + pos % 16, pairs[8];
		for (int d = 0; d < n; d += 16) {
			_mm256_storeu_si256((__m256i *)pairs, (__m256i)_mm512_cvtneps_pbh(v_load(x + d)));
			for (int i = 0; i < 8; i++) k[(d / 2 + i) * 16] = pairs[i];
		}
		return;
	}
#endif
	if (c->kind == KV_F32) {
		float *k = (float *)p + pos % 16;
		for (int d = 0; d < n; d++) k[d * 16] = x[d];
		return;
	}
	uint16_t *k = (uint16_t *)p + pos % 16, h[16];
	for (int d = 0; d < n; d += 16) {
		v_store_half(h, v_load(x + d));
		for (int i = 0; i < 16; i++) k[(d + i) * 16] = h[i];
	}
}

static void store_v(const Cache *c, const Batch *b, int t, int head, const float *x) {
	int pos = b->kvpos[t], n = c->vdim;
	uint8_t *p = page_at(c, b, b->row[t], pos, head) + (size_t)c->kdim * 16 * kv_bytes(c->kind);
#ifdef BF16_CACHE
	if (c->kind == KV_PAIRS) { // the other half of a pair belongs to another token, and perhaps to another thread
		uint16_t *v = (uint16_t *)p + (size_t)(pos % 16 / 2) * (size_t)n * 2;
		for (int d = 0; d < n; d += 16)
			_mm512_mask_storeu_epi16(v + 2 * d, pos % 2 ? 0xaaaaaaaa : 0x55555555, _mm512_slli_epi32(bfloats(v_load(x + d)), pos % 2 * 16));
		return;
	}
#endif
	if (c->kind == KV_F32) {
		memcpy((float *)p + (size_t)(pos % 16) * (size_t)n, x, (size_t)n * 4);
		return;
	}
	uint16_t *v = (uint16_t *)p + (size_t)(pos % 16) * (size_t)n;
	for (int d = 0; d < n; d += 16) v_store_half(v + d, v_load(x + d));
}

INL V v_linear_act(const Segment *s, V x) {
	if (s->act == ACT_IDENTITY && s->scale == 1 && s->post == 1 && s->offset == 0 && s->clamp == 0) return x;
	x = v_add(v_mul(v_act(s->act, v_mul(x, v_set(s->scale))), v_set(s->post)), v_set(s->offset));
	if (s->clamp > 0) x = v_min(v_max(x, v_set(-s->clamp)), v_set(s->clamp));
	return x;
}

INL void put2(const Buf *out, int t, int col, V u, V v) {
	if (out->f) {
		v_store(row_of(out, t) + col, u);
		v_store(row_of(out, t) + col + 16, v);
	}
	if (out->q) quantise32(out, t, col / 32, u, v);
}

static void ep_store(const Segment *s, int tile, int nt, int t0, int T, tile_out *o) {
	for (int t = 0; t < T; t++)
		for (int i = 0; i < nt; i += 2) {
			int col = (tile + i) * 16;
			V u = v_load(o[i][t]), v = v_load(o[i + 1][t]);
			if (s->bias) {
				u = v_add(u, v_load(s->bias + col));
				v = v_add(v, v_load(s->bias + col + 16));
			}
			if (s->epilogue == E_ADD) {
				float *d = row_of(s->out, t0 + t) + s->column + col;
				v_store(d, v_fma(u, v_set(s->alpha), v_load(d)));
				v_store(d + 16, v_fma(v, v_set(s->alpha), v_load(d + 16)));
			} else put2(s->out, t0 + t, s->column + col, v_linear_act(s, u), v_linear_act(s, v));
		}
}

static void ep_gated(const Segment *s, int tile, int nt, int t0, int T, tile_out *o) {
	for (int t = 0; t < T; t++)
		for (int i = 0; i < nt; i += 2) {
			int col = (tile + i) * 16;
			V g = v_load(o[i][t]), h = v_load(o[i + 1][t]), u = v_load(o[nt + i][t]), v = v_load(o[nt + i + 1][t]);
			if (s->bias) {
				g = v_add(g, v_load(s->bias + col));
				h = v_add(h, v_load(s->bias + col + 16));
			}
			if (s->bias2) {
				u = v_add(u, v_load(s->bias2 + col));
				v = v_add(v, v_load(s->bias2 + col + 16));
			}
			put2(s->out, t0 + t, s->column + col, v_mul(v_act(s->act, g), u), v_mul(v_act(s->act, h), v));
		}
}

static void ep_head(const Exec *e, const Segment *s, int head, int nt, int t0, int T, tile_out *o) {
	float x[MAX_UNIT_TILES * 16] __attribute__((aligned(64)));
	int n = s->head_dim;
	for (int t = 0; t < T; t++) {
		for (int i = 0; i < nt; i++) {
			V u = v_load(o[i][t]);
			if (s->bias) u = v_add(u, v_load(s->bias + head * n + i * 16));
			v_store(x + i * 16, u);
		}
		if (s->norm_on) {
			V q = v_zero();
			for (int i = 0; i < nt; i++) q = v_fma(v_load(x + i * 16), v_load(x + i * 16), q);
			float r = 1 / sqrtf(v_sum(q) / (float)n + s->eps);
			for (int i = 0; i < nt; i++) v_store(x + i * 16, norm_scale(v_load(x + i * 16), s->norm, i * 16, r));
		}
		if (s->rope) {
			size_t at = (size_t)(t0 + t) * (size_t)s->rope->n16;
			rotate(x + s->rot_from, s->rope->cos + at, s->rope->sin + at, s->rot_dim / 2, s->rot_pair);
		}
		if (s->epilogue == E_HEAD_K) store_k(s->cache, e->b, t0 + t, head, x);
		else if (s->epilogue == E_HEAD_V) store_v(s->cache, e->b, t0 + t, head, x);
		else for (int i = 0; i < nt; i++) v_store(row_of(s->out, t0 + t) + s->column + head * n + i * 16, v_load(x + i * 16));
	}
}

static void epilogue(const Exec *e, const Segment *s, int u, int nt, int t0, int T, tile_out *o) {
	switch (s->epilogue) {
	case E_STORE: case E_ADD: ep_store(s, u * s->tiles, nt, t0, T, o); break;
	case E_GATED: ep_gated(s, u * s->tiles, nt, t0, T, o); break;
	default: ep_head(e, s, u, nt, t0, T, o);
	}
}

// Share is a unit's part of a linear phase: nt tiles of a segment from `tile` on, by the tokens [t0, t1).
typedef struct {
	const Segment *s;
	int u, tile, nt, gated, t0, t1;
} Share;

// Parts begin at whole panels of so many tokens.
static Share share_of(const Exec *e, const Phase *p, int unit, int panel_tokens) {
	int M = phase_rows(e, p), splits = linear_splits(p, M, e->threads), u = unit / splits, part = unit % splits;
	int panels = (M + panel_tokens - 1) / panel_tokens, t0 = panels * part / splits * panel_tokens, t1 = panels * (part + 1) / splits * panel_tokens;
	if (t1 > M) t1 = M;
	const Segment *s = p->seg;
	for (; u >= s->units; s++) u -= s->units;
	int tile = u * s->tiles, nt = s->tiles, total = (s->w.n + 31) / 32 * 2, gated = s->epilogue == E_GATED;
	if (s->epilogue < E_HEAD_Q || gated) nt = total - tile < nt ? total - tile : nt;
	return (Share){s, u, tile, nt, gated, t0, t1};
}

#ifdef BF16_PANELS
#include "linear_bf16.h"
#else
static size_t expanded_bytes(const Weight *w) { return (size_t)w->nb * 640; }

// nt tiles of w from tile on by tokens [t, t+T) of one panel.
static void products(const Weight *w, int tile, int nt, const Buf *in, int t, int T, tile_out *o) {
	for (int i = 0; i < nt; i += 2) {
		int two = nt - i < 2 ? 1 : 2;
		if (is_float(w->fmt)) fdot(w, tile + i, two, row_of(in, t), in->ld, T, o + i);
		else
			for (int c = 0; c < T; c += DOT_ROWS) dot(w, tile + i, two, panel(in, t, 0), c, T - c < DOT_ROWS ? T - c : DOT_ROWS, o + i);
	}
}

static void expanded_products(const Weight *w, const uint8_t *x, int nt, const Buf *in, int t, int T, tile_out *o) {
#if EXPAND_FROM
	size_t n = expanded_bytes(w);
	for (int i = 0; i < nt; i += 2) {
		const uint8_t *u = x + (size_t)i * n, *v = nt - i < 2 ? u : u + n;
#ifdef TILES
		if (choice.tiles) {
			dot_tiles(w, u, v, panel(in, t, 0), o + i);
			continue;
		}
#endif
		for (int c = 0; c < T; c += DOT_ROWS) dot_expanded(w, u, v, panel(in, t, 0), c, T - c < DOT_ROWS ? T - c : DOT_ROWS, o + i);
	}
#else
	(void)w, (void)x, (void)nt, (void)in, (void)t, (void)T, (void)o;
#endif
}

static int expand_tiles(const Weight *w, int tile, int nt, uint8_t *to, int tokens) {
#if EXPAND_FROM
	int from = EXPAND_FROM;
#ifdef TILES
	if (tokens >= TILES_FROM && choice.tiles) from = TILES_FROM;
#endif
	if (tokens < from || is_float(w->fmt)) return 0;
	for (int i = 0; i < nt; i++) expand(w, tile + i, to + (size_t)i * expanded_bytes(w));
	return 1;
#else
	(void)w, (void)tile, (void)nt, (void)to, (void)tokens;
	return 0;
#endif
}

static void run_linear(const Exec *e, const Phase *p, int unit, int thread) {
	Scratch *sc = &e->scratch[thread];
	const Share h = share_of(e, p, unit, PANEL);
	const Segment *s = h.s;
	const int u = h.u, tile = h.tile, nt = h.nt, gated = h.gated, t0 = h.t0, t1 = h.t1;
	uint8_t *x = sc->expand, *y = x + (size_t)nt * expanded_bytes(&s->w);
#ifdef TILES
	int measured = t1 - t0 >= TILES_FROM && !is_float(s->w.fmt) && use_tiles() >= 0;
	uint64_t since = measured ? __rdtsc() : 0;
#endif
	int big = expand_tiles(&s->w, tile, nt, x, t1 - t0), big2 = gated ? expand_tiles(&s->w2, tile, nt, y, t1 - t0) : 0;
	for (int t = t0; t < t1; t += PANEL) {
		int T = t1 - t < PANEL ? t1 - t : PANEL;
		if (big) expanded_products(&s->w, x, nt, p->in, t, T, sc->out);
		else products(&s->w, tile, nt, p->in, t, T, sc->out);
		if (big2) expanded_products(&s->w2, y, nt, p->in, t, T, sc->out + nt);
		else if (gated) products(&s->w2, tile, nt, p->in, t, T, sc->out + nt);
		epilogue(e, s, u, nt, t, T, sc->out);
	}
#ifdef TILES
	if (measured) note_cost(__rdtsc() - since, nt * (gated + 1) * s->w.nb * ((t1 - t0 + PANEL - 1) / PANEL));
#endif
}

#endif

// ---- rows

static void run_embed(const Exec *e, const Phase *p, int t, int thread) {
	(void)thread;
	float *o = row_of(p->out, t);
	int tok = e->b->tokens[t];
	if (tok < 0 || tok >= p->table.n) tok = 0;
	dequantise_row(&p->table, tok, o);
	if (p->scale != 1)
		for (int i = 0; i < p->table.k; i++) o[i] *= p->scale;
}

static void run_rope_table(const Exec *e, const Phase *p, int t, int thread) {
	(void)thread;
	const RopeTable *r = p->rope;
	const Batch *b = e->b;
	int lng = r->long_freq && r->long_from > 0 && b->seqlens[b->row[t]] > r->long_from;
	const double *f = lng ? r->long_freq : r->freq;
	float k = lng ? r->long_factor : r->factor;
	float *c = r->cos + (size_t)t * (size_t)r->n16, *s = r->sin + (size_t)t * (size_t)r->n16;
	for (int i = 0; i < r->n; i++) {
		double a = (double)b->pos[r->axis ? r->axis[i] : 0][t] * f[i];
		c[i] = (float)cos(a) * k;
		s[i] = (float)sin(a) * k;
	}
}

// Sum over n floats of (x-mean)^2; two sums in turn, then their lanes.
static float sum_squares(const float *x, int n, float mean) {
	V s = v_zero(), z = s, m = v_set(mean);
	int i = 0;
	for (; i + 32 <= n; i += 32) {
		V u = v_sub(v_load(x + i), m), v = v_sub(v_load(x + i + 16), m);
		s = v_fma(u, u, s);
		z = v_fma(v, v, z);
	}
	for (; i < n; i += 16) {
		V u = v_between(0, n - i, v_sub(v_load(x + i), m), v_zero());
		s = v_fma(u, u, s);
	}
	return v_sum(v_add(s, z));
}

static float sum_of(const float *x, int n) {
	V s = v_zero();
	for (int i = 0; i < n; i += 16) s = v_add(s, v_between(0, n - i, v_load(x + i), v_zero()));
	return v_sum(s);
}

// x of n floats, normalised into y; pads of y up to 16 are written too.
static void norm_into(float *y, const float *x, int n, int kind, float eps, const float *w, const float *b) {
	float mean = kind == 1 ? sum_of(x, n) / (float)n : 0, q = sum_squares(x, n, mean);
	float r = 1 / sqrtf((kind == 2 ? q : q / (float)n) + eps);
	for (int i = 0; i < n; i += 16) {
		V u = v_mul(kind == 1 ? v_sub(v_load(x + i), v_set(mean)) : v_load(x + i), v_set(r));
		if (w) u = v_mul(u, v_load(w + i));
		if (b) u = v_add(u, v_load(b + i));
		v_store(y + i, u);
	}
}

static void run_norm(const Exec *e, const Phase *p, int t, int thread) {
	Scratch *sc = &e->scratch[thread];
	const float *x = row_of(p->in, p->gather ? e->b->logit_rows[t] : t);
	int n = p->in->width;
	if (p->add_first) { // a normalised sub-layer output joins the residual stream, which is then normalised
		float *res = row_of(p->res, t), *y = sc->scores;
		norm_into(y, x, n, p->norm_kind2, p->eps2, p->weight2, p->bias2);
		for (int i = 0; i < n; i += 16) v_store(res + i, v_fma(v_load(y + i), v_set(p->alpha), v_load(res + i)));
		if (!p->out) return;
		x = res;
	}
	float *y = p->out->f ? row_of(p->out, t) : sc->scores;
	int g = p->group_size ? p->group_size : n;
	if (g == n) norm_into(y, x, n, p->norm_kind, p->eps, p->weight, p->bias);
	else {
		float in[2048 + 16], out[2048 + 16];
		for (int c = 0; c < n; c += g) {
			memcpy(in, x + c, (size_t)g * 4);
			const float *w = p->weight && p->weight_whole ? p->weight + c : p->weight;
			const float *b = p->bias && p->weight_whole ? p->bias + c : p->bias;
			norm_into(out, in, g, p->norm_kind, p->eps, w, b);
			memcpy(y + c, out, (size_t)g * 4);
		}
	}
	if (p->out->q) quantise_row(y, p->out, t);
}

static void run_rope(const Exec *e, const Phase *p, int t, int thread) {
	(void)e, (void)thread;
	size_t at = (size_t)t * (size_t)p->rope->n16;
	for (int h = 0; h < p->heads; h++)
		rotate(row_of(p->out, t) + h * p->head_dim + p->rot_from, p->rope->cos + at, p->rope->sin + at, p->rot_dim / 2, p->rot_pair);
}

static void run_kv_write(const Exec *e, const Phase *p, int t, int thread) {
	(void)thread;
	const Cache *c = p->cache;
	for (int h = 0; h < c->heads; h++) {
		store_k(c, e->b, t, h, row_of(p->in, t) + h * c->kdim);
		store_v(c, e->b, t, h, row_of(p->in2, t) + h * c->vdim);
	}
}

static void run_binary(const Exec *e, const Phase *p, int t, int thread) {
	(void)e, (void)thread;
	const float *a = row_of(p->in, t), *b = row_of(p->in2, t);
	float *o = row_of(p->out, t);
	for (int i = 0; i < p->out->width; i += 16) {
		V x = v_load(a + i);
		if (p->op == 0) x = v_fma(v_load(b + i), v_set(p->alpha), x);
		else x = v_mul(x, p->op == 1 ? v_load(b + i) : v_set(b[0]));
		v_store(o + i, x);
	}
}

static void run_unary(const Exec *e, const Phase *p, int t, int thread) {
	(void)e, (void)thread;
	const float *a = row_of(p->in, t);
	float *o = row_of(p->out, t);
	Segment s = {.act = p->act, .scale = p->scale, .post = p->post, .offset = p->offset, .clamp = p->clamp};
	for (int i = 0; i < p->out->width; i += 16) v_store(o + i, v_linear_act(&s, v_load(a + i)));
}

static void run_gated(const Exec *e, const Phase *p, int t, int thread) {
	(void)e, (void)thread;
	const float *a = row_of(p->in, t), *b = row_of(p->in2, t);
	float *o = row_of(p->out, t);
	for (int i = 0; i < p->out->width; i += 16) {
		V g = v_load(a + i), u = v_load(b + i);
		if (p->clamp > 0) {
			V c = v_set(p->clamp);
			g = v_min(g, c);
			u = v_add(v_max(v_min(u, c), v_set(-p->clamp)), v_set(1));
			g = v_mul(g, v_sigmoid(v_mul(g, v_set(1.702f))));
		} else g = v_act(p->act, g);
		v_store(o + i, v_mul(g, u));
	}
}

static void run_copy(const Exec *e, const Phase *p, int t, int thread) {
	(void)e, (void)thread;
	for (int g = 0; g < p->groups; g++)
		memmove(row_of(p->out, t) + g * p->out_stride + p->out_from, row_of(p->in, t) + g * p->in_stride + p->in_from, (size_t)p->width * 4);
}

static void run_gather(const Exec *e, const Phase *p, int t, int thread) {
	(void)thread;
	memcpy(row_of(p->out, t), row_of(p->in, e->b->logit_rows[t]), (size_t)p->out->width * 4);
}

// The best n of a row, in descending order, lower ids first among equals.
static void best_of(const float *x, int n, LogitRow *q) {
	int have = 0;
	for (int i = 0; i < n; i += 16) {
		V v = v_load(x + i);
		if (have == q->nbest && !v_any_greater(v, v_set(q->best_values[have - 1]))) continue;
		for (int j = i; j < n && j < i + 16; j++) {
			if (have == q->nbest && !(x[j] > q->best_values[have - 1])) continue;
			int at = have < q->nbest ? have++ : have - 1;
			for (; at > 0 && q->best_values[at - 1] < x[j]; at--) {
				q->best_values[at] = q->best_values[at - 1];
				q->best_ids[at] = q->best_ids[at - 1];
			}
			q->best_values[at] = x[j];
			q->best_ids[at] = j;
		}
	}
	q->nbest = have;
}

// The maximum, its lowest id, NaNs; when wanted, the log of the sum of exponentials and the best.
static void scan_logits(const float *x, int n, LogitRow *q) {
	int nan = 0, at = 0;
	V top = v_set(-INFINITY);
	for (int i = 0; i < n; i += 16) {
		V v = v_between(0, n - i, v_load(x + i), v_set(-INFINITY));
		nan |= v_any_nan(v);
		top = v_max(top, v);
	}
	float m = v_top(top);
	q->nan = nan;
	q->max = m;
	if (nan) return;
	while (at < n - 1 && x[at] != m) at++;
	q->argmax = at;
	if (!q->want) return;
	double sum = 0; // in runs of 1024, so that float32 sums stay short
	for (int i = 0; i < n; i += 1024) {
		V s = v_zero();
		for (int j = i; j < n && j < i + 1024; j += 16)
			s = v_add(s, v_between(0, n - j, v_exp(v_sub(v_between(0, n - j, v_load(x + j), v_set(m)), v_set(m))), v_zero()));
		sum += (double)v_sum(s);
	}
	q->lse = (double)m + log(sum);
	if (q->nbest > 0) best_of(x, n, q);
}

// The chosen token's value and rank: how many logits are at least as high.
static void rank_of(const float *x, int n, LogitRow *q, int id) {
	if (id < 0 || id >= n) return;
	int lower = 0;
	V v = v_set(x[id]);
	for (int i = 0; i < n; i += 16) lower += v_count_greater(v, v_between(0, n - i, v_load(x + i), v));
	q->target_value = x[id];
	q->rank = n - lower;
}

#include "sample.h"

static void run_logits(const Exec *e, const Phase *p, int t, int thread) {
	const float *x = row_of(p->in, t);
	const int n = p->logits->vocab;
	LogitRow *q = &p->logits->rows[t];
	SampleRow *s = &p->logits->samples[t];
	scan_logits(x, n, q);
	s->token = -1;
	s->status = q->nan ? SAMPLE_NAN : SAMPLE_OK;
	if (q->nan) return;
	if (!s->skip) {
		float *l = e->scratch[thread].logits;
		size_t padded = (size_t)(n + 15) / 16 * 16;
		sample_row(x, n, s, q->argmax, l, (int32_t *)(l + padded), (Candidate *)(l + 2 * padded));
	}
	if (q->want) rank_of(x, n, q, s->skip ? q->target : s->token);
}

#include "attention.h"

const Level LEVEL = {
	.name = LEVEL_NAME,
	.att_rows = ROWS,
	.expand_from = EXPAND_FROM,
#ifdef BF16_CACHE
	.kv = KV_PAIRS,
#else
	.kv = KV_F16,
#endif
#ifdef BF16_PANELS
	.leave = tiles_leave,
	.panel = BF16_WIDE,
	.panel_bytes = BF16_WIDE * BF16_BYTES,
	.by_rows = 1,
	.expand_bytes = 1024,
#else
	.panel = PANEL,
	.panel_bytes = PANEL_BYTES,
	.expand_bytes = 640,
	.dot = dot,
#ifdef TILES
	.leave = tiles_leave,
#endif
#endif
	.run = {[P_ROPE_TABLE] = run_rope_table, [P_EMBED] = run_embed, [P_NORM] = run_norm, [P_LINEAR] = run_linear,
		[P_ATTENTION] = run_attention, [P_QUANTISE] = run_quantise, [P_ROPE] = run_rope, [P_KV_WRITE] = run_kv_write,
		[P_BINARY] = run_binary, [P_UNARY] = run_unary, [P_GATED] = run_gated, [P_COPY] = run_copy, [P_GATHER] = run_gather,
		[P_LOGITS] = run_logits},
	.fdot = fdot,
#if EXPAND_FROM
	.expand = expand,
	.dot_expanded = dot_expanded,
#endif
	.quantise = quantise_row,
	.row = dequantise_row,
};
