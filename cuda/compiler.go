package cuda

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// Compiler is NVRTC, for developers: the product's kernels come compiled.
type Compiler interface {
	Version() (major, minor int)
	// Compile turns CUDA C++ into a cubin for an architecture "sm_XX", or PTX for "compute_XX". A failed compilation is a
	// [*LibraryError] with the compiler's log.
	Compile(source, architecture string, options ...string) ([]byte, error)
}

// CompileCached compiles once: the image is kept in a folder under the hash of all that it depends on. Headers that the source
// includes are not part of it.
func CompileCached(c Compiler, folder, source, architecture string, options ...string) ([]byte, error) {
	major, minor := c.Version()
	h := sha256.New()
	fmt.Fprintf(h, "%d.%d\x00%s\x00%q\x00%s", major, minor, architecture, options, source)
	path := filepath.Join(folder, hex.EncodeToString(h.Sum(nil))+".bin")
	if image, err := os.ReadFile(path); err == nil {
		return image, nil
	}
	image, err := c.Compile(source, architecture, options...)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("keeping a compiled kernel: %w", err)
	}
	// Written beside and renamed: another process never reads a part.
	f, err := os.CreateTemp(folder, "kernel-*")
	if err != nil {
		return nil, fmt.Errorf("keeping a compiled kernel: %w", err)
	}
	_, err = f.Write(image)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return nil, fmt.Errorf("keeping a compiled kernel: %w", err)
	}
	return image, nil
}
