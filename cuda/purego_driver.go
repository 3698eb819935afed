//go:build !nocuda && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"runtime"
	"unsafe"
)

// dynamicDriver is the driver through a libcuda that was loaded at run time.
type dynamicDriver struct {
	library string
	frames

	init, driverGetVersion, deviceGetCount, deviceGet, deviceGetName, deviceGetUUID, deviceTotalMem, deviceGetAttribute proc
	primaryCtxRetain, primaryCtxRelease, ctxSetCurrent, ctxSynchronize                                                  proc
	memGetInfo, memAlloc, memFree, memHostAlloc, memFreeHost                                                            proc
	memcpyHtoD, memcpyDtoH, memcpyDtoD, memsetD8, memsetD32                                                             proc
	streamCreate, streamDestroy, streamSynchronize, streamQuery, streamWaitEvent                                        proc
	eventCreate, eventDestroy, eventRecord, eventSynchronize, eventQuery, eventElapsed                                  proc
	moduleLoad, moduleUnload, moduleGetFunction, funcGetAttribute, funcSetAttribute, occupancy, launchKernel            proc
	beginCapture, endCapture, graphInstantiate, graphExecUpdate, graphLaunch, graphDestroy, graphExecDestroy            proc
}

func (d *dynamicDriver) bindings() []binding {
	return []binding{
		{"cuInit", &d.init}, {"cuDriverGetVersion", &d.driverGetVersion}, {"cuDeviceGetCount", &d.deviceGetCount}, {"cuDeviceGet", &d.deviceGet},
		{"cuDeviceGetName", &d.deviceGetName}, {"cuDeviceGetUuid_v2", &d.deviceGetUUID}, {"cuDeviceTotalMem_v2", &d.deviceTotalMem},
		{"cuDeviceGetAttribute", &d.deviceGetAttribute}, {"cuDevicePrimaryCtxRetain", &d.primaryCtxRetain},
		{"cuDevicePrimaryCtxRelease_v2", &d.primaryCtxRelease}, {"cuCtxSetCurrent", &d.ctxSetCurrent}, {"cuCtxSynchronize", &d.ctxSynchronize},
		{"cuMemGetInfo_v2", &d.memGetInfo}, {"cuMemAlloc_v2", &d.memAlloc}, {"cuMemFree_v2", &d.memFree}, {"cuMemHostAlloc", &d.memHostAlloc},
		{"cuMemFreeHost", &d.memFreeHost}, {"cuMemcpyHtoDAsync_v2", &d.memcpyHtoD}, {"cuMemcpyDtoHAsync_v2", &d.memcpyDtoH},
		{"cuMemcpyDtoDAsync_v2", &d.memcpyDtoD}, {"cuMemsetD8Async", &d.memsetD8}, {"cuMemsetD32Async", &d.memsetD32},
		{"cuStreamCreateWithPriority", &d.streamCreate}, {"cuStreamDestroy_v2", &d.streamDestroy}, {"cuStreamSynchronize", &d.streamSynchronize},
		{"cuStreamQuery", &d.streamQuery}, {"cuStreamWaitEvent", &d.streamWaitEvent}, {"cuEventCreate", &d.eventCreate},
		{"cuEventDestroy_v2", &d.eventDestroy}, {"cuEventRecord", &d.eventRecord}, {"cuEventSynchronize", &d.eventSynchronize},
		{"cuEventQuery", &d.eventQuery}, {"cuEventElapsedTime", &d.eventElapsed}, {"cuModuleLoadDataEx", &d.moduleLoad},
		{"cuModuleUnload", &d.moduleUnload}, {"cuModuleGetFunction", &d.moduleGetFunction}, {"cuFuncGetAttribute", &d.funcGetAttribute},
		{"cuFuncSetAttribute", &d.funcSetAttribute}, {"cuOccupancyMaxActiveBlocksPerMultiprocessor", &d.occupancy},
		{"cuLaunchKernel", &d.launchKernel}, {"cuStreamBeginCapture_v2", &d.beginCapture}, {"cuStreamEndCapture", &d.endCapture},
		{"cuGraphInstantiateWithFlags", &d.graphInstantiate}, {"cuGraphExecUpdate_v2", &d.graphExecUpdate}, {"cuGraphLaunch", &d.graphLaunch},
		{"cuGraphDestroy", &d.graphDestroy}, {"cuGraphExecDestroy", &d.graphExecDestroy},
	}
}

