// driver.h: what the files that answer the driver API share.
#pragma once
#include "internal.h"
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

typedef int CUresult;
typedef uint64_t CUdeviceptr;
enum {
	OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
	INVALID_CONTEXT = 201, NO_BINARY = 209, FILE_NOT_FOUND = 301, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, LAUNCH_FAILED = 719,
	NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_UNMATCHED = 903, CAPTURE_UNJOINED = 904,
	CAPTURED_EVENT = 907, CAPTURE_WRONG_THREAD = 908, UPDATE_FAILURE = 910
};
#define CU extern "C" __attribute__((visibility("default"))) CUresult

namespace cusim {

typedef std::chrono::steady_clock Clock;

struct Func {
	const KernelDesc* k;
	int max_dynamic = DEFAULT_SHARED;
};
struct Module {
	void* dl;
	std::map<std::string, Func*> funcs;
};

struct Event {
	bool timed, blocking;
	uint64_t recorded = 0, completed = 0; // by number of records; under events_m
	Clock::time_point at;
	std::shared_ptr<struct Capture> capture; // set while its last record is part of a capture
	struct Stream* from = nullptr;
};
typedef std::shared_ptr<Event> EventRef;
extern std::mutex events_m;
extern std::condition_variable events_cv;

enum Kind { KERNEL, COPY_IN, COPY_OUT, COPY_DEVICE, FILL8, FILL32, RECORD, WAIT, GRAPH, HOST };
struct Op {
	Kind kind;
	// KERNEL
	const KernelDesc* k = nullptr;
	dim3 grid, block;
	size_t shared = 0;
	std::vector<unsigned char> values; // parameters by value
	std::vector<size_t> offsets;
	void (*host)(const void*) = nullptr; // HOST, with values
	// copies and fills
	void* dst = nullptr;
	const void* src = nullptr;
	size_t n = 0;
	uint32_t v = 0;
	// RECORD, WAIT
	EventRef event;
	uint64_t number = 0;
	// GRAPH
	std::shared_ptr<const std::vector<Op>> graph;
};

// Capture is a recording that spans the origin stream and those that joined it by events. Order of capture is a valid order.
struct Capture {
	std::thread::id thread;
	Stream* origin;
	std::set<Stream*> streams;
	std::set<Stream*> unjoined; // other than origin, with work that origin does not wait for yet
	bool invalid = false;
	std::vector<Op> ops;
};
typedef std::shared_ptr<Capture> CaptureRef;

struct Stream {
	std::mutex m;
	std::condition_variable wake, idle;
	std::deque<Op> queue;
	bool busy = false, stop = false;
	CaptureRef capture; // under capture_m
	std::thread thread;
};

struct Graph {
	std::vector<Op> ops;
};
struct GraphExec {
	std::mutex m;
	std::shared_ptr<const std::vector<Op>> ops;
};

// Handles that were given out and not destroyed: a stale handle is an error, not a crash.
struct Handles {
	std::mutex m;
	std::set<void*> streams, modules, funcs, graphs, execs;
	std::map<void*, EventRef> events;
	std::map<uintptr_t, size_t> device, host; // allocations
	size_t used = 0;
};
Handles& handles();

extern std::atomic<bool> initialised, broken;
// entry is what every call that needs a context checks first: 0, or what it has to return.
CUresult entry();
// capturing reports whether the calling thread has a capture, which calls that are unsafe in one invalidate.
bool forbid_in_capture(const char* call);
bool alive(std::set<void*>& s, void* p);
EventRef event_of(void* p);
// put runs an operation on a stream, or records it.
CUresult put(Stream* s, Op op);
CUresult stream_wait_idle(Stream* s);
void stream_end(Stream* s);
CUresult refuse(const char* fmt, ...) __attribute__((format(printf, 1, 2)));

} // namespace cusim
