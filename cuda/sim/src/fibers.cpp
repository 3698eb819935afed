// fibers.cpp: threads of a block as fibers, blocks over operating system threads.
#include "internal.h"
#include <condition_variable>
#include <link.h>
#include <mutex>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <thread>

namespace cusim {

// Saves what the System V ABI lets a call keep, switches stacks, restores.
asm(R"(
.text
.globl cusim_switch
.type cusim_switch,@function
cusim_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size cusim_switch,.-cusim_switch
)");

thread_local Fiber* cur __attribute__((tls_model("initial-exec")));

static std::mutex report_m;
static std::string* last_report = new std::string;

void report(const char* fmt, ...) {
	char buf[2048];
	va_list a;
	va_start(a, fmt);
	vsnprintf(buf, sizeof buf, fmt, a);
	va_end(a);
	std::lock_guard<std::mutex> l(report_m);
	fprintf(stderr, "sim: %s\n", buf);
	if (last_report->size() < 1 << 16) *last_report += std::string(buf) + "\n";
}

extern "C" size_t omniSimReport(char* out, size_t n) { // takes what was reported since the last call
	std::lock_guard<std::mutex> l(report_m);
	size_t k = last_report->size() < n ? last_report->size() : n;
	memcpy(out, last_report->data(), k);
	last_report->clear();
	return k;
}

void fail(const char* fmt, ...) {
	char buf[1536];
	va_list a;
	va_start(a, fmt);
	vsnprintf(buf, sizeof buf, fmt, a);
	va_end(a);
	Fiber* f = self();
	if (!f) {
		report("%s", buf);
		abort();
	}
	Block* b = f->blk;
	report("kernel %s, block (%u,%u,%u) thread (%u,%u,%u): %s", b->kernel, b->blockIdx.x, b->blockIdx.y, b->blockIdx.z, f->tid.x, f->tid.y, f->tid.z, buf);
	b->failed = true;
	void* lost;
	cusim_switch(&lost, b->main_sp);
	abort(); // nobody comes back here
}

static inline bool runnable(Fiber* f) { return !f->done && (!f->wp || *f->wp != f->wv); }

static Fiber* pick(Block* b, Fiber* from) {
	unsigned w0 = from->lin >> 5;
	Warp& w = b->warps[w0];
	int dir = b->reverse ? -1 : 1;
	for (unsigned i = 1; i <= w.n; i++) {
		Fiber* f = w.f[(from->lane + (unsigned)(dir * (int)i) + 2 * w.n) % w.n];
		if (runnable(f)) return f;
	}
	for (unsigned k = 1; k < b->nwarps; k++) {
		Warp& x = b->warps[(w0 + (unsigned)(dir * (int)k) + 2 * b->nwarps) % b->nwarps];
		if (!x.alive) continue;
		for (unsigned i = 0; i < x.n; i++) {
			Fiber* f = x.f[b->reverse ? x.n - 1 - i : i];
			if (runnable(f)) return f;
		}
	}
	return nullptr;
}

// deadlock says where the threads wait and ends the block.
static void deadlock(Fiber* f) {
	Block* b = f->blk;
	std::string where;
	const char* last = nullptr;
	cur = f;
	for (unsigned i = 0; i < b->nwarps; i++)
		for (Slot& s : b->warps[i].slot)
			if (s.arrived && (s.mask & ~b->warps[i].alive)) fail("%s: mask %08x names lanes that have exited (alive: %08x)", s.site, s.mask, b->warps[i].alive);
	for (unsigned i = 0, c = 0; i < b->nthreads && c < 8; i++) {
		Fiber* x = b->warps[i >> 5].f[i & 31];
		if (x->done || x->site == last) continue;
		last = x->site;
		char line[256];
		snprintf(line, sizeof line, "\n  from thread %u on: waiting at %s", i, x->site);
		where += line;
		c++;
	}
	fail("deadlock: %u of %u threads wait for threads that have exited or wait elsewhere (a divergent barrier, or a mask that names lanes which do not come)%s", b->alive, b->nthreads, where.c_str());
}

static void to_next(Fiber* f) {
	Block* b = f->blk;
	Fiber* n = pick(b, f);
	if (n == f) return;
	if (!n) {
		if (b->alive == 0) {
			cusim_switch(&f->sp, b->main_sp);
			return;
		}
		deadlock(f);
	}
	cur = n;
	cusim_switch(&f->sp, n->sp);
}

void wait_until_changed(const volatile unsigned* p, unsigned v, const char* site) {
	Fiber* f = self();
	f->wp = p;
	f->wv = v;
	f->site = site;
	Block* b = f->blk;
	// The next lane is nearly always the one to run.
	Fiber* n = f->warp->f[(f->lane + (b->reverse ? 31 : 1)) & 31];
	if (n && n != f && runnable(n)) {
		cur = n;
		cusim_switch(&f->sp, n->sp);
	}
	while (*p == v) to_next(f);
	f->wp = nullptr;
}

static void release(Block* b, Barrier& x) {
	x.arrived = 0;
	if (b->check) check_barrier(b);
	x.gen = x.gen + 1;
}

void named_barrier(unsigned id, unsigned threads, const char* site) {
	Fiber* f = self();
	Block* b = f->blk;
	if (id >= NAMED) fail("%s: barrier %u, there are %d", site, id, NAMED);
	if (threads % 32 || threads > b->nthreads) fail("%s: barrier %u for %u threads: a multiple of 32 up to the block's %u", site, id, threads, b->nthreads);
	Barrier& x = b->bar[id];
	unsigned g = x.gen;
	if (++x.arrived == threads) release(b, x);
	else wait_until_changed(&x.gen, g, site);
}

void barrier(const char* site) {
	Fiber* f = self();
	Block* b = f->blk;
	Barrier& x = b->bar[0];
	unsigned g = x.gen;
	if (x.arrived == 0) x.site = site;
	else if (x.site != site) fail("__syncthreads diverges: this thread at %s, others at %s", site, x.site);
	if (++x.arrived == b->alive) release(b, x);
	else wait_until_changed(&x.gen, g, site);
}

static const unsigned long long CANARY = 0x5ca1ab1e0ddba11ull;

static void trampoline() {
	Fiber* f = self();
	Block* b = f->blk;
	b->entry(b->params);
	f = self();
	if (*(unsigned long long*)f->stack != CANARY) fail("the thread's stack overflowed: too large local arrays");
	if (f->nq) { // harmless on a GPU, but a sign of a wait that was forgotten
		for (int i = 0; i < f->nq; i++)
			if (f->q[i].n + f->q[i].zero) fail("exits with cp.async that nobody waited for");
	}
	f->done = true;
	f->warp->alive &= ~(1u << f->lane);
	b->alive--;
	if (b->alive && b->bar[0].arrived == b->alive) release(b, b->bar[0]);
	for (;;) to_next(f);
}

struct Worker {
	Block b{};
	Warp* warps;
	Fiber* fibers;
	unsigned char *stacks, *dyn;
	size_t stack;
	const KernelDesc* last = nullptr;
	char* tls = nullptr;
	size_t tlssize = 0;
	Check* check = nullptr;

