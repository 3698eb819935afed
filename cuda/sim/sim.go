// Package sim builds the software device for tests: a libcuda that runs the kernels' own sources on the CPU, so that all of the
// GPU path but the silicon is exercised without a GPU. See sim.h for what it finds in a kernel, and docs/gpu.md for its knobs.
//
// The library reads its environment at cuInit. A test sets it before the process starts (exec.Command), not with os.Setenv.
package sim

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Variant is how the kernels are compiled.
type Variant string

const (
	Plain Variant = ""       // optimised
	ASan  Variant = "-asan"  // out of bounds; the process needs [ASanEnv]
	Check Variant = "-check" // races, uninitialised shared memory, bank conflicts
)

// Build is a folder that holds the libraries.
type Build struct{ Dir string }

// Make builds what is out of date. Targets are the Makefile's: "driver", "fixtures", "kernels", "kernels-plain", "kernels-asan",
// "kernels-check". It takes seconds where nothing changed in none, and is safe in several processes at once.
func Make(targets ...string) (Build, error) {
	root, err := moduleRoot()
	if err != nil {
		return Build{}, err
	}
	b := Build{Dir: filepath.Join(root, "build", "sim")}
	if err := os.MkdirAll(b.Dir, 0o755); err != nil {
		return b, fmt.Errorf("building the software device: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(b.Dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return b, fmt.Errorf("building the software device: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return b, fmt.Errorf("locking the software device's folder: %w", err)
	}
	cmd := exec.Command("make", append([]string{"-j2", "--no-print-directory", "-C", filepath.Join(root, "cuda", "sim"), "OUT=" + b.Dir}, targets...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return b, fmt.Errorf("building the software device: %w\n%s", err, out)
	}
	return b, nil
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "cuda", "sim", "Makefile")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("no source tree with cuda/sim above %s", dir)
		}
	}
}

// Driver is the software libcuda.
func (b Build) Driver() string { return filepath.Join(b.Dir, "libcuda.so.1") }

// BLAS is the stand-in for cuBLASLt.
func (b Build) BLAS() string { return filepath.Join(b.Dir, "libcublasLt.so.13") }

// Management is the stand-in for NVML.
func (b Build) Management() string { return filepath.Join(b.Dir, "libnvidia-ml.so.1") }

// Kernels is the product's kernels, compiled in that way. OMNI_SIM_KERNELS with this path makes a fatbin stand for it.
func (b Build) Kernels(v Variant) string {
	return filepath.Join(b.Dir, "libkernels"+string(v)+".so")
}

// Fixtures is the library of the kernels of cuda/sim/testdata.
func (b Build) Fixtures(v Variant) string {
	return filepath.Join(b.Dir, "libfixtures"+string(v)+".so")
}

// Image is what cuModuleLoadData takes in place of a fatbin, to load a library of kernels.
func Image(library string) []byte { return []byte("OMNISIM\x00" + library + "\x00") }

// ASanEnv is the environment of a process that loads kernels of the ASan variant: Go's runtime is not compiled with it, so the
// library comes first by preloading.
func ASanEnv() ([]string, error) {
	out, err := exec.Command("g++", "-print-file-name=libasan.so").Output()
	if err != nil {
		return nil, fmt.Errorf("asking g++ for libasan: %w", err)
	}
	path, err := filepath.EvalSymlinks(strings.TrimSpace(string(out)))
	if err != nil {
		return nil, fmt.Errorf("libasan: %w", err)
	}
	return []string{"LD_PRELOAD=" + path, "ASAN_OPTIONS=detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:allow_user_segv_handler=1:detect_stack_use_after_return=0:halt_on_error=1"}, nil
}

// Available says why the software device cannot be built here; nil where it can.
func Available() error {
	for _, tool := range []string{"make", "g++"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("the software device needs %s", tool)
		}
	}
	return nil
}

// T is the part of testing.TB that Require uses.
type T interface {
	Helper()
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Require builds the targets for a test. Without the tools the test is skipped, or fails where OMNI_SIM=require (make test-sim).
func Require(t T, targets ...string) Build {
	t.Helper()
	if err := Available(); err != nil {
		if os.Getenv("OMNI_SIM") == "require" {
			t.Fatalf("%v", err)
		}
		t.Skipf("%v", err)
	}
	b, err := Make(targets...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return b
}
