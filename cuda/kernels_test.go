//go:build !nocuda && linux && amd64

package cuda_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"omni-engine/cuda"
	"omni-engine/cuda/sim"
)

// variants that run in a process that was started without preparation; ASan's run in TestOutOfBounds.
func variants() map[string]sim.Variant {
	return map[string]sim.Variant{"plain": sim.Plain, "check": sim.Check}
}

func TestRightKernelsRunAndPassTheChecks(t *testing.T) {
	for name, v := range variants() {
		t.Run(name, func(t *testing.T) { rightKernels(t, open(t, v)) })
	}
}

// rightKernels runs each correct fixture and compares with what it has to give.
func rightKernels(t *testing.T, x *bench) {
	const n = 1000
	xs := ramp(n)
	y := upload(x, ramp(n))
	l := x.launch("axpy", 128, y, upload(x, xs), float32(2), int32(n))
	l.Grid.X = (n + 127) / 128
	require.NoError(t, x.run(l))
	got := download[float32](x, y, n)
	for i := range xs {
		require.Equal(t, 3*xs[i], got[i])
	}

	var want float32
	for _, f := range xs {
		want += f
	}
	for _, threads := range []uint32{32, 96, 256, 1024} {
		out := x.alloc(4)
		require.NoError(t, x.run(x.launch("block_sum", threads, out, upload(x, xs), int32(n))))
		require.Equal(t, want, download[float32](x, out, 1)[0])
	}

	const threads, tiles = 64, 5
	tile := ramp(threads * 4 * tiles)
	out := x.alloc(threads * 4)
	l = x.launch("pipelined", threads, out, upload(x, tile), int32(tiles))
	l.Shared = 2 * threads * 16
	require.NoError(t, x.run(l))
	for i, f := range download[float32](x, out, threads) {
		var want float32
		for k := range tiles {
			for j := range 4 {
				want += tile[k*threads*4+(i*4+37+j)%(threads*4)]
			}
		}
		require.Equal(t, want, f)
	}

	y = x.alloc(128 * 4)
	require.NoError(t, x.run(x.launch("warp_exchange", 32, y)))
	require.Equal(t, []float32{1, 0, 3, 2}, download[float32](x, y, 4))
	require.NoError(t, x.run(x.launch("named", 128, y)))
	require.Equal(t, []float32{63, 62, 61, 60}, download[float32](x, y, 4))
	require.Empty(t, x.probe.Report())
}

// A broken kernel each, what has to find it, and what the report says with threads in ascending and in descending order: which of
// two threads comes first decides which face of a mistake shows.
func TestBrokenKernelsAreCaught(t *testing.T) {
	if !isChild() {
		sim.Require(t, "driver", "fixtures")
		for _, order := range []string{"OMNI_SIM_REVERSE=0", "OMNI_SIM_REVERSE=1"} {
			out, err := child(t, "TestBrokenKernelsAreCaught", order)
			require.NoError(t, err, "%s\n%s", order, out)
			require.Equal(t, 11, strings.Count(out, "--- PASS:"), "ten kernels and the test\n%s", out)
		}
		return
	}
	const early, race, waited = "that nobody has written yet", "race on", "before the cp.async of thread"
	for _, c := range []struct {
		kernel          string
		variant         sim.Variant
		report, reverse string
	}{
		{"missing_barrier", sim.Check, early, race + " static shared memory"},
		{"missing_reuse_barrier", sim.Check, race + " dynamic shared memory", waited},
		{"read_before_wait", sim.Check, waited, waited},
		{"missing_syncwarp", sim.Check, early, early},
		{"named_deadlock", sim.Plain, "waiting at", "waiting at"},
		{"divergent_barrier", sim.Plain, "__syncthreads diverges", "__syncthreads diverges"},
		{"wrong_mask", sim.Plain, "mask ffffffff names lanes that have exited", "mask ffffffff names lanes that have exited"},
		{"mask_without_caller", sim.Plain, "is not in its own mask 0000ffff", "is not in its own mask 0000ffff"},
		{"shared_out_of_bounds", sim.Check, "dynamic shared memory byte 128 of 128", "dynamic shared memory byte 128 of 128"},
		{"uninitialised_shared", sim.Check, early, early},
	} {
		t.Run(c.kernel, func(t *testing.T) {
			if os.Getenv("OMNI_SIM_REVERSE") == "1" {
				c.report = c.reverse
			}
			x := open(t, c.variant)
			y, in := x.alloc(4096), upload(x, ramp(4096))
			params := []any{y}
			threads := uint32(32)
			shared := 128
			switch c.kernel {
			case "missing_barrier", "missing_reuse_barrier", "read_before_wait":
				params, threads, shared = []any{y, in, int32(4)}, 64, 2*64*16
			case "named_deadlock":
				threads = 128
			}
			l := x.launch(c.kernel, threads, params...)
			l.Shared = shared
			err := x.run(l)
			require.ErrorIs(t, err, cuda.ResultLaunchFailed)
			report := x.probe.Report()
			assert.Contains(t, report, c.report)
			assert.Contains(t, report, "kernel "+c.kernel)
			assert.Contains(t, report, "fixtures.cu:", "the report names the line")
			// As on a GPU, the context is lost.
			require.ErrorIs(t, x.Do(func() error { return x.StreamSynchronize(x.stream) }), cuda.ResultLaunchFailed)
		})
	}
}

