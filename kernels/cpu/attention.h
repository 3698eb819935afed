// attention.h: causal attention over paged caches. K pages are transposed, so that one vector is one dimension of 16 tokens and
// scores need no horizontal sums. A row's cache is walked in chunks of CHUNK positions counted from position 0, each with its own
// maximum, sum and output, merged in order: the same arithmetic for every way of cutting the work.
enum { CHUNK = 256, CHUNK_BLOCKS = CHUNK / 16 };

typedef struct {
	const float *q;
	float *out; // running output [vdim]
	int pos, from, t, head;
	float max, sum;
	int any;
} Query;

INL V key_at(int half, const uint8_t *k, int d) { return half ? v_half((const uint16_t *)k + d * 16) : v_load((const float *)k + d * 16); }

// Scores of R rows for one or two pages.
INL void scores_of(const int R, const int half, const Query *q, int kdim, const uint8_t *k0, const uint8_t *k1, const uint8_t *next, float *s0, float *s1) {
	V s[R], z[R];
	UNROLL for (int r = 0; r < R; r++) s[r] = z[r] = v_zero();
	for (int d = 0; d < kdim; d++) {
		V a = key_at(half, k0, d);
		if (R <= 4) v_prefetch(next + (size_t)d * (half ? 32 : 64));
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

// Softmax of one row in one chunk of n pages from position p0: scores become weights. Returns whether any position counts.
static int soften(const Phase *p, const Query *q, float *s, int stride, int p0, int n, float *max, float *sum) {
	if (q->from >= p0 + n * 16 || q->pos < p0) return 0;
	V top = v_set(-INFINITY), total = v_zero();
	for (int i = 0; i < n; i++) {
		V x = v_mul(v_load(s + i * stride), v_set(p->scale));
		if (p->softcap > 0) x = v_mul(v_tanh(v_div(x, v_set(p->softcap))), v_set(p->softcap));
		int a = q->from - p0 - i * 16, b = q->pos + 1 - p0 - i * 16;
		v_store(s + i * stride, x);
		top = v_max(top, v_between(a, b, x, v_set(-INFINITY)));
	}
	float m = v_top(top);
	for (int i = 0; i < n; i++) {
		int a = q->from - p0 - i * 16, b = q->pos + 1 - p0 - i * 16;
		V x = v_between(a, b, v_exp(v_sub(v_load(s + i * stride), v_set(m))), v_zero());
		v_store(s + i * stride, x);
		total = v_add(total, x);
	}
	*max = m;
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

INL void attend(const int R, const int half, const Exec *e, const Phase *p, Query *q, int rows, int row, int kv, float *scratch) {
	const Cache *c = p->cache;
	const Batch *b = e->b;
	float *s = scratch, *part = s + CHUNK_BLOCKS * R * 16;
	const size_t koff = (size_t)c->kdim * 16 * (half ? 2 : 4);
	const int first = q[0].from, last = q[R - 1].pos; // rows are in order of position
	for (int c0 = first / CHUNK * CHUNK; c0 <= last; c0 += CHUNK) {
		int p0 = first > c0 ? first / 16 * 16 : c0, end = last + 1 < c0 + CHUNK ? last + 1 : c0 + CHUNK, n = (end - p0 + 15) / 16;
		if (n < 1) break;
		uint8_t *pages[CHUNK_BLOCKS + 2];
		int counts[CHUNK_BLOCKS];
		for (int i = 0; i < n; i++) {
			pages[i] = page_at(c, b, row, p0 + i * 16, kv);
			counts[i] = end - p0 - i * 16 < 16 ? end - p0 - i * 16 : 16;
		}
		pages[n] = pages[n + 1] = pages[n - 1];
		for (int i = 0; i < n; i += WIDE ? 2 : 1)
			scores_of(R, half, q, c->kdim, pages[i], pages[i + 1], pages[i + 1], s + i * R * 16, i + 1 < n ? s + (i + 1) * R * 16 : 0);
		float max[R], sum[R];
		int any[R];
		for (int r = 0; r < R; r++) {
			any[r] = soften(p, &q[r], s + r * 16, R * 16, p0, n, &max[r], &sum[r]);
			if (!any[r])
				for (int i = 0; i < n; i++) v_store(s + (i * R + r) * 16, v_zero());
		}
		int col = 0;
		if (WIDE ? R <= 6 : R <= 1)
			for (; col + 64 <= c->vdim; col += 64) values_of(R, 4, half, pages, counts, n, koff, c->vdim, col, s, part);
		if (WIDE || R <= 2)
			for (; col + 32 <= c->vdim; col += 32) values_of(R, 2, half, pages, counts, n, koff, c->vdim, col, s, part);
		for (; col < c->vdim; col += 16) values_of(R, 1, half, pages, counts, n, koff, c->vdim, col, s, part);
		for (int r = 0; r < rows; r++)
			if (any[r]) merge(&q[r], part + (size_t)r * (size_t)c->vdim, c->vdim, max[r], sum[r]);
	}
}

#define ATTEND(R) \
	if (c->half) attend(R, 1, e, p, q, n, rt->row, kv, scratch); \
	else attend(R, 0, e, p, q, n, rt->row, kv, scratch)

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

static void run_attention(const Exec *e, const Phase *p, int unit, int thread) {
	const Cache *c = p->cache;
	const Batch *b = e->b;
	const int G = p->heads / p->kv_heads, kv = unit % p->kv_heads;
	const RowTile *rt = &b->tiles[p->tile_list ? b->ntiles[0] + unit / p->kv_heads : unit / p->kv_heads];
	float *scratch = e->scratch[thread].scores, *outs = scratch + (size_t)ROWS * (CHUNK_BLOCKS * 16 + (size_t)c->vdim);
	Query q[ROWS];
	int n = rt->n;
	for (int r = 0; r < ROWS; r++) { // rows beyond n repeat the last one; nobody reads them
		int pair = rt->p0 + (r < n ? r : n - 1), t = b->qstart[rt->row] + pair / G, h = kv * G + pair % G, from = 0;
		if (p->window > 0 && b->kvpos[t] - p->window + 1 > 0) from = b->kvpos[t] - p->window + 1;
		if (p->chunk > 0) from = b->kvpos[t] / p->chunk * p->chunk;
		q[r] = (Query){row_of(p->in, t) + h * c->kdim, outs + (size_t)r * (size_t)c->vdim, b->kvpos[t], from, t, h, 0, 0, 0};
	}
	switch (n) {
	case 1: ATTEND(1); break;
#if ROWS > 1
	case 2: ATTEND(2); break;
#if WIDE
	case 3: ATTEND(3); break;
	case 4: ATTEND(4); break;
	case 5: case 6: ATTEND(6); break;
	case 7: case 8: ATTEND(8); break;
	default: ATTEND(12);
#else
	default: ATTEND(4);
#endif
#endif
	}
	for (int r = 0; r < n; r++) finish_query(p, &q[r], c->vdim);
}
