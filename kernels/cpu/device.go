//go:build cgo && linux && amd64

package cpu

/*
#cgo CFLAGS: -std=c11 -D_GNU_SOURCE -O2 -g1 -Wall -Wextra
#cgo LDFLAGS: -lm -lpthread
#include "omni.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"omni-engine/kernels"
)

// device is the processor: a pool of threads and a dispatch level.
type device struct {
	pool    *C.Pool
	level   *C.Level
	threads int
	info    kernels.DeviceInfo
	close   sync.Once
}

// Open starts the pool. The device must be closed after its programs.
func Open(o Options) (kernels.Device, error) {
	allowed, quota := processors()
	n := o.Threads
	if n == 0 {
		n = defaultThreads(allowed, quota)
	}
	if n < 1 || n > 1024 {
		return nil, fmt.Errorf("opening the CPU: %d threads (1 to 1024 are possible)", o.Threads)
	}
	name := C.CString(o.Level)
	defer C.arena_string_free(name)
	level := C.level_find(name)
	if level == nil {
		return nil, fmt.Errorf("opening the CPU: level %q is unknown or this processor lacks it (it has %s)", o.Level, strings.Join(Levels(), ", "))
	}
	spin := 2000
	// A spinning thread takes the processor from the one that it waits for.
	if n > allowed || (quota > 0 && float64(n) > quota) {
		spin = 0
	}
	d := &device{level: level, threads: n, pool: C.pool_new(C.int(n), C.int(spin))}
	if d.pool == nil {
		return nil, errors.New("opening the CPU: no memory for the thread pool")
	}
	d.info = kernels.DeviceInfo{Kind: "cpu", Name: processorName(), Level: C.GoString(level.name), Threads: n, Memory: memory()}
	return d, nil
}

// Levels are the dispatch levels that this processor has, the best first.
func Levels() []string {
	var have []string
	for _, l := range []string{"avx512-amx", "amx-bf16", "avx512-vnni", "avx-vnni", "avx2", "scalar"} {
		name := C.CString(l)
		if C.level_find(name) != nil {
			have = append(have, l)
		}
		C.arena_string_free(name)
	}
	return have
}

// overtakes counts pieces of work that were begun while a run of a higher priority was open: at most one a thread each time.
func (d *device) overtakes() int64 { return int64(C.pool_overtakes(d.pool)) }

func (d *device) Info() kernels.DeviceInfo { return d.info }

func (d *device) Close() error {
	d.close.Do(func() { C.pool_free(d.pool) })
	return nil
}

func processorName() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(raw)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func memory() int64 {
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) != nil {
		return 0
	}
	return int64(s.Totalram) * int64(s.Unit)
}
