//go:build !nocuda && !gorgoniacu && linux && amd64

package cuda_test

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"omni-engine/cuda"
	"omni-engine/cuda/sim"
)

func TestHotCallsDoNotAllocate(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	x := open(t, sim.Plain)
	l := x.launch("order", 32, x.alloc(4))
	p, h := x.alloc(64), host[byte](x, 64)
	var e cuda.GraphExec
	var ev cuda.Event
	x.do(func() (err error) {
		e, err = x.GraphInstantiate(x.graph(l))
		require.NoError(t, err)
		ev, err = x.EventCreate(false, true)
		return err
	})
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	for name, f := range map[string]func() error{
		"launch":       func() error { *cuda.Param[cuda.DevicePtr](l, 0) = p; return x.Launch(l) },
		"graph":        func() error { return x.GraphLaunch(e, x.stream) },
		"to device":    func() error { return x.CopyToDevice(p, unsafe.Pointer(&h[0]), 64, x.stream) },
		"to host":      func() error { return x.CopyToHost(unsafe.Pointer(&h[0]), p, 64, x.stream) },
		"on device":    func() error { return x.CopyOnDevice(p, p.Add(32), 32, x.stream) },
		"memset":       func() error { return x.Memset8(p, 0, 64, x.stream) },
		"event":        func() error { return x.EventRecord(ev, x.stream) },
		"stream wait":  func() error { return x.StreamWait(x.stream, ev) },
		"event query":  func() error { _, err := x.EventQuery(ev); return err },
		"synchronised": func() error { return x.EventSynchronize(ev) },
	} {
		// The measure counts the whole process, so one run may see another goroutine's allocation: the least of three is this call's.
		least := 1e9
		for range 3 {
			least = min(least, testing.AllocsPerRun(100, func() { must(x.Do(f)) }))
		}
		assert.Zero(t, least, name)
	}
	x.do(func() error { return x.StreamSynchronize(x.stream) })
}

// What the thread's context costs: a locked section for each call, against handing each call to the thread that owns it.
func BenchmarkSections(b *testing.B) {
	x := open(b, sim.Plain)
	b.Run("empty", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = x.Do(func() error { return nil })
		}
	})
	b.Run("owner goroutine", func(b *testing.B) {
		calls, answers := make(chan func() error), make(chan error)
		go func() {
			runtime.LockOSThread()
			for f := range calls {
				answers <- f()
			}
		}()
		defer close(calls)
		for b.Loop() {
			calls <- func() error { return nil }
			<-answers
		}
	})
	b.Run("stream query, without a section", func(b *testing.B) {
		for b.Loop() {
			_, _ = x.StreamQuery(x.stream)
		}
	})
	l := x.launch("order", 32, x.alloc(4))
	e := func() (e cuda.GraphExec) {
		x.do(func() (err error) { e, err = x.GraphInstantiate(x.graph(l)); return err })
		return e
	}()
	b.Run("graph launch", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = x.Do(func() error { return x.GraphLaunch(e, x.stream) })
		}
		_ = x.Do(func() error { return x.StreamSynchronize(x.stream) })
	})
}
