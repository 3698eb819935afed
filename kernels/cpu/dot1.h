// dot1.h: the same products in plain C.
#include "scales.h"

static void dot_tile(const Weight *w, int tile, const uint8_t *a, int T, row16 *o) {
	const uint8_t *x = w->p + (size_t)tile * (size_t)w->stride;
	const int fmt = w->fmt;
	Tail l = tail_of(fmt, x, w->nb);
	memset(o, 0, sizeof(row16) * (size_t)T);
	for (int b = 0; b < w->nb; b++, a += PANEL_BYTES, x += quant_bytes(fmt)) {
		float d[2][16], m[2][16];
		for (int h = 0; h < 2; h++) {
			V dv = fmt == W_Q6_K ? scale_d6(l, b, h) : scale_d(fmt, l, b);
			v_store(d[h], dv);
			v_store(m[h], fmt == W_Q6_K ? v_mul(dv, v_set(-32)) : scale_m(fmt, l, b, dv));
		}
		for (int r = 0; r < 16; r++) {
			int q[32];
			for (int i = 0; i < 32; i++) q[i] = quant_at(fmt, x, r, i);
			for (int t = 0; t < T; t++) {
				const int8_t *k = (const int8_t *)a + t * 32;
				float da = ((const float *)(a + PANEL_D))[t], ds = ((const float *)(a + PANEL_DS))[t];
				int lo = 0, hi = 0;
				for (int i = 0; i < 16; i++) lo += q[i] * k[i];
				for (int i = 16; i < 32; i++) hi += q[i] * k[i];
				if (fmt == W_Q6_K) {
					float low = da * (float)((const int16_t *)(a + PANEL_LO))[t];
					o[t][r] += (float)lo * (d[0][r] * da) + m[0][r] * low;
					o[t][r] += (float)hi * (d[1][r] * da) + m[1][r] * (ds - low);
				} else o[t][r] += (float)(lo + hi) * (d[0][r] * da) + m[0][r] * ds;
			}
		}
	}
}

static void dot(const Weight *w, int tile, int nt, const uint8_t *a, int t0, int T, tile_out *o) {
	(void)t0; // a panel is DOT_ROWS tokens
	for (int i = 0; i < nt; i++) dot_tile(w, tile + i, a, T, o[i]);
}
