//go:build !nocuda && linux && amd64

package gpu

import (
	"math"
	"math/rand"
	"os"
	"os/exec"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"omni-engine/cuda"
	"omni-engine/cuda/sim"
	"omni-engine/internal/weights/quant"
)

// lab launches single kernels. They run on the software device (plain, or the variant that OMNI_KERNEL_VARIANT names), or the compiled
// kernels on a GPU where OMNI_KERNEL_GPU names the driver's library.
type lab struct {
	*cuda.Device
	t      testing.TB
	module cuda.Module
	stream cuda.Stream
	probe  *sim.Probe // nil on a GPU
}

const variantEnv = "OMNI_KERNEL_VARIANT"

func newLab(t testing.TB) *lab {
	t.Helper()
	library, image := os.Getenv("OMNI_KERNEL_GPU"), []byte(nil)
	x := &lab{t: t}
	if library == "" {
		if os.Getenv("OMNI_SIM") == "" {
			t.Skip("compiling the kernels for the software device takes a minute: make test-sim does (OMNI_SIM=require)")
		}
		v := sim.Variant(os.Getenv(variantEnv))
		target := map[sim.Variant]string{sim.Plain: "kernels-plain", sim.ASan: "kernels-asan", sim.Check: "kernels-check"}[v]
		b := sim.Require(t, "driver", target)
		library, image = b.Driver(), sim.Image(b.Kernels(v))
		var err error
		x.probe, err = b.Attach()
		require.NoError(t, err)
		x.probe.Report()
	} else {
		image = fatbin()
	}
	drv, probes, err := cuda.OpenDriver(cuda.Options{Driver: library})
	require.NoError(t, err, "%v", probes)
	x.Device, err = cuda.OpenDevice(drv, 0)
	require.NoError(t, err)
	x.do(func() (err error) {
		if x.module, err = x.ModuleLoad(image); err != nil {
			return err
		}
		x.stream, err = x.StreamCreate(0)
		return err
	})
	t.Cleanup(func() {
		_ = x.Do(func() error { return x.StreamDestroy(x.stream) })
		require.NoError(t, x.Close())
	})
	return x
}

func (x *lab) do(f func() error) {
	x.t.Helper()
	require.NoError(x.t, x.Do(f))
}

func (x *lab) alloc(bytes int) (p cuda.DevicePtr) {
	x.t.Helper()
	x.do(func() (err error) { p, err = x.MemAlloc(int64(max(bytes, 1))); return err })
	x.t.Cleanup(func() { x.do(func() error { return x.MemFree(p) }) })
	return p
}

// put uploads values; slack is what kernels may read behind them.
func put[T any](x *lab, s []T, slack int) cuda.DevicePtr {
	x.t.Helper()
	n := len(s) * int(unsafe.Sizeof(*new(T)))
	p := x.alloc(n + slack)
	if n == 0 {
		return p
	}
	x.do(func() error {
		h, err := x.HostAlloc(int64(n))
		if err != nil {
			return err
		}
		copy(cuda.HostSlice[T](h, len(s)), s)
		if err := x.CopyToDevice(p, h, int64(n), x.stream); err != nil {
			return err
		}
		if err := x.StreamSynchronize(x.stream); err != nil {
			return err
		}
		return x.HostFree(h)
	})
	return p
}

func get[T any](x *lab, p cuda.DevicePtr, n int) []T {
	x.t.Helper()
	out := make([]T, n)
	x.do(func() error {
		bytes := int64(n) * int64(unsafe.Sizeof(out[0]))
		h, err := x.HostAlloc(bytes)
		if err != nil {
			return err
		}
		if err := x.CopyToHost(h, p, bytes, x.stream); err != nil {
			return err
		}
		if err := x.StreamSynchronize(x.stream); err != nil {
			return err
		}
		copy(out, cuda.HostSlice[T](h, n))
		return x.HostFree(h)
	})
	return out
}

// element is an activations' type of the kernels.
type element struct {
	name  string
	bytes int
	eps   float64 // relative rounding
	kind  int32   // OutKind
}

func elements() []element {
	return []element{{"f32", 4, 1e-6, outF32}, {"bf16", 2, 1.0 / 256, outBF16}, {"f16", 2, 1.0 / 2048, outF16}}
}
func halves() []element { return elements()[1:] }

