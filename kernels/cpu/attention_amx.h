// attention_amx.h: scores and values by AMX over bfloat16 caches: up to 16 query rows by 16 positions by 32 dimensions an instruction.
// A page keeps K as [kdim/2][16 positions][2] and V as [16/2 positions][vdim][2], so both are read where they lie. Queries and weights
// are rounded to bfloat16; sums, maxima and the softmax are float32. A row's bits do not depend on the other rows of its tile.

// Tiles: 0 to 3 results of R rows, 4 queries (32 dimensions), 5 weights (16 positions), 6 a page's keys, 7 its values.
static void tiles_for_attention(int R) {
	if (tiles_set == -R) return;
	TileConfig c __attribute__((aligned(64)));
	memset(&c, 0, sizeof c);
	c.palette = 1;
	for (int i = 0; i < 8; i++) {
		c.rows[i] = (uint8_t)(i < 6 ? R : i == 6 ? 16 : 8);
		c.colsb[i] = i == 5 ? 32 : 64;
	}
	tiles_load(&c, -R);
}

INL void store_bfloats(uint16_t *p, V x) { _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(x)); }

// Queries as rows of bfloat16 [R][kdim].
static void round_queries(int R, const Query *q, int kdim, uint16_t *to) {
	for (int r = 0; r < R; r++)
		for (int d = 0; d < kdim; d += 16) store_bfloats(to + (size_t)r * (size_t)kdim + d, v_load(q[r].q + d));
}

// To the second cache: its misses wait in a longer line than the first one's.
INL void fetch_lines(const uint8_t *p, size_t n) {
	for (size_t i = 0; i < n; i += 64) _mm_prefetch((const char *)p + i, _MM_HINT_T1);
}

// s [page][R][16]: scores of all pages of a chunk.
static void amx_scores(int R, const uint16_t *q, int kdim, size_t koff, const Span16 *sp, float *s) {
	const size_t line = (size_t)kdim * 2;
	for (int i = 0; i < sp->n; i++) {
		const uint8_t *k = sp->pages[i];
		if (R <= 4) {
			fetch_lines(sp->pages[i + 2], koff);
			fetch_lines(k + koff, koff);
		}
		float *to = s + (size_t)i * (size_t)R * 16;
#define SCORES(t) \
	_tile_zero(t); \
	for (int d = 0; d < kdim; d += 32) { \
		_tile_loadd(4, q + d, line); \
		_tile_loadd(6, k + (size_t)d * 32, 64); \
		_tile_dpbf16ps(t, 4, 6); \
	} \
	_tile_stored(t, to, 64)
		if (i & 1) {
			SCORES(1);
		} else {
			SCORES(0);
		}
	}
}

// 2^x for x of at most about 1, relative error below 1e-4: an eighth of a bfloat16's last bit.
INL V exp2_short(V x) {
	V f = _mm512_reduce_ps(x, 9); // x - floor(x)
	V p = v_fma(f, v_set(0.078024523f), v_set(0.22606716f));
	p = v_fma(p, f, v_set(0.69583354f));
	p = v_fma(p, f, v_set(0.99992522f));
	return _mm512_scalef_ps(p, x);
}

// Softmax of one row: scores become weights in bfloat16, w [page][R][16]. Returns whether any position counts.
static int amx_soften(const Phase *p, const Query *q, float *s, int stride, const Span16 *sp, uint16_t *w, float *max, float *sum) {
	const int n = sp->n, a = q->from - sp->p0, b = q->pos + 1 - sp->p0; // the positions that count
	if (a >= n * 16 || b <= 0) return 0;
	const int i0 = a <= 0 ? 0 : a / 16, i1 = (b + 15) / 16 < n ? (b + 15) / 16 : n;
	const V low = v_set(-INFINITY);
	float scale = p->scale;
	if (p->softcap > 0 || scale <= 0) {
		for (int i = i0; i < i1; i++) {
			V x = v_mul(v_load(s + i * stride), v_set(scale));
			if (p->softcap > 0) x = v_mul(v_tanh(v_div(x, v_set(p->softcap))), v_set(p->softcap));
			v_store(s + i * stride, x);
		}
		scale = 1;
	}
#define EDGE(i) (a > (i) * 16 || b < (i) * 16 + 16)
	V top = low, total = v_zero();
	for (int i = i0; i < i1; i++) {
		V x = v_load(s + i * stride);
		top = v_max(top, EDGE(i) ? v_between(a - i * 16, b - i * 16, x, low) : x);
	}
	const float m = v_top(top), k = scale * 1.44269504f;
	const V vk = v_set(k), vm = v_set(-m * k);
	for (int i = 0; i < i0; i++) store_bfloats(w + (size_t)i * (size_t)stride, v_zero());
	for (int i = i0; i < i1; i++) {
		V x = exp2_short(v_fma(v_load(s + i * stride), vk, vm));
		if (EDGE(i)) x = v_between(a - i * 16, b - i * 16, x, v_zero());
		total = v_add(total, x);
		store_bfloats(w + (size_t)i * (size_t)stride, x);
	}
	for (int i = i1; i < n; i++) store_bfloats(w + (size_t)i * (size_t)stride, v_zero());
	*max = m * scale;
	*sum = v_sum(total);
	return 1;
}