// openDynamic finds libcuda, checks its version before its symbols (an old driver lacks some of them) and initialises it.
func openDynamic(o Options) (Driver, []Probe, error) {
	l := DriverLibrary()
	h, probes, err := systemFinder(dlopen).find(l, o.Driver)
	if err != nil {
		return nil, probes, err
	}
	d := &dynamicDriver{library: probes[len(probes)-1].Path}
	if err := bind(h, d.library, []binding{{"cuInit", &d.init}, {"cuDriverGetVersion", &d.driverGetVersion}}); err != nil {
		return nil, probes, err
	}
	if err := checkVersion(d); err != nil {
		return nil, probes, err
	}
	if err := bind(h, d.library, d.bindings()); err != nil {
		return nil, probes, err
	}
	if err := failed(&d.init, d.init.invoke(0)); err != nil {
		return nil, probes, err
	}
	return d, probes, nil
}

func failed(p *proc, r int32) error {
	if r == 0 {
		return nil
	}
	return &Error{Call: p.name, Result: Result(r)}
}

func failedDoing(p *proc, r int32, format string, a ...any) error {
	if r == 0 {
		return nil
	}
	return &Error{Call: p.name, Result: Result(r), Doing: fmt.Sprintf(format, a...)}
}

func onDevice(p *proc, r int32, ordinal int) error {
	if r == 0 {
		return nil
	}
	return &Error{Call: p.name, Result: Result(r), Device: fmt.Sprintf("device %d", ordinal)}
}

func (d *dynamicDriver) Library() string { return d.library + " (purego)" }

func (d *dynamicDriver) Version() (int, error) {
	var v int32
	err := failed(&d.driverGetVersion, d.driverGetVersion.invoke(uintptr(unsafe.Pointer(&v))))
	return int(v), err
}

func (d *dynamicDriver) DeviceCount() (int, error) {
	var n int32
	err := failed(&d.deviceGetCount, d.deviceGetCount.invoke(uintptr(unsafe.Pointer(&n))))
	return int(n), err
}

func (d *dynamicDriver) device(ordinal int) (uintptr, error) {
	var dev int32
	err := onDevice(&d.deviceGet, d.deviceGet.invoke(uintptr(unsafe.Pointer(&dev)), uintptr(ordinal)), ordinal)
	return uintptr(dev), err
}

func (d *dynamicDriver) DeviceName(ordinal int) (string, error) {
	dev, err := d.device(ordinal)
	if err != nil {
		return "", err
	}
	var buf [256]byte
	if err := onDevice(&d.deviceGetName, d.deviceGetName.invoke(uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), dev), ordinal); err != nil {
		return "", err
	}
	return text(buf[:]), nil
}

func (d *dynamicDriver) DeviceUUID(ordinal int) (string, error) {
	dev, err := d.device(ordinal)
	if err != nil {
		return "", err
	}
	var u [16]byte
	if err := onDevice(&d.deviceGetUUID, d.deviceGetUUID.invoke(uintptr(unsafe.Pointer(&u[0])), dev), ordinal); err != nil {
		return "", err
	}
	return uuidText(u), nil
}

func (d *dynamicDriver) DeviceMemory(ordinal int) (int64, error) {
	dev, err := d.device(ordinal)
	if err != nil {
		return 0, err
	}
	var n uint64
	err = onDevice(&d.deviceTotalMem, d.deviceTotalMem.invoke(uintptr(unsafe.Pointer(&n)), dev), ordinal)
	return int64(n), err
}

func (d *dynamicDriver) Attribute(ordinal int, a Attribute) (int, error) {
	dev, err := d.device(ordinal)
	if err != nil {
		return 0, err
	}
	var v int32
	err = onDevice(&d.deviceGetAttribute, d.deviceGetAttribute.invoke(uintptr(unsafe.Pointer(&v)), uintptr(a), dev), ordinal)
	return int(v), err
}

func (d *dynamicDriver) PrimaryRetain(ordinal int) (Ctx, error) {
	dev, err := d.device(ordinal)
	if err != nil {
		return 0, err
	}
	var c Ctx
	err = onDevice(&d.primaryCtxRetain, d.primaryCtxRetain.invoke(uintptr(unsafe.Pointer(&c)), dev), ordinal)
	return c, err
}

func (d *dynamicDriver) PrimaryRelease(ordinal int) error {
	dev, err := d.device(ordinal)
	if err != nil {
		return err
	}
	return onDevice(&d.primaryCtxRelease, d.primaryCtxRelease.invoke(dev), ordinal)
}

func (d *dynamicDriver) SetCurrent(c Ctx) error {
	return failed(&d.ctxSetCurrent, d.hot(&d.ctxSetCurrent, uintptr(c), 0, 0, 0))
}

func (d *dynamicDriver) Synchronize() error {
	return failed(&d.ctxSynchronize, d.ctxSynchronize.invoke())
}

func (d *dynamicDriver) Launch(l *Launch) error {
	r := d.launchKernel.invoke(l.vector()...)
	runtime.KeepAlive(l)
	if r == 0 {
		return nil
	}
	return &Error{Call: d.launchKernel.name, Result: Result(r), Doing: l.describe()}
}
