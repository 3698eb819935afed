// Package cuda reaches CUDA's libraries from Go: the driver API, NVRTC, cuBLASLt and NVML. The default implementation of
// [Driver] loads the user's libcuda at run time without cgo; -tags gorgoniacu builds it on gorgonia.org/cu instead, and
// -tags nocuda leaves all of it out (a static binary). cuda/sim holds a software device that answers the same calls.
//
// Contexts belong to operating system threads. [Device.Do] therefore locks the calling goroutine to its thread, makes the
// device's context current and runs a function: every call of a Driver that names no device must be made inside one. That
// costs under 0.3 µs, a hand-over to an owner goroutine 10 µs (BenchmarkSections).
package cuda

import "unsafe"

// Handles of the driver. The zero value of each is "none"; Stream's is the legacy default stream, which is never used here.
type (
	Ctx       uintptr
	DevicePtr uintptr
	Stream    uintptr
	Event     uintptr
	Module    uintptr
	Function  uintptr
	Graph     uintptr
	GraphExec uintptr
)

// Add returns the address n bytes further on.
func (p DevicePtr) Add(n int64) DevicePtr { return p + DevicePtr(n) }

// Dim3 is a size in blocks or threads. A zero field counts as one.
type Dim3 struct{ X, Y, Z uint32 }

// Driver is the part of CUDA's driver API that the engine uses. Errors are *[Error]. Except for those that take an ordinal,
// methods need a current context: call them inside [Device.Do]. Methods are safe for concurrent use as far as the driver's
// own are: a stream's order is the order of the calls.
type Driver interface {
	// Library says which library answers, e.g. "libcuda.so.1 (purego)".
	Library() string
	// Version is CUDA's version that the driver supports: 13000 is 13.0.
	Version() (int, error)
	DeviceCount() (int, error)
	DeviceName(ordinal int) (string, error)
	// DeviceUUID is in the form that nvidia-smi prints, "GPU-8-4-4-4-12".
	DeviceUUID(ordinal int) (string, error)
	DeviceMemory(ordinal int) (int64, error)
	Attribute(ordinal int, a Attribute) (int, error)

	// PrimaryRetain returns the device's primary context, made if need be; PrimaryRelease gives it back.
	PrimaryRetain(ordinal int) (Ctx, error)
	PrimaryRelease(ordinal int) error
	// SetCurrent makes a context the calling thread's; 0 leaves it without.
	SetCurrent(Ctx) error
	// Synchronize waits for everything in the current context.
	Synchronize() error

	// MemInfo is the device's free and whole memory in bytes.
	MemInfo() (free, total int64, err error)
	MemAlloc(bytes int64) (DevicePtr, error)
	MemFree(DevicePtr) error
	// HostAlloc returns page-locked host memory, the only host memory that copies may name.
	HostAlloc(bytes int64) (unsafe.Pointer, error)
	HostFree(unsafe.Pointer) error
	// Copies are asynchronous: host memory must be page-locked and stay until the stream has passed them.
	CopyToDevice(dst DevicePtr, src unsafe.Pointer, bytes int64, s Stream) error
	CopyToHost(dst unsafe.Pointer, src DevicePtr, bytes int64, s Stream) error
	CopyOnDevice(dst, src DevicePtr, bytes int64, s Stream) error
	Memset8(p DevicePtr, v byte, bytes int64, s Stream) error
	Memset32(p DevicePtr, v uint32, words int64, s Stream) error

	// StreamCreate makes a stream that does not wait for the default one. Lower priority numbers run first; 0 is ordinary.
	StreamCreate(priority int) (Stream, error)
	StreamDestroy(Stream) error
	StreamSynchronize(Stream) error
	// StreamQuery reports whether all that was put on the stream is done.
	StreamQuery(Stream) (done bool, err error)
	// StreamWait makes what is put on the stream from now on wait for the event.
	StreamWait(Stream, Event) error
	// EventCreate makes an event. Only a timed one serves EventElapsed; a blocking one lets EventSynchronize sleep
	// where it would spin.
	EventCreate(timed, blocking bool) (Event, error)
	EventDestroy(Event) error
	EventRecord(Event, Stream) error
	EventSynchronize(Event) error
	EventQuery(Event) (done bool, err error)
	// EventElapsed is the time between two recorded, completed events in milliseconds (a resolution of about 0.5 µs).
	EventElapsed(from, to Event) (float32, error)

	// ModuleLoad loads a fatbin, cubin or PTX text. The bytes may be dropped afterwards.
	ModuleLoad(image []byte) (Module, error)
	ModuleUnload(Module) error
	// ModuleFunction finds a kernel by its symbol's name.
	ModuleFunction(m Module, name string) (Function, error)
	FuncAttribute(f Function, a FuncAttribute) (int, error)
	SetFuncAttribute(f Function, a FuncAttribute, v int) error
	// Occupancy is how many blocks of that size fit a multiprocessor at once.
	Occupancy(f Function, threads, sharedBytes int) (int, error)
	// Launch puts a kernel on the launch's stream. It does not allocate.
	Launch(*Launch) error

	// CaptureBegin records what the calling thread puts on the stream, until CaptureEnd on the same thread, in place of
	// running it. Parameters of launches are recorded by value. Use [Device.Capture].
	CaptureBegin(Stream) error
	CaptureEnd(Stream) (Graph, error)
	GraphInstantiate(Graph) (GraphExec, error)
	// GraphUpdate gives an executable graph the parameters of another graph of the same shape; an error that is
	// [ResultGraphExecUpdateFailure] says that the shapes differ and the graph must be instantiated anew.
	GraphUpdate(GraphExec, Graph) error
	GraphLaunch(GraphExec, Stream) error
	GraphDestroy(Graph) error
	GraphExecDestroy(GraphExec) error
}

// Attribute is a CUdevice_attribute.
type Attribute int32

// Attributes of devices, with the numbers of cuda.h.
const (
	MaxThreadsPerBlock         Attribute = 1
	MaxSharedPerBlock          Attribute = 8 // bytes
	WarpSize                   Attribute = 10
	ClockRate                  Attribute = 13 // kHz
	MultiprocessorCount        Attribute = 16
	Integrated                 Attribute = 18
	ComputeMode                Attribute = 20
	ECCEnabled                 Attribute = 32
	PCIBusID                   Attribute = 33
	PCIDeviceID                Attribute = 34
	MemoryClockRate            Attribute = 36 // kHz
	MemoryBusWidth             Attribute = 37 // bits
	L2CacheSize                Attribute = 38 // bytes
	MaxThreadsPerSM            Attribute = 39
	PCIDomainID                Attribute = 50
	ComputeCapabilityMajor     Attribute = 75
	ComputeCapabilityMinor     Attribute = 76
	MaxSharedPerMultiprocessor Attribute = 81 // bytes
	MaxRegistersPerSM          Attribute = 82
	MaxSharedPerBlockOptin     Attribute = 97 // bytes
)

// FuncAttribute is a CUfunction_attribute.
type FuncAttribute int32

// Attributes of functions, with the numbers of cuda.h.
const (
	FuncMaxThreadsPerBlock FuncAttribute = 0
	FuncSharedBytes        FuncAttribute = 1 // static
	FuncLocalBytes         FuncAttribute = 3 // per thread; spills
	FuncRegisters          FuncAttribute = 4
	FuncMaxDynamicShared   FuncAttribute = 8 // bytes; must be raised before a launch with more than 48 KiB
	FuncSharedCarveout     FuncAttribute = 9 // percent of shared memory and L1
)
