//go:build !nocuda && linux && amd64

package cuda_test

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"omni-engine/cuda"
	"omni-engine/cuda/sim"
)

func TestDeviceDescribesItself(t *testing.T) {
	x := open(t, sim.Plain)
	assert.Equal(t, "omni-engine software device", x.Info.Name)
	assert.Equal(t, cuda.ComputeCapability{Major: 9}, x.Info.Capability)
	assert.Equal(t, int64(4<<30), x.Info.Memory)
	assert.Equal(t, 232448, x.Info.SharedPerBlock)
	assert.Equal(t, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", x.Info.UUID)
	v, err := x.Version()
	require.NoError(t, err)
	assert.Equal(t, 13000, v)
	assert.Contains(t, x.Library(), "libcuda.so.1")
}

func TestCallsAreRefusedWithTheirReason(t *testing.T) {
	x := open(t, sim.Plain)
	p, page := x.alloc(1024), host[byte](x, 1024)
	pageable := make([]byte, 1024)
	const big = 8 << 30
	for _, c := range []struct {
		name   string
		call   func() error
		result cuda.Result
		says   []string
	}{
		{"too much memory", func() error { _, err := x.MemAlloc(big); return err }, cuda.ResultOutOfMemory,
			[]string{"cuMemAlloc_v2 (8589934592 bytes) on device 0 (omni-engine software device): CUDA_ERROR_OUT_OF_MEMORY (2)"}},
		{"pageable memory", func() error { return x.CopyToDevice(p, unsafe.Pointer(&pageable[0]), 16, x.stream) }, cuda.ResultInvalidValue, nil},
		{"beyond the allocation", func() error { return x.CopyToHost(unsafe.Pointer(&page[0]), p.Add(1000), 32, x.stream) }, cuda.ResultInvalidValue, nil},
		{"beyond the host allocation", func() error { return x.CopyToHost(unsafe.Pointer(&page[1000]), p, 32, x.stream) }, cuda.ResultInvalidValue, nil},
		{"a kernel that is not there", func() error { _, err := x.ModuleFunction(x.module, "nothing"); return err }, cuda.ResultNotFound, []string{"kernel nothing", "CUDA_ERROR_NOT_FOUND (500)"}},
		{"an image that is none", func() error { _, err := x.ModuleLoad([]byte("none")); return err }, cuda.ResultInvalidImage, []string{"neither a fatbin nor"}},
		{"no image", func() error { _, err := x.ModuleLoad(nil); return err }, cuda.ResultInvalidImage, nil},
		{"a library that is not there", func() error { _, err := x.ModuleLoad(sim.Image("/nowhere.so")); return err }, 301, []string{"does not load"}},
		{"the default stream", func() error { return x.StreamSynchronize(0) }, cuda.ResultInvalidHandle, nil},
		{"a stream that is gone", func() error { return x.StreamSynchronize(12345) }, cuda.ResultInvalidHandle, nil},
		{"too many threads", func() error { l := x.launch("order", 2048, p); return x.Launch(l) }, cuda.ResultInvalidValue, []string{"grid 1,1,1 block 2048,1,1 shared 0"}},
		{"too much shared memory", func() error { l := x.launch("order", 32, p); l.Shared = 64 << 10; return x.Launch(l) }, cuda.ResultInvalidValue, nil},
		{"without a context", func() error { _ = x.SetCurrent(0); _, err := x.MemAlloc(1); return err }, cuda.ResultInvalidContext, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := x.Do(c.call)
			require.ErrorIs(t, err, c.result)
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
		})
	}
	require.Contains(t, x.probe.Report(), "are not page-locked")
}

func TestMoreSharedMemoryIsOptedIn(t *testing.T) {
	x := open(t, sim.Plain)
	l := x.launch("order", 32, x.alloc(4))
	l.Shared = 200 << 10
	x.do(func() error {
		if err := x.SetFuncAttribute(l.Function, cuda.FuncMaxDynamicShared, l.Shared); err != nil {
			return err
		}
		n, err := x.FuncAttribute(l.Function, cuda.FuncMaxDynamicShared)
		require.Equal(t, l.Shared, n)
		return err
	})
	require.NoError(t, x.run(l))
	x.do(func() error {
		n, err := x.Occupancy(l.Function, 256, 100<<10)
		require.Equal(t, 2, n)
		return err
	})
	require.Error(t, x.Do(func() error { return x.SetFuncAttribute(l.Function, cuda.FuncMaxDynamicShared, 1<<20) }))
}

