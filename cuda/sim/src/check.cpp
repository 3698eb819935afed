// check.cpp: what the compiler's access hooks (-fsanitize=thread) find in shared memory: races, reads of what nobody wrote,
// reads of what a cp.async has yet to bring, and bank conflicts.
#include "internal.h"
#include <algorithm>
#include <dlfcn.h>
#include <map>
#include <mutex>

namespace cusim {

// Place is an instruction's address or, for emulated copies, a source line.
struct Place {
	const void* pc;
	const char* site;
};

static std::string text(Place p) {
	if (p.site) return p.site;
	Dl_info i;
	char buf[512];
	if (!dladdr(p.pc, &i) || !i.dli_fname) return "?";
	snprintf(buf, sizeof buf, "addr2line -Cpie '%s' 0x%zx 2>/dev/null", i.dli_fname, (size_t)((const char*)p.pc - (const char*)i.dli_fbase) - 1);
	std::string out;
	if (FILE* f = popen(buf, "r")) {
		while (fgets(buf, sizeof buf, f)) out += (out.empty() ? "" : ", ") + std::string(buf, strcspn(buf, "\n"));
		pclose(f);
	}
	return out.empty() ? i.dli_fname : out;
}

// Cell is one byte's history in the block that runs. An epoch below the block's first is a former block's: as good as none.
struct Cell {
	uint32_t we, ww, re, rw0, rw1; // epochs of the block and of the warp
	uint16_t wt, r0, r1;           // threads; r1 is a reader of another warp if there was one
	bool pend;
	Place wp, rp;
};
enum : uint16_t { NOBODY = 0xffff };

struct Access {
	Place at;
	uintptr_t addr;
	uint32_t seq;
	uint8_t lane, size;
};

struct Count {
	uint64_t waves = 0, extra = 0;
};
struct Key {
	std::string kernel;
	Place at;
	bool operator<(const Key& o) const {
		if (kernel != o.kernel) return kernel < o.kernel;
		return at.pc != o.at.pc ? at.pc < o.at.pc : at.site < o.at.site;
	}
};
static std::mutex counts_m;
static std::map<Key, Count>* counts = new std::map<Key, Count>;

struct Check {
	std::vector<Cell> cells;
	uint32_t epoch = 0, base = 0;
	Block* b = nullptr;
	char* tls = nullptr;
	size_t tlssize = 0;
	std::vector<Access> log[MAXT / 32];
};
Check* new_check() { return new Check; }
void delete_check(Check* c) { delete c; }

void check_begin(Check* c, Block* b, char* tls, size_t tlssize) {
	c->b = b;
	c->tls = tls;
	c->tlssize = tlssize;
	c->cells.resize(DYN_CAP + tlssize);
	c->base = ++c->epoch;
	for (auto& l : c->log) l.clear();
}

// waves counts how many turns the banks take for one access of a warp: 32 banks of 4 bytes; lanes that read the same word share
// it; 8 bytes a lane go in two halves of the warp, 16 in four quarters.
static void count_waves(const Access* a, size_t n, Count* out) {
	unsigned size = a[0].size, lanes = size <= 4 ? 32 : size == 8 ? 16 : 8;
	for (unsigned first = 0; first < 32; first += lanes) {
		std::vector<uintptr_t> words;
		for (size_t i = 0; i < n; i++) {
			if (a[i].lane < first || a[i].lane >= first + lanes) continue;
			for (unsigned k = 0; k < size; k += 4) words.push_back((a[i].addr + k) / 4);
		}
		if (words.empty()) continue;
		std::sort(words.begin(), words.end());
		words.erase(std::unique(words.begin(), words.end()), words.end());
		unsigned bank[32] = {}, most = 0;
		for (uintptr_t w : words) most = std::max(most, ++bank[w & 31]);
		out->waves += 1;
		out->extra += most - 1;
	}
}

// flush pairs the lanes' n-th accesses at each place and counts the conflicts.
static void flush(Check* c, unsigned warp) {
	auto& log = c->log[warp];
	if (log.empty()) return;
	uint32_t seq[32];
	std::stable_sort(log.begin(), log.end(), [](const Access& x, const Access& y) {
		if (x.at.pc != y.at.pc) return x.at.pc < y.at.pc;
		if (x.at.site != y.at.site) return x.at.site < y.at.site;
		return x.size < y.size;
	});
	std::lock_guard<std::mutex> l(counts_m);
	for (size_t i = 0, j; i < log.size(); i = j) {
		memset(seq, 0, sizeof seq);
		for (j = i; j < log.size() && log[j].at.pc == log[i].at.pc && log[j].at.site == log[i].at.site && log[j].size == log[i].size; j++) log[j].seq = seq[log[j].lane]++;
		std::stable_sort(log.begin() + (long)i, log.begin() + (long)j, [](const Access& x, const Access& y) { return x.seq < y.seq; });
		Count& n = (*counts)[Key{c->b->kernel, log[i].at}];
		for (size_t k = i, m; k < j; k = m) {
			for (m = k; m < j && log[m].seq == log[k].seq;) m++;
			count_waves(&log[k], m - k, &n);
		}
	}
	log.clear();
}

void check_end(Check* c, Block* b) {
	for (unsigned w = 0; w < b->nwarps; w++) {
		if (b->failed) c->log[w].clear();
		else flush(c, w);
	}
}
void check_barrier(Block* b) {
	b->check->epoch++;
	for (unsigned w = 0; w < b->nwarps; w++) flush(b->check, w);
}
void collected(Warp* w) {
	if (Check* c = w->f[0]->blk->check) flush(c, w->index);
}
void warp_ordered(Warp* w) { w->epoch++; }

// Where p lies in the cells, or -1: not shared memory.
static inline long index_of(Check* c, const void* p) {
	size_t d = (size_t)((const unsigned char*)p - c->b->dyn);
	if (d < DYN_CAP) return (long)d;
	size_t t = (size_t)((const char*)p - c->tls);
	return t < c->tlssize ? (long)(DYN_CAP + t) : -1;
}

struct Me {
	uint32_t epoch, warp_epoch;
	uint16_t tid;
};
static inline bool ordered(const Me& me, uint32_t e, uint32_t we, uint16_t t) {
	return e != me.epoch || t == me.tid || (t >> 5 == me.tid >> 5 && we != me.warp_epoch);
}

[[noreturn]] static void race(const char* what, const void* p, Place mine, const char* other, uint16_t tid, Place theirs) {
	Block* b = self()->blk;
	size_t d = (size_t)((const unsigned char*)p - b->dyn);
	char where[64] = "static shared memory";
	if (d < DYN_CAP) snprintf(where, sizeof where, "dynamic shared memory byte %zu", d);
	fail("race on %s: %s at %s, and thread %u %s at %s, with no barrier between", where, what, text(mine).c_str(), tid, other, text(theirs).c_str());
}

static void read_byte(Check* c, Cell& x, const Me& me, const void* p, Place at) {
	bool known = x.we >= c->base;
	if (known && x.pend) fail("reads shared memory at %s before the cp.async of thread %u (%s) was waited for", text(at).c_str(), x.wt, text(x.wp).c_str());
	if (!known) fail("reads shared memory that nobody has written yet, at %s", text(at).c_str());
	if (!ordered(me, x.we, x.ww, x.wt)) race("a read", p, at, "wrote", x.wt, x.wp);
	if (x.re != me.epoch) {
		x.re = me.epoch;
		x.r0 = x.r1 = NOBODY;
	}
	if (x.r0 == NOBODY || x.r0 == me.tid) {
		x.r0 = me.tid;
		x.rw0 = me.warp_epoch;
	} else if (x.r1 == NOBODY || x.r1 >> 5 == x.r0 >> 5 || x.r1 == me.tid) {
		x.r1 = me.tid;
		x.rw1 = me.warp_epoch;
	}
	x.rp = at;
}

static void write_byte(Check* c, Cell& x, const Me& me, const void* p, Place at) {
	// Lanes that write the same place by one instruction write the same value, in kernels that mean it.
	bool same = x.wp.pc == at.pc && x.wp.site == at.site;
	if (x.we >= c->base && !same && !ordered(me, x.we, x.ww, x.wt)) race("a write", p, at, "wrote", x.wt, x.wp);
	if (x.re >= c->base) {
		if (x.r0 != NOBODY && !ordered(me, x.re, x.rw0, x.r0)) race("a write", p, at, "read", x.r0, x.rp);
		if (x.r1 != NOBODY && !ordered(me, x.re, x.rw1, x.r1)) race("a write", p, at, "read", x.r1, x.rp);
	}
	x.we = me.epoch;
	x.ww = me.warp_epoch;
	x.wt = me.tid;
	x.wp = at;
	x.pend = false;
}

static void access(const void* p, size_t n, bool write, Place at) {
	Fiber* f = self();
	if (!f) return;
	Check* c = f->blk->check;
	if (!c) return;
	long i = index_of(c, p);
	if (i < 0) return;
	if (i < (long)DYN_CAP && (size_t)i + n > f->blk->dynsize)
		fail("%s dynamic shared memory byte %ld of %zu, at %s", write ? "writes" : "reads", i, f->blk->dynsize, text(at).c_str());
	Me me{c->epoch, f->warp->epoch, (uint16_t)f->lin};
	for (size_t k = 0; k < n; k++) {
		if (write) write_byte(c, c->cells[(size_t)i + k], me, (const char*)p + k, at);
		else read_byte(c, c->cells[(size_t)i + k], me, (const char*)p + k, at);
	}
	auto& log = c->log[f->warp->index];
	if (n <= 16) log.push_back({at, (uintptr_t)p, 0, (uint8_t)f->lane, (uint8_t)n});
	if (log.size() > 1 << 16) flush(c, f->warp->index);
}

void touched(const void* p, size_t n, bool write, const char* site) { access(p, n, write, Place{nullptr, site}); }
void pending(const void* p, size_t n, bool on, const char*) {
	Fiber* f = self();
	Check* c = f->blk->check;
	if (!c) return;
	long i = index_of(c, p);
	if (i < 0) fail("cp.async to %p, which is not shared memory", p);
	for (size_t k = 0; k < n; k++) c->cells[(size_t)i + k].pend = on;
}

void print_conflicts() {
	std::lock_guard<std::mutex> l(counts_m);
	std::map<std::string, Count> kernels;
	for (auto& x : *counts) {
		kernels[x.first.kernel].waves += x.second.waves;
		kernels[x.first.kernel].extra += x.second.extra;
	}
	for (auto& k : kernels) {
		fprintf(stderr, "sim: bank conflicts of %s: %lu extra turns in %lu\n", k.first.c_str(), k.second.extra, k.second.waves);
		for (auto& x : *counts)
			if (x.first.kernel == k.first && x.second.extra) fprintf(stderr, "sim:   %lu extra turns in %lu at %s\n", x.second.extra, x.second.waves, text(x.first.at).c_str());
	}
}

// omniSimConflicts gives a kernel's count since the process began: turns that the banks took at least, and those on top of it.
extern "C" void omniSimConflicts(const char* kernel, uint64_t* waves, uint64_t* extra) {
	std::lock_guard<std::mutex> l(counts_m);
	*waves = *extra = 0;
	for (auto& x : *counts)
		if (x.first.kernel == kernel) {
			*waves += x.second.waves;
			*extra += x.second.extra;
		}
}

} // namespace cusim

