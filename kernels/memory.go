package kernels

import "errors"

// ErrOutOfMemory is in the error of a device whose memory is used up.
var ErrOutOfMemory = errors.New("out of device memory")

// ErrLost is in the error of a device on which nothing can run any more, such as after a kernel's illegal access.
var ErrLost = errors.New("device lost")

// MemoryDevice is a device with memory of its own, which other processes may use too.
type MemoryDevice interface {
	Device
	// Memory returns the bytes that nobody uses now, and all that the device has.
	Memory() (free, total int64, err error)
}

// GraphStates are states whose steps replay recorded launches.
type GraphStates interface {
	States
	// CaptureGraphs records all that steps may replay, so that no request waits for it. No step may be in flight. Where memory runs out
	// the remaining ones are left to be recorded, or done without, when a step needs them.
	CaptureGraphs() error
}
