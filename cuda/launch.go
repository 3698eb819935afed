package cuda

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"
)

// maxParams is more than any kernel here takes.
const maxParams = 64

// Launch is one kernel's launch, prepared once and launched many times without allocation. The driver reads parameters
// through addresses, so they live in a pinned block of the heap: a goroutine's stack may move in the middle of a call.
// Parameters are written in place between launches; the driver copies them during the call, also into a captured graph.
// A Launch is for one goroutine at a time. Release it when it is done with: a pinned block is never collected.
type Launch struct {
	Function Function
	Grid     Dim3 // blocks
	Block    Dim3 // threads
	Shared   int  // bytes of dynamic shared memory
	Stream   Stream

	args    [11]uintptr
	ptrs    []unsafe.Pointer // an object of its own: cgo looks through all of the object that it is given
	sizes   []uintptr
	n       int
	values  []uint64
	pin     runtime.Pinner
	pinning bool
}

// NewLaunch makes a launch of a kernel whose parameters have those sizes in bytes, in order.
func NewLaunch(f Function, sizes ...uintptr) *Launch {
	if len(sizes) > maxParams {
		panic(fmt.Sprintf("cuda: a launch of %d parameters, at most %d", len(sizes), maxParams))
	}
	l := &Launch{Function: f, n: len(sizes), sizes: slices.Clone(sizes), ptrs: make([]unsafe.Pointer, max(len(sizes), 1))}
	total := uintptr(0)
	for _, s := range sizes {
		total += (s + 15) &^ 15
	}
	l.values = make([]uint64, total/8+2)
	l.pin.Pin(l)
	l.pin.Pin(&l.values[0])
	l.pin.Pin(&l.ptrs[0])
	l.pinning = true
	base := unsafe.Pointer(&l.values[0])
	off := (16 - uintptr(base)&15) & 15
	for i, s := range sizes {
		l.ptrs[i] = unsafe.Add(base, off)
		off += (s + 15) &^ 15
	}
	return l
}

// Release unpins the parameters; the launch may not be used again.
func (l *Launch) Release() {
	if l.pinning {
		l.pin.Unpin()
		l.pinning, l.n = false, 0
	}
}

// Params is the number of parameters.
func (l *Launch) Params() int { return l.n }

// Param is where parameter i of type T lives: write it in place. It panics where the size differs from what NewLaunch was told.
func Param[T any](l *Launch, i int) *T {
	var v T
	if i < 0 || i >= l.n || unsafe.Sizeof(v) != l.sizes[i] {
		panic(fmt.Sprintf("cuda: parameter %d as %T of %d bytes, the launch has %v", i, v, unsafe.Sizeof(v), l.sizes))
	}
	return (*T)(l.ptrs[i])
}

// vector writes cuLaunchKernel's arguments and returns them.
func (l *Launch) vector() []uintptr {
	g, b := l.Grid.ones(), l.Block.ones()
	params := uintptr(0)
	if l.n > 0 {
		params = uintptr(unsafe.Pointer(&l.ptrs[0]))
	}
	l.args = [11]uintptr{uintptr(l.Function), uintptr(g.X), uintptr(g.Y), uintptr(g.Z), uintptr(b.X), uintptr(b.Y), uintptr(b.Z),
		uintptr(l.Shared), uintptr(l.Stream), params, 0}
	return l.args[:]
}

// describe names a launch in an error.
func (l *Launch) describe() string {
	g, b := l.Grid.ones(), l.Block.ones()
	return fmt.Sprintf("grid %d,%d,%d block %d,%d,%d shared %d", g.X, g.Y, g.Z, b.X, b.Y, b.Z, l.Shared)
}

func (d Dim3) ones() Dim3 { return Dim3{max(d.X, 1), max(d.Y, 1), max(d.Z, 1)} }