func TestMemoryIsCounted(t *testing.T) {
	x := open(t, sim.Plain)
	x.do(func() error {
		before, total, err := x.MemInfo()
		require.NoError(t, err)
		p := x.alloc(1 << 20)
		after, _, err := x.MemInfo()
		require.NoError(t, err)
		require.Equal(t, int64(1<<20), before-after)
		require.Equal(t, int64(4<<30), total)
		require.NoError(t, x.MemFree(p))
		again, _, err := x.MemInfo()
		require.Equal(t, before, again)
		return err
	})
}

func TestMemsetAndCopyOnDevice(t *testing.T) {
	x := open(t, sim.Plain)
	a, b := x.alloc(64), x.alloc(64)
	x.do(func() error {
		require.NoError(t, x.Memset32(a, 0x01020304, 16, x.stream))
		require.NoError(t, x.Memset8(a.Add(4), 7, 4, x.stream))
		return x.CopyOnDevice(b, a, 64, x.stream)
	})
	got := download[uint32](x, b, 16)
	require.Equal(t, []uint32{0x01020304, 0x07070707, 0x01020304}, got[:3])
}

// A structure is one parameter, copied by value.
func TestStructureAsParameter(t *testing.T) {
	x := open(t, sim.Plain)
	type params struct {
		Scale float32
		N     int32
	}
	y := upload(x, []float32{1, 2, 3, 4})
	l := cuda.NewLaunch(x.function("scale"), 8, unsafe.Sizeof(params{}))
	defer l.Release()
	l.Block, l.Stream = cuda.Dim3{X: 32}, x.stream
	*cuda.Param[cuda.DevicePtr](l, 0) = y
	*cuda.Param[params](l, 1) = params{Scale: 10, N: 3}
	require.NoError(t, x.run(l))
	require.Equal(t, []float32{10, 20, 30, 4}, download[float32](x, y, 4))
	require.Panics(t, func() { cuda.Param[int32](l, 1) }, "the size differs")
	require.Panics(t, func() { cuda.Param[int32](l, 2) }, "there are two")
}

// graph captures a launch and a copy.
func (x *bench) graph(l *cuda.Launch) cuda.Graph {
	x.t.Helper()
	g, err := x.Capture(x.stream, func() error { return x.Launch(l) })
	require.NoError(x.t, err)
	return g
}

func TestGraphRecordsParametersByValue(t *testing.T) {
	x := open(t, sim.Plain)
	const n = 100
	y, in := upload(x, make([]float32, n)), upload(x, ramp(n))
	l := x.launch("axpy", 128, y, in, float32(1), int32(n))
	g := x.graph(l)
	require.Equal(t, float32(0), download[float32](x, y, n)[1], "captured, not run")
	*cuda.Param[float32](l, 2) = 100 // too late for the graph
	var e cuda.GraphExec
	x.do(func() (err error) {
		if e, err = x.GraphInstantiate(g); err != nil {
			return err
		}
		require.NoError(t, x.GraphDestroy(g))
		require.NoError(t, x.GraphLaunch(e, x.stream))
		return x.GraphLaunch(e, x.stream)
	})
	want := ramp(n)
	require.Equal(t, 2*want[1], download[float32](x, y, n)[1])

	// Updated to another factor, it adds that many times; another shape is refused and leaves it as it was.
	g = x.graph(l)
	wide, err := x.Capture(x.stream, func() error { require.NoError(t, x.Launch(l)); return x.Launch(l) })
	require.NoError(t, err)
	x.do(func() error {
		require.NoError(t, x.GraphUpdate(e, g))
		require.ErrorIs(t, x.GraphUpdate(e, wide), cuda.ResultGraphExecUpdateFailure)
		require.NoError(t, x.GraphLaunch(e, x.stream))
		require.NoError(t, x.StreamSynchronize(x.stream))
		require.NoError(t, x.GraphDestroy(g))
		require.NoError(t, x.GraphDestroy(wide))
		return x.GraphExecDestroy(e)
	})
	require.Equal(t, 102*want[1], download[float32](x, y, n)[1])
	require.ErrorIs(t, x.Do(func() error { return x.GraphLaunch(e, x.stream) }), cuda.ResultInvalidHandle)
}

