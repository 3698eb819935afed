//go:build cgo && linux && amd64

package cpu

import "omni-engine/kernels"

// Overtakes counts pieces of work that were begun while a run of a higher priority was open.
func Overtakes(d kernels.Device) int64 { return d.(*device).overtakes() }

// Parts tells into how many parts a step's attention was cut.
func Parts(s kernels.Step) int { return s.(*step).parts() }
