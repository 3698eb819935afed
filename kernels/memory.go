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
