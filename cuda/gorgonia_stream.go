//go:build gorgoniacu && !nocuda && cgo && linux && (amd64 || arm64)

package cuda

// #include <cuda.h>
// #include <stdlib.h>
import "C"

import (
	"errors"
	"unsafe"

	"gorgonia.org/cu"
)

func (linkedDriver) StreamCreate(priority int) (Stream, error) {
	s, err := cu.MakeStreamWithPriority(priority, cu.NonBlocking)
	return *(*Stream)(unsafe.Pointer(&s)), wrong("cuStreamCreateWithPriority", err, "")
}

func (linkedDriver) StreamDestroy(s Stream) error {
	x := streamOf(s)
	return wrong("cuStreamDestroy", x.Destroy(), "")
}

func (linkedDriver) StreamSynchronize(s Stream) error {
	return wrong("cuStreamSynchronize", streamOf(s).Synchronize(), "")
}

// ready turns "not ready" into false.
func ready(call string, err error) (bool, error) {
	err = wrong(call, err, "")
	if errors.Is(err, ResultNotReady) {
		return false, nil
	}
	return err == nil, err
}

func (linkedDriver) StreamQuery(s Stream) (bool, error) {
	return ready("cuStreamQuery", streamOf(s).Query())
}

func (linkedDriver) StreamWait(s Stream, e Event) error {
	return wrong("cuStreamWaitEvent", streamOf(s).Wait(eventOf(e), 0), "")
}

func (linkedDriver) EventCreate(timed, blocking bool) (Event, error) {
	flags := cu.DefaultEvent
	if !timed {
		flags |= cu.DisableTiming
	}
	if blocking {
		flags |= cu.BlockingSyncEvent
	}
	e, err := cu.MakeEvent(flags)
	return *(*Event)(unsafe.Pointer(&e)), wrong("cuEventCreate", err, "")
}

func (linkedDriver) EventDestroy(e Event) error {
	x := eventOf(e)
	return wrong("cuEventDestroy", cu.DestroyEvent(&x), "")
}

func (linkedDriver) EventRecord(e Event, s Stream) error {
	return wrong("cuEventRecord", eventOf(e).Record(streamOf(s)), "")
}

func (linkedDriver) EventSynchronize(e Event) error {
	return wrong("cuEventSynchronize", eventOf(e).Synchronize(), "")
}

func (linkedDriver) EventQuery(e Event) (bool, error) {
	return ready("cuEventQuery", eventOf(e).Query())
}

func (linkedDriver) EventElapsed(from, to Event) (float32, error) {
	ms, err := eventOf(from).Elapsed(eventOf(to))
	return float32(ms), wrong("cuEventElapsedTime", err, "")
}

// ModuleLoad calls the driver itself: the package's takes no log.
func (linkedDriver) ModuleLoad(image []byte) (Module, error) {
	if len(image) == 0 {
		return 0, &Error{Call: "cuModuleLoadDataEx", Result: ResultInvalidImage, Doing: "0 bytes"}
	}
	image = append(image[:len(image):len(image)], 0)
	const size = 8 << 10
	log := C.calloc(1, size)
	defer C.free(log)
	options := [2]C.CUjit_option{C.CU_JIT_ERROR_LOG_BUFFER, C.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES}
	values := [2]uintptr{uintptr(log), size}
	var m C.CUmodule
	if r := C.cuModuleLoadDataEx(&m, unsafe.Pointer(&image[0]), 2, &options[0], (*unsafe.Pointer)(unsafe.Pointer(&values[0]))); r != 0 {
		return 0, &Error{Call: "cuModuleLoadDataEx", Result: Result(r), Details: C.GoString((*C.char)(log))}
	}
	return Module(unsafe.Pointer(m)), nil
}

func (linkedDriver) ModuleUnload(m Module) error {
	return code("cuModuleUnload", C.cuModuleUnload(*(*C.CUmodule)(unsafe.Pointer(&m))), "")
}

func (linkedDriver) ModuleFunction(m Module, name string) (Function, error) {
	f, err := (*(*cu.Module)(unsafe.Pointer(&m))).Function(name)
	return *(*Function)(unsafe.Pointer(&f)), wrong("cuModuleGetFunction", err, "kernel "+name)
}

func (linkedDriver) FuncAttribute(f Function, a FuncAttribute) (int, error) {
	v, err := (*(*cu.Function)(unsafe.Pointer(&f))).Attribute(cu.FunctionAttribute(a))
	return v, wrong("cuFuncGetAttribute", err, "")
}

func (linkedDriver) SetFuncAttribute(f Function, a FuncAttribute, v int) error {
	return code("cuFuncSetAttribute", C.cuFuncSetAttribute(*(*C.CUfunction)(unsafe.Pointer(&f)), C.CUfunction_attribute(a), C.int(v)), "")
}

func (linkedDriver) Occupancy(f Function, threads, sharedBytes int) (int, error) {
	n, err := (*(*cu.Function)(unsafe.Pointer(&f))).MaxActiveBlocksPerMultiProcessor(threads, int64(sharedBytes))
	return n, wrong("cuOccupancyMaxActiveBlocksPerMultiprocessor", err, "")
}

func (linkedDriver) CaptureBegin(s Stream) error {
	return code("cuStreamBeginCapture", C.cuStreamBeginCapture(*(*C.CUstream)(unsafe.Pointer(&s)), C.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "")
}

func (linkedDriver) CaptureEnd(s Stream) (Graph, error) {
	var g C.CUgraph
	r := C.cuStreamEndCapture(*(*C.CUstream)(unsafe.Pointer(&s)), &g)
	return Graph(unsafe.Pointer(g)), code("cuStreamEndCapture", r, "")
}

func (linkedDriver) GraphInstantiate(g Graph) (GraphExec, error) {
	var e C.CUgraphExec
	r := C.cuGraphInstantiateWithFlags(&e, *(*C.CUgraph)(unsafe.Pointer(&g)), 0)
	return GraphExec(unsafe.Pointer(e)), code("cuGraphInstantiateWithFlags", r, "")
}

func (linkedDriver) GraphUpdate(e GraphExec, g Graph) error {
	var info C.CUgraphExecUpdateResultInfo
	return code("cuGraphExecUpdate", C.cuGraphExecUpdate_v2(*(*C.CUgraphExec)(unsafe.Pointer(&e)), *(*C.CUgraph)(unsafe.Pointer(&g)), &info), "")
}

func (linkedDriver) GraphLaunch(e GraphExec, s Stream) error {
	return code("cuGraphLaunch", C.cuGraphLaunch(*(*C.CUgraphExec)(unsafe.Pointer(&e)), *(*C.CUstream)(unsafe.Pointer(&s))), "")
}

func (linkedDriver) GraphDestroy(g Graph) error {
	return code("cuGraphDestroy", C.cuGraphDestroy(*(*C.CUgraph)(unsafe.Pointer(&g))), "")
}

func (linkedDriver) GraphExecDestroy(e GraphExec) error {
	return code("cuGraphExecDestroy", C.cuGraphExecDestroy(*(*C.CUgraphExec)(unsafe.Pointer(&e))), "")
}
