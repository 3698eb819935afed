// stream.cpp: streams (a thread each, in order), events, captures and graphs of the software libcuda.
#include "driver.h"
#include <signal.h>

namespace cusim {

std::mutex events_m;
std::condition_variable events_cv;
static std::mutex capture_m;
static std::set<Capture*> captures; // under capture_m

static void pause(double seconds) {
	if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

static bool run_kernel(Worker* w, const Op& o) {
	// A copy: parameters are writable by the kernel, and a graph's are used again.
	std::vector<unsigned char> values = o.values;
	std::vector<void*> ptrs;
	for (size_t off : o.offsets) ptrs.push_back(values.data() + off);
	LaunchSpec l{o.k, o.grid, o.block, o.shared, ptrs.data()};
	return launch(w, l);
}

static void run(Worker* w, const Op& o, bool in_graph);
static void run_graph(Worker* w, const Op& o) {
	pause(config().graph_delay);
	for (const Op& x : *o.graph) run(w, x, true);
}

static void run(Worker* w, const Op& o, bool in_graph) {
	switch (o.kind) {
	case RECORD: { // also after a failure: nobody may wait forever
		std::lock_guard<std::mutex> l(events_m);
		if (o.number > o.event->completed) o.event->completed = o.number;
		o.event->at = Clock::now();
		events_cv.notify_all();
		return;
	}
	case WAIT: {
		std::unique_lock<std::mutex> l(events_m);
		events_cv.wait(l, [&] { return o.event->completed >= o.number; });
		return;
	}
	default:
		break;
	}
	if (broken) return;
	switch (o.kind) {
	case KERNEL:
		if (!in_graph) pause(config().launch_delay);
		if (!run_kernel(w, o)) broken = true;
		break;
	case COPY_IN:
	case COPY_OUT:
		memcpy(o.dst, o.src, o.n);
		break;
	case COPY_DEVICE:
		memmove(o.dst, o.src, o.n);
		break;
	case FILL8:
		memset(o.dst, (int)o.v, o.n);
		break;
	case FILL32:
		for (size_t i = 0; i < o.n; i++) ((uint32_t*)o.dst)[i] = o.v;
		break;
	case HOST:
		if (!config().noop) o.host(o.values.data());
		break;
	case GRAPH:
		run_graph(w, o);
		break;
	default:
		break;
	}
}

static void stream_main(Stream* s) {
	Worker* w = new_worker();
	std::unique_lock<std::mutex> l(s->m);
	for (;;) {
		s->busy = false;
		if (s->queue.empty()) s->idle.notify_all();
		s->wake.wait(l, [&] { return s->stop || !s->queue.empty(); });
		if (s->queue.empty()) break;
		Op o = std::move(s->queue.front());
		s->queue.pop_front();
		s->busy = true;
		l.unlock();
		run(w, o, false);
		l.lock();
	}
	l.unlock();
	delete_worker(w);
}

static void begin(Stream* s) {
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	s->thread = std::thread(stream_main, s);
	pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

CUresult stream_wait_idle(Stream* s) {
	std::unique_lock<std::mutex> l(s->m);
	s->idle.wait(l, [&] { return s->queue.empty() && !s->busy; });
	return broken ? LAUNCH_FAILED : OK;
}

bool forbid_in_capture(const char* call) {
	std::lock_guard<std::mutex> l(capture_m);
	for (Capture* c : captures)
		if (c->thread == std::this_thread::get_id()) {
			c->invalid = true;
			report("%s during a capture: the capture is invalid", call);
			return true;
		}
	return false;
}

EventRef event_of(void* p) {
	std::lock_guard<std::mutex> l(handles().m);
	auto i = handles().events.find(p);
	return i == handles().events.end() ? nullptr : i->second;
}

static CUresult check_stream(Stream* s) {
	if (!s) return refuse("the legacy default stream is not used here: it would serialise all others"), (CUresult)INVALID_HANDLE;
	return alive(handles().streams, s) ? OK : INVALID_HANDLE;
}

CUresult put(Stream* s, Op op) {
	if (CUresult r = check_stream(s)) return r;
	{
		std::lock_guard<std::mutex> l(capture_m);
		if (CaptureRef c = s->capture) {
			if (c->thread != std::this_thread::get_id()) return CAPTURE_WRONG_THREAD;
			if (c->invalid) return CAPTURE_INVALIDATED;
			if (op.kind == GRAPH) {
				for (const Op& x : *op.graph) c->ops.push_back(x); // a child graph
				return OK;
			}
			if (s != c->origin) c->unjoined.insert(s);
			c->ops.push_back(std::move(op));
			return OK;
		}
	}
	std::lock_guard<std::mutex> l(s->m);
	s->queue.push_back(std::move(op));
	s->wake.notify_one();
	return OK;
}

// stream_end runs what is queued, ends the stream's thread and frees it. The handle is out of use already.
void stream_end(Stream* s) {
	{
		std::lock_guard<std::mutex> l(s->m);
		s->stop = true;
		s->wake.notify_all();
	}
	s->thread.join();
	delete s;
}

// invalidate_if_capturing is what a wait or query on a capturing stream does.
static bool invalidate_if_capturing(Stream* s) {
	std::lock_guard<std::mutex> l(capture_m);
	if (!s->capture) return false;
	s->capture->invalid = true;
	return true;
}

} // namespace cusim
using namespace cusim;

CU cuStreamCreateWithPriority(Stream** s, unsigned, int) {
	if (CUresult r = entry()) return r;
	*s = new Stream;
	begin(*s);
	std::lock_guard<std::mutex> l(handles().m);
	handles().streams.insert(*s);
	return OK;
}
CU cuStreamCreate(Stream** s, unsigned flags) { return cuStreamCreateWithPriority(s, flags, 0); }
CU cuStreamDestroy_v2(Stream* s) {
	{
		std::lock_guard<std::mutex> l(handles().m);
		if (!handles().streams.erase(s)) return INVALID_HANDLE;
	}
	stream_end(s);
	return OK;
}
CU cuStreamSynchronize(Stream* s) {
	if (CUresult r = entry()) return r;
	if (CUresult r = check_stream(s)) return r;
	if (invalidate_if_capturing(s)) return CAPTURE_UNSUPPORTED;
	return stream_wait_idle(s);
}
CU cuStreamQuery(Stream* s) {
	if (CUresult r = entry()) return r;
	if (CUresult r = check_stream(s)) return r;
	if (invalidate_if_capturing(s)) return CAPTURE_UNSUPPORTED;
	std::lock_guard<std::mutex> l(s->m);
	if (broken) return LAUNCH_FAILED;
	return s->queue.empty() && !s->busy ? OK : NOT_READY;
}
CU cuCtxSynchronize() {
	if (CUresult r = entry()) return r;
	if (forbid_in_capture("cuCtxSynchronize")) return CAPTURE_UNSUPPORTED;
	std::vector<void*> all;
	{
		std::lock_guard<std::mutex> l(handles().m);
		all.assign(handles().streams.begin(), handles().streams.end());
	}
	for (void* s : all) stream_wait_idle((Stream*)s);
	return broken ? LAUNCH_FAILED : OK;
}

CU cuEventCreate(void** e, unsigned flags) {
	if (CUresult r = entry()) return r;
	auto ref = std::make_shared<Event>();
	ref->blocking = flags & 1;
	ref->timed = !(flags & 2);
	*e = ref.get();
	std::lock_guard<std::mutex> l(handles().m);
	handles().events[*e] = ref;
	return OK;
}
CU cuEventDestroy_v2(void* e) {
	std::lock_guard<std::mutex> l(handles().m);
	return handles().events.erase(e) ? OK : INVALID_HANDLE;
}
CU cuEventRecord(void* e, Stream* s) {
	if (CUresult r = entry()) return r;
	EventRef ref = event_of(e);
	if (!ref) return INVALID_HANDLE;
	if (CUresult r = check_stream(s)) return r;
	{
		std::lock_guard<std::mutex> l(capture_m);
		ref->capture = s->capture;
		ref->from = s;
		if (s->capture) return s->capture->invalid ? CAPTURE_INVALIDATED : OK; // an edge of the graph, no node
	}
	Op o;
	o.kind = RECORD;
	o.event = ref;
	{
		std::lock_guard<std::mutex> l(events_m);
		o.number = ++ref->recorded;
	}
	return put(s, std::move(o));
}
CU cuStreamWaitEvent(Stream* s, void* e, unsigned) {
	if (CUresult r = entry()) return r;
	EventRef ref = event_of(e);
	if (!ref) return INVALID_HANDLE;
	if (CUresult r = check_stream(s)) return r;
	{
		std::lock_guard<std::mutex> l(capture_m);
		CaptureRef c = ref->capture;
		if (c && !captures.count(c.get())) c = nullptr;
		if (c && s->capture && s->capture != c) return CUresult(902); // merge of two captures
		if (c) { // the stream joins the capture, or what is on the other one is waited for
			if (s != c->origin) {
				s->capture = c;
				c->streams.insert(s);
			}
			c->unjoined.erase(ref->from);
			return OK;
		}
		if (s->capture) { // waiting inside a graph for work outside it
			s->capture->invalid = true;
			return CUresult(905);
		}
	}
	Op o;
	o.kind = WAIT;
	o.event = ref;
	{
		std::lock_guard<std::mutex> l(events_m);
		o.number = ref->recorded;
	}
	return o.number ? put(s, std::move(o)) : OK;
}
static CUresult captured(EventRef& ref) {
	std::lock_guard<std::mutex> l(capture_m);
	return ref->capture ? CAPTURED_EVENT : OK;
}
CU cuEventSynchronize(void* e) {
	if (CUresult r = entry()) return r;
	EventRef ref = event_of(e);
	if (!ref) return INVALID_HANDLE;
	if (CUresult r = captured(ref)) return r;
	std::unique_lock<std::mutex> l(events_m);
	uint64_t n = ref->recorded;
	events_cv.wait(l, [&] { return ref->completed >= n; });
	return broken ? LAUNCH_FAILED : OK;
}
CU cuEventQuery(void* e) {
	if (CUresult r = entry()) return r;
	EventRef ref = event_of(e);
	if (!ref) return INVALID_HANDLE;
	if (CUresult r = captured(ref)) return r;
	std::lock_guard<std::mutex> l(events_m);
	return ref->completed >= ref->recorded ? OK : NOT_READY;
}
CU cuEventElapsedTime(float* ms, void* a, void* b) {
	EventRef x = event_of(a), y = event_of(b);
	if (!x || !y || !x->timed || !y->timed) return INVALID_HANDLE;
	std::lock_guard<std::mutex> l(events_m);
	if (!x->recorded || !y->recorded) return INVALID_HANDLE;
	if (x->completed < x->recorded || y->completed < y->recorded) return NOT_READY;
	*ms = std::chrono::duration<float, std::milli>(y->at - x->at).count();
	return OK;
}

CU cuStreamBeginCapture_v2(Stream* s, int) {
	if (CUresult r = entry()) return r;
	if (CUresult r = check_stream(s)) return r;
	std::lock_guard<std::mutex> l(capture_m);
	if (s->capture) return CUresult(401);
	auto c = std::make_shared<Capture>();
	c->thread = std::this_thread::get_id();
	c->origin = s;
	c->streams.insert(s);
	s->capture = c;
	captures.insert(c.get());
	return OK;
}
CU cuStreamEndCapture(Stream* s, Graph** g) {
	if (CUresult r = entry()) return r;
	if (CUresult r = check_stream(s)) return r;
	std::lock_guard<std::mutex> l(capture_m);
	CaptureRef c = s->capture;
	*g = nullptr;
	if (!c) return CUresult(401);
	if (c->origin != s) return CAPTURE_UNMATCHED;
	if (c->thread != std::this_thread::get_id()) return CAPTURE_WRONG_THREAD;
	for (Stream* x : c->streams) x->capture = nullptr;
	captures.erase(c.get());
	if (c->invalid) return CAPTURE_INVALIDATED;
	if (!c->unjoined.empty()) return CAPTURE_UNJOINED;
	*g = new Graph{std::move(c->ops)};
	std::lock_guard<std::mutex> h(handles().m);
	handles().graphs.insert(*g);
	return OK;
}
CU cuStreamIsCapturing(Stream* s, int* status) {
	if (CUresult r = check_stream(s)) return r;
	std::lock_guard<std::mutex> l(capture_m);
	*status = !s->capture ? 0 : s->capture->invalid ? 2 : 1;
	return OK;
}
CU cuGraphInstantiateWithFlags(GraphExec** e, Graph* g, unsigned long long) {
	if (CUresult r = entry()) return r;
	if (!alive(handles().graphs, g)) return INVALID_HANDLE;
	if (forbid_in_capture("cuGraphInstantiate")) return CAPTURE_UNSUPPORTED;
	*e = new GraphExec;
	(*e)->ops = std::make_shared<const std::vector<Op>>(g->ops);
	std::lock_guard<std::mutex> l(handles().m);
	handles().execs.insert(*e);
	return OK;
}
CU cuGraphExecUpdate_v2(GraphExec* e, Graph* g, void* info) {
	if (CUresult r = entry()) return r;
	if (!alive(handles().graphs, g) || !alive(handles().execs, e)) return INVALID_HANDLE;
	std::lock_guard<std::mutex> l(e->m);
	bool same = e->ops->size() == g->ops.size();
	for (size_t i = 0; same && i < g->ops.size(); i++) same = (*e->ops)[i].kind == g->ops[i].kind && (*e->ops)[i].k == g->ops[i].k;
	*(int*)info = same ? 0 : 2; // CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED
	if (!same) return UPDATE_FAILURE;
	e->ops = std::make_shared<const std::vector<Op>>(g->ops); // launches that are queued keep the old one
	return OK;
}
CU cuGraphLaunch(GraphExec* e, Stream* s) {
	if (CUresult r = entry()) return r;
	if (!alive(handles().execs, e)) return INVALID_HANDLE;
	Op o;
	o.kind = GRAPH;
	{
		std::lock_guard<std::mutex> l(e->m);
		o.graph = e->ops;
	}
	return put(s, std::move(o));
}
CU cuGraphDestroy(Graph* g) {
	{
		std::lock_guard<std::mutex> l(handles().m);
		if (!handles().graphs.erase(g)) return INVALID_HANDLE;
	}
	delete g;
	return OK;
}
CU cuGraphExecDestroy(GraphExec* e) {
	{
		std::lock_guard<std::mutex> l(handles().m);
		if (!handles().execs.erase(e)) return INVALID_HANDLE;
	}
	delete e;
	return OK;
}
CU cuGraphGetNodes(Graph* g, void**, size_t* n) { // the number alone
	if (!alive(handles().graphs, g)) return INVALID_HANDLE;
	*n = g->ops.size();
	return OK;
}

// omniSimEnqueue puts work of a stand-in library on a stream; n bytes of its parameters are copied.
CU omniSimEnqueue(Stream* s, void (*f)(const void*), const void* data, size_t n) {
	if (CUresult r = entry()) return r;
	Op o;
	o.kind = HOST;
	o.host = f;
	o.values.assign((const unsigned char*)data, (const unsigned char*)data + n);
	return put(s, std::move(o));
}
