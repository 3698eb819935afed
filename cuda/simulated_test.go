//go:build !nocuda && linux && amd64

package cuda_test

import (
	"math/rand"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"omni-engine/cuda"
	"omni-engine/cuda/sim"
)

// bench is a device with a module of fixtures and a stream.
type bench struct {
	*cuda.Device
	t      testing.TB
	module cuda.Module
	stream cuda.Stream
	probe  *sim.Probe
}

func open(t testing.TB, v sim.Variant) *bench {
	t.Helper()
	b := sim.Require(t, "driver", "fixtures")
	drv, probes, err := cuda.OpenDriver(cuda.Options{Driver: b.Driver()})
	require.NoError(t, err, "%v", probes)
	dev, err := cuda.OpenDevice(drv, 0)
	require.NoError(t, err)
	x := &bench{Device: dev, t: t}
	x.probe, err = b.Attach()
	require.NoError(t, err)
	x.probe.Report()
	x.do(func() (err error) {
		if x.module, err = x.ModuleLoad(sim.Image(b.Fixtures(v))); err != nil {
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

func (x *bench) do(f func() error) {
	x.t.Helper()
	require.NoError(x.t, x.Do(f))
}

func (x *bench) function(name string) (f cuda.Function) {
	x.t.Helper()
	x.do(func() (err error) { f, err = x.ModuleFunction(x.module, name); return err })
	return f
}

// host returns page-locked memory for n values.
func host[T any](x *bench, n int) []T {
	x.t.Helper()
	var zero T
	var p unsafe.Pointer
	x.do(func() (err error) { p, err = x.HostAlloc(int64(n) * int64(unsafe.Sizeof(zero))); return err })
	s := cuda.HostSlice[T](p, n)
	clear(s)
	return s
}

func (x *bench) alloc(bytes int) (p cuda.DevicePtr) {
	x.t.Helper()
	x.do(func() (err error) { p, err = x.MemAlloc(int64(bytes)); return err })
	return p
}

func upload[T any](x *bench, s []T) cuda.DevicePtr {
	x.t.Helper()
	h := host[T](x, len(s))
	copy(h, s)
	n := len(s) * int(unsafe.Sizeof(s[0]))
	p := x.alloc(n)
	x.do(func() error {
		if err := x.CopyToDevice(p, unsafe.Pointer(&h[0]), int64(n), x.stream); err != nil {
			return err
		}
		return x.StreamSynchronize(x.stream)
	})
	return p
}

func download[T any](x *bench, p cuda.DevicePtr, n int) []T {
	x.t.Helper()
	h := host[T](x, n)
	x.do(func() error {
		if err := x.CopyToHost(unsafe.Pointer(&h[0]), p, int64(n)*int64(unsafe.Sizeof(h[0])), x.stream); err != nil {
			return err
		}
		return x.StreamSynchronize(x.stream)
	})
	return h
}

// launch makes a launch of one block with parameters of any type.
func (x *bench) launch(kernel string, threads uint32, params ...any) *cuda.Launch {
	x.t.Helper()
	sizes := make([]uintptr, len(params))
	for i, p := range params {
		switch p.(type) {
		case cuda.DevicePtr:
			sizes[i] = 8
		case int32, float32:
			sizes[i] = 4
		default:
			x.t.Fatalf("parameter of type %T", p)
		}
	}
	l := cuda.NewLaunch(x.function(kernel), sizes...)
	x.t.Cleanup(l.Release)
	l.Grid, l.Block, l.Stream = cuda.Dim3{X: 1}, cuda.Dim3{X: threads}, x.stream
	for i, p := range params {
		switch v := p.(type) {
		case cuda.DevicePtr:
			*cuda.Param[cuda.DevicePtr](l, i) = v
		case int32:
			*cuda.Param[int32](l, i) = v
		case float32:
			*cuda.Param[float32](l, i) = v
		}
	}
	return l
}

func (x *bench) run(l *cuda.Launch) error {
	return x.Do(func() error {
		if err := x.Launch(l); err != nil {
			return err
		}
		return x.StreamSynchronize(x.stream)
	})
}

func ramp(n int) []float32 {
	out := make([]float32, n)
	r := rand.New(rand.NewSource(1))
	for i := range out {
		out[i] = float32(r.Intn(64)) // sums stay exact
	}
	return out
}

// child runs one test of this binary in its own process, which is how an environment reaches the software device.
func child(t *testing.T, test string, env ...string) (output string, err error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^"+test+"$", "-test.v", "-test.count=1")
	cmd.Env = append(append(os.Environ(), "OMNI_TEST_CHILD=1", "GOTRACEBACK=none"), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func isChild() bool { return os.Getenv("OMNI_TEST_CHILD") == "1" }

func lineWith(out, word string) string {
	for l := range strings.Lines(out) {
		if strings.Contains(l, word) {
			return strings.TrimSpace(l)
		}
	}
	return ""
}
