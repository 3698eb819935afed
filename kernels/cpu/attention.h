// attention.h: causal attention over paged caches. K pages are transposed, so that one vector is one dimension of 16 tokens and
// scores need no horizontal sums. A row's cache is walked in chunks of CHUNK positions counted from position 0, each with its own
// maximum, sum and output, merged in order: the same arithmetic for every way of cutting the work.

typedef struct {
	const float *q;
	float *out; // running output [vdim]
	int pos, from, t, head;
	float max, sum;
	int any;
} Query;

INL V key_at(int half, const uint8_t *k, int d) { return half ? v_half((const uint16_t *)k + d * 16) : v_load((const float *)k + d * 16); }

// Scores of R rows for one or two pages; where memory is what it waits for, the pages after them and their values are fetched ahead.
INL void scores_of(const int R, const int half, const Query *q, int kdim, uint8_t *const *pages, size_t koff, float *s0, float *s1) {
	const uint8_t *k0 = pages[0], *k1 = pages[1];
	V s[R], z[R];
	UNROLL for (int r = 0; r < R; r++) s[r] = z[r] = v_zero();
	for (int d = 0; d < kdim; d++) {
		V a = key_at(half, k0, d);
		if (R <= 4) {
			size_t at = (size_t)(half ? d & ~1 : d) * (half ? 32 : 64);
			if (!half || d & 1) {
				v_prefetch(pages[WIDE ? 2 : 1] + at);
				if (WIDE) v_prefetch(pages[3] + at);
			}
			if (!half || !(d & 1)) {
				v_prefetch(k0 + koff + at);
				if (WIDE) v_prefetch(k1 + koff + at);
			}
		}
		if (WIDE) {
			V b = key_at(half, k1, d);
			UNROLL for (int r = 0; r < R; r++) {
				V c = v_set(q[r].q[d]);
				s[r] = v_fma(a, c, s[r]);
				z[r] = v_fma(b, c, z[r]);
			}
		} else UNROLL for (int r = 0; r < R; r++) s[r] = v_fma(a, v_set(q[r].q[d]), s[r]);
	}
	UNROLL for (int r = 0; r < R; r++) v_store(s0 + r * 16, s[r]);
	if (WIDE && s1) UNROLL for (int r = 0; r < R; r++) v_store(s1 + r * 16, z[r]);
}

INL V value_at(int half, const uint8_t *v, size_t i) { return half ? v_half((const uint16_t *)v + i) : v_load((const float *)v + i); }

// out[r][c..c+16*G) = sum over pages and their tokens of p*v; G of 1, 2 or 4 vectors at a time.
INL void values_of(const int R, const int G, const int half, uint8_t *const *pages, const int *counts, int n, size_t koff, int vdim, int c, const float *p, float *out) {
	V o0[R], o1[R], o2[R], o3[R];
	UNROLL for (int r = 0; r < R; r++) o0[r] = o1[r] = o2[r] = o3[r] = v_zero();
	for (int b = 0; b < n; b++) {
		const uint8_t *v = pages[b] + koff;
		const float *w = p + (size_t)b * R * 16;
		for (int i = 0; i < counts[b]; i++) {
			size_t at = (size_t)i * (size_t)vdim + (size_t)c;
			V a = value_at(half, v, at), e = a, f = a, g = a;
			if (G > 1) e = value_at(half, v, at + 16);
			if (G > 2) {
				f = value_at(half, v, at + 32);
				g = value_at(half, v, at + 48);
			}
			UNROLL for (int r = 0; r < R; r++) {
				V k = v_set(w[r * 16 + i]);
				o0[r] = v_fma(a, k, o0[r]);
				if (G > 1) o1[r] = v_fma(e, k, o1[r]);
				if (G > 2) {
					o2[r] = v_fma(f, k, o2[r]);
					o3[r] = v_fma(g, k, o3[r]);
				}
			}
		}
	}
	UNROLL for (int r = 0; r < R; r++) {
		float *o = out + (size_t)r * (size_t)vdim + c;
		v_store(o, o0[r]);
		if (G > 1) v_store(o + 16, o1[r]);
		if (G > 2) {
			v_store(o + 32, o2[r]);
			v_store(o + 48, o3[r]);
		}
	}
}

