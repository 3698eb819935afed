//go:build !nocuda && linux && (amd64 || arm64)

package cuda

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// facts reads NVIDIA's numbers.
func facts(t *testing.T) map[string]int {
	t.Helper()
	f, err := os.Open("testdata/cuda13.tsv")
	require.NoError(t, err)
	defer f.Close()
	out := map[string]int{}
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, value, ok := strings.Cut(s.Text(), "\t"); ok {
			out[name], err = strconv.Atoi(value)
			require.NoError(t, err)
		}
	}
	return out
}

func TestNumbersAreThoseOfTheHeaders(t *testing.T) {
	want := facts(t)
	for name, have := range map[string]int{
		"CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK":                int(MaxThreadsPerBlock),
		"CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK":          int(MaxSharedPerBlock),
		"CU_DEVICE_ATTRIBUTE_WARP_SIZE":                            int(WarpSize),
		"CU_DEVICE_ATTRIBUTE_CLOCK_RATE":                           int(ClockRate),
		"CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT":                 int(MultiprocessorCount),
		"CU_DEVICE_ATTRIBUTE_INTEGRATED":                           int(Integrated),
		"CU_DEVICE_ATTRIBUTE_COMPUTE_MODE":                         int(ComputeMode),
		"CU_DEVICE_ATTRIBUTE_ECC_ENABLED":                          int(ECCEnabled),
		"CU_DEVICE_ATTRIBUTE_PCI_BUS_ID":                           int(PCIBusID),
		"CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID":                        int(PCIDeviceID),
		"CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID":                        int(PCIDomainID),
		"CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE":                    int(MemoryClockRate),
		"CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH":              int(MemoryBusWidth),
		"CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE":                        int(L2CacheSize),
		"CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR":       int(MaxThreadsPerSM),
		"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR":             int(ComputeCapabilityMajor),
		"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR":             int(ComputeCapabilityMinor),
		"CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": int(MaxSharedPerMultiprocessor),
		"CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR":     int(MaxRegistersPerSM),
		"CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN":    int(MaxSharedPerBlockOptin),
		"CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK":                  int(FuncMaxThreadsPerBlock),
		"CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES":                      int(FuncSharedBytes),
		"CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES":                       int(FuncLocalBytes),
		"CU_FUNC_ATTRIBUTE_NUM_REGS":                               int(FuncRegisters),
		"CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES":          int(FuncMaxDynamicShared),
		"CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT":       int(FuncSharedCarveout),
		"CU_STREAM_NON_BLOCKING":                                   streamNonBlocking,
		"CU_EVENT_BLOCKING_SYNC":                                   eventBlockingSync,
		"CU_EVENT_DISABLE_TIMING":                                  eventDisableTiming,
		"CU_STREAM_CAPTURE_MODE_THREAD_LOCAL":                      captureThreadLocal,
		"CU_JIT_ERROR_LOG_BUFFER":                                  jitErrorLogBuffer,
		"CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES":                       jitErrorLogSize,
		"CU_MEMHOSTALLOC_PORTABLE":                                 hostPortable,
		"CU_COMPUTEMODE_PROHIBITED":                                computeModeProhibited,
		"CUDA_VERSION":                                             MinimumVersion,
		"CUBLAS_COMPUTE_32F":                                       blasCompute32F,
		"CUBLAS_OP_T":                                              blasTransposed,
		"CUDA_R_32F":                                               int(Float32),
		"CUDA_R_16F":                                               int(Float16),
		"CUDA_R_16BF":                                              int(BFloat16),
		"CUBLASLT_MATMUL_DESC_TRANSA":                              blasDescTransA,
		"CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES":                 blasPrefWorkspace,
		"sizeof(CUgraphExecUpdateResultInfo)":                      graphUpdateInfoSize,
		"sizeof(cublasLtMatmulHeuristicResult_t)":                  int(unsafe.Sizeof(blasResult{})),
		"offsetof(cublasLtMatmulHeuristicResult_t,workspaceSize)":  int(unsafe.Offsetof(blasResult{}.workspace)),
		"offsetof(cublasLtMatmulHeuristicResult_t,state)":          int(unsafe.Offsetof(blasResult{}.state)),
	} {
		value, ok := want[name]
		require.True(t, ok, name)
		assert.Equal(t, value, have, name)
	}
}

func TestResultsHaveTheirNames(t *testing.T) {
	named := map[int]string{}
	for name, n := range facts(t) {
		if e, ok := strings.CutPrefix(name, "CUDA_ERROR_"); ok {
			named[n] = e
		}
	}
	require.Greater(t, len(named), 90)
	for r := range Result(1000) {
		if have := resultName(r); have != "" && r != 0 {
			assert.Equal(t, named[int(r)], have, int(r))
		}
	}
	for n := range named {
		assert.NotEmpty(t, resultName(Result(n)), "%s (%d)", named[n], n)
	}
}
