//go:build !nocuda && linux && amd64

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/cuda"
	"omni-engine/cuda/sim"
)

// devices runs the command in its own process, so that the software device reads the environment.
func devices(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"-test.run", "^TestDevicesChild$", "--"}, args...)...)
	cmd.Env = append(append(os.Environ(), "OMNI_DEVICES_CHILD=1", "OMNI_CUDA_LIB=", "OMNI_NVML_LIB=", "OMNI_CUBLASLT_LIB=none", "LD_LIBRARY_PATH="), env...)
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	require.NoError(t, cmd.Run(), stdout.String())
	return stdout.String()
}

func TestDevicesChild(t *testing.T) {
	if os.Getenv("OMNI_DEVICES_CHILD") == "" {
		t.Skip("the child of the tests below")
	}
	for i, a := range os.Args {
		if a == "--" {
			cmd := devicesCommand()
			cmd.SetArgs(os.Args[i+1:])
			require.NoError(t, cmd.Execute())
			os.Exit(0) // before the test prints its own
		}
	}
}

func TestDevicesSaysWhatIsThereAndWhatIsMissing(t *testing.T) {
	b := sim.Require(t, "driver")
	found := []string{"OMNI_CUDA_LIB=" + b.Driver(), "OMNI_NVML_LIB=" + b.Management()}
	for name, c := range map[string]struct {
		env  []string
		says []string
	}{
		"a device": {found, []string{
			"cuda:0  omni-engine software device, compute capability 9.0, 4.00 GiB, 8 multiprocessors, 0.13 TB/s\n        GPU-00010203-0405-0607-0809-0a0b0c0d0e0f at 0000:00:00.0\n" +
				"        42 % busy, 1.00 GiB used, clocks 1980/2619 MHz, 55 °C, throttled: software power cap, software thermal slowdown, 70 processes\n        can be used; matrix products: own kernels\n",
			"driver  " + b.Driver() + " (purego), CUDA 13.0, version 580.0.sim\n", "\n  libcuda.so.1       " + b.Driver() + " (OMNI_CUDA_LIB)\n", "cpu  "}},
		"cuBLASLt": {append([]string{"OMNI_CUBLASLT_LIB=" + b.BLAS()}, found...), []string{"can be used; matrix products: cuBLASLt (" + b.BLAS() + ") for dense ones of prefills, else own kernels\n"}},
		"none": {[]string{"OMNI_CUDA_LIB=/nowhere/libcuda.so.1"}, []string{
			"cuda    none: libcuda.so.1 (the CUDA driver library, installed with NVIDIA's driver) was not found\n",
			"  libcuda.so.1       not found: the CUDA driver library, installed with NVIDIA's driver; looked for\n                       in OMNI_CUDA_LIB: /nowhere/libcuda.so.1: cannot open shared object file: No such file or directory\n"}},
		"an old driver": {append([]string{"OMNI_SIM_DRIVER_VERSION=12040"}, found...), []string{
			"cuda    none: the NVIDIA driver supports CUDA 12.4, the kernels need 13.0: install driver 580 or newer\n"}},
		"no GPU": {append([]string{"OMNI_SIM_NO_DEVICE=1"}, found...), []string{"cuda    none: cuInit: CUDA_ERROR_NO_DEVICE (100): the driver sees no GPU"}},
		"an old GPU": {append([]string{"OMNI_SIM_CC=7.5"}, found...), []string{
			"        cannot be used: device 0 (omni-engine software device) has compute capability 7.5, the kernels need 8.0 (Ampere) or newer; the CPU backend runs with --device cpu\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := devices(t, c.env)
			for _, s := range c.says {
				require.Contains(t, out, s)
			}
			t.Logf("\n%s", out)
		})
	}
	var r deviceReport
	require.NoError(t, json.Unmarshal([]byte(devices(t, found, "--json")), &r))
	require.Len(t, r.CUDA.Devices, 1)
	require.Equal(t, int64(4<<30), r.CUDA.Devices[0].Memory)
	require.Equal(t, 1980, r.CUDA.Devices[0].Status.SMClock)
	require.Len(t, r.CUDA.Libraries, 4)
}

func TestKernelsAreCompiledForDevelopers(t *testing.T) {
	source := filepath.Join(t.TempDir(), "k.cu")
	require.NoError(t, os.WriteFile(source, []byte(`extern "C" __global__ void k(float* x) { x[threadIdx.x] += 1; }`), 0o600))
	var out bytes.Buffer
	err := compilation{source: source, architecture: "sm_90"}.run(cuda.Options{Compiler: "/nowhere/libnvrtc.so"}, &out)
	require.ErrorContains(t, err, "libnvrtc.so.13")
	require.ErrorContains(t, err, "/nowhere/libnvrtc.so")
	if _, _, err := cuda.OpenCompiler(cuda.Options{}); err != nil {
		t.Skipf("the rest needs NVRTC: %v", err)
	}
	require.NoError(t, compilation{source: source, architecture: "sm_90"}.run(cuda.Options{}, &out))
	require.Regexp(t, `^.*k\.cubin: \d+ bytes for sm_90, by NVRTC 1\d\.\d+\n$`, out.String())
	cubin, err := os.ReadFile(strings.TrimSuffix(source, ".cu") + ".cubin")
	require.NoError(t, err)
	require.Equal(t, "\x7fELF", string(cubin[:4]))
}