// Without the checker a copy that is read too early shows as NaN, so that a comparison with a reference fails.
func TestReadBeforeWaitIsPoison(t *testing.T) {
	x := open(t, sim.Plain)
	out := x.alloc(64 * 4)
	l := x.launch("read_before_wait", 64, out, upload(x, ramp(64*4*4)), int32(4))
	l.Shared = 2 * 64 * 16
	require.NoError(t, x.run(l))
	for _, f := range download[float32](x, out, 64) {
		require.NotEqual(t, f, f)
	}
}

func TestBankConflictsAreCounted(t *testing.T) {
	x := open(t, sim.Check)
	for _, c := range []struct {
		kernel       string
		turns, extra uint64
	}{
		{"transpose_padded", 64, 0},
		{"transpose_conflicts", 64, 32 * 31}, // each of 32 reads takes 32 turns
	} {
		t0, e0 := x.probe.Conflicts(c.kernel)
		require.NoError(t, x.run(x.launch(c.kernel, 32, x.alloc(4096), upload(x, ramp(1024)))))
		t1, e1 := x.probe.Conflicts(c.kernel)
		assert.Equal(t, c.turns, t1-t0, c.kernel)
		assert.Equal(t, c.extra, e1-e0, c.kernel)
	}
}

func TestOutOfBounds(t *testing.T) {
	if isChild() {
		x := open(t, sim.ASan)
		rightKernels(t, x)
		t.Log("the right kernels ran")
		_ = x.run(x.launch("out_of_bounds", 96, x.alloc(64*4), int32(64)))
		t.Log("nothing was found")
		return
	}
	if raceDetector {
		t.Skip("AddressSanitizer does not load into a process with the race detector")
	}
	sim.Require(t, "driver", "fixtures")
	env, err := sim.ASanEnv()
	require.NoError(t, err)
	out, err := child(t, "TestOutOfBounds", env...)
	require.Error(t, err, out)
	require.Contains(t, out, "the right kernels ran", out)
	require.NotContains(t, out, "nothing was found")
	require.Contains(t, out, "AddressSanitizer: heap-buffer-overflow")
	require.Contains(t, lineWith(out, "#0"), "fixtures.cu:")
	t.Log(lineWith(out, "#0"))
}

// The plain build sees a write beyond an allocation when it is freed.
func TestGuardsAroundAllocations(t *testing.T) {
	x := open(t, sim.Plain)
	y := x.alloc(64 * 4)
	require.NoError(t, x.run(x.launch("out_of_bounds", 96, y, int32(64))))
	x.do(func() error { return x.MemFree(y) })
	require.Contains(t, x.probe.Report(), "something wrote outside the 256 bytes")
}

func TestThreadsRunInBothOrders(t *testing.T) {
	if isChild() {
		x := open(t, sim.Plain)
		rightKernels(t, x)
		y := x.alloc(4)
		require.NoError(t, x.run(x.launch("order", 64, y)))
		t.Logf("last=%d", download[int32](x, y, 1)[0])
		return
	}
	sim.Require(t, "driver", "fixtures")
	for env, want := range map[string]string{"OMNI_SIM_REVERSE=": "last=63", "OMNI_SIM_REVERSE=1": "last=0"} {
		out, err := child(t, "TestThreadsRunInBothOrders", env)
		require.NoError(t, err, out)
		require.Contains(t, out, want, env)
	}
}
