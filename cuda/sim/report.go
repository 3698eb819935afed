//go:build !nocuda && linux && (amd64 || arm64)

package sim

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Probe reaches what the software libcuda tells beyond the driver API.
type Probe struct{ report, conflicts uintptr }

// Attach finds the probe in the library, which the process loads if it has not.
func (b Build) Attach() (*Probe, error) {
	h, err := purego.Dlopen(b.Driver(), purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("loading the software device: %w", err)
	}
	var p Probe
	for _, s := range []struct {
		name string
		dst  *uintptr
	}{{"omniSimReport", &p.report}, {"omniSimConflicts", &p.conflicts}} {
		if *s.dst, err = purego.Dlsym(h, s.name); err != nil {
			return nil, fmt.Errorf("%s is not the software device: %w", b.Driver(), err)
		}
	}
	return &p, nil
}

// Report is what was reported since the last call.
func (p *Probe) Report() string {
	buf := make([]byte, 1<<16)
	n, _, _ := purego.SyscallN(p.report, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
	return string(buf[:n])
}

// Conflicts counts a kernel's turns of the shared memory's banks since the process began (Check variant): the fewest possible,
// and those that conflicts added.
func (p *Probe) Conflicts(kernel string) (turns, extra uint64) {
	name := append([]byte(kernel), 0)
	out := new([2]uint64)
	var pin runtime.Pinner
	pin.Pin(out)
	defer pin.Unpin()
	purego.SyscallN(p.conflicts, uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&out[0])), uintptr(unsafe.Pointer(&out[1])))
	return out[0], out[1]
}