// A page's values with zeros behind its last position: what lies there is not this request's, and may be no number.
static const uint8_t *tail_values(const uint8_t *v, int count, int vdim, uint16_t *to) {
	const size_t pair = (size_t)vdim * 4;
	memcpy(to, v, 8 * pair);
	if (count % 2)
		for (int d = 0; d < vdim; d++) to[(size_t)(count / 2) * pair / 2 + (size_t)d * 2 + 1] = 0;
	memset((uint8_t *)to + (size_t)((count + 1) / 2) * pair, 0, (size_t)(8 - (count + 1) / 2) * pair);
	return (const uint8_t *)to;
}

// part [R][vdim] = weights times values.
static void amx_values(int R, const uint16_t *w, const uint8_t *const *v, int n, int vdim, float *part) {
	const size_t pair = (size_t)vdim * 4;
	for (int c = 0; c < vdim; c += 64) {
		const int four = vdim - c >= 64, two = vdim - c >= 32;
		_tile_zero(0);
		_tile_zero(1);
		_tile_zero(2);
		_tile_zero(3);
		for (int i = 0; i < n; i++) {
			const uint8_t *x = v[i] + (size_t)c * 4;
			_tile_loadd(5, w + (size_t)i * (size_t)R * 16, 32);
			_tile_loadd(7, x, pair);
			_tile_dpbf16ps(0, 5, 7);
			if (two) {
				_tile_loadd(7, x + 64, pair);
				_tile_dpbf16ps(1, 5, 7);
			}
			if (four) {
				_tile_loadd(7, x + 128, pair);
				_tile_dpbf16ps(2, 5, 7);
				_tile_loadd(7, x + 192, pair);
				_tile_dpbf16ps(3, 5, 7);
			}
		}
		_tile_stored(0, part + c, pair);
		if (two) _tile_stored(1, part + c + 16, pair);
		if (four) {
			_tile_stored(2, part + c + 32, pair);
			_tile_stored(3, part + c + 48, pair);
		}
		if (two && !four && vdim - c > 32) { // 48 columns left: the third tile alone
			_tile_zero(2);
			for (int i = 0; i < n; i++) {
				_tile_loadd(5, w + (size_t)i * (size_t)R * 16, 32);
				_tile_loadd(7, v[i] + (size_t)c * 4 + 128, pair);
				_tile_dpbf16ps(2, 5, 7);
			}
			_tile_stored(2, part + c + 32, pair);
		}
	}
}

// R rows and one chunk, like attend_chunk. s has room for [pages][R][16] floats; the rest of the scratch follows it.
static void amx_chunk(int R, const Phase *p, const Query *q, const Span16 *sp, float *s, float *part, float *max, float *sum, int *any) {
	const Cache *c = p->cache;
	const size_t koff = (size_t)c->kdim * 32;
	uint16_t rounded[ROWS * 16 * MAX_UNIT_TILES], weights[CHUNK_BLOCKS * ROWS * 16], tail[16 * 16 * MAX_UNIT_TILES];
	const uint8_t *v[CHUNK_BLOCKS];
	tiles_for_attention(R);
	round_queries(R, q, c->kdim, rounded);
	amx_scores(R, rounded, c->kdim, koff, sp, s);
	for (int r = 0; r < R; r++) {
		any[r] = amx_soften(p, &q[r], s + r * 16, R * 16, sp, weights + r * 16, &max[r], &sum[r]);
		if (!any[r])
			for (int i = 0; i < sp->n; i++) store_bfloats(weights + (i * R + r) * 16, v_zero());
	}
	for (int i = 0; i < sp->n; i++) v[i] = sp->counts[i] == 16 ? sp->pages[i] + koff : tail_values(sp->pages[i] + koff, sp->counts[i], c->vdim, tail);
	amx_values(R, weights, v, sp->n, c->vdim, part);
}
