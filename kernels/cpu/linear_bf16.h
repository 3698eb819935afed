// linear_bf16.h: the linear phase of the amx-bf16 level. Up to 16 tokens stream through weights that are expanded as they are read; more
// tokens share tiles that are expanded once a unit.

// One panel of `wide` tokens by nt tiles from `tile` on.
static void few_products(const Weight *w, int tile, int nt, const Buf *in, int t, tile_out *o) {
	for (int i = 0; i < nt; i += 2) {
		int two = nt - i < 2 ? 1 : 2;
		stream(w, tile + i, two, panel(in, t, 0), in->wide);
		TILE_OUT(0, in->wide, o[i]);
		if (two == 2) TILE_OUT(1, in->wide, o[i + 1]);
	}
}

// One or two panels of 16 tokens by nt expanded tiles; the second panel's outputs go to p, which is null where there is none.
static void many_products(const Weight *w, const uint8_t *x, int nt, const Buf *in, int t, tile_out *o, tile_out *p) {
	const size_t n = (size_t)w->nb * 1024;
	for (int i = 0; i < nt; i += 2) {
		int two = nt - i < 2 ? 1 : 2;
		const uint8_t *u = x + (size_t)i * n, *v = u + (size_t)(two - 1) * n;
		if (p) block22(w->nb, u, v, panel(in, t, 0), panel(in, t + 16, 0));
		else block21(w->nb, u, v, panel(in, t, 0));
		TILE_OUT(0, 16, o[i]);
		if (two == 2) TILE_OUT(2, 16, o[i + 1]);
		if (!p) continue;
		TILE_OUT(1, 16, p[i]);
		if (two == 2) TILE_OUT(3, 16, p[i + 1]);
	}
}

// Tokens [t, t+T) and [t+16, t+16+T2) by nt tiles from `tile` on, which lie expanded at x unless that is null.
static void unit_products(const Weight *w, int tile, int nt, const uint8_t *x, const Buf *in, int t, int T, int T2, tile_out *o, tile_out *q) {
	if (is_float(w->fmt))
		for (int i = 0; i < nt; i += 2) {
			int two = nt - i < 2 ? 1 : 2;
			fdot(w, tile + i, two, row_of(in, t), in->ld, T, o + i);
			if (T2) fdot(w, tile + i, two, row_of(in, t + OUT_ROWS), in->ld, T2, q + i);
		}
	else if (x) many_products(w, x, nt, in, t, o, T2 ? q : 0);
	else few_products(w, tile, nt, in, t, o);
}

static const uint8_t *expand_unit(const Weight *w, int tile, int nt, uint8_t *to) {
	if (is_float(w->fmt)) return 0;
	for (int i = 0; i < nt; i++) expand(w, tile + i, to + (size_t)i * (size_t)w->nb * 1024);
	return to;
}

// A gated unit whose result is panels alone needs no rows of tokens: outputs j of its two tiles are one panel row, lane by lane.
static int flat_gated(const Segment *s) {
	return s->epilogue == E_GATED && !s->out->f && !s->bias && !s->bias2 && !is_float(s->w.fmt) && !is_float(s->w2.fmt);
}

typedef float Accumulator[256]; // [16 outputs][tokens]

INL void put_flat(const Segment *s, int block, int t, int wide, const Accumulator *g, const Accumulator *u) {
	uint8_t *a = panel(s->out, t, block);
	for (int i = 0; i < wide; i++) {
		V x = v_mul(v_act(s->act, v_load(g[0] + i * 16)), v_load(u[0] + i * 16));
		V y = v_mul(v_act(s->act, v_load(g[1] + i * 16)), v_load(u[1] + i * 16));
		_mm512_storeu_si512(a + i * 64, pairs_of(x, y));
	}
}

// Two tiles of one matrix by one or two panels; the second panel's accumulators are c[2] and c[3].
static void accumulate(const Weight *w, int tile, const uint8_t *x, const Buf *in, int t, int two, Accumulator *c) {
	if (!x) {
		stream(w, tile, 2, panel(in, t, 0), in->wide);
		_tile_stored(0, c[0], 4 * in->wide);
		_tile_stored(1, c[1], 4 * in->wide);
		return;
	}
	const uint8_t *y = x + (size_t)w->nb * 1024;
	if (two) block22(w->nb, x, y, panel(in, t, 0), panel(in, t + OUT_ROWS, 0));
	else block21(w->nb, x, y, panel(in, t, 0));
	_tile_stored(0, c[0], 64);
	_tile_stored(2, c[1], 64);
	if (!two) return;
	_tile_stored(1, c[2], 64);
	_tile_stored(3, c[3], 64);
}

static void run_flat_gated(const Phase *p, const Segment *s, int u, int t0, int t1, const uint8_t *x, const uint8_t *y) {
	Accumulator g[4] __attribute__((aligned(64))), h[4] __attribute__((aligned(64)));
	const int block = (s->column + u * 32) / 32, wide = p->in->wide;
	for (int t = t0; t < t1; t += 2 * OUT_ROWS) {
		int two = t1 - t > OUT_ROWS;
		accumulate(&s->w, 2 * u, x, p->in, t, two, g);
		accumulate(&s->w2, 2 * u, y, p->in, t, two, h);
		put_flat(s, block, t, wide, g, h);
		if (two) put_flat(s, block, t + OUT_ROWS, wide, g + 2, h + 2);
	}
}

static void run_linear(const Exec *e, const Phase *p, int unit, int thread) {
	Scratch *sc = &e->scratch[thread];
	const Share h = share_of(e, p, unit, OUT_ROWS);
	const Segment *s = h.s;
	const int u = h.u, tile = h.tile, nt = h.nt, gated = h.gated, t0 = h.t0, t1 = h.t1;
	const uint8_t *x = 0, *y = 0;
	if (t1 - t0 > OUT_ROWS) {
		x = expand_unit(&s->w, tile, nt, sc->expand);
		if (gated) y = expand_unit(&s->w2, tile, nt, sc->expand + (size_t)nt * (size_t)s->w.k * 32);
	}
	if (p->in->q) tiles_for(p->in->wide);
	if (nt == 2 && flat_gated(s)) {
		run_flat_gated(p, s, u, t0, t1, x, y);
		return;
	}
	tile_out *o = sc->out, *q = o + nt * (gated ? 2 : 1);
	for (int t = t0; t < t1; t += 2 * OUT_ROWS) {
		int T = t1 - t < OUT_ROWS ? t1 - t : OUT_ROWS, T2 = t1 - t - T < OUT_ROWS ? t1 - t - T : OUT_ROWS;
		unit_products(&s->w, tile, nt, x, p->in, t, T, T2, o, q);
		if (gated) unit_products(&s->w2, tile, nt, y, p->in, t, T, T2, o + nt, q + nt);
		epilogue(e, s, u, nt, t, T, o);
		if (T2) epilogue(e, s, u, nt, t + T, T2, q);
	}
}
