//go:build !nocuda && linux && (amd64 || arm64)

package cuda

import (
	"runtime"
	"unsafe"
)

const (
	streamNonBlocking   = 1
	eventBlockingSync   = 1
	eventDisableTiming  = 2
	captureThreadLocal  = 1
	jitErrorLogBuffer   = 5
	jitErrorLogSize     = 6
	jitLog              = 8 << 10
	graphUpdateInfoSize = 24
)

func (d *dynamicDriver) StreamCreate(priority int) (Stream, error) {
	var s Stream
	err := failed(&d.streamCreate, d.streamCreate.invoke(uintptr(unsafe.Pointer(&s)), streamNonBlocking, uintptr(priority)))
	return s, err
}

func (d *dynamicDriver) StreamDestroy(s Stream) error {
	return failed(&d.streamDestroy, d.streamDestroy.invoke(uintptr(s)))
}

func (d *dynamicDriver) StreamSynchronize(s Stream) error {
	return failed(&d.streamSynchronize, d.hot(&d.streamSynchronize, uintptr(s), 0, 0, 0))
}

func (d *dynamicDriver) StreamQuery(s Stream) (bool, error) {
	return queried(&d.streamQuery, d.hot(&d.streamQuery, uintptr(s), 0, 0, 0))
}

func queried(p *proc, r int32) (bool, error) {
	if Result(r) == ResultNotReady {
		return false, nil
	}
	return r == 0, failed(p, r)
}

func (d *dynamicDriver) StreamWait(s Stream, e Event) error {
	return failed(&d.streamWaitEvent, d.hot(&d.streamWaitEvent, uintptr(s), uintptr(e), 0, 0))
}

func (d *dynamicDriver) EventCreate(timed, blocking bool) (Event, error) {
	var e Event
	flags := uintptr(0)
	if !timed {
		flags |= eventDisableTiming
	}
	if blocking {
		flags |= eventBlockingSync
	}
	err := failed(&d.eventCreate, d.eventCreate.invoke(uintptr(unsafe.Pointer(&e)), flags))
	return e, err
}

func (d *dynamicDriver) EventDestroy(e Event) error {
	return failed(&d.eventDestroy, d.eventDestroy.invoke(uintptr(e)))
}

func (d *dynamicDriver) EventRecord(e Event, s Stream) error {
	return failed(&d.eventRecord, d.hot(&d.eventRecord, uintptr(e), uintptr(s), 0, 0))
}

func (d *dynamicDriver) EventSynchronize(e Event) error {
	return failed(&d.eventSynchronize, d.hot(&d.eventSynchronize, uintptr(e), 0, 0, 0))
}

func (d *dynamicDriver) EventQuery(e Event) (bool, error) {
	return queried(&d.eventQuery, d.hot(&d.eventQuery, uintptr(e), 0, 0, 0))
}

func (d *dynamicDriver) EventElapsed(from, to Event) (float32, error) {
	var ms float32
	err := failed(&d.eventElapsed, d.eventElapsed.invoke(uintptr(unsafe.Pointer(&ms)), uintptr(from), uintptr(to)))
	return ms, err
}

func (d *dynamicDriver) ModuleLoad(image []byte) (Module, error) {
	if len(image) == 0 {
		return 0, &Error{Call: d.moduleLoad.name, Result: ResultInvalidImage, Doing: "0 bytes"}
	}
	// PTX is text that ends with a zero byte; a fatbin knows its size and does not mind one.
	image = append(image[:len(image):len(image)], 0)
	var m Module
	log := make([]byte, jitLog)
	var pin runtime.Pinner // values holds its address as a number, which keeps nothing
	pin.Pin(&log[0])
	defer pin.Unpin()
	options := []uint32{jitErrorLogBuffer, jitErrorLogSize}
	values := []uintptr{uintptr(unsafe.Pointer(&log[0])), jitLog}
	r := d.moduleLoad.invoke(uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&image[0])), uintptr(len(options)),
		uintptr(unsafe.Pointer(&options[0])), uintptr(unsafe.Pointer(&values[0])))
	if r != 0 {
		return 0, &Error{Call: d.moduleLoad.name, Result: Result(r), Details: text(log)}
	}
	return m, nil
}

func (d *dynamicDriver) ModuleUnload(m Module) error {
	return failed(&d.moduleUnload, d.moduleUnload.invoke(uintptr(m)))
}

func (d *dynamicDriver) ModuleFunction(m Module, name string) (Function, error) {
	var f Function
	c := append([]byte(name), 0)
	err := failedDoing(&d.moduleGetFunction, d.moduleGetFunction.invoke(uintptr(unsafe.Pointer(&f)), uintptr(m), uintptr(unsafe.Pointer(&c[0]))), "kernel %s", name)
	return f, err
}

func (d *dynamicDriver) FuncAttribute(f Function, a FuncAttribute) (int, error) {
	var v int32
	err := failed(&d.funcGetAttribute, d.funcGetAttribute.invoke(uintptr(unsafe.Pointer(&v)), uintptr(a), uintptr(f)))
	return int(v), err
}

func (d *dynamicDriver) SetFuncAttribute(f Function, a FuncAttribute, v int) error {
	return failedDoing(&d.funcSetAttribute, d.funcSetAttribute.invoke(uintptr(f), uintptr(a), uintptr(v)), "attribute %d to %d", a, v)
}

func (d *dynamicDriver) Occupancy(f Function, threads, sharedBytes int) (int, error) {
	var n int32
	err := failed(&d.occupancy, d.occupancy.invoke(uintptr(unsafe.Pointer(&n)), uintptr(f), uintptr(threads), uintptr(sharedBytes)))
	return int(n), err
}

func (d *dynamicDriver) CaptureBegin(s Stream) error {
	return failed(&d.beginCapture, d.beginCapture.invoke(uintptr(s), captureThreadLocal))
}

func (d *dynamicDriver) CaptureEnd(s Stream) (Graph, error) {
	var g Graph
	err := failed(&d.endCapture, d.endCapture.invoke(uintptr(s), uintptr(unsafe.Pointer(&g))))
	return g, err
}

func (d *dynamicDriver) GraphInstantiate(g Graph) (GraphExec, error) {
	var e GraphExec
	err := failed(&d.graphInstantiate, d.graphInstantiate.invoke(uintptr(unsafe.Pointer(&e)), uintptr(g), 0))
	return e, err
}

func (d *dynamicDriver) GraphUpdate(e GraphExec, g Graph) error {
	var info [graphUpdateInfoSize / 8]uint64
	return failed(&d.graphExecUpdate, d.graphExecUpdate.invoke(uintptr(e), uintptr(g), uintptr(unsafe.Pointer(&info[0]))))
}

func (d *dynamicDriver) GraphLaunch(e GraphExec, s Stream) error {
	return failed(&d.graphLaunch, d.hot(&d.graphLaunch, uintptr(e), uintptr(s), 0, 0))
}

func (d *dynamicDriver) GraphDestroy(g Graph) error {
	return failed(&d.graphDestroy, d.graphDestroy.invoke(uintptr(g)))
}

func (d *dynamicDriver) GraphExecDestroy(e GraphExec) error {
	return failed(&d.graphExecDestroy, d.graphExecDestroy.invoke(uintptr(e)))
}
