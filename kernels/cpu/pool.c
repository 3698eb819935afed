//go:build cgo && linux && amd64

// pool.c: one pool of threads for all programs of a process. A phase ends when its work is done, not when every thread has
// arrived: a descheduled thread that holds no chunk delays nobody. Counters carry the run's epoch in their upper half, so a
// stale thread's compare-and-swap fails and it drops out.
#include "omni.h"
#include <immintrin.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct {
	_Alignas(64) atomic_ulong next;
	_Alignas(64) atomic_ulong done;
} Counter;

enum { RING = 4096 }; // phases of a run; longer runs are cut

struct Pool {
	int n, spin, idle_spin;
	pthread_mutex_t lock; // one run at a time
	_Alignas(64) atomic_uint go;
	_Alignas(64) atomic_uint sleepers, phase_sleepers, active;
	atomic_uint epoch;
	atomic_int stop;
	Exec *exec;
	const Phase *phases;
	int nphases;
	void (*fn)(void *, int, int);
	void *arg;
	int units;
	Counter *c; // [RING]
	pthread_t threads[1024];
};

static void futex_wait(atomic_uint *a, unsigned v, const struct timespec *ts) {
	syscall(SYS_futex, a, FUTEX_WAIT_PRIVATE, v, ts, 0, 0);
}
static void futex_wake(void *a) { syscall(SYS_futex, a, FUTEX_WAKE_PRIVATE, INT_MAX, 0, 0, 0); }

double omni_now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int take(Counter *c, unsigned e, int n, int chunk) {
	unsigned long v = atomic_load(&c->next);
	for (;;) {
		if ((unsigned)(v >> 32) != e || (int)(unsigned)v >= n) return -1;
		if (atomic_compare_exchange_weak(&c->next, &v, v + (unsigned long)chunk)) return (int)(unsigned)v;
	}
}

static void add_done(Pool *p, Counter *c, int k, int n) {
	unsigned long v = atomic_fetch_add(&c->done, (unsigned long)k) + (unsigned long)k;
	if ((int)(unsigned)v == n && atomic_load(&p->phase_sleepers)) futex_wake(&c->done);
}

// 1: the phase's work is done; 0: this epoch is over.
static int wait_done(Pool *p, Counter *c, unsigned e, int n) {
	for (int i = 0;; i++) {
		unsigned long v = atomic_load_explicit(&c->done, memory_order_acquire);
		if ((unsigned)(v >> 32) != e) return 0;
		if ((int)(unsigned)v >= n) return 1;
		if (i < p->spin) {
			_mm_pause();
			continue;
		}
		struct timespec ts = {0, 200000};
		atomic_fetch_add(&p->phase_sleepers, 1);
		v = atomic_load(&c->done);
		if ((unsigned)(v >> 32) == e && (int)(unsigned)v < n) futex_wait((atomic_uint *)&c->done, (unsigned)v, &ts);
		atomic_fetch_sub(&p->phase_sleepers, 1);
	}
}

static void phases(Pool *p, unsigned e, int id, Exec *ex, const Phase *ph, int n, void (*fn)(void *, int, int), void *arg, int units) {
	if (fn) {
		Counter *c = &p->c[0];
		for (int u; (u = take(c, e, units, 1)) >= 0;) {
			fn(arg, u, id);
			add_done(p, c, 1, units);
		}
		wait_done(p, c, e, units);
		return;
	}
	for (int i = 0; i < n; i++) {
		Counter *c = &p->c[i];
		int chunk = 1, m = phase_units(ex, &ph[i], &chunk), u;
		if (m <= 0) continue;
		PhaseFn run = ex->lv->run[ph[i].kind];
		while ((u = take(c, e, m, chunk)) >= 0) {
			int end = u + chunk < m ? u + chunk : m;
			for (int v = u; v < end; v++) run(ex, &ph[i], v, id);
			add_done(p, c, end - u, m);
		}
		if (!wait_done(p, c, e, m)) return;
	}
}

