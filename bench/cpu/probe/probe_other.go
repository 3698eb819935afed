//go:build !(cgo && linux && amd64)

package probe

import "errors"

// Measure knows no ceilings here.
func Measure(threads int) Peaks { return Peaks{Threads: threads} }

// Bandwidth is not measured here.
func Bandwidth(int, int64) (float64, error) {
	return 0, errors.New("bandwidth is measured on linux/amd64 with cgo")
}