// Softmax of one row in one chunk of n pages from position p0: scores become weights. Returns whether any position counts. Only
// pages at the edges need masks.
static int soften(const Phase *p, const Query *q, float *s, int stride, int p0, int n, float *max, float *sum) {
	if (q->from >= p0 + n * 16 || q->pos < p0) return 0;
	V top = v_set(-INFINITY), total = v_zero(), scale = v_set(p->scale);
	for (int i = 0; i < n; i++) {
		V x = v_mul(v_load(s + i * stride), scale);
		if (p->softcap > 0) x = v_mul(v_tanh(v_div(x, v_set(p->softcap))), v_set(p->softcap));
		int a = q->from - p0 - i * 16, b = q->pos + 1 - p0 - i * 16;
		v_store(s + i * stride, x);
		top = v_max(top, a <= 0 && b >= 16 ? x : v_between(a, b, x, v_set(-INFINITY)));
	}
	V m = v_set(*max = v_top(top));
	for (int i = 0; i < n; i++) {
		int a = q->from - p0 - i * 16, b = q->pos + 1 - p0 - i * 16;
		V x = v_exp(v_sub(v_load(s + i * stride), m));
		if (!(a <= 0 && b >= 16)) x = v_between(a, b, x, v_zero());
		v_store(s + i * stride, x);
		total = v_add(total, x);
	}
	*sum = v_sum(total);
	return 1;
}

INL float exp1(float x) {
	float f[16];
	v_store(f, v_exp(v_set(x)));
	return f[0];
}

static void merge(Query *q, const float *part, int vdim, float m, float s) {
	if (!q->any) {
		memcpy(q->out, part, (size_t)vdim * 4);
		q->any = 1;
		q->max = m;
		q->sum = s;
		return;
	}
	float top = q->max > m ? q->max : m, a = exp1(q->max - top), b = exp1(m - top);
	V va = v_set(a), vb = v_set(b);
	for (int d = 0; d < vdim; d += 16) v_store(q->out + d, v_fma(v_load(q->out + d), va, v_mul(v_load(part + d), vb)));
	q->sum = q->sum * a + s * b;
	q->max = top;
}

// Where a tile's attention to one chunk lies: its pages, four more for the prefetch, and their tokens.
typedef struct {
	int p0, n; // position of the first page, pages
	uint8_t *pages[CHUNK_BLOCKS + 4];
	int counts[CHUNK_BLOCKS];
} Span16;

static int span_of(const Exec *e, const Phase *p, const Query *first, int last, int row, int kv, int c0, Span16 *s) {
	int end = last + 1 < c0 + CHUNK ? last + 1 : c0 + CHUNK;
	s->p0 = first->from > c0 ? first->from / 16 * 16 : c0;
	s->n = (end - s->p0 + 15) / 16;
	if (s->n < 1) return 0;
	for (int i = 0; i < s->n + 4; i++) {
		int at = s->p0 + i * 16;
		s->pages[i] = at <= last ? page_at(p->cache, e->b, row, at, kv) : s->pages[i - 1];
		if (i < s->n) s->counts[i] = end - at < 16 ? end - at : 16;
	}
	return 1;
}

