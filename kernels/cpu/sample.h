// sample.h: one row's logits to a token, in the order that kernels.Sample documents: raw logprobs, masks and bans, bias, penalties,
// temperature, min-p, top-k, top-p, inverse of the distribution in the order of token ids. No full sort: only the head of the
// distribution is ordered.

// e^(x - top) or 0 where that vanishes.
INL V weight_of(V x, V top) {
	V d = v_sub(x, top), e = v_exp(d);
	float f[16], g[16];
	if (!v_any_greater(v_set(-80), d)) return e;
	v_store(f, d);
	v_store(g, e);
	for (int i = 0; i < 16; i++)
		if (!(f[i] >= -80)) g[i] = 0;
	return v_load(g);
}

static float row_max(const float *x, int n) {
	V top = v_set(-INFINITY);
	for (int i = 0; i < n; i += 16) top = v_max(top, v_between(0, n - i, v_load(x + i), v_set(-INFINITY)));
	return v_top(top);
}

// Sum of weights; float32 within runs of 256, float64 over them.
static double weight_sum(const float *x, int n, float top) {
	double sum = 0;
	for (int i = 0; i < n; i += 256) {
		V s = v_zero();
		for (int j = i; j < n && j < i + 256; j += 16)
			s = v_add(s, v_between(0, n - j, weight_of(v_between(0, n - j, v_load(x + j), v_set(top)), v_set(top)), v_zero()));
		sum += (double)v_sum(s);
	}
	return sum;
}

static void restrict_row(float *x, int n, const SampleRow *p, int32_t *counts) {
	if (p->mask)
		for (int i = 0; i < n; i++)
			if (!(p->mask[i / 32] >> (i % 32) & 1)) x[i] = -INFINITY;
	if (p->has_allowed) {
		for (int i = 0; i < p->nallowed; i++)
			if (p->allowed[i] >= 0 && p->allowed[i] < n) counts[p->allowed[i]] = 1;
		for (int i = 0; i < n; i++)
			if (!counts[i]) x[i] = -INFINITY;
		for (int i = 0; i < p->nallowed; i++)
			if (p->allowed[i] >= 0 && p->allowed[i] < n) counts[p->allowed[i]] = 0;
	}
	for (int i = 0; i < p->nbanned; i++)
		if (p->banned[i] >= 0 && p->banned[i] < n) x[p->banned[i]] = -INFINITY;
	for (int i = 0; i < p->nbias; i++)
		if (p->bias_ids[i] >= 0 && p->bias_ids[i] < n) x[p->bias_ids[i]] += p->bias[i];
}

static void count_ids(const int32_t *ids, int m, int n, int32_t *counts) {
	for (int i = 0; i < m; i++)
		if (ids[i] >= 0 && ids[i] < n) counts[ids[i]]++;
}

static void repeat_ids(float *x, const int32_t *ids, int m, int n, float r, int32_t *counts) {
	for (int i = 0; i < m; i++) {
		int id = ids[i];
		if (id < 0 || id >= n || !counts[id]) continue;
		x[id] = x[id] > 0 ? x[id] / r : x[id] * r;
		counts[id] = 0;
	}
}

static void penalise_row(float *x, int n, const SampleRow *p, int32_t *counts) {
	if (p->repetition != 0 && p->repetition != 1) {
		count_ids(p->prompt, p->nprompt, n, counts);
		count_ids(p->output, p->noutput, n, counts);
		repeat_ids(x, p->prompt, p->nprompt, n, p->repetition, counts);
		repeat_ids(x, p->output, p->noutput, n, p->repetition, counts);
	}
	if (p->frequency == 0 && p->presence == 0) return;
	count_ids(p->output, p->noutput, n, counts);
	for (int i = 0; i < p->noutput; i++) {
		int id = p->output[i];
		if (id < 0 || id >= n || !counts[id]) continue;
		float share = p->frequency * (float)counts[id];
		x[id] -= share + p->presence;
		counts[id] = 0;
	}
}

typedef struct {
	float v;
	int32_t id;
} Candidate;

