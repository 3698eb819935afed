// internal.h: what the simulator's own files share. Kernels do not see it.
#pragma once
#include "../sim.h"
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim
#undef __noinline__
#include <atomic>
#include <string>
#include <vector>

// Present when the process runs under AddressSanitizer (LD_PRELOAD=libasan.so).
extern "C" void __asan_poison_memory_region(const volatile void*, size_t) __attribute__((weak));
extern "C" void __asan_unpoison_memory_region(const volatile void*, size_t) __attribute__((weak));

namespace cusim {

enum : size_t { MAX_SHARED = 232448, DYN_CAP = MAX_SHARED + 4096, DEFAULT_SHARED = 48 << 10 };

// Config is what the environment says, read once by the first call.
struct Config {
	size_t memory;       // OMNI_SIM_MEMORY, bytes (suffixes K, M, G)
	int version;         // OMNI_SIM_DRIVER_VERSION, e.g. 12040
	int cc_major, cc_minor; // OMNI_SIM_CC, e.g. 7.5
	int sms;             // OMNI_SIM_SMS
	int threads;         // OMNI_SIM_THREADS, that run blocks
	bool no_device;      // OMNI_SIM_NO_DEVICE
	bool reverse;        // OMNI_SIM_REVERSE: threads in descending order
	bool noop;           // OMNI_SIM_NOOP: kernels do nothing; copies and events do
	bool conflicts;      // OMNI_SIM_CONFLICTS: print bank conflicts when a module is unloaded
	double graph_delay;  // OMNI_SIM_DELAY_MS, seconds added to each graph launch
	double launch_delay; // OMNI_SIM_LAUNCH_DELAY_US, seconds added to each launch outside a graph
	std::string kernels; // OMNI_SIM_KERNELS, the kernels' library in place of a fatbin's
};
const Config& config();
void read_config();

// report prints a line on stderr and keeps it for omniSimReport.
void report(const char* fmt, ...) __attribute__((format(printf, 1, 2)));

struct LaunchSpec {
	const KernelDesc* k;
	dim3 grid, block;
	size_t shared;
	void** params;
};
struct Worker;
Worker* new_worker();
void delete_worker(Worker* w);
// launch runs a kernel's blocks on the calling thread (with its worker) and on the pool. False when the kernel failed.
bool launch(Worker* own, const LaunchSpec& l);

// The checker (check.cpp).
Check* new_check();
void delete_check(Check* c);
void check_begin(Check* c, Block* b, char* tls, size_t tlssize);
void check_end(Check* c, Block* b);
void check_barrier(Block* b);
void print_conflicts();
// static_block finds the block of static shared memory of the kernel's library on the calling thread.
void static_block(const KernelDesc* k, char** start, size_t* size);

} // namespace cusim
