//go:build cgo && linux && amd64

// pool.c: one pool of threads for all programs of a process. Every thread serves the run of the highest priority (the oldest among
// equals) and looks for a better one after every piece of work, so a small urgent program overtakes a long prefill within one
// piece. The caller of a run works on its own run alone, as thread 0, and stands down while a better run is open: never more
// threads compute than the pool has.
//
// A phase ends when its work is done, not when every thread has arrived: a descheduled thread that holds no piece delays nobody,
// and whoever finishes the last piece opens the next phase. Counters carry the phase's tag in their upper half, so a stale
// thread's compare-and-swap fails; it reads a program's memory only after that has succeeded, when the run cannot end without it.
#include "omni.h"
#include <immintrin.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { RUNS = 64, THREADS = 1024, NOBODY = -1 };

// What there is to do in a phase. ph is null when the run is over.
typedef struct {
	Exec *ex;
	const Phase *ph;
	PhaseFn run;
	int units, chunk; // chunk 0: half a share of what is left
} Work;

typedef struct {
	_Alignas(64) atomic_ulong next; // tag << 32 | first unit that nobody has taken
	_Alignas(64) atomic_uint done;  // units of the phase that are finished
	_Alignas(64) Work work[2];      // of the even and of the odd tags; stable while next carries the tag
	_Alignas(64) atomic_uint sleepers;
	// Of whoever opens phases.
	Exec *ex;
	const Span *spans;
	int nspans, span, phase, priority;
	uint64_t ticket;
} Run;

struct Pool {
	int n, spin, idle_spin;
	pthread_mutex_t lock; // opening and closing of runs
	uint64_t used, tickets; // used: a bit for each slot that a caller has
	_Alignas(64) atomic_ulong open; // a bit for each run with work
	atomic_int top;                 // the run to serve, or NOBODY
	_Alignas(64) atomic_uint go;    // counts openings and closings
	atomic_uint sleepers;
	atomic_int stop;
	_Alignas(64) atomic_ulong overtakes; // pieces that a thread of a run began while a better one was open
	Run runs[RUNS];
	pthread_t threads[THREADS];
#ifdef OMNI_PHASE_TIMES
	struct {
		_Alignas(64) unsigned long long kind[P_KINDS];
	} times[THREADS];
#endif
};

static void futex_wait(const void *a, unsigned v, const struct timespec *ts) { syscall(SYS_futex, a, FUTEX_WAIT_PRIVATE, v, ts, 0, 0); }
static void futex_wake(const void *a) { syscall(SYS_futex, a, FUTEX_WAKE_PRIVATE, INT_MAX, 0, 0, 0); }

static unsigned tag_of(Run *r) { return (unsigned)(atomic_load_explicit(&r->next, memory_order_acquire) >> 32); }
static const unsigned *tag_word(Run *r) { return (const unsigned *)&r->next + 1; } // the upper half on this machine

static unsigned flush_denormals(void) {
	unsigned old = _mm_getcsr();
	_mm_setcsr(old | 0x8040);
	return old;
}

// Under the lock: which run is to be served.
static void choose(Pool *p) {
	int best = NOBODY;
	for (uint64_t m = atomic_load(&p->open); m; m &= m - 1) {
		int i = __builtin_ctzll(m);
		const Run *a = &p->runs[i], *b = &p->runs[best < 0 ? i : best];
		if (best < 0 || a->priority > b->priority || (a->priority == b->priority && a->ticket < b->ticket)) best = i;
	}
	atomic_store(&p->top, best);
	atomic_fetch_add(&p->go, 1);
}

static void announce(Pool *p) {
	if (atomic_load(&p->sleepers)) futex_wake(&p->go);
}

// The next phase with work in it.
static Work next_work(Run *r) {
	for (; r->span < r->nspans; r->span++, r->phase = 0) {
		const Span *s = &r->spans[r->span];
		while (r->phase < s->n) {
			const Phase *ph = &s->phases[r->phase++];
			int chunk = 1, units = phase_units(r->ex, ph, &chunk);
			if (units > 0) return (Work){r->ex, ph, r->ex->lv->run[ph->kind], units, chunk};
		}
	}
	return (Work){r->ex, 0, 0, 0, 0};
}

static void publish(Run *r, const Work *w) {
	unsigned tag = tag_of(r) + 1;
	r->work[tag & 1] = *w;
	atomic_store_explicit(&r->done, 0, memory_order_relaxed);
	atomic_store(&r->next, (unsigned long)tag << 32);
	if (atomic_load(&r->sleepers)) futex_wake(tag_word(r));
}

