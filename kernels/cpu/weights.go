//go:build cgo && linux && amd64

package cpu

// #include "omni.h"
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"omni-engine/internal/tensor"
	"omni-engine/internal/weights/quant"
	"omni-engine/kernels"
)

// formatOf is the packed format of a weight: its own, or float32 where only that is exact. Exact programs compute in float32.
func formatOf(d tensor.DType, exact bool) C.int32_t {
	if exact {
		return C.W_F32
	}
	switch d {
	case tensor.F16:
		return C.W_F16
	case tensor.BF16:
		return C.W_BF16
	case tensor.Q4_0:
		return C.W_Q4_0
	case tensor.Q4_1:
		return C.W_Q4_1
	case tensor.Q5_0:
		return C.W_Q5_0
	case tensor.Q5_1:
		return C.W_Q5_1
	case tensor.Q8_0:
		return C.W_Q8_0
	case tensor.Q4_K:
		return C.W_Q4_K
	case tensor.Q5_K:
		return C.W_Q5_K
	case tensor.Q6_K:
		return C.W_Q6_K
	}
	return C.W_F32
}

func isFloat(format C.int32_t) bool { return format <= C.W_BF16 }

// arena is C memory that lives as long as its owner.
type arena struct {
	chunks []chunk
	bytes  int64
}

type chunk struct {
	p unsafe.Pointer
	n C.size_t
}

// alloc returns zeroed memory on 64-byte lines.
func (a *arena) alloc(n int64) (unsafe.Pointer, error) {
	if n <= 0 {
		n = 64
	}
	p := C.arena_alloc(C.size_t(n))
	if p == nil {
		return nil, fmt.Errorf("no memory for %d bytes", n)
	}
	a.chunks = append(a.chunks, chunk{p, C.size_t(n)})
	a.bytes += n
	return p, nil
}

func (a *arena) free() {
	for _, c := range a.chunks {
		C.arena_free(c.p, c.n)
	}
	a.chunks = nil
}

// bump hands out pieces of one allocation.
type bump struct {
	p    unsafe.Pointer
	n, i int64
}

func round64(n int64) int64 { return (n + 63) &^ 63 }

func (b *bump) take(n int64) unsafe.Pointer {
	n = round64(max(n, 64))
	if b.i+n > b.n {
		panic("cpu: an allocation was planned too small")
	}
	p := unsafe.Add(b.p, b.i)
	b.i += n
	return p
}

// matrix describes a packed weight.
type matrix struct {
	view   tensor.View
	format C.int32_t
	byRows C.int32_t
	n, k   int
	stride int64
	c      C.Weight
}

// readAhead keeps prefetches and padded loads behind the last tile inside the arena.
const readAhead = 16 << 10

func (m *matrix) bytes() int64 { return m.stride*int64((m.n+31)/32*2) + 64 }

func newMatrix(w kernels.Weight, exact bool, l layout) (*matrix, error) {
	if len(w.View.Shape) != 2 {
		return nil, fmt.Errorf("weight %s: shape %v is not [out, in]", w.Name, w.View.Shape)
	}
	m := &matrix{view: w.View, format: formatOf(w.View.DType, exact), byRows: l.byRows, n: w.View.Shape[0], k: w.View.Shape[1]}
	if _, err := tensor.NewView(w.View.DType, w.View.Shape, w.View.Data); err != nil {
		return nil, fmt.Errorf("weight %s: %w", w.Name, err)
	}
	if m.n == 0 || m.k == 0 {
		return nil, fmt.Errorf("weight %s: shape %v is empty", w.Name, w.View.Shape)
	}
	m.stride = int64(C.tile_bytes(C.int(m.format), C.int(m.k)))
	return m, nil
}

// place gives the matrix its memory; pack fills it.
func (m *matrix) place(p unsafe.Pointer) {
	m.c = C.Weight{p: (*C.uint8_t)(p), stride: C.int64_t(m.stride), n: C.int32_t(m.n), k: C.int32_t(m.k), nb: C.int32_t(m.k / 32), fmt: m.format, by_rows: m.byRows}
}

// packBlock is how many rows one goroutine packs at a time: whole tiles, so that no two write the same.
const packBlock = 64

// packAll packs matrices on n goroutines.
func packAll(ms []*matrix, n int) error {
	type job struct {
		m        *matrix
		from, to int
	}
	jobs := make(chan job)
	errs := make(chan error, n)
	var wg sync.WaitGroup
	for range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var failed error
			var buf []float32
			for j := range jobs {
				if failed == nil {
					buf, failed = j.m.pack(j.from, j.to, buf)
				}
			}
			errs <- failed
		}()
	}
	for _, m := range ms {
		for from := 0; from < m.n; from += packBlock {
			jobs <- job{m, from, min(from+packBlock, m.n)}
		}
	}
	close(jobs)
	wg.Wait()
	for range n {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

func (m *matrix) pack(from, to int, buf []float32) ([]float32, error) {
	raw := m.view.Row(from, to)
	if formatOf(m.view.DType, false) == m.format && (m.format != C.W_F32 || m.view.DType == tensor.F32) {
		C.pack_rows(&m.c, C.int(m.format), (*C.uint8_t)(unsafe.Pointer(&raw[0])), C.int(from), C.int(to))
		return buf, nil
	}
	need := (to - from) * m.k
	if cap(buf) < need {
		buf = make([]float32, need)
	}
	buf = buf[:need]
	if err := quant.Dequantize(buf, m.view.DType, raw); err != nil {
		return buf, fmt.Errorf("packing a weight: %w", err)
	}
	C.pack_rows(&m.c, C.W_F32, (*C.uint8_t)(unsafe.Pointer(&buf[0])), C.int(from), C.int(to))
	return buf, nil
}

// floats of a small weight, whatever its shape.
func floats(w kernels.Weight) ([]float32, error) {
	f, err := quant.Float32s(w.View)
	if err != nil {
		return nil, fmt.Errorf("weight %s: %w", w.Name, err)
	}
	return f, nil
}
