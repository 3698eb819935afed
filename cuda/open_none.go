//go:build nocuda || !linux || !(amd64 || arm64)

package cuda

// OpenDriver answers that this binary has no CUDA.
func OpenDriver(Options) (Driver, []Probe, error) { return nil, nil, WithoutCUDAError{} }
