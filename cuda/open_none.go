//go:build nocuda || !linux || !(amd64 || arm64)

package cuda

// OpenDriver answers that this binary has no CUDA, as the others do.
func OpenDriver(Options) (Driver, []Probe, error) { return nil, nil, WithoutCUDAError{} }

// OpenBLAS opens cuBLASLt.
func OpenBLAS(Options) (BLAS, []Probe, error) { return nil, nil, WithoutCUDAError{} }

// OpenManagement opens NVML.
func OpenManagement(Options) (Management, []Probe, error) { return nil, nil, WithoutCUDAError{} }

// OpenCompiler opens NVRTC.
func OpenCompiler(Options) (Compiler, []Probe, error) { return nil, nil, WithoutCUDAError{} }

// FindLibraries looks for nothing.
func FindLibraries(Options) []Found { return nil }
