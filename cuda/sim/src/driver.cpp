// driver.cpp: initialisation, the device, memory, modules and launches of the software libcuda.
#include "driver.h"
#include <algorithm>
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/mman.h>

namespace cusim {

static Config* conf = new Config;
const Config& config() { return *conf; }
Handles& handles() {
	static Handles* h = new Handles;
	return *h;
}
std::atomic<bool> initialised{false}, broken{false};
static std::atomic<int> retained{0};
static thread_local void* current_ctx;
static char ctx_tag; // its address is the one context

static const char* env(const char* name) {
	const char* s = getenv(name);
	return s && *s && strcmp(s, "0") ? s : nullptr;
}
static size_t size_env(const char* name, size_t fallback) {
	const char* s = env(name);
	if (!s) return fallback;
	char* end;
	double v = strtod(s, &end);
	switch (*end | 32) {
	case 'k': v *= 1 << 10; break;
	case 'm': v *= 1 << 20; break;
	case 'g': v *= 1 << 30; break;
	}
	return (size_t)v;
}
static double number_env(const char* name, double fallback) { return env(name) ? atof(env(name)) : fallback; }

static void read_environment() {
	Config& c = *conf;
	c.memory = size_env("OMNI_SIM_MEMORY", (size_t)4 << 30);
	c.version = (int)number_env("OMNI_SIM_DRIVER_VERSION", 13000);
	c.cc_major = 9;
	c.cc_minor = 0;
	if (const char* s = env("OMNI_SIM_CC")) sscanf(s, "%d.%d", &c.cc_major, &c.cc_minor);
	c.sms = (int)number_env("OMNI_SIM_SMS", 8);
	unsigned hw = std::thread::hardware_concurrency();
	c.threads = (int)number_env("OMNI_SIM_THREADS", hw ? hw : 1);
	if (c.threads < 1) c.threads = 1;
	c.no_device = env("OMNI_SIM_NO_DEVICE");
	c.reverse = env("OMNI_SIM_REVERSE");
	c.noop = env("OMNI_SIM_NOOP");
	c.conflicts = env("OMNI_SIM_CONFLICTS");
	c.graph_delay = number_env("OMNI_SIM_DELAY_MS", 0) / 1e3;
	c.launch_delay = number_env("OMNI_SIM_LAUNCH_DELAY_US", 0) / 1e6;
	c.kernels = env("OMNI_SIM_KERNELS") ? env("OMNI_SIM_KERNELS") : "";
}

void read_config() {
	static std::once_flag once;
	std::call_once(once, read_environment);
}

CUresult refuse(const char* fmt, ...) {
	char buf[1024];
	va_list a;
	va_start(a, fmt);
	vsnprintf(buf, sizeof buf, fmt, a);
	va_end(a);
	report("%s", buf);
	return INVALID_VALUE;
}

CUresult entry() {
	if (!initialised) return NOT_INITIALIZED;
	if (current_ctx != &ctx_tag || retained == 0) return INVALID_CONTEXT;
	return broken ? LAUNCH_FAILED : OK;
}

bool alive(std::set<void*>& s, void* p) {
	std::lock_guard<std::mutex> l(handles().m);
	return s.count(p);
}

// inside reports whether a range lies in one allocation.
static bool inside(const std::map<uintptr_t, size_t>& m, const void* p, size_t n) {
	uintptr_t a = (uintptr_t)p;
	auto i = m.upper_bound(a);
	if (i == m.begin()) return false;
	--i;
	return a - i->first <= i->second && n <= i->second - (a - i->first);
}
static CUresult check_device(const char* call, const void* p, size_t n) {
	std::lock_guard<std::mutex> l(handles().m);
	return inside(handles().device, p, n) ? OK : refuse("%s: %zu bytes at %p are not in one allocation of device memory", call, n, p);
}
static CUresult check_host(const char* call, const void* p, size_t n) {
	std::lock_guard<std::mutex> l(handles().m);
	return inside(handles().host, p, n) ? OK : refuse("%s: %zu bytes of host memory at %p are not page-locked: an asynchronous copy from pageable memory is refused here (cuMemHostAlloc)", call, n, p);
}

// Guards around an allocation, looked at when it is freed. AddressSanitizer has its own.
enum : size_t { GUARD = 256, FILL_LIMIT = 64 << 20 };
static void* get(size_t n) {
	void* p = nullptr;
	if (__asan_poison_memory_region) return posix_memalign(&p, 256, n) ? nullptr : (memset(p, 0xff, n < FILL_LIMIT ? n : 0), p);
	char* q = (char*)mmap(nullptr, n + 2 * GUARD + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (q == MAP_FAILED) return nullptr;
	memset(q, 0xa5, GUARD);
	memset(q + GUARD + n, 0xa5, GUARD);
	if (n < FILL_LIMIT) memset(q + GUARD, 0xff, n);
	return q + GUARD;
}
static bool put_back(void* p, size_t n) {
	if (__asan_poison_memory_region) {
		free(p);
		return true;
	}
	unsigned char* q = (unsigned char*)p - GUARD;
	bool ok = true;
	for (size_t i = 0; i < GUARD; i++) ok = ok && q[i] == 0xa5 && q[GUARD + n + i] == 0xa5;
	munmap(q, n + 2 * GUARD + 4096);
	return ok;
}

static CUresult allocate(std::map<uintptr_t, size_t>& m, void** out, size_t n, bool counted) {
	if (n == 0) return INVALID_VALUE;
	std::lock_guard<std::mutex> l(handles().m);
	size_t whole = (n + 511) & ~(size_t)511;
	if (counted && handles().used + whole > config().memory) return OUT_OF_MEMORY;
	void* p = get(n);
	if (!p) return OUT_OF_MEMORY;
	m[(uintptr_t)p] = n;
	if (counted) handles().used += whole;
	*out = p;
	return OK;
}
static CUresult release(const char* call, std::map<uintptr_t, size_t>& m, void* p, bool counted) {
	size_t n;
	{
		std::lock_guard<std::mutex> l(handles().m);
		auto i = m.find((uintptr_t)p);
		if (i == m.end()) return refuse("%s: %p is no allocation", call, p);
		n = i->second;
		m.erase(i);
		if (counted) handles().used -= (n + 511) & ~(size_t)511;
	}
	return put_back(p, n) ? OK : (refuse("%s: something wrote outside the %zu bytes at %p", call, n, p), (CUresult)OK);
}

} // namespace cusim
using namespace cusim;

CU cuInit(unsigned) {
	read_config();
	if (config().no_device) return NO_DEVICE;
	initialised = true;
	return OK;
}
CU cuDriverGetVersion(int* v) {
	read_config();
	*v = config().version;
	return OK;
}
CU cuGetErrorName(CUresult, const char** s) { return *s = "CUDA_ERROR", OK; }
CU cuGetErrorString(CUresult, const char** s) { return *s = "see the report of the software device", OK; }
CU cuDeviceGetCount(int* n) {
	if (!initialised) return NOT_INITIALIZED;
	*n = 1;
	return OK;
}
CU cuDeviceGet(int* d, int i) {
	if (!initialised) return NOT_INITIALIZED;
	*d = i;
	return i ? INVALID_DEVICE : OK;
}
CU cuDeviceGetName(char* s, int n, int d) {
	if (d) return INVALID_DEVICE;
	snprintf(s, (size_t)n, "omni-engine software device");
	return OK;
}
CU cuDeviceGetUuid_v2(unsigned char* u, int d) {
	for (int i = 0; i < 16; i++) u[i] = (unsigned char)i;
	return d ? INVALID_DEVICE : OK;
}
CU cuDeviceTotalMem_v2(size_t* n, int d) {
	*n = config().memory;
	return d ? INVALID_DEVICE : OK;
}
CU cuDeviceGetAttribute(int* v, int a, int d) {
	if (d) return INVALID_DEVICE;
	switch (a) {
	case 1: *v = MAXT; break;
	case 8: *v = DEFAULT_SHARED; break;
	case 10: *v = 32; break;
	case 13: *v = 1000000; break;
	case 16: *v = config().sms; break;
	case 36: *v = 1000000; break;
	case 37: *v = 512; break;
	case 38: *v = 32 << 20; break;
	case 39: *v = 2048; break;
	case 75: *v = config().cc_major; break;
	case 76: *v = config().cc_minor; break;
	case 81: *v = 233472; break;
	case 82: *v = 65536; break;
	case 97: *v = MAX_SHARED; break;
	default: *v = 0;
	}
	return OK;
}
CU cuDevicePrimaryCtxRetain(void** c, int d) {
	if (!initialised) return NOT_INITIALIZED;
	if (d) return INVALID_DEVICE;
	retained++;
	*c = &ctx_tag;
	return OK;
}
// end_context frees what the context held: its streams, device memory and modules. Page-locked memory stays where it is: the host
// may still look at it.
static void end_context() {
	std::vector<void*> streams;
	std::map<uintptr_t, size_t> memory;
	{
		std::lock_guard<std::mutex> l(handles().m);
		streams.assign(handles().streams.begin(), handles().streams.end());
		handles().streams.clear();
		memory.swap(handles().device);
		handles().used = 0;
		handles().events.clear();
		handles().modules.clear();
		handles().funcs.clear();
		handles().graphs.clear();
		handles().execs.clear();
	}
	for (void* s : streams) stream_end((Stream*)s);
	for (auto& a : memory)
		if (!put_back((void*)a.first, a.second)) report("at the context's end: something wrote outside the %zu bytes at %p", a.second, (void*)a.first);
	broken = false;
}
// The last release ends the context, and with it what a failed kernel did to it.
CU cuDevicePrimaryCtxRelease_v2(int d) {
	if (d) return INVALID_DEVICE;
	if (retained == 0) return INVALID_CONTEXT;
	if (--retained == 0) end_context();
	return OK;
}
CU cuCtxSetCurrent(void* c) {
	if (!initialised) return NOT_INITIALIZED;
	if (c && c != &ctx_tag) return INVALID_CONTEXT;
	current_ctx = c;
	return OK;
}
CU cuCtxGetCurrent(void** c) { return *c = current_ctx, OK; }

CU cuMemGetInfo_v2(size_t* available, size_t* total) {
	if (CUresult r = entry()) return r;
	std::lock_guard<std::mutex> l(handles().m);
	*total = config().memory;
	*available = *total > handles().used ? *total - handles().used : 0;
	return OK;
}
CU cuMemAlloc_v2(CUdeviceptr* p, size_t n) {
	if (CUresult r = entry()) return r;
	if (forbid_in_capture("cuMemAlloc")) return CAPTURE_UNSUPPORTED;
	return allocate(handles().device, (void**)p, n, true);
}
CU cuMemFree_v2(CUdeviceptr p) {
	if (CUresult r = entry()) return r;
	if (p == 0) return OK;
	if (forbid_in_capture("cuMemFree")) return CAPTURE_UNSUPPORTED;
	// Free waits for what may still use the memory.
	std::vector<void*> all;
	{
		std::lock_guard<std::mutex> l(handles().m);
		all.assign(handles().streams.begin(), handles().streams.end());
	}
	for (void* s : all) stream_wait_idle((Stream*)s);
	return release("cuMemFree", handles().device, (void*)p, true);
}
CU cuMemHostAlloc(void** p, size_t n, unsigned) {
	if (CUresult r = entry()) return r;
	if (forbid_in_capture("cuMemHostAlloc")) return CAPTURE_UNSUPPORTED;
	return allocate(handles().host, p, n, false);
}
CU cuMemAllocHost_v2(void** p, size_t n) { return cuMemHostAlloc(p, n, 0); }
CU cuMemFreeHost(void* p) {
	if (CUresult r = entry()) return r;
	return release("cuMemFreeHost", handles().host, p, false);
}

static CUresult copy(Kind kind, void* dst, const void* src, size_t n, Stream* s) {
	Op o;
	o.kind = kind;
	o.dst = dst;
	o.src = src;
	o.n = n;
	return put(s, std::move(o));
}
CU cuMemcpyHtoDAsync_v2(CUdeviceptr d, const void* h, size_t n, Stream* s) {
	if (CUresult r = entry()) return r;
	if (CUresult r = check_device("cuMemcpyHtoDAsync", (void*)d, n)) return r;
	if (CUresult r = check_host("cuMemcpyHtoDAsync", h, n)) return r;
	return copy(COPY_IN, (void*)d, h, n, s);
}
CU cuMemcpyDtoHAsync_v2(void* h, CUdeviceptr d, size_t n, Stream* s) {
	if (CUresult r = entry()) return r;
	if (CUresult r = check_device("cuMemcpyDtoHAsync", (void*)d, n)) return r;
	if (CUresult r = check_host("cuMemcpyDtoHAsync", h, n)) return r;
	return copy(COPY_OUT, h, (void*)d, n, s);
}
CU cuMemcpyDtoDAsync_v2(CUdeviceptr d, CUdeviceptr e, size_t n, Stream* s) {
	if (CUresult r = entry()) return r;
	if (CUresult r = check_device("cuMemcpyDtoDAsync", (void*)d, n)) return r;
	if (CUresult r = check_device("cuMemcpyDtoDAsync", (void*)e, n)) return r;
	return copy(COPY_DEVICE, (void*)d, (void*)e, n, s);
}
static CUresult fill(Kind kind, const char* call, CUdeviceptr p, uint32_t v, size_t n, size_t unit, Stream* s) {
	if (CUresult r = entry()) return r;
	if (p % unit) return INVALID_VALUE;
	if (CUresult r = check_device(call, (void*)p, n * unit)) return r;
	Op o;
	o.kind = kind;
	o.dst = (void*)p;
	o.n = n;
	o.v = v;
	return put(s, std::move(o));
}
CU cuMemsetD8Async(CUdeviceptr p, unsigned char v, size_t n, Stream* s) { return fill(FILL8, "cuMemsetD8Async", p, v, n, 1, s); }
CU cuMemsetD32Async(CUdeviceptr p, unsigned v, size_t n, Stream* s) { return fill(FILL32, "cuMemsetD32Async", p, v, n, 4, s); }

// kernels_path is the library that stands for an image: named by a text "OMNISIM\0path\0", or, for a fatbin, by the environment
// or lying beside this library.
static CUresult kernels_path(const char* image, std::string* path) {
	if (!memcmp(image, "OMNISIM", 8)) {
		*path = image + 8;
		return OK;
	}
	uint32_t magic;
	memcpy(&magic, image, 4);
	if (magic != 0xba55ed50u) return INVALID_IMAGE;
	*path = config().kernels;
	if (path->empty()) {
		Dl_info i;
		dladdr((void*)&cuInit, &i);
		std::string self = i.dli_fname;
		*path = self.substr(0, self.rfind('/') + 1) + "libkernels.so";
	}
	return OK;
}
CU cuModuleLoadData(Module** m, const void* image) {
	if (CUresult r = entry()) return r;
	if (forbid_in_capture("cuModuleLoadData")) return CAPTURE_UNSUPPORTED;
	std::string path;
	if (CUresult r = kernels_path((const char*)image, &path)) return r;
	void* dl = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
	if (!dl) {
		report("kernels: %s", dlerror());
		return FILE_NOT_FOUND;
	}
	*m = new Module{dl, {}};
	std::lock_guard<std::mutex> l(handles().m);
	handles().modules.insert(*m);
	return OK;
}
CU cuModuleLoadDataEx(Module** m, const void* image, unsigned n, int* options, void** values) {
	CUresult r = cuModuleLoadData(m, image);
	for (unsigned i = 0; r && i + 1 < n; i++)
		if (options[i] == 5) snprintf((char*)values[i], (size_t)values[i + 1], "the software device: %s", r == FILE_NOT_FOUND ? "the library of the kernels does not load" : "neither a fatbin nor a text that names a library");
	return r;
}
CU cuModuleUnload(Module* m) {
	if (CUresult r = entry()) return r;
	{
		std::lock_guard<std::mutex> l(handles().m);
		if (!handles().modules.erase(m)) return INVALID_HANDLE;
		for (auto& f : m->funcs) handles().funcs.erase(f.second);
	}
	if (config().conflicts) print_conflicts();
	// The library stays: a worker thread may hold its static shared memory.
	for (auto& f : m->funcs) delete f.second;
	delete m;
	return OK;
}
CU cuModuleGetFunction(Func** f, Module* m, const char* name) {
	if (CUresult r = entry()) return r;
	std::lock_guard<std::mutex> l(handles().m);
	if (!handles().modules.count(m)) return INVALID_HANDLE;
	Func*& found = m->funcs[name];
	if (!found) {
		auto k = (const KernelDesc*)dlsym(m->dl, (std::string("cusim_kernel_") + name).c_str());
		if (!k) {
			m->funcs.erase(name);
			return NOT_FOUND;
		}
		found = new Func{k};
		handles().funcs.insert(found);
	}
	*f = found;
	return OK;
}
CU cuFuncGetAttribute(int* v, int a, Func* f) {
	if (!alive(handles().funcs, f)) return INVALID_HANDLE;
	*v = a == 0 ? MAXT : a == 4 ? 32 : a == 8 ? f->max_dynamic : 0;
	return OK;
}
CU cuFuncSetAttribute(Func* f, int a, int v) {
	if (!alive(handles().funcs, f)) return INVALID_HANDLE;
	if (a == 8) {
		if (v < 0 || (size_t)v > MAX_SHARED) return INVALID_VALUE;
		f->max_dynamic = v;
	}
	return a == 8 || a == 9 ? OK : INVALID_VALUE;
}
CU cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, Func* f, int threads, size_t shared) {
	if (!alive(handles().funcs, f)) return INVALID_HANDLE;
	if (threads < 1 || threads > MAXT) return INVALID_VALUE;
	size_t by_threads = 2048 / ((size_t)(threads + 31) / 32 * 32), by_shared = 233472 / (shared + 1024);
	*n = (int)std::min<size_t>({by_threads, by_shared, 32});
	return OK;
}
CU cuLaunchKernel(Func* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, Stream* s, void** params, void** extra) {
	if (CUresult r = entry()) return r;
	if (!alive(handles().funcs, f)) return INVALID_HANDLE;
	const KernelDesc* k = f->k;
	if (!gx || !gy || !gz || !bx || !by || !bz || gx > 0x7fffffffu || gy > 65535 || gz > 65535 || bx > 1024 || by > 1024 || bz > 64 || (uint64_t)bx * by * bz > MAXT)
		return refuse("cuLaunchKernel: %s: grid %u,%u,%u block %u,%u,%u is beyond the limits", k->name, gx, gy, gz, bx, by, bz);
	if (shared > (unsigned)f->max_dynamic)
		return refuse("cuLaunchKernel: %s: %u bytes of dynamic shared memory, the function allows %d (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)", k->name, shared, f->max_dynamic);
	if (extra || (k->nargs && !params)) return INVALID_VALUE;
	Op o;
	o.kind = KERNEL;
	o.k = k;
	o.grid = dim3(gx, gy, gz);
	o.block = dim3(bx, by, bz);
	o.shared = shared;
	size_t n = 0;
	for (int i = 0; i < k->nargs; i++) {
		o.offsets.push_back(n);
		n += (k->sizes[i] + 15) & ~15u;
	}
	o.values.resize(n);
	for (int i = 0; i < k->nargs; i++) memcpy(&o.values[o.offsets[(size_t)i]], params[i], k->sizes[i]);
	return put(s, std::move(o));
}