// Opens the next phase, or ends the run. Only the thread that finished the phase before calls it.
static void advance(Pool *p, Run *r) {
	Work w = next_work(r);
	if (!w.ph) {
		pthread_mutex_lock(&p->lock);
		atomic_fetch_and(&p->open, ~(1ul << (r - p->runs)));
		choose(p);
		pthread_mutex_unlock(&p->lock);
	}
	publish(r, &w);
	if (!w.ph) { // once more: the caller may have gone to sleep between the two
		atomic_fetch_add(&p->go, 1);
		announce(p);
	}
}

// Takes units of the current phase: the first of n, or -1. w and tag tell the phase.
static int take(const Pool *p, Run *r, Work *w, unsigned *tag, int *n) {
	unsigned long v = atomic_load_explicit(&r->next, memory_order_acquire);
	for (;;) {
		int at = (int)(unsigned)v;
		*tag = (unsigned)(v >> 32);
		*w = r->work[*tag & 1]; // garbage if the tag is stale: then the swap fails, or nothing is taken and the tag has moved on
		if (at >= w->units) return -1;
		int left = w->units - at, k = w->chunk > 0 ? w->chunk : (left + 2 * p->n - 1) / (2 * p->n);
		*n = k < left ? k : left;
		if (atomic_compare_exchange_weak(&r->next, &v, v + (unsigned long)*n)) return at;
	}
}

// The level that a thread is set up for (AMX tiles have a state of their own).
static void enter(const Level **on, const Level *lv) {
	if (*on == lv) return;
	if (*on && (*on)->leave) (*on)->leave();
	if (lv && lv->enter) lv->enter();
	*on = lv;
}

// One piece of work of a run; 0: there is none to take.
static int piece(Pool *p, Run *r, int id, Work *w, unsigned *tag, const Level **on, int helping) {
	int n = 0, u = take(p, r, w, tag, &n);
	if (u < 0) return 0;
	if (!helping && atomic_load_explicit(&p->top, memory_order_relaxed) != (int)(r - p->runs)) atomic_fetch_add(&p->overtakes, 1);
	enter(on, w->ex->lv);
#ifdef OMNI_PHASE_TIMES
	unsigned long long t = __rdtsc();
#endif
	for (int i = u; i < u + n; i++) w->run(w->ex, w->ph, i, id);
#ifdef OMNI_PHASE_TIMES
	p->times[id].kind[w->ph->kind] += __rdtsc() - t;
#endif
	if (atomic_fetch_add(&r->done, (unsigned)n) + (unsigned)n == (unsigned)w->units) advance(p, r);
	return 1;
}

// A worker that has waited long helps another run.
static int help(Pool *p, const Run *than, int id, const Level **on) {
	for (uint64_t m = atomic_load(&p->open); m; m &= m - 1) {
		Run *r = &p->runs[__builtin_ctzll(m)];
		Work w;
		unsigned tag;
		if (r != than && piece(p, r, id, &w, &tag, on, 1)) return 1;
	}
	return 0;
}

// Returns when the phase of the tag is over, or another run is to be served.
static void wait_phase(Pool *p, Run *r, unsigned tag, int id, const Level **on) {
	const int slot = (int)(r - p->runs);
	for (int i = 0; tag_of(r) == tag && atomic_load_explicit(&p->top, memory_order_relaxed) == slot; i++) {
		if (i < p->spin) {
			_mm_pause();
			continue;
		}
		if (id > 0 && help(p, r, id, on)) continue;
		struct timespec ts = {0, 200000};
		atomic_fetch_add(&r->sleepers, 1);
		if (tag_of(r) == tag && atomic_load(&p->top) == slot) futex_wait(tag_word(r), tag, &ts);
		atomic_fetch_sub(&r->sleepers, 1);
	}
}

// Serves a run while it is the one to serve.
static void serve(Pool *p, int slot, int id) {
	Run *r = &p->runs[slot];
	const Level *on = 0;
	Work w;
	unsigned tag;
	while (atomic_load_explicit(&p->top, memory_order_acquire) == slot) {
		if (piece(p, r, id, &w, &tag, &on, 0)) continue;
		if (!w.ph) break;
		wait_phase(p, r, tag, id, &on);
	}
	enter(&on, 0);
}

