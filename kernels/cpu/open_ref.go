//go:build !cgo || !linux || !amd64

package cpu

import (
	"errors"

	"omni-engine/kernels"
	"omni-engine/kernels/ref"
)

// Open returns the pure-Go device: this binary was built without cgo, or for a platform without kernels.
func Open(o Options) (kernels.Device, error) {
	if o.Level != "" && o.Level != "go" {
		return nil, errors.New("opening the CPU: this binary has no C kernels (built without cgo, or not for linux/amd64); only level \"go\" is possible")
	}
	return ref.Open(ref.Options{Threads: o.Threads}), nil
}

// Levels are the dispatch levels that this binary has.
func Levels() []string { return []string{"go"} }