static int better(const void *a, const void *b) {
	const Candidate *x = a, *y = b;
	if (x->v != y->v) return x->v > y->v ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

// Candidates above a limit.
static int collect(const float *x, int n, float limit, Candidate *c) {
	int m = 0;
	V l = v_set(limit);
	for (int i = 0; i < n; i += 16) {
		if (i + 16 <= n && !v_any_greater(v_load(x + i), l)) continue;
		for (int j = i; j < n && j < i + 16; j++)
			if (x[j] > limit) c[m++] = (Candidate){x[j], j};
	}
	return m;
}

static void drop_below(float *x, int n, float limit) {
	for (int i = 0; i < n; i++)
		if (x[i] < limit) x[i] = -INFINITY;
}

// The value of the k-th best: grows the collected head until it holds k.
static float kth(const float *x, int n, int k, float top, Candidate *c) {
	for (float reach = 4;; reach *= 2) {
		int all = reach > 1e4f, m = collect(x, n, all ? -INFINITY : top - reach, c);
		if (m < k && !all) continue;
		if (m < k) return -INFINITY;
		qsort(c, (size_t)m, sizeof *c, better);
		return c[k - 1].v;
	}
}

static void top_p(float *x, int n, float p, float top, Candidate *c) {
	double sum = weight_sum(x, n, top), limit = (double)p * sum, before = 0;
	for (float reach = 4;; reach *= 2) {
		int all = reach > 1e4f, m = collect(x, n, all ? -INFINITY : top - reach, c), keep = 0;
		qsort(c, (size_t)m, sizeof *c, better);
		for (before = 0; keep < m && (keep == 0 || before < limit); keep++) before += exp((double)c[keep].v - (double)top);
		if (before < limit && !all) continue;
		if (keep == 0) return;
		Candidate last = c[keep - 1];
		for (int i = 0; i < n; i++)
			if (x[i] < last.v || (x[i] == last.v && i > last.id)) x[i] = -INFINITY;
		return;
	}
}

enum { SAMPLE_OK, SAMPLE_NAN, SAMPLE_NONE, SAMPLE_INF };

static int draw(const float *x, int n, float top, double u) {
	double sum = weight_sum(x, n, top), at = 0;
	u *= sum;
	int last = -1;
	for (int i = 0; i < n; i += 256) {
		V s = v_zero();
		for (int j = i; j < n && j < i + 256; j += 16)
			s = v_add(s, v_between(0, n - j, weight_of(v_between(0, n - j, v_load(x + j), v_set(top)), v_set(top)), v_zero()));
		double run = (double)v_sum(s);
		if (run > 0 && (at + run > u || at + run >= sum)) { // within this run
			for (int j = i; j < n && j < i + 256; j++) {
				double w = x[j] - top < -80 ? 0 : exp((double)(x[j] - top));
				if (w == 0) continue;
				at += w;
				last = j;
				if (u < at) return last;
			}
			return last;
		}
		at += run;
	}
	return last;
}

// x: scratch of n floats; counts: n zeros, left as zeros; c: scratch of n candidates.
static void sample_row(const float *raw, int n, SampleRow *p, int argmax, float *x, int32_t *counts, Candidate *c) {
	p->status = SAMPLE_OK;
	p->token = argmax;
	int greedy = p->temperature < 1e-5f;
	if (greedy && !p->edits) {
		if (raw[argmax] == -INFINITY) {
			p->status = SAMPLE_NONE;
			p->token = -1;
		}
		return;
	}
	memcpy(x, raw, (size_t)n * 4);
	restrict_row(x, n, p, counts);
	penalise_row(x, n, p, counts);
	float top = row_max(x, n);
	if (top == -INFINITY) {
		p->status = SAMPLE_NONE;
		p->token = -1;
		return;
	}
	if (greedy) {
		int at = 0;
		while (x[at] != top && at < n - 1) at++;
		p->token = at;
		return;
	}
	if (top == INFINITY) {
		p->status = SAMPLE_INF;
		p->token = -1;
		return;
	}
	for (int i = 0; i < n; i += 16) {
		V v = v_div(v_load(x + i), v_set(p->temperature));
		if (i + 16 <= n) v_store(x + i, v);
		else
			for (int j = i; j < n; j++) x[j] /= p->temperature;
	}
	top /= p->temperature;
	if (p->min_p > 0)
		for (int i = 0; i < n; i++)
			if (x[i] < top && (x[i] - top < -80 || (float)exp((double)(x[i] - top)) < p->min_p)) x[i] = -INFINITY;
	if (p->top_k > 0 && p->top_k < n) drop_below(x, n, kth(x, n, p->top_k, top, c));
	if (p->top_p > 0 && p->top_p < 1) top_p(x, n, p->top_p, top, c);
	p->token = draw(x, n, top, p->u);
}
