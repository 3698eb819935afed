package gpu

import (
	"errors"
	"fmt"
	"unsafe"

	"omni-engine/cuda"
	"omni-engine/internal/tensor"
	"omni-engine/internal/weights/quant"
)

// uploadBytes is one of the two buffers through which weights stream: large enough to reach the bus's rate, small beside a model.
const uploadBytes = 16 << 20

// uploader moves host memory that is not page-locked (a mapped file) to the device through two page-locked buffers: one is filled
// while the other is on its way.
type uploader struct {
	dev    *device
	stream cuda.Stream
	chunk  int
	bufs   [2]*pinned
	done   [2]cuda.Event
	busy   [2]bool
	next   int
	bytes  int64
}

func (d *device) newUploader(chunk int) (*uploader, error) {
	u := &uploader{dev: d, chunk: chunk}
	err := d.cuda.Do(func() (err error) {
		if u.stream, err = d.cuda.StreamCreate(0); err != nil {
			return err
		}
		for i := range u.done {
			if u.done[i], err = d.cuda.EventCreate(false, true); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range u.bufs {
		if err == nil {
			u.bufs[i], err = d.pin("uploads", int64(chunk))
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("preparing uploads: %w", err), u.close())
	}
	return u, nil
}

// write copies src to dst in parts.
func (u *uploader) write(dst cuda.DevicePtr, src []byte) error {
	for len(src) > 0 {
		n := min(len(src), u.chunk)
		if err := u.part(dst, n, func(buf []byte) error { copy(buf, src); return nil }); err != nil {
			return err
		}
		dst, src = dst.Add(int64(n)), src[n:]
	}
	return nil
}

// part lets fill make the next n bytes in a buffer and puts them on their way; n is at most a chunk.
func (u *uploader) part(dst cuda.DevicePtr, n int, fill func([]byte) error) error {
	i := u.next
	u.next = 1 - u.next
	if err := u.wait(i); err != nil {
		return err
	}
	if err := fill(u.bufs[i].bytes()[:n]); err != nil {
		return err
	}
	u.bytes += int64(n)
	return u.dev.cuda.Do(func() error {
		if err := u.dev.cuda.CopyToDevice(dst, u.bufs[i].p, int64(n), u.stream); err != nil {
			return err
		}
		u.busy[i] = true
		return u.dev.cuda.EventRecord(u.done[i], u.stream)
	})
}

func (u *uploader) wait(i int) error {
	if !u.busy[i] {
		return nil
	}
	u.busy[i] = false
	return u.dev.cuda.Do(func() error { return u.dev.cuda.EventSynchronize(u.done[i]) })
}

// finish waits for what is on its way.
func (u *uploader) finish() error { return errors.Join(u.wait(0), u.wait(1)) }

func (u *uploader) close() error {
	errs := []error{u.finish()}
	for _, b := range u.bufs {
		errs = append(errs, b.free())
	}
	errs = append(errs, u.dev.cuda.Do(func() error {
		var errs []error
		for _, e := range u.done {
			if e != 0 {
				errs = append(errs, u.dev.cuda.EventDestroy(e))
			}
		}
		if u.stream != 0 {
			errs = append(errs, u.dev.cuda.StreamDestroy(u.stream))
		}
		return errors.Join(errs...)
	}))
	return errors.Join(errs...)
}

// asBytes is a slice's memory.
func asBytes[T uint16 | int32 | uint32 | float32 | float64 | uint64](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))
}

// weight sends a matrix, as it is or converted to another type a few rows at a time.
func (u *uploader) weight(dst cuda.DevicePtr, v tensor.View, to tensor.DType, scratch []float32) ([]float32, error) {
	if v.DType == to {
		return scratch, u.write(dst, v.Data)
	}
	k := v.Shape[1]
	elem := to.BlockBytes()
	rows := max(1, u.chunk/(k*elem))
	if k*elem > u.chunk {
		return scratch, fmt.Errorf("a row of %d does not fit the upload buffer", k)
	}
	for from := 0; from < v.Shape[0]; from += rows {
		n := min(rows, v.Shape[0]-from)
		if cap(scratch) < n*k {
			scratch = make([]float32, n*k)
		}
		f := scratch[:n*k]
		if err := quant.Dequantize(f, v.DType, v.Row(from, from+n)); err != nil {
			return scratch, err
		}
		err := u.part(dst.Add(int64(from)*int64(k)*int64(elem)), n*k*elem, func(buf []byte) error { narrow(buf, f, to); return nil })
		if err != nil {
			return scratch, err
		}
	}
	return scratch, nil
}

// narrow writes floats in an element type of two or four bytes, rounding to the nearest.
func narrow(dst []byte, f []float32, to tensor.DType) {
	switch to {
	case tensor.F16:
		out := unsafe.Slice((*uint16)(unsafe.Pointer(&dst[0])), len(f))
		for i, x := range f {
			out[i] = quant.F32ToF16(x)
		}
	case tensor.BF16:
		out := unsafe.Slice((*uint16)(unsafe.Pointer(&dst[0])), len(f))
		for i, x := range f {
			out[i] = quant.F32ToBF16(x)
		}
	default:
		copy(dst, asBytes(f))
	}
}
