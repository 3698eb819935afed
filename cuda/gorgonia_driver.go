//go:build gorgoniacu && !nocuda && cgo && linux && (amd64 || arm64)

package cuda

// #include <cuda.h>
// #include <stdlib.h>
import "C"

import (
	"fmt"
	"reflect"
	"runtime"
	"unsafe"

	"gorgonia.org/cu"
)

// OpenDriver returns the driver through gorgonia.org/cu. That package links libcuda and calls cuInit before main, ending the
// process where it fails, so there is nothing to look for: Options.Driver is not used. What the package lacks (captures,
// executable graphs, page-locked memory, function attributes, parameters over eight bytes) is called by cgo beside it.
func OpenDriver(Options) (Driver, []Probe, error) {
	d := linkedDriver{}
	return d, []Probe{{Where: "linked", Path: "libcuda.so.1"}}, checkVersion(d)
}

type linkedDriver struct{}

// wrong turns the package's error, whose type it keeps to itself, into ours.
func wrong(call string, err error, doing string) error {
	if err == nil {
		return nil
	}
	r := ResultUnknown
	if v := reflect.ValueOf(err); v.Kind() == reflect.Int {
		r = Result(v.Int())
	}
	return &Error{Call: call, Result: r, Doing: doing}
}

func code(call string, r C.CUresult, doing string) error {
	if r == 0 {
		return nil
	}
	return &Error{Call: call, Result: Result(r), Doing: doing}
}

// The package's handles are structures of one pointer; ours are its value.

func streamOf(s Stream) cu.Stream { return *(*cu.Stream)(unsafe.Pointer(&s)) }
func eventOf(e Event) cu.Event    { return *(*cu.Event)(unsafe.Pointer(&e)) }

func (linkedDriver) Library() string { return "libcuda.so.1 (gorgonia.org/cu)" }

func (linkedDriver) Version() (int, error) { return cu.Version(), nil }

func (linkedDriver) DeviceCount() (int, error) {
	n, err := cu.NumDevices()
	return n, wrong("cuDeviceGetCount", err, "")
}

func (linkedDriver) device(ordinal int) (cu.Device, error) {
	d, err := cu.GetDevice(ordinal)
	return d, wrong("cuDeviceGet", err, fmt.Sprintf("device %d", ordinal))
}

func (d linkedDriver) DeviceName(ordinal int) (string, error) {
	dev, err := d.device(ordinal)
	if err != nil {
		return "", err
	}
	s, err := dev.Name()
	return text([]byte(s)), wrong("cuDeviceGetName", err, "")
}

func (d linkedDriver) DeviceUUID(ordinal int) (string, error) {
	dev, err := d.device(ordinal)
	if err != nil {
		return "", err
	}
	var u C.CUuuid
	if err := code("cuDeviceGetUuid_v2", C.cuDeviceGetUuid_v2(&u, C.CUdevice(dev)), ""); err != nil {
		return "", err
	}
	return uuidText(*(*[16]byte)(unsafe.Pointer(&u))), nil
}

func (d linkedDriver) DeviceMemory(ordinal int) (int64, error) {
	dev, err := d.device(ordinal)
	if err != nil {
		return 0, err
	}
	n, err := dev.TotalMem()
	return n, wrong("cuDeviceTotalMem", err, "")
}

func (d linkedDriver) Attribute(ordinal int, a Attribute) (int, error) {
	dev, err := d.device(ordinal)
	if err != nil {
		return 0, err
	}
	v, err := dev.Attribute(cu.DeviceAttribute(a))
	return v, wrong("cuDeviceGetAttribute", err, "")
}

func (d linkedDriver) PrimaryRetain(ordinal int) (Ctx, error) {
	dev, err := d.device(ordinal)
	if err != nil {
		return 0, err
	}
	c, err := dev.RetainPrimaryCtx()
	return *(*Ctx)(unsafe.Pointer(&c)), wrong("cuDevicePrimaryCtxRetain", err, "")
}

