//go:build !nocuda && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// proc is a C function that was looked up once. RegisterFunc's reflection would cost a microsecond and eleven allocations a
// call; SyscallN with addresses costs under 0.1 µs and none.
type proc struct {
	name string
	addr uintptr
}

// binding names the place of a function and its symbol.
type binding struct {
	name string
	dst  *proc
}

// bind looks up functions; the error names all that are missing.
func bind(handle uintptr, library string, bs []binding) error {
	var missing []string
	for _, b := range bs {
		addr, err := purego.Dlsym(handle, b.name)
		if err != nil {
			missing = append(missing, b.name)
			continue
		}
		*b.dst = proc{name: b.name, addr: addr}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s lacks %v: the library is too old, or not the one that its name says", library, missing)
	}
	return nil
}

// invoke calls a function that returns a status in 32 bits. What arguments point to is moved to the heap and kept for the call.
//
//go:uintptrescapes
func (p *proc) invoke(args ...uintptr) int32 {
	r, _, _ := purego.SyscallN(p.addr, args...)
	return int32(r)
}

// frames holds argument vectors: one that is passed on by "..." is on the heap, and a call that is made each step allocates none.
type frames struct{ pool sync.Pool }

// hot calls a function of at most four arguments, none of which is a Go pointer. Arguments that it does not take are ignored.
func (f *frames) hot(p *proc, a, b, c, d uintptr) int32 {
	v, _ := f.pool.Get().(*[4]uintptr)
	if v == nil {
		v = new([4]uintptr)
	}
	*v = [4]uintptr{a, b, c, d}
	r, _, _ := purego.SyscallN(p.addr, v[:]...)
	f.pool.Put(v)
	return int32(r)
}

func dlopen(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
}

// cString reads a library's text.
func cString(addr uintptr) string {
	if addr == 0 {
		return ""
	}
	// The address is C memory: its value is taken through a pointer of that type, not converted.
	p := *(**byte)(unsafe.Pointer(&addr))
	var out []byte
	for ; *p != 0 && len(out) < 1<<12; p = (*byte)(unsafe.Add(unsafe.Pointer(p), 1)) {
		out = append(out, *p)
	}
	return string(out)
}