static unsigned flush_denormals(void) {
	unsigned old = _mm_getcsr();
	_mm_setcsr(old | 0x8040);
	return old;
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
	unsigned seen = 0;
	for (;;) {
		unsigned e;
		for (int i = 0; (e = atomic_load_explicit(&p->go, memory_order_acquire)) == seen; i++) {
			if (i < p->idle_spin) {
				_mm_pause();
				continue;
			}
			atomic_fetch_add(&p->sleepers, 1);
			futex_wait(&p->go, seen, 0);
			atomic_fetch_sub(&p->sleepers, 1);
		}
		seen = e;
		if (atomic_load(&p->stop)) return 0;
		atomic_fetch_add(&p->active, 1);
		// A copy, and the epoch checked after: a late worker must not see the next run's fields.
		Exec *ex = p->exec;
		const Phase *ph = p->phases;
		int n = p->nphases, units = p->units;
		void (*fn)(void *, int, int) = p->fn;
		void *arg = p->arg;
		if (atomic_load(&p->epoch) == e) phases(p, e, s.id, ex, ph, n, fn, arg, units);
		atomic_fetch_sub(&p->active, 1);
	}
}

// threads of at most 1024; spin: pauses before a thread sleeps (0 where one processor is shared).
Pool *pool_new(int threads, int spin) {
	Pool *p = aligned_alloc(64, (sizeof(Pool) + 63) & ~(size_t)63);
	if (!p) return 0;
	memset(p, 0, sizeof *p);
	if (threads > 1024) threads = 1024;
	p->n = threads;
	p->spin = spin;
	p->idle_spin = spin * 10;
	pthread_mutex_init(&p->lock, 0);
	p->c = aligned_alloc(64, sizeof(Counter) * RING);
	if (!p->c) {
		free(p);
		return 0;
	}
	memset(p->c, 0, sizeof(Counter) * RING);
	for (int i = 1; i < threads; i++) {
		Start *s = malloc(sizeof *s);
		s->p = p;
		s->id = i;
		if (pthread_create(&p->threads[i], 0, worker, s)) {
			free(s);
			p->n = i;
			break;
		}
	}
	return p;
}

void pool_free(Pool *p) {
	atomic_store(&p->stop, 1);
	atomic_fetch_add(&p->go, 1);
	futex_wake(&p->go);
	for (int i = 1; i < p->n; i++) pthread_join(p->threads[i], 0);
	pthread_mutex_destroy(&p->lock);
	free(p->c);
	free(p);
}

void pool_quiesce(Pool *p) {
	pthread_mutex_lock(&p->lock);
	atomic_store(&p->epoch, 0);
	while (atomic_load(&p->active)) sched_yield();
	pthread_mutex_unlock(&p->lock);
}

static void start(Pool *p, int counters) {
	unsigned e = atomic_load(&p->go) + 1;
	if (e == 0) e = 1;
	for (int i = 0; i < counters; i++) {
		atomic_store_explicit(&p->c[i].next, (unsigned long)e << 32, memory_order_relaxed);
		atomic_store_explicit(&p->c[i].done, (unsigned long)e << 32, memory_order_relaxed);
	}
	atomic_store(&p->epoch, e);
	atomic_store(&p->go, e);
	if (p->n > 1 && atomic_load(&p->sleepers)) futex_wake(&p->go);
}

static void run_locked(Pool *p, Exec *ex, const Phase *ph, int n, void (*fn)(void *, int, int), void *arg, int units) {
	atomic_store(&p->epoch, 0);
	p->exec = ex;
	p->phases = ph;
	p->nphases = n;
	p->fn = fn;
	p->arg = arg;
	p->units = units;
	start(p, fn ? 1 : n);
	phases(p, atomic_load(&p->epoch), 0, ex, ph, n, fn, arg, units);
}

int pool_run(Pool *p, Exec *ex, const Phase *ph, int n) {
	pthread_mutex_lock(&p->lock);
	unsigned csr = flush_denormals();
	for (int i = 0; i < n; i += RING) run_locked(p, ex, ph + i, n - i < RING ? n - i : RING, 0, 0, 0);
	_mm_setcsr(csr);
	pthread_mutex_unlock(&p->lock);
	return 0;
}

void pool_for(Pool *p, void (*fn)(void *, int, int), void *arg, int units) {
	if (units <= 0) return;
	pthread_mutex_lock(&p->lock);
	run_locked(p, 0, 0, 0, fn, arg, units);
	pthread_mutex_unlock(&p->lock);
}
