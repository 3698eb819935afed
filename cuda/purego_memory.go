//go:build !nocuda && linux && (amd64 || arm64)

package cuda

import "unsafe"

// hostPortable is CU_MEMHOSTALLOC_PORTABLE: page-locked for every context.
const hostPortable = 1

func (d *dynamicDriver) MemInfo() (free, total int64, err error) {
	var f, t uint64
	err = failed(&d.memGetInfo, d.memGetInfo.invoke(uintptr(unsafe.Pointer(&f)), uintptr(unsafe.Pointer(&t))))
	return int64(f), int64(t), err
}

func (d *dynamicDriver) MemAlloc(bytes int64) (DevicePtr, error) {
	var p DevicePtr
	err := failedDoing(&d.memAlloc, d.memAlloc.invoke(uintptr(unsafe.Pointer(&p)), uintptr(bytes)), "%d bytes", bytes)
	return p, err
}

func (d *dynamicDriver) MemFree(p DevicePtr) error {
	return failed(&d.memFree, d.memFree.invoke(uintptr(p)))
}

func (d *dynamicDriver) HostAlloc(bytes int64) (unsafe.Pointer, error) {
	var p unsafe.Pointer
	err := failedDoing(&d.memHostAlloc, d.memHostAlloc.invoke(uintptr(unsafe.Pointer(&p)), uintptr(bytes), hostPortable), "%d bytes of page-locked memory", bytes)
	return p, err
}

func (d *dynamicDriver) HostFree(p unsafe.Pointer) error {
	return failed(&d.memFreeHost, d.memFreeHost.invoke(uintptr(p)))
}

// The copies below check their result before they name the sizes: naming allocates.

func (d *dynamicDriver) CopyToDevice(dst DevicePtr, src unsafe.Pointer, bytes int64, s Stream) error {
	return copied(&d.memcpyHtoD, d.hot(&d.memcpyHtoD, uintptr(dst), uintptr(src), uintptr(bytes), uintptr(s)), bytes)
}

func (d *dynamicDriver) CopyToHost(dst unsafe.Pointer, src DevicePtr, bytes int64, s Stream) error {
	return copied(&d.memcpyDtoH, d.hot(&d.memcpyDtoH, uintptr(dst), uintptr(src), uintptr(bytes), uintptr(s)), bytes)
}

func (d *dynamicDriver) CopyOnDevice(dst, src DevicePtr, bytes int64, s Stream) error {
	return copied(&d.memcpyDtoD, d.hot(&d.memcpyDtoD, uintptr(dst), uintptr(src), uintptr(bytes), uintptr(s)), bytes)
}

func copied(p *proc, r int32, bytes int64) error {
	if r == 0 {
		return nil
	}
	return failedDoing(p, r, "%d bytes", bytes)
}

func (d *dynamicDriver) Memset8(p DevicePtr, v byte, bytes int64, s Stream) error {
	return copied(&d.memsetD8, d.hot(&d.memsetD8, uintptr(p), uintptr(v), uintptr(bytes), uintptr(s)), bytes)
}

func (d *dynamicDriver) Memset32(p DevicePtr, v uint32, words int64, s Stream) error {
	return copied(&d.memsetD32, d.hot(&d.memsetD32, uintptr(p), uintptr(v), uintptr(words), uintptr(s)), 4*words)
}