// R rows and one chunk: part [R][vdim], and by row maximum, sum and whether any position counts.
INL void attend_chunk(const int R, const int half, const Phase *p, const Query *q, const Span16 *sp, float *s, float *part, float *max, float *sum, int *any) {
	const Cache *c = p->cache;
	const size_t koff = (size_t)c->kdim * 16 * (half ? 2 : 4);
	const int n = sp->n;
	for (int i = 0; i < n; i += WIDE ? 2 : 1)
		scores_of(R, half, q, c->kdim, sp->pages + i, koff, s + i * R * 16, i + 1 < n ? s + (i + 1) * R * 16 : 0);
	for (int r = 0; r < R; r++) {
		any[r] = soften(p, &q[r], s + r * 16, R * 16, sp->p0, n, &max[r], &sum[r]);
		if (!any[r])
			for (int i = 0; i < n; i++) v_store(s + (i * R + r) * 16, v_zero());
	}
	int col = 0;
	if (WIDE ? R <= 6 : R <= 1)
		for (; col + 64 <= c->vdim; col += 64) values_of(R, 4, half, sp->pages, sp->counts, n, koff, c->vdim, col, s, part);
	if (WIDE || R <= 2)
		for (; col + 32 <= c->vdim; col += 32) values_of(R, 2, half, sp->pages, sp->counts, n, koff, c->vdim, col, s, part);
	for (; col < c->vdim; col += 16) values_of(R, 1, half, sp->pages, sp->counts, n, koff, c->vdim, col, s, part);
}

#ifdef BF16_CACHE
#include "attention_amx.h"
#endif

#define CHUNK_OF(R) \
	if (p->cache->kind == KV_F16) attend_chunk(R, 1, p, q, sp, s, part, max, sum, any); \
	else attend_chunk(R, 0, p, q, sp, s, part, max, sum, any)

static void chunk_of(int n, const Phase *p, const Query *q, const Span16 *sp, float *s, float *part, float *max, float *sum, int *any) {
#ifdef BF16_CACHE
	if (p->cache->kind == KV_PAIRS) {
		amx_chunk(n, p, q, sp, s, part, max, sum, any);
		return;
	}
#endif
	if (n > 12) {
		chunk_of(8, p, q, sp, s, part, max, sum, any);
		chunk_of(n - 8, p, q + 8, sp, s, part + 8 * p->cache->vdim, max + 8, sum + 8, any + 8);
		return;
	}
	switch (n) {
	case 1: CHUNK_OF(1); break;
#if ROWS > 1
	case 2: CHUNK_OF(2); break;
#if WIDE
	case 3: CHUNK_OF(3); break;
	case 4: CHUNK_OF(4); break;
	case 5: case 6: CHUNK_OF(6); break;
	case 7: case 8: CHUNK_OF(8); break;
	default: CHUNK_OF(12);
#else
	default: CHUNK_OF(4);
#endif
#endif
	}
}

static void finish_query(const Phase *p, Query *q, int vdim) {
	if (p->sinks) { // a logit without a value
		float sink = p->sinks[q->head], top = q->max > sink ? q->max : sink, a = exp1(q->max - top);
		q->sum = q->sum * a + exp1(sink - top);
		for (int d = 0; d < vdim; d += 16) v_store(q->out + d, v_mul(v_load(q->out + d), v_set(a)));
	}
	V k = v_set(1 / q->sum);
	for (int d = 0; d < vdim; d += 16) v_store(q->out + d, v_mul(v_load(q->out + d), k));
	int col = q->head * vdim;
	if (p->out->f)
		for (int d = 0; d < vdim; d += 16) v_store(row_of(p->out, q->t) + col + d, v_load(q->out + d));
	if (p->out->q)
		for (int d = 0; d < vdim; d += 32) quantise32(p->out, q->t, (col + d) / 32, v_load(q->out + d), v_load(q->out + d + 16));
}

// The rows of a tile; those beyond n repeat the last one, and nobody reads them.
static void queries(const Exec *e, const Phase *p, const RowTile *rt, int kv, Query *q, float *outs) {
	const Batch *b = e->b;
	const int G = p->heads / p->kv_heads;
	for (int r = 0; r < ROWS; r++) {
		int pair = rt->p0 + (r < rt->n ? r : rt->n - 1), t = b->qstart[rt->row] + pair / G, h = kv * G + pair % G, from = 0;
		if (p->window > 0 && b->kvpos[t] - p->window + 1 > 0) from = b->kvpos[t] - p->window + 1;
		if (p->chunk > 0) from = b->kvpos[t] / p->chunk * p->chunk;
		q[r] = (Query){row_of(p->in, t) + h * p->cache->kdim, outs + (size_t)r * (size_t)p->cache->vdim, b->kvpos[t], from, t, h, 0, 0, 0};
	}
}

