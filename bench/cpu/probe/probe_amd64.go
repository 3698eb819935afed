//go:build cgo && linux && amd64

package probe

// #cgo CFLAGS: -O2
// #cgo LDFLAGS: -lpthread
// #include "probe.h"
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The C side keeps its threads' jobs in static memory.
var one sync.Mutex

// Measure takes about a second.
func Measure(threads int) Peaks {
	one.Lock()
	defer one.Unlock()
	p := Peaks{Threads: threads}
	for _, k := range []struct {
		kind C.int
		to   *float64
	}{{C.VNNI512, &p.VNNI512}, {C.VNNI256, &p.VNNI256}, {C.AVX2, &p.AVX2}, {C.TILE_INT8, &p.TileInt8}, {C.TILE_BF16, &p.TileBF16}, {C.FMA256, &p.FMA}, {C.FMA512, &p.FMA}} {
		if C.probe_has(k.kind) != 0 {
			*k.to = rate(k.kind, threads)
		}
	}
	return p
}

// rate is the best of three: what disturbs can only slow it.
func rate(kind C.int, threads int) (gops float64) {
	steps := C.long(1000)
	for C.probe_run(kind, C.int(threads), steps, nil, 0) < 0.01 {
		steps *= 2
	}
	for range 3 {
		took := C.probe_run(kind, C.int(threads), 2*steps, nil, 0)
		gops = max(gops, float64(C.probe_ops(kind))*2*float64(steps)*float64(threads)/float64(took)/1e9)
	}
	return gops
}

// Bandwidth is the best rate at which all threads together read a working set of the given size over and over, in 1e9 bytes a second. The set lies on
// large pages where the kernel has some, as weights do.
func Bandwidth(threads int, bytes int64) (float64, error) {
	one.Lock()
	defer one.Unlock()
	memory, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return 0, fmt.Errorf("memory for a bandwidth probe of %d bytes: %w", bytes, err)
	}
	defer func() { _ = unix.Munmap(memory) }()
	_ = unix.Madvise(memory, unix.MADV_HUGEPAGE)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	base := (*C.char)(unsafe.Pointer(&memory[0]))
	steps := C.long(max(1, (256<<20)/bytes))
	C.probe_run(C.READ, C.int(threads), 1, base, C.long(bytes))
	best := 0.0
	for range 3 {
		took := C.probe_run(C.READ, C.int(threads), steps, base, C.long(bytes))
		best = max(best, float64(bytes)*float64(steps)/float64(took)/1e9)
	}
	return best, nil
}
