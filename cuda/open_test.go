//go:build !nocuda && !gorgoniacu && linux && amd64

package cuda_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/cuda"
	"omni-engine/cuda/sim"
)

// What a user sees whose machine lacks something. Each runs in a process of its own: the software device plays the part.
func TestWhatAUserSees(t *testing.T) {
	if isChild() {
		b := sim.Require(t, "driver")
		drv, _, err := cuda.OpenDriver(cuda.Options{Driver: b.Driver()})
		if err == nil {
			_, err = cuda.OpenDevice(drv, 0)
		}
		t.Logf("says: %v", err)
		return
	}
	sim.Require(t, "driver")
	for env, says := range map[string]string{
		"OMNI_SIM_DRIVER_VERSION=12040": "the NVIDIA driver supports CUDA 12.4, the kernels need 13.0: install driver 580 or newer",
		"OMNI_SIM_NO_DEVICE=1":          "cuInit: CUDA_ERROR_NO_DEVICE (100): the driver sees no GPU: check nvidia-smi, CUDA_VISIBLE_DEVICES, and in a container --gpus all",
		"OMNI_SIM_CC=7.5":               "device 0 (omni-engine software device) has compute capability 7.5, the kernels need 8.0 (Ampere) or newer; the CPU backend runs with --device cpu",
		"OMNI_SIM_CC=8.0":               "<nil>",
	} {
		out, err := child(t, "TestWhatAUserSees", env)
		require.NoError(t, err, out)
		require.Contains(t, out, "says: "+says+"\n", env)
	}
}

func TestWithoutADriver(t *testing.T) {
	t.Setenv("OMNI_CUDA_LIB", "")
	_, probes, err := cuda.OpenDriver(cuda.Options{Driver: "/nowhere/libcuda.so.1"})
	var missing *cuda.MissingError
	require.ErrorAs(t, err, &missing)
	require.EqualError(t, err, "libcuda.so.1 (the CUDA driver library, installed with NVIDIA's driver) was not found; looked for it in --cuda-lib: "+
		"/nowhere/libcuda.so.1: cannot open shared object file: No such file or directory")
	require.Len(t, probes, 1)
}

func TestALibraryThatIsNotADriver(t *testing.T) {
	b := sim.Require(t, "driver")
	_, _, err := cuda.OpenDriver(cuda.Options{Driver: b.BLAS()})
	require.ErrorContains(t, err, "lacks [cuInit cuDriverGetVersion]")
}

func TestADeviceThatIsNotThere(t *testing.T) {
	x := open(t, sim.Plain)
	_, err := cuda.OpenDevice(x.Driver, 3)
	require.EqualError(t, err, "there is no CUDA device 3: the driver has 1, counted from 0 (CUDA_VISIBLE_DEVICES renumbers them)")
}

func TestErrorsNameTheirParts(t *testing.T) {
	err := &cuda.Error{Call: "cuLaunchKernel", Result: 700, Device: "device 1 (NVIDIA H200)", Doing: "grid 1,1,1"}
	require.EqualError(t, err, "cuLaunchKernel (grid 1,1,1) on device 1 (NVIDIA H200): CUDA_ERROR_ILLEGAL_ADDRESS (700): a kernel failed and the context is lost; every later call fails until the process ends")
	require.True(t, errors.Is(err, cuda.ResultIllegalAddress))
	require.EqualError(t, cuda.Result(4711), "CUresult 4711")
}