func TestCaptureSpansStreamsThatEventsJoin(t *testing.T) {
	x := open(t, sim.Plain)
	var side cuda.Stream
	var fork, join cuda.Event
	x.do(func() (err error) {
		if side, err = x.StreamCreate(0); err != nil {
			return err
		}
		if fork, err = x.EventCreate(false, false); err != nil {
			return err
		}
		join, err = x.EventCreate(false, false)
		return err
	})
	y, in := upload(x, make([]float32, 4)), upload(x, []float32{1, 2, 3, 4})
	l := x.launch("axpy", 32, y, in, float32(1), int32(4))
	record := func(joined bool) (cuda.Graph, error) {
		return x.Capture(x.stream, func() error {
			require.NoError(t, x.EventRecord(fork, x.stream))
			require.NoError(t, x.StreamWait(side, fork))
			l.Stream = side
			require.NoError(t, x.Launch(l))
			require.NoError(t, x.EventRecord(join, side))
			if joined {
				return x.StreamWait(x.stream, join)
			}
			return nil
		})
	}
	_, err := record(false)
	require.ErrorIs(t, err, cuda.Result(904), "a stream that was not joined")
	g, err := record(true)
	require.NoError(t, err)
	x.do(func() error {
		e, err := x.GraphInstantiate(g)
		require.NoError(t, err)
		return x.GraphLaunch(e, x.stream)
	})
	require.Equal(t, []float32{1, 2, 3, 4}, download[float32](x, y, 4))
	x.do(func() error { return x.StreamDestroy(side) })
}

func TestCaptureRefusesWhatACudaGraphCannotHold(t *testing.T) {
	x := open(t, sim.Plain)
	for name, call := range map[string]func() error{
		"allocation":      func() error { _, err := x.MemAlloc(16); return err },
		"synchronisation": func() error { return x.StreamSynchronize(x.stream) },
		"context":         x.Synchronize,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := x.Capture(x.stream, func() error {
				require.ErrorIs(t, call(), cuda.ResultCaptureUnsupported)
				return nil
			})
			require.ErrorIs(t, err, cuda.ResultCaptureInvalidated)
			// The stream is usable again.
			require.NoError(t, x.run(x.launch("order", 32, x.alloc(4))))
		})
	}
}

// Launches return before the kernel has run; two streams run side by side; events order them and measure.
func TestStreamsAreAsynchronous(t *testing.T) {
	const delay = 200 * time.Millisecond
	if !isChild() {
		sim.Require(t, "driver", "fixtures")
		out, err := child(t, "TestStreamsAreAsynchronous", "OMNI_SIM_LAUNCH_DELAY_US=200000")
		require.NoError(t, err, out)
		return
	}
	x := open(t, sim.Plain)
	l := x.launch("order", 32, x.alloc(4))
	var side cuda.Stream
	var begin, end cuda.Event
	x.do(func() (err error) {
		side, err = x.StreamCreate(0)
		require.NoError(t, err)
		begin, err = x.EventCreate(true, false)
		require.NoError(t, err)
		end, err = x.EventCreate(true, true)
		return err
	})
	start := time.Now()
	x.do(func() error {
		require.NoError(t, x.EventRecord(begin, x.stream))
		require.NoError(t, x.Launch(l))
		require.NoError(t, x.EventRecord(end, x.stream))
		l.Stream = side
		require.NoError(t, x.Launch(l))
		require.Less(t, time.Since(start), delay/2, "nothing waited")
		done, err := x.StreamQuery(x.stream)
		require.NoError(t, err)
		require.False(t, done)
		done, err = x.EventQuery(end)
		require.NoError(t, err)
		require.False(t, done)
		require.NoError(t, x.EventSynchronize(end))
		require.GreaterOrEqual(t, time.Since(start), delay)
		require.NoError(t, x.StreamSynchronize(side))
		require.Less(t, time.Since(start), 2*delay, "the two ran side by side")
		ms, err := x.EventElapsed(begin, end)
		require.NoError(t, err)
		require.GreaterOrEqual(t, ms, float32(199))

		// A stream that waits for an event runs after it.
		start = time.Now()
		l.Stream = x.stream
		require.NoError(t, x.Launch(l))
		require.NoError(t, x.EventRecord(end, x.stream))
		require.NoError(t, x.StreamWait(side, end))
		l.Stream = side
		require.NoError(t, x.Launch(l))
		require.NoError(t, x.StreamSynchronize(side))
		require.GreaterOrEqual(t, time.Since(start), 2*delay)
		return nil
	})
}

