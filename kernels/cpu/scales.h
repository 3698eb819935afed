// scales.h: where a packed tile keeps its scales, and how they become "scale d, minimum m" of sixteen outputs: a block's share of
// the output is d*da*sum(w*a) + m*da*sum(a), with w the unsigned stored number. Included by the levels.
typedef struct {
	const uint8_t *s, *t; // block scales; super-block scales or minima
} Tail;

INL Tail tail_of(int fmt, const uint8_t *tile, int nb) {
	const uint8_t *s = tile + (size_t)nb * quant_bytes(fmt);
	return (Tail){s, s + (size_t)nb * 32};
}

INL V half_at(const uint8_t *p) { return v_half((const uint16_t *)p); }

// The offset of formats without minima, in units of d.
INL float zero_point(int fmt) {
	return fmt == W_Q4_0 ? -8.f : fmt == W_Q5_0 ? -16.f : fmt == W_Q6_K || fmt == W_EXP16 ? -32.f : -128.f;
}

INL V scale_d(const int fmt, Tail l, int b) {
	if (fmt == W_Q4_K || fmt == W_Q5_K) return v_mul(half_at(l.t + b / 8 * 64), v_bytes(l.s + b * 32));
	return half_at(l.s + b * 32);
}

INL V scale_m(const int fmt, Tail l, int b, V d) {
	if (fmt == W_Q4_1 || fmt == W_Q5_1) return half_at(l.t + b * 32);
	if (fmt == W_Q4_K || fmt == W_Q5_K)
		return v_sub(v_zero(), v_mul(half_at(l.t + b / 8 * 64 + 32), v_bytes(l.s + b * 32 + 16)));
	return v_mul(d, v_set(zero_point(fmt)));
}

// Q6_K: the scale of half h (16 k) of block b.
INL V scale_d6(Tail l, int b, int h) { return v_mul(half_at(l.t + b / 8 * 32), v_sbytes(l.s + b * 32 + h * 16)); }

INL int nibbles(int fmt) { return fmt != W_Q8_0; }
INL int fifth(int fmt) { return fmt == W_Q5_0 || fmt == W_Q5_1 || fmt == W_Q5_K; }

// The stored number k of output r in a block.
static int quant_at(int fmt, const uint8_t *q, int r, int k) {
#ifdef BY_ROWS
	if (fmt == W_Q8_0) return q[r * 32 + k];
	int at = k % 16 * 2 + k / 16;
	if (fmt == W_Q4_0 || fmt == W_Q4_1 || fmt == W_Q4_K) at = nibble_place(at);
	int v = q[r * 16 + at / 2] >> (at % 2 * 4) & 15;
	if (fifth(fmt)) v |= (q[256 + r * 4 + k / 8] >> (k % 8) & 1) << 4;
	if (fmt == W_Q6_K) v |= (q[256 + r * 8 + k % 8] >> (k / 8 * 2) & 3) << 4;
	return v;
#else
	int j = k / 4;
	if (fmt == W_Q8_0) return q[j * 64 + r * 4 + k % 4];
	int v = q[j % 4 * 64 + r * 4 + k % 4] >> (j / 4 * 4) & 15;
	if (fifth(fmt)) {
		uint64_t m;
		memcpy(&m, q + 256 + j * 8, 8);
		v |= (int)(m >> (r * 4 + k % 4) & 1) << 4;
	}
	if (fmt == W_Q6_K) v |= (q[256 + j / 4 * 64 + r * 4 + k % 4] >> (j % 4 * 2) & 3) << 4;
	return v;
#endif
}

// One output row to floats, as ggml dequantises it: product and difference rounded separately.
static void dequantise_row(const Weight *w, int row, float *to) {
	const uint8_t *tile = w->p + (size_t)(row / 16) * (size_t)w->stride;
	int r = row % 16, fmt = w->fmt;
	if (is_float(fmt)) {
		for (int k = 0; k < w->k; k++) {
			float v[16];
			if (fmt == W_F32) memcpy(&v[r], tile + ((size_t)k * 16 + r) * 4, 4);
			else v_store(v, fmt == W_F16 ? half_at(tile + (size_t)k * 32) : v_bhalf((const uint16_t *)(tile + (size_t)k * 32)));
			to[k] = v[r];
		}
		return;
	}
	Tail l = tail_of(fmt, tile, w->nb);
	size_t qb = quant_bytes(fmt);
	for (int b = 0; b < w->nb; b++) {
		const uint8_t *q = tile + (size_t)b * qb;
		float d[16], m[16], e[16];
		int minima = fmt == W_Q4_1 || fmt == W_Q5_1 || fmt == W_Q4_K || fmt == W_Q5_K;
		if (fmt == W_Q6_K) {
			v_store(d, scale_d6(l, b, 0));
			v_store(e, scale_d6(l, b, 1));
		} else {
			V dv = scale_d(fmt, l, b);
			v_store(d, dv);
			v_store(e, dv);
			if (minima) v_store(m, scale_m(fmt, l, b, dv));
		}
		for (int i = 0; i < 32; i++) {
			int v = quant_at(fmt, q, r, i);
			float s = i < 16 ? d[r] : e[r];
			if (minima) {
				float p = s * (float)v;
				to[b * 32 + i] = p + m[r];
			} else to[b * 32 + i] = s * (float)(v + (int)zero_point(fmt));
		}
	}
}
