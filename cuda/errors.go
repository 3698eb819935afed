package cuda

import (
	"fmt"
	"strings"
)

// Result is a CUresult that is not success. It is the error that [errors.Is] finds in an [*Error].
type Result int32

// Results that callers tell apart.
const (
	ResultInvalidValue           Result = 1
	ResultOutOfMemory            Result = 2
	ResultNotInitialized         Result = 3
	ResultStubLibrary            Result = 34
	ResultNoDevice               Result = 100
	ResultInvalidDevice          Result = 101
	ResultInvalidImage           Result = 200
	ResultInvalidContext         Result = 201
	ResultNoBinaryForGPU         Result = 209
	ResultUnsupportedPTX         Result = 222
	ResultInvalidHandle          Result = 400
	ResultNotFound               Result = 500
	ResultNotReady               Result = 600
	ResultIllegalAddress         Result = 700
	ResultLaunchOutOfResources   Result = 701
	ResultLaunchFailed           Result = 719
	ResultNotSupported           Result = 801
	ResultSystemNotReady         Result = 802
	ResultSystemDriverMismatch   Result = 803
	ResultCompatNotSupported     Result = 804
	ResultCaptureUnsupported     Result = 900
	ResultCaptureInvalidated     Result = 901
	ResultGraphExecUpdateFailure Result = 910
	ResultUnknown                Result = 999
)

// Error gives the name of cuda.h and the number.
func (r Result) Error() string {
	if n := resultName(r); n != "" {
		return fmt.Sprintf("CUDA_ERROR_%s (%d)", n, int32(r))
	}
	return fmt.Sprintf("CUresult %d", int32(r))
}

// hint says what a user may do about a result; "" where there is nothing general to say.
func (r Result) hint() string {
	switch r {
	case ResultStubLibrary:
		return "the toolkit's stub libcuda was loaded in place of the driver's; remove the stubs folder from LD_LIBRARY_PATH"
	case ResultNoDevice:
		return "the driver sees no GPU: check nvidia-smi, CUDA_VISIBLE_DEVICES, and in a container --gpus all"
	case ResultInvalidDevice:
		return "no GPU has that number; omni-engine devices lists them"
	case ResultNoBinaryForGPU, ResultUnsupportedPTX, ResultInvalidImage:
		return "the kernels hold no code that this GPU and driver accept; a newer driver may"
	case ResultSystemNotReady:
		return "the fabric manager of an NVSwitch system is not running"
	case ResultSystemDriverMismatch:
		return "the kernel module and libcuda are of different versions; reboot after a driver update"
	case ResultCompatNotSupported:
		return "the forward compatibility libcuda is for data centre GPUs only; use the driver's own"
	case ResultIllegalAddress, ResultLaunchFailed:
		return "a kernel failed and the context is lost; every later call fails until the process ends"
	case ResultUnknown:
		return "the driver gives no reason; its kernel log (dmesg) may"
	case ResultNotInitialized:
		return "cuInit failed earlier or was not called"
	}
	return ""
}

// Error is a driver call that failed.
type Error struct {
	Call    string // e.g. "cuMemAlloc_v2"
	Result  Result
	Device  string // e.g. "device 0 (NVIDIA H200)"; "" before a device is known
	Doing   string // what was asked, e.g. "1073741824 bytes"; may be empty
	Details string // what the driver logged, e.g. of a module's compilation; may be empty
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Call)
	if e.Doing != "" {
		b.WriteString(" (" + e.Doing + ")")
	}
	if e.Device != "" {
		b.WriteString(" on " + e.Device)
	}
	b.WriteString(": " + e.Result.Error())
	if e.Details != "" {
		b.WriteString(": " + e.Details)
	}
	if h := e.Result.hint(); h != "" {
		b.WriteString(": " + h)
	}
	return b.String()
}

// Unwrap returns the result.
func (e *Error) Unwrap() error { return e.Result }

// MissingError is a library that was not found.
type MissingError struct {
	Library string // e.g. "libcuda.so.1"
	What    string // what it is and who installs it
	Probes  []Probe
}

func (e *MissingError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s) was not found; looked for it", e.Library, e.What)
	for i, p := range e.Probes {
		if i > 0 {
			b.WriteString(";")
		}
		fmt.Fprintf(&b, " %s", p)
	}
	return b.String()
}

// OldDriverError is a driver whose CUDA is older than the kernels need.
type OldDriverError struct{ Have, Need int }

func (e *OldDriverError) Error() string {
	return fmt.Sprintf("the NVIDIA driver supports CUDA %s, the kernels need %s: install driver %s or newer", VersionText(e.Have), VersionText(e.Need), driverFor(e.Need))
}

// driverFor is the first driver branch of a CUDA version, from CUDA's release notes.
func driverFor(version int) string {
	if version >= 13000 {
		return "580"
	}
	return "525"
}

// OldDeviceError is a GPU that is older than the kernels need.
type OldDeviceError struct {
	Device string
	Have   ComputeCapability
	Need   ComputeCapability
}

func (e *OldDeviceError) Error() string {
	return fmt.Sprintf("%s has compute capability %s, the kernels need %s (Ampere) or newer; the CPU backend runs with --device cpu", e.Device, e.Have, e.Need)
}

// VersionText writes CUDA's version numbers as people do: 13000 is "13.0".
func VersionText(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// WithoutCUDAError is what a binary answers that was built without CUDA.
type WithoutCUDAError struct{}

func (WithoutCUDAError) Error() string {
	return "this binary was built without CUDA (-tags nocuda, or a platform other than linux/amd64 and linux/arm64); the CPU backend runs with --device cpu"
}
