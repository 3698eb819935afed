package gpu

import (
	"errors"
	"fmt"
	"unsafe"

	"omni-engine/cuda"
	"omni-engine/kernels"
)

// align is the distance between two pieces of device memory: what vector loads and asynchronous copies want, with room to spare.
const align = 256

func roundUp(n int64) int64 { return (n + align - 1) &^ (align - 1) }

// layout hands out offsets of one allocation that is made later.
type layout struct{ size int64 }

// take returns the offset of n bytes.
func (l *layout) take(n int64) int64 {
	at := l.size
	l.size += roundUp(max(n, 1))
	return at
}

// block is one allocation on the device.
type block struct {
	dev  *device
	base cuda.DevicePtr
	size int64
}

// alloc takes device memory; what is there is not defined.
func (d *device) alloc(what string, size int64) (*block, error) {
	b := &block{dev: d, size: max(size, align)}
	err := d.cuda.Do(func() (err error) {
		b.base, err = d.cuda.MemAlloc(b.size)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("taking %d bytes for %s: %w", b.size, what, classed(err))
	}
	return b, nil
}

// classed adds what a driver's error means to the engine.
func classed(err error) error {
	var r cuda.Result
	if !errors.As(err, &r) {
		return err
	}
	switch r {
	case cuda.ResultOutOfMemory:
		return fmt.Errorf("%w: %w", kernels.ErrOutOfMemory, err)
	case cuda.ResultIllegalAddress, cuda.ResultLaunchFailed, cuda.ResultInvalidContext, cuda.ResultUnknown:
		return fmt.Errorf("%w: %w", kernels.ErrLost, err) // sticky: every later call fails
	}
	return err
}

func (b *block) at(offset int64) cuda.DevicePtr { return b.base.Add(offset) }

func (b *block) free() error {
	if b == nil || b.base == 0 {
		return nil
	}
	err := b.dev.cuda.Do(func() error { return b.dev.cuda.MemFree(b.base) })
	b.base = 0
	return err
}

// pinned is page-locked host memory.
type pinned struct {
	dev  *device
	p    unsafe.Pointer
	size int64
}

func (d *device) pin(what string, size int64) (*pinned, error) {
	h := &pinned{dev: d, size: max(size, align)}
	err := d.cuda.Do(func() (err error) {
		h.p, err = d.cuda.HostAlloc(h.size)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("taking %d bytes of page-locked memory for %s: %w", h.size, what, err)
	}
	clear(unsafe.Slice((*byte)(h.p), h.size))
	return h, nil
}

func (h *pinned) bytes() []byte { return unsafe.Slice((*byte)(h.p), h.size) }

func (h *pinned) free() error {
	if h == nil || h.p == nil {
		return nil
	}
	err := h.dev.cuda.Do(func() error { return h.dev.cuda.HostFree(h.p) })
	h.p = nil
	return err
}

// at is an address in it.
func (h *pinned) at(offset int64) unsafe.Pointer { return unsafe.Add(h.p, offset) }

// view is n elements of T at an offset of page-locked memory.
func view[T any](h *pinned, offset int64, n int) []T {
	return unsafe.Slice((*T)(unsafe.Add(h.p, offset)), n)
}