// The hooks that g++ -fsanitize=thread calls. The race detector's own library is not linked.
#define CUSIM_HOOK(n) \
	void __tsan_read##n(void* p) { cusim::access(p, n, false, {__builtin_return_address(0), nullptr}); } \
	void __tsan_write##n(void* p) { cusim::access(p, n, true, {__builtin_return_address(0), nullptr}); } \
	void __tsan_unaligned_read##n(void* p) { cusim::access(p, n, false, {__builtin_return_address(0), nullptr}); } \
	void __tsan_unaligned_write##n(void* p) { cusim::access(p, n, true, {__builtin_return_address(0), nullptr}); } \
	void __tsan_volatile_read##n(void* p) { cusim::access(p, n, false, {__builtin_return_address(0), nullptr}); } \
	void __tsan_volatile_write##n(void* p) { cusim::access(p, n, true, {__builtin_return_address(0), nullptr}); }
#define CUSIM_ATOMIC(bits, T) \
	T __tsan_atomic##bits##_load(const volatile T* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); } \
	void __tsan_atomic##bits##_store(volatile T* p, T v, int) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); } \
	T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); } \
	T __tsan_atomic##bits##_fetch_add(volatile T* p, T v, int) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); } \
	T __tsan_atomic##bits##_fetch_sub(volatile T* p, T v, int) { return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST); } \
	T __tsan_atomic##bits##_fetch_and(volatile T* p, T v, int) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); } \
	T __tsan_atomic##bits##_fetch_or(volatile T* p, T v, int) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); } \
	T __tsan_atomic##bits##_fetch_xor(volatile T* p, T v, int) { return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST); } \
	int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* e, T v, int, int) { return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); } \
	int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* e, T v, int, int) { return __atomic_compare_exchange_n(p, e, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); }
extern "C" {
CUSIM_HOOK(1)
CUSIM_HOOK(2)
CUSIM_HOOK(4)
CUSIM_HOOK(8)
CUSIM_HOOK(16)
void __tsan_read_range(void* p, size_t n) { cusim::access(p, n, false, {__builtin_return_address(0), nullptr}); }
void __tsan_write_range(void* p, size_t n) { cusim::access(p, n, true, {__builtin_return_address(0), nullptr}); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
CUSIM_ATOMIC(8, uint8_t)
CUSIM_ATOMIC(16, uint16_t)
CUSIM_ATOMIC(32, uint32_t)
CUSIM_ATOMIC(64, uint64_t)
}
