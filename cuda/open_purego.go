//go:build !nocuda && !gorgoniacu && linux && (amd64 || arm64)

package cuda

// OpenDriver loads and initialises libcuda. The probes say what was looked for, found or not. Errors are [*MissingError],
// [*OldDriverError] or [*Error].
func OpenDriver(o Options) (Driver, []Probe, error) { return openDynamic(o) }