// As with CUDA's primary context: the last one to leave takes everything along, and what is left of a handle is an error.
func TestTheLastReleaseFreesEverything(t *testing.T) {
	b := sim.Require(t, "driver", "fixtures")
	drv, _, err := cuda.OpenDriver(cuda.Options{Driver: b.Driver()})
	require.NoError(t, err)
	first, err := cuda.OpenDevice(drv, 0)
	require.NoError(t, err)
	second, err := cuda.OpenDevice(drv, 0)
	require.NoError(t, err)
	available := func(d *cuda.Device) (n int64) {
		require.NoError(t, d.Do(func() (err error) { n, _, err = d.MemInfo(); return err }))
		return n
	}
	before := available(first)
	var s cuda.Stream
	require.NoError(t, first.Do(func() (err error) {
		if s, err = first.StreamCreate(0); err != nil {
			return err
		}
		_, err = first.MemAlloc(1 << 20)
		return err
	}))
	require.NoError(t, first.Close())
	require.Equal(t, before-1<<20, available(second), "another still holds the context")
	require.NoError(t, second.Do(func() error { return second.StreamSynchronize(s) }))
	require.NoError(t, second.Close())
	require.ErrorIs(t, second.Do(func() error { return second.StreamSynchronize(s) }), cuda.ResultInvalidContext)

	third, err := cuda.OpenDevice(drv, 0)
	require.NoError(t, err)
	defer third.Close()
	require.Equal(t, before, available(third))
	require.ErrorIs(t, third.Do(func() error { return third.StreamSynchronize(s) }), cuda.ResultInvalidHandle)
}

// The delay of a graph's launch is what tests of overlap measure by; bank conflicts are printed when a module goes.
func TestKnobsOfTheSoftwareDevice(t *testing.T) {
	if !isChild() {
		sim.Require(t, "driver", "fixtures")
		out, err := child(t, "TestKnobsOfTheSoftwareDevice", "OMNI_SIM_DELAY_MS=30", "OMNI_SIM_CONFLICTS=1", "OMNI_SIM_MEMORY=64M", "OMNI_SIM_SMS=132")
		require.NoError(t, err, out)
		require.Contains(t, out, "sim: bank conflicts of transpose_conflicts: 992 extra turns in 64\n")
		require.Contains(t, out, "sim: bank conflicts of transpose_padded: 0 extra turns in 64\n")
		require.Contains(t, lineWith(out, "992 extra turns in 32 at"), "fixtures.cu:")
		return
	}
	x := open(t, sim.Check)
	require.Equal(t, int64(64<<20), x.Info.Memory)
	require.Equal(t, 132, x.Info.Multiprocessors)
	y, in := x.alloc(4096), upload(x, ramp(1024))
	for _, kernel := range []string{"transpose_conflicts", "transpose_padded"} {
		start := time.Now()
		g := x.graph(x.launch(kernel, 32, y, in))
		x.do(func() error {
			e, err := x.GraphInstantiate(g)
			require.NoError(t, err)
			require.NoError(t, x.GraphLaunch(e, x.stream))
			return x.StreamSynchronize(x.stream)
		})
		require.GreaterOrEqual(t, time.Since(start), 30*time.Millisecond)
	}
	x.do(func() error { return x.ModuleUnload(x.module) })
}