// putT uploads floats rounded to an element type, and returns the rounded values too.
func putT(x *lab, e element, f []float32) (cuda.DevicePtr, []float32) {
	x.t.Helper()
	if e.bytes == 4 {
		return put(x, f, 256), f
	}
	raw, back := make([]uint16, len(f)), make([]float32, len(f))
	for i, v := range f {
		if e.name == "bf16" {
			raw[i] = quant.F32ToBF16(v)
			back[i] = quant.BF16ToF32(raw[i])
		} else {
			raw[i] = quant.F32ToF16(v)
			back[i] = quant.F16ToF32(raw[i])
		}
	}
	return put(x, raw, 256), back
}

func getT(x *lab, e element, p cuda.DevicePtr, n int) []float32 {
	x.t.Helper()
	if e.bytes == 4 {
		return get[float32](x, p, n)
	}
	out := make([]float32, n)
	for i, v := range get[uint16](x, p, n) {
		if e.name == "bf16" {
			out[i] = quant.BF16ToF32(v)
		} else {
			out[i] = quant.F16ToF32(v)
		}
	}
	return out
}

// launchKernel runs a kernel with its structure; grid as ABI.md says, threads and shared memory from the table.
func launchKernel[P any](x *lab, name string, params P, grid ...int) {
	x.t.Helper()
	spec, ok := launches()[name]
	require.True(x.t, ok, "kernel %s is in no table", name)
	var f cuda.Function
	x.do(func() (err error) {
		if f, err = x.ModuleFunction(x.module, name); err != nil {
			return err
		}
		if spec.shared > 48<<10 {
			return x.SetFuncAttribute(f, cuda.FuncMaxDynamicShared, spec.shared)
		}
		return nil
	})
	l := cuda.NewLaunch(f, unsafe.Sizeof(params))
	defer l.Release()
	*cuda.Param[P](l, 0) = params
	l.Grid = cuda.Dim3{X: uint32(grid[0])}
	if len(grid) > 1 {
		l.Grid.Y = uint32(grid[1])
	}
	if len(grid) > 2 {
		l.Grid.Z = uint32(grid[2])
	}
	l.Block, l.Shared, l.Stream = cuda.Dim3{X: uint32(spec.threads)}, spec.shared, x.stream
	err := x.Do(func() error {
		if err := x.Launch(l); err != nil {
			return err
		}
		return x.StreamSynchronize(x.stream)
	})
	report := ""
	if x.probe != nil {
		report = x.probe.Report()
	}
	require.NoError(x.t, err, "%s\n%s", name, report)
	require.Empty(x.t, report, name)
}

func randoms(seed int64, n int, scale float32) []float32 {
	r := rand.New(rand.NewSource(seed))
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(r.NormFloat64()) * scale
	}
	return out
}

// near compares with a float64 reference: |got-want| <= rel*|want| + abs.
func near(t testing.TB, what string, want []float64, got []float32, rel, abs float64) {
	t.Helper()
	require.Len(t, got, len(want), what)
	for i := range want {
		d := math.Abs(float64(got[i]) - want[i])
		if !(d <= rel*math.Abs(want[i])+abs) {
			t.Fatalf("%s: element %d is %g, not %g (off by %g)", what, i, got[i], want[i], d)
		}
	}
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// The same tests with the address sanitizer, with the checker of shared memory, and with threads in descending order.
func TestKernelsUnderEveryChecker(t *testing.T) {
	if os.Getenv("OMNI_KERNEL_CHILD") != "" || os.Getenv("OMNI_KERNEL_GPU") != "" || os.Getenv("OMNI_SIM_REVERSE") != "" {
		t.Skip("this process is a checked one")
	}
	if os.Getenv("OMNI_SIM") == "" {
		t.Skip("make test-sim runs this (OMNI_SIM=require)")
	}
	sim.Require(t, "driver", "kernels-asan", "kernels-check")
	asan, err := sim.ASanEnv()
	require.NoError(t, err)
	for name, env := range map[string][]string{
		"asan":    append(asan, variantEnv+"="+string(sim.ASan)),
		"checker": {variantEnv + "=" + string(sim.Check)},
		"reverse": {"OMNI_SIM_REVERSE=1"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestKernel", "-rapid.checks=15")
			cmd.Env = append(append(os.Environ(), "OMNI_KERNEL_CHILD=1"), env...)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
}