func (d linkedDriver) PrimaryRelease(ordinal int) error {
	dev, err := d.device(ordinal)
	if err != nil {
		return err
	}
	return wrong("cuDevicePrimaryCtxRelease", dev.ReleasePrimaryCtx(), "")
}

func (linkedDriver) SetCurrent(c Ctx) error {
	return wrong("cuCtxSetCurrent", cu.SetCurrentContext(*(*cu.CUContext)(unsafe.Pointer(&c))), "")
}

func (linkedDriver) Synchronize() error { return wrong("cuCtxSynchronize", cu.Synchronize(), "") }

func (linkedDriver) MemInfo() (free, total int64, err error) {
	free, total, err = cu.MemInfo()
	return free, total, wrong("cuMemGetInfo", err, "")
}

func (linkedDriver) MemAlloc(bytes int64) (DevicePtr, error) {
	p, err := cu.MemAlloc(bytes)
	return DevicePtr(p), wrong("cuMemAlloc_v2", err, fmt.Sprintf("%d bytes", bytes))
}

func (linkedDriver) MemFree(p DevicePtr) error {
	return wrong("cuMemFree", cu.MemFree(cu.DevicePtr(p)), "")
}

func (linkedDriver) HostAlloc(bytes int64) (unsafe.Pointer, error) {
	var p unsafe.Pointer
	r := C.cuMemHostAlloc(&p, C.size_t(bytes), C.CU_MEMHOSTALLOC_PORTABLE)
	return p, code("cuMemHostAlloc", r, fmt.Sprintf("%d bytes of page-locked memory", bytes))
}

func (linkedDriver) HostFree(p unsafe.Pointer) error {
	return wrong("cuMemFreeHost", cu.MemFreeHost(p), "")
}

func (linkedDriver) CopyToDevice(dst DevicePtr, src unsafe.Pointer, bytes int64, s Stream) error {
	return wrong("cuMemcpyHtoDAsync", cu.MemcpyHtoDAsync(cu.DevicePtr(dst), src, bytes, streamOf(s)), "")
}

func (linkedDriver) CopyToHost(dst unsafe.Pointer, src DevicePtr, bytes int64, s Stream) error {
	return wrong("cuMemcpyDtoHAsync", cu.MemcpyDtoHAsync(dst, cu.DevicePtr(src), bytes, streamOf(s)), "")
}

func (linkedDriver) CopyOnDevice(dst, src DevicePtr, bytes int64, s Stream) error {
	return wrong("cuMemcpyDtoDAsync", cu.MemcpyDtoDAsync(cu.DevicePtr(dst), cu.DevicePtr(src), bytes, streamOf(s)), "")
}

func (linkedDriver) Memset8(p DevicePtr, v byte, bytes int64, s Stream) error {
	return wrong("cuMemsetD8Async", cu.MemsetD8Async(cu.DevicePtr(p), v, bytes, streamOf(s)), "")
}

func (linkedDriver) Memset32(p DevicePtr, v uint32, words int64, s Stream) error {
	return wrong("cuMemsetD32Async", cu.MemsetD32Async(cu.DevicePtr(p), uint(v), words, streamOf(s)), "")
}

// Launch goes to the driver at once: the package's Launch copies eight bytes of each parameter, and a structure is longer.
func (linkedDriver) Launch(l *Launch) error {
	g, b := l.Grid.ones(), l.Block.ones()
	var params *unsafe.Pointer
	if l.n > 0 {
		params = &l.ptrs[0]
	}
	f := *(*C.CUfunction)(unsafe.Pointer(&l.Function))
	r := C.cuLaunchKernel(f, C.uint(g.X), C.uint(g.Y), C.uint(g.Z), C.uint(b.X), C.uint(b.Y), C.uint(b.Z), C.uint(l.Shared),
		*(*C.CUstream)(unsafe.Pointer(&l.Stream)), params, nil)
	runtime.KeepAlive(l)
	if r == 0 {
		return nil
	}
	return code("cuLaunchKernel", r, l.describe())
}
