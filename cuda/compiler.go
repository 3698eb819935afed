package cuda

// Compiler is NVRTC, for developers: the product's kernels come compiled.
type Compiler interface {
	Version() (major, minor int)
	// Compile turns CUDA C++ into a cubin for an architecture "sm_XX", or PTX for "compute_XX". A failed compilation is a
	// [*LibraryError] with the compiler's log.
	Compile(source, architecture string, options ...string) ([]byte, error)
}