// A part is one chunk of one tile. Whoever finishes a tile's last part joins them all, in order.
static void run_part(const Exec *e, const Phase *p, int unit, float *s, float *part, Query *q) {
	const Batch *b = e->b;
	const int kv = unit % p->kv_heads, vdim = p->cache->vdim, width = vdim + 16;
	const Part *pt = &b->parts[p->tile_list ? b->nparts[0] + unit / p->kv_heads : unit / p->kv_heads];
	const RowTile *rt = &b->tiles[pt->tile];
	float max[ROWS], sum[ROWS];
	int any[ROWS];
	Span16 sp;
	if (!span_of(e, p, &q[0], q[rt->n - 1].pos, rt->row, kv, pt->chunk * CHUNK, &sp)) memset(any, 0, sizeof any);
	else chunk_of(rt->n, p, q, &sp, s, part, max, sum, any);
	// Rows of (part, KV head, row): the values, then maximum, sum and any.
	float *to = b->partial + ((size_t)pt->rows * (size_t)p->kv_heads + (size_t)(kv * rt->n)) * (size_t)width;
	for (int r = 0; r < rt->n; r++, to += width) {
		memcpy(to, part + (size_t)r * (size_t)vdim, (size_t)vdim * 4);
		to[vdim] = max[r];
		to[vdim + 1] = sum[r];
		to[vdim + 2] = (float)any[r];
	}
	int32_t *left = &b->left[pt->left + kv];
	if (__atomic_sub_fetch(left, 1, __ATOMIC_ACQ_REL) > 0) return;
	*left = rt->parts; // for the next layer
	for (int c = 0; c < rt->parts; c++) {
		const float *from = b->partial + ((size_t)(rt->rows + c * rt->n) * (size_t)p->kv_heads + (size_t)(kv * rt->n)) * (size_t)width;
		for (int r = 0; r < rt->n; r++, from += width)
			if (from[vdim + 2] != 0) merge(&q[r], from, vdim, from[vdim], from[vdim + 1]);
	}
	for (int r = 0; r < rt->n; r++) finish_query(p, &q[r], vdim);
}

static void run_attention(const Exec *e, const Phase *p, int unit, int thread) {
	const Batch *b = e->b;
	const int kv = unit % p->kv_heads, vdim = p->cache->vdim;
	float *s = e->scratch[thread].scores, *part = s + ROWS * CHUNK_BLOCKS * 16, *outs = part + (size_t)ROWS * (size_t)vdim;
	Query q[ROWS];
	if (attention_parts(b, p)) {
		queries(e, p, &b->tiles[b->parts[p->tile_list ? b->nparts[0] + unit / p->kv_heads : unit / p->kv_heads].tile], kv, q, outs);
		run_part(e, p, unit, s, part, q);
		return;
	}
	const RowTile *rt = &b->tiles[p->tile_list ? b->ntiles[0] + unit / p->kv_heads : unit / p->kv_heads];
	queries(e, p, rt, kv, q, outs);
	float max[ROWS], sum[ROWS];
	int any[ROWS];
	Span16 sp;
	for (int c0 = q[0].from / CHUNK * CHUNK; c0 <= q[rt->n - 1].pos; c0 += CHUNK) { // rows are in order of position
		if (!span_of(e, p, &q[0], q[rt->n - 1].pos, rt->row, kv, c0, &sp)) break;
		chunk_of(rt->n, p, q, &sp, s, part, max, sum, any);
		for (int r = 0; r < rt->n; r++)
			if (any[r]) merge(&q[r], part + (size_t)r * (size_t)vdim, vdim, max[r], sum[r]);
	}
	for (int r = 0; r < rt->n; r++) finish_query(p, &q[r], vdim);
}