// Sleeps until a run is opened or closed after go was g.
static void rest(Pool *p, unsigned g, int spin) {
	for (int i = 0; i < spin; i++) {
		if (atomic_load_explicit(&p->go, memory_order_acquire) != g) return;
		_mm_pause();
	}
	atomic_fetch_add(&p->sleepers, 1);
	if (atomic_load(&p->go) == g) futex_wait(&p->go, g, 0);
	atomic_fetch_sub(&p->sleepers, 1);
}

typedef struct {
	Pool *p;
	int id;
} Start;

static void *worker(void *x) {
	Start s = *(Start *)x;
	free(x);
	Pool *p = s.p;
	flush_denormals();
	for (;;) {
		unsigned g = atomic_load(&p->go);
		if (atomic_load(&p->stop)) return 0;
		int top = atomic_load(&p->top);
		if (top >= 0) serve(p, top, s.id);
		else rest(p, g, p->idle_spin);
	}
}

// threads of at most 1024; spin: pauses before a thread sleeps (0 where one processor is shared).
Pool *pool_new(int threads, int spin) {
	Pool *p = aligned_alloc(64, (sizeof(Pool) + 63) & ~(size_t)63);
	if (!p) return 0;
	memset(p, 0, sizeof *p);
	p->n = threads < THREADS ? threads : THREADS;
	p->spin = spin;
	p->idle_spin = spin * 10; // sampling and scheduling between two steps do not put workers to sleep
	atomic_store(&p->top, NOBODY);
	pthread_mutex_init(&p->lock, 0);
	for (int i = 1; i < p->n; i++) {
		Start *s = malloc(sizeof *s);
		if (s) *s = (Start){p, i};
		if (!s || pthread_create(&p->threads[i], 0, worker, s)) {
			free(s);
			p->n = i;
			break;
		}
	}
	return p;
}

#ifdef OMNI_PHASE_TIMES
static void print_times(const Pool *p) {
	static const char *names[P_KINDS] = {"rope_table", "embed", "norm", "linear", "attention", "quantise", "rope", "kv_write", "binary", "unary",
		"gated", "copy", "gather", "logits"};
	for (int k = 0; k < P_KINDS; k++) {
		double sum = 0;
		for (int i = 0; i < p->n; i++) sum += (double)p->times[i].kind[k];
		if (sum > 0) fprintf(stderr, "%-12s %10.0f Mcycles on all threads\n", names[k] ? names[k] : "?", sum / 1e6);
	}
}
#endif

void pool_free(Pool *p) {
	atomic_store(&p->stop, 1);
	atomic_fetch_add(&p->go, 1);
	futex_wake(&p->go);
	for (int i = 1; i < p->n; i++) pthread_join(p->threads[i], 0);
#ifdef OMNI_PHASE_TIMES
	print_times(p);
#endif
	pthread_mutex_destroy(&p->lock);
	free(p);
}

// A free slot, filled and open when there is anything to do; NOBODY when all are taken.
static int open_run(Pool *p, Exec *ex, const Span *spans, int n, int priority) {
	pthread_mutex_lock(&p->lock);
	int slot = ~p->used ? __builtin_ctzll(~p->used) : NOBODY;
	if (slot >= 0) {
		Run *r = &p->runs[slot];
		p->used |= 1ull << slot;
		r->ex = ex;
		r->spans = spans;
		r->nspans = n;
		r->span = r->phase = 0;
		r->priority = priority;
		r->ticket = p->tickets++;
		Work w = next_work(r);
		publish(r, &w);
		if (w.ph) {
			atomic_fetch_or(&p->open, 1ul << slot);
			choose(p);
		}
	}
	pthread_mutex_unlock(&p->lock);
	return slot;
}

// Only the caller may ask: its slot is its own until it gives it back.
static int is_over(Run *r) { return !r->work[tag_of(r) & 1].ph; }

void pool_run(Pool *p, Exec *ex, const Span *spans, int n, int priority) {
	unsigned csr = flush_denormals();
	int slot;
	while ((slot = open_run(p, ex, spans, n, priority)) < 0) {
		struct timespec ts = {0, 200000};
		nanosleep(&ts, 0);
	}
	announce(p);
	Run *r = &p->runs[slot];
	while (!is_over(r)) {
		unsigned g = atomic_load(&p->go);
		serve(p, slot, 0);
		// Stand down; the end of the run counts too, and may have come between.
		if (!is_over(r) && atomic_load(&p->top) != slot) rest(p, g, 0);
	}
	pthread_mutex_lock(&p->lock);
	p->used &= ~(1ull << slot);
	pthread_mutex_unlock(&p->lock);
	_mm_setcsr(csr);
}

long pool_overtakes(Pool *p) { return (long)atomic_load(&p->overtakes); }