	Worker() {
		stack = __asan_poison_memory_region ? 256 << 10 : 64 << 10;
		warps = (Warp*)calloc(MAXT / 32, sizeof(Warp));
		fibers = (Fiber*)calloc(MAXT, sizeof(Fiber));
		stacks = (unsigned char*)mmap(nullptr, stack * MAXT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		dyn = (unsigned char*)mmap(nullptr, DYN_CAP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (!warps || !fibers || stacks == MAP_FAILED || dyn == MAP_FAILED) {
			report("no memory for the threads of a block");
			abort();
		}
		b.warps = warps;
	}
	~Worker() {
		free(warps);
		free(fibers);
		munmap(stacks, stack * MAXT);
		if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(dyn, DYN_CAP);
		munmap(dyn, DYN_CAP);
		if (check) delete_check(check);
	}
	void prepare(const LaunchSpec& l);
	bool run(const LaunchSpec& l, dim3 at);
	void start(unsigned i, dim3 bd);
};
Worker* new_worker() { return new Worker; }
void delete_worker(Worker* w) { delete w; }

// prepare is done once a launch on a thread.
void Worker::prepare(const LaunchSpec& l) {
	if (last != l.k) {
		static_block(l.k, &tls, &tlssize);
		last = l.k;
	}
	if (l.k->checked && !check) check = new_check();
	if (__asan_poison_memory_region) {
		__asan_unpoison_memory_region(dyn, DYN_CAP);
		__asan_poison_memory_region(dyn + l.shared, DYN_CAP - l.shared);
	}
}

void Worker::start(unsigned i, dim3 bd) {
	unsigned char* st = stacks + (size_t)i * stack;
	Fiber* f = &fibers[i];
	Warp& w = warps[i >> 5];
	f->lin = i;
	f->lane = i & 31;
	f->tid = dim3(i % bd.x, i / bd.x % bd.y, i / (bd.x * bd.y));
	f->warp = &w;
	f->blk = &b;
	f->wp = nullptr;
	f->site = "the start";
	f->done = false;
	f->nq = f->group = 0;
	f->stack = st;
	*(unsigned long long*)st = CANARY;
	if ((i & 31) == 0) {
		w.n = b.nthreads - i < 32 ? b.nthreads - i : 32;
		w.alive = w.n == 32 ? ~0u : (1u << w.n) - 1;
		w.index = i >> 5;
		w.epoch = 0;
		for (auto& s : w.slot) s.arrived = 0;
		for (auto& x : w.f) x = nullptr;
	}
	w.f[i & 31] = f;
	// Stacks begin at different cache sets. rsp % 16 == 8 at a function's entry.
	void** sp = (void**)(st + stack - (i * 320) % 16384) - 1;
	*sp = nullptr;
	*--sp = (void*)trampoline;
	sp -= 6;
	f->sp = sp;
}

bool Worker::run(const LaunchSpec& l, dim3 at) {
	b.gridDim = l.grid;
	b.blockDim = l.block;
	b.blockIdx = at;
	b.nthreads = l.block.x * l.block.y * l.block.z;
	b.nwarps = (b.nthreads + 31) / 32;
	b.alive = b.nthreads;
	for (auto& x : b.bar) x.arrived = 0;
	b.dyn = dyn;
	b.dynsize = l.shared;
	b.entry = l.k->entry;
	b.params = l.params;
	b.kernel = l.k->name;
	b.reverse = config().reverse;
	b.failed = false;
	b.check = l.k->checked ? check : nullptr;
	memset(dyn, 0xff, l.shared);
	// Static shared memory is one region for all kernels of the library; filling it costs, so only where it is small or sought for.
	if (tls && (tlssize <= 16 << 10 || b.check)) memset(tls, 0xff, tlssize);
	for (unsigned i = 0; i < b.nthreads; i++) start(i, l.block);
	if (b.check) check_begin(b.check, &b, tls, tlssize);
	Fiber* first = b.reverse ? &fibers[b.nthreads - 1] : &fibers[0];
	cur = first;
	cusim_switch(&b.main_sp, first->sp);
	cur = nullptr;
	if (b.check) check_end(b.check, &b);
	if (b.failed && __asan_unpoison_memory_region) __asan_unpoison_memory_region(stacks, stack * MAXT);
	return !b.failed;
}

struct Tls {
	const void* addr;
	char* start;
	size_t size;
};
static int find_tls(struct dl_phdr_info* i, size_t, void* data) {
	Tls* t = (Tls*)data;
	bool mine = false;
	size_t size = 0;
	for (int k = 0; k < i->dlpi_phnum; k++) {
		const ElfW(Phdr)& p = i->dlpi_phdr[k];
		uintptr_t at = i->dlpi_addr + p.p_vaddr;
		if (p.p_type == PT_LOAD && (uintptr_t)t->addr >= at && (uintptr_t)t->addr < at + p.p_memsz) mine = true;
		if (p.p_type == PT_TLS) size = p.p_memsz;
	}
	if (!mine) return 0;
	t->start = (char*)i->dlpi_tls_data;
	t->size = size;
	return 1;
}
void static_block(const KernelDesc* k, char** start, size_t* size) {
	k->anchor(); // allocates the thread's block
	Tls t{k, nullptr, 0};
	dl_iterate_phdr(find_tls, &t);
	*start = t.start;
	*size = t.start ? t.size : 0;
}

// Pool is the threads that help a launch. One launch has it at a time; a launch of one block does without.
struct Pool {
	std::mutex one, m;
	std::condition_variable wake, idle;
	const LaunchSpec* job = nullptr;
	std::atomic<size_t> next{0};
	std::atomic<bool> ok{true};
	size_t blocks = 0;
	unsigned generation = 0, active = 0, helpers = 0;

	void work(Worker* w, const LaunchSpec& l) {
		w->prepare(l);
		for (size_t i; ok && (i = next++) < blocks;) {
			dim3 at((unsigned)(i % l.grid.x), (unsigned)(i / l.grid.x % l.grid.y), (unsigned)(i / ((size_t)l.grid.x * l.grid.y)));
			if (!w->run(l, at)) ok = false;
		}
	}
	void helper() {
		Worker* w = new_worker();
		unsigned seen = 0;
		std::unique_lock<std::mutex> l(m);
		for (;;) {
			wake.wait(l, [&] { return generation != seen && job; });
			seen = generation;
			const LaunchSpec spec = *job;
			active++;
			l.unlock();
			work(w, spec);
			l.lock();
			if (--active == 0) idle.notify_all();
		}
	}
	void grow(unsigned want) {
		sigset_t all, old;
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old); // signals are the host's
		for (; helpers < want; helpers++) std::thread([this] { helper(); }).detach();
		pthread_sigmask(SIG_SETMASK, &old, nullptr);
	}
	bool run(Worker* own, const LaunchSpec& l) {
		std::lock_guard<std::mutex> only(one);
		grow((unsigned)config().threads - 1);
		{
			std::lock_guard<std::mutex> g(m);
			blocks = (size_t)l.grid.x * l.grid.y * l.grid.z;
			next = 0;
			ok = true;
			job = &l;
			generation++;
		}
		wake.notify_all();
		work(own, l);
		std::unique_lock<std::mutex> g(m);
		job = nullptr; // who wakes late finds nothing
		idle.wait(g, [&] { return active == 0; });
		return ok;
	}
};
static Pool* pool = new Pool;

bool launch(Worker* own, const LaunchSpec& l) {
	if (config().noop) return true;
	if ((size_t)l.grid.x * l.grid.y * l.grid.z == 1) {
		own->prepare(l);
		return own->run(l, dim3(0, 0, 0));
	}
	return pool->run(own, l);
}

} // namespace cusim
