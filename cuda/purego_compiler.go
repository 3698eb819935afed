//go:build !nocuda && linux && (amd64 || arm64)

package cuda

import (
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

type dynamicCompiler struct {
	major, minor int32

	version, errorString, create, destroy, compile, logSize, log, ptxSize, ptx, cubinSize, cubin proc
}

// OpenCompiler opens NVRTC.
func OpenCompiler(o Options) (Compiler, []Probe, error) {
	l := CompilerLibrary()
	h, probes, err := systemFinder(openCompilerLibrary).find(l, o.Compiler)
	if err != nil {
		return nil, probes, err
	}
	c := &dynamicCompiler{}
	if err := bind(h, probes[len(probes)-1].Path, []binding{{"nvrtcVersion", &c.version}, {"nvrtcGetErrorString", &c.errorString}, {"nvrtcCreateProgram", &c.create},
		{"nvrtcDestroyProgram", &c.destroy}, {"nvrtcCompileProgram", &c.compile}, {"nvrtcGetProgramLogSize", &c.logSize}, {"nvrtcGetProgramLog", &c.log},
		{"nvrtcGetPTXSize", &c.ptxSize}, {"nvrtcGetPTX", &c.ptx}, {"nvrtcGetCUBINSize", &c.cubinSize}, {"nvrtcGetCUBIN", &c.cubin}}); err != nil {
		return nil, probes, err
	}
	if err := c.failed(&c.version, c.version.invoke(uintptr(unsafe.Pointer(&c.major)), uintptr(unsafe.Pointer(&c.minor))), ""); err != nil {
		return nil, probes, err
	}
	return c, probes, nil
}

// openCompilerLibrary opens libnvrtc-builtins of the same folder first: NVRTC loads it by name alone and, in pip's wheels, has no
// path to it.
func openCompilerLibrary(path string) (uintptr, error) {
	if filepath.IsAbs(path) {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(path), "libnvrtc-builtins.so*"))
		if err == nil {
			for _, f := range found {
				_, _ = dlopen(f) // NVRTC itself says what it lacks
			}
		}
	}
	return dlopen(path)
}

func (c *dynamicCompiler) Version() (major, minor int) { return int(c.major), int(c.minor) }

func (c *dynamicCompiler) failed(p *proc, r int32, log string) error {
	if r == 0 {
		return nil
	}
	s, _, _ := purego.SyscallN(c.errorString.addr, uintptr(r))
	return &LibraryError{Call: p.name, Code: int(r), Text: cString(s), Log: log}
}

func (c *dynamicCompiler) Compile(source, architecture string, options ...string) ([]byte, error) {
	src, name := append([]byte(source), 0), []byte("kernel.cu\x00")
	var prog uintptr
	if err := c.failed(&c.create, c.create.invoke(uintptr(unsafe.Pointer(&prog)), uintptr(unsafe.Pointer(&src[0])), uintptr(unsafe.Pointer(&name[0])), 0, 0, 0), ""); err != nil {
		return nil, err
	}
	defer c.destroy.invoke(uintptr(unsafe.Pointer(&prog)))
	var pin runtime.Pinner
	defer pin.Unpin()
	args := make([]*byte, 0, len(options)+1)
	for _, o := range append([]string{"-arch=" + architecture}, options...) {
		b := append([]byte(o), 0)
		pin.Pin(&b[0])
		args = append(args, &b[0])
	}
	r := c.compile.invoke(prog, uintptr(len(args)), uintptr(unsafe.Pointer(&args[0])))
	if r != 0 {
		log, err := c.read(&c.logSize, &c.log, prog)
		if err != nil {
			return nil, err
		}
		return nil, c.failed(&c.compile, r, strings.TrimRight(string(log), "\x00\n"))
	}
	if strings.HasPrefix(architecture, "sm_") {
		return c.read(&c.cubinSize, &c.cubin, prog)
	}
	return c.read(&c.ptxSize, &c.ptx, prog)
}

// read fetches one of the program's results.
func (c *dynamicCompiler) read(size, get *proc, prog uintptr) ([]byte, error) {
	var n uint64
	if err := c.failed(size, size.invoke(prog, uintptr(unsafe.Pointer(&n))), ""); err != nil {
		return nil, err
	}
	out := make([]byte, n+1)
	if err := c.failed(get, get.invoke(prog, uintptr(unsafe.Pointer(&out[0]))), ""); err != nil {
		return nil, err
	}
	return out[:n], nil
}
