//go:build cgo && linux && amd64

package cpu

import (
	"errors"
	"fmt"
	"strings"

	"omni-engine/kernels"
	"omni-engine/kernels/ref"
)

// unsupported reports whether a plan failed only because kernels are missing: the reference can run such a module.
func unsupported(err error) bool {
	return errors.Is(err, errOperation) || errors.Is(err, errSlot) || errors.Is(err, errHead) || errors.Is(err, errBuffer)
}

// onReference is a program that runs by kernels/ref because this device lacks kernels for it.
type onReference struct {
	kernels.Program
	why error
}

// Explain names what is missing.
func (p *onReference) Explain() string {
	var s strings.Builder
	s.WriteString("cpu: every operation runs by the reference definition, because of\n")
	seen := map[string]bool{}
	for line := range strings.Lines(p.why.Error()) {
		if !seen[line] {
			seen[line] = true
			fmt.Fprintf(&s, "  reference: %s\n", strings.TrimSpace(line))
		}
	}
	s.WriteString(p.Program.Explain())
	return s.String()
}

func (d *device) reference() *ref.Device { return ref.Open(ref.Options{Threads: d.threads}) }

func (d *device) compileReference(m *kernels.Module, l kernels.Limits, why error) (kernels.Program, error) {
	p, err := d.reference().Compile(m, l)
	if err != nil {
		return nil, errors.Join(why, err)
	}
	return &onReference{p, why}, nil
}
