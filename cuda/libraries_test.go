//go:build !nocuda && linux && amd64

package cuda_test

import (
	"errors"
	"math"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"omni-engine/cuda"
	"omni-engine/cuda/sim"
)

func toBF16(f float32) uint16 {
	u := math.Float32bits(f)
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

func fromBF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// The binding's row-major product, by the stand-in, which follows the library's column-major definition.
func TestBLASProduct(t *testing.T) {
	x := open(t, sim.Plain)
	b := sim.Require(t, "driver")
	var blas cuda.BLAS
	x.do(func() (err error) {
		blas, _, err = cuda.OpenBLAS(cuda.Options{BLAS: b.BLAS()})
		return err
	})
	require.Equal(t, 130000, blas.Version())
	r := rand.New(rand.NewSource(2))
	for _, size := range [][3]int{{1, 8, 16}, {7, 24, 40}, {33, 16, 8}} {
		m, n, k := size[0], size[1], size[2]
		in, w := make([]uint16, m*k), make([]uint16, n*k)
		for i := range in {
			in[i] = toBF16(float32(r.NormFloat64()))
		}
		for i := range w {
			w[i] = toBF16(float32(r.NormFloat64()))
		}
		y0 := make([]float32, m*n)
		for i := range y0 {
			y0[i] = float32(i)
		}
		y, dx, dw, work := upload(x, y0), upload(x, in), upload(x, w), x.alloc(1<<20)
		var plan cuda.BLASPlan
		x.do(func() (err error) {
			plan, err = blas.Plan(cuda.Product{M: m, N: n, K: k, In: cuda.BFloat16, Out: cuda.Float32, Workspace: 1 << 20})
			return err
		})
		// Captured, then replayed twice: beta makes the second see the first.
		g, err := x.Capture(x.stream, func() error { return plan.Run(y, dx, dw, 2, 1, work, x.stream) })
		require.NoError(t, err)
		x.do(func() error {
			e, err := x.GraphInstantiate(g)
			require.NoError(t, err)
			require.NoError(t, x.GraphLaunch(e, x.stream))
			return x.GraphLaunch(e, x.stream)
		})
		got := download[float32](x, y, m*n)
		for i := range m {
			for j := range n {
				want := 0.0
				for c := range k {
					want += float64(fromBF16(in[i*k+c])) * float64(fromBF16(w[j*k+c]))
				}
				require.InDelta(t, 4*want+float64(y0[i*n+j]), got[i*n+j], 1e-3)
			}
		}
		x.do(func() (err error) {
			require.Zero(t, testing.AllocsPerRun(20, func() { err = errors.Join(err, plan.Run(y, dx, dw, 1, 0, work, x.stream)) }))
			return err
		})
		require.NoError(t, plan.Close())
	}
	_, err := blas.Plan(cuda.Product{M: 1, N: 1, K: 1, In: 99, Out: cuda.Float32})
	var le *cuda.LibraryError
	require.ErrorAs(t, err, &le)
	require.EqualError(t, err, "a product of 1x1 by 1x1: cublasLtMatrixLayoutCreate: CUBLAS_STATUS_NOT_SUPPORTED (15)")
	x.do(func() error { return x.StreamSynchronize(x.stream) })
	require.NoError(t, blas.Close())
}

func TestManagementReadsADevice(t *testing.T) {
	b := sim.Require(t, "driver")
	m, probes, err := cuda.OpenManagement(cuda.Options{Management: b.Management()})
	require.NoError(t, err, "%v", probes)
	v, err := m.DriverVersion()
	require.NoError(t, err)
	assert.Equal(t, "580.0.sim", v)
	s, err := m.Status("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f")
	require.NoError(t, err)
	assert.Equal(t, 42, s.GPUBusy)
	assert.Equal(t, 17, s.MemoryBusy)
	assert.Equal(t, 1980, s.SMClock)
	assert.Equal(t, 2619, s.MemoryClock)
	assert.Equal(t, int64(1<<30), s.MemoryUsed)
	assert.Equal(t, int64(4<<30), s.MemoryTotal)
	assert.Equal(t, 55, s.Temperature)
	assert.Equal(t, "software power cap, software thermal slowdown", s.Throttle.String(), "being idle is no throttling")
	assert.Equal(t, []string{"power"}, s.Absent)
	require.Len(t, s.Processes, 70)
	assert.Equal(t, cuda.Process{PID: 1000}, s.Processes[0], "memory that the driver does not tell")
	assert.Equal(t, cuda.Process{PID: 1069, Memory: 1 << 20}, s.Processes[69])
	_, err = m.Status("GPU-none")
	require.EqualError(t, err, "nvmlDeviceGetHandleByUUID: Not Found (6)")
	require.NoError(t, m.Close())
}

// With the real NVRTC, where OMNI_NVRTC_LIB or pip has it: no GPU is needed to compile.
func TestCompilerOfNVIDIA(t *testing.T) {
	c, _, err := cuda.OpenCompiler(cuda.Options{})
	if err != nil {
		t.Skipf("needs NVRTC: %v", err)
	}
	const source = `extern "C" __global__ void k(float* x) { x[threadIdx.x] += 1; }`
	cubin, err := c.Compile(source, "sm_80")
	require.NoError(t, err)
	require.Equal(t, "\x7fELF", string(cubin[:4]))
	ptx, err := c.Compile(source, "compute_80")
	require.NoError(t, err)
	require.Contains(t, string(ptx), ".target sm_80")
	_, err = c.Compile(`__global__ void k() { nothing(); }`, "sm_80")
	require.ErrorContains(t, err, `kernel.cu(1): error: identifier "nothing" is undefined`)
}
