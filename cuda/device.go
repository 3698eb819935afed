package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

// MinimumVersion is the CUDA version that the driver must support: that of the toolchain that built the kernels.
const MinimumVersion = 13000

// minimumCapability is the oldest architecture that the kernels are compiled for.
func minimumCapability() ComputeCapability { return ComputeCapability{8, 0} }

// computeModeProhibited is CU_COMPUTEMODE_PROHIBITED.
const computeModeProhibited = 2

// ComputeCapability is a GPU's architecture, e.g. 9.0.
type ComputeCapability struct{ Major, Minor int }

func (c ComputeCapability) String() string { return fmt.Sprintf("%d.%d", c.Major, c.Minor) }

// Less reports whether c is older than o.
func (c ComputeCapability) Less(o ComputeCapability) bool {
	return c.Major < o.Major || c.Major == o.Major && c.Minor < o.Minor
}

// DeviceInfo is what a device says of itself.
type DeviceInfo struct {
	Ordinal             int
	Name                string
	UUID                string
	PCI                 string // "0000:65:00.0"
	Capability          ComputeCapability
	Memory              int64 // bytes
	Multiprocessors     int
	ClockKHz            int // 0 where the driver no longer says
	MemoryClockKHz      int
	MemoryBusBits       int
	L2Bytes             int
	SharedPerBlock      int // bytes, opted in
	SharedPerSM         int // bytes
	RegistersPerSM      int
	MaxThreadsPerSM     int
	ECC                 bool
	ComputeModeExcluded bool // "prohibited": no context can be made
}

func (i DeviceInfo) String() string { return fmt.Sprintf("device %d (%s)", i.Ordinal, i.Name) }

// Bandwidth is the memory's peak in bytes a second by clock and width, 0 where the driver does not give them.
func (i DeviceInfo) Bandwidth() float64 {
	return 2 * float64(i.MemoryClockKHz) * 1e3 * float64(i.MemoryBusBits) / 8
}

// Describe asks a device about itself. It makes no context.
func Describe(d Driver, ordinal int) (DeviceInfo, error) {
	i := DeviceInfo{Ordinal: ordinal}
	var err error
	if i.Name, err = d.DeviceName(ordinal); err != nil {
		return i, err
	}
	if i.UUID, err = d.DeviceUUID(ordinal); err != nil {
		return i, err
	}
	if i.Memory, err = d.DeviceMemory(ordinal); err != nil {
		return i, err
	}
	var domain, bus, slot, ecc, mode int
	for _, q := range []struct {
		a   Attribute
		dst *int
	}{{ComputeCapabilityMajor, &i.Capability.Major}, {ComputeCapabilityMinor, &i.Capability.Minor}, {MultiprocessorCount, &i.Multiprocessors},
		{ClockRate, &i.ClockKHz}, {MemoryClockRate, &i.MemoryClockKHz}, {MemoryBusWidth, &i.MemoryBusBits}, {L2CacheSize, &i.L2Bytes},
		{MaxSharedPerBlockOptin, &i.SharedPerBlock}, {MaxSharedPerMultiprocessor, &i.SharedPerSM}, {MaxRegistersPerSM, &i.RegistersPerSM},
		{MaxThreadsPerSM, &i.MaxThreadsPerSM}, {ECCEnabled, &ecc}, {ComputeMode, &mode}, {PCIDomainID, &domain}, {PCIBusID, &bus}, {PCIDeviceID, &slot}} {
		if *q.dst, err = d.Attribute(ordinal, q.a); err != nil {
			return i, err
		}
	}
	i.ECC, i.ComputeModeExcluded = ecc != 0, mode == computeModeProhibited
	i.PCI = fmt.Sprintf("%04x:%02x:%02x.0", domain, bus, slot)
	return i, nil
}

// Usable says why the kernels cannot run on a device; nil where they can.
func (i DeviceInfo) Usable() error {
	switch need := minimumCapability(); {
	case i.Capability.Less(need):
		return &OldDeviceError{Device: i.String(), Have: i.Capability, Need: need}
	case i.ComputeModeExcluded:
		return fmt.Errorf("%s is in compute mode PROHIBITED: nvidia-smi -i %d -c DEFAULT allows it", i, i.Ordinal)
	}
	return nil
}

// Device is an opened device: its primary context, retained.
type Device struct {
	Driver
	Info DeviceInfo
	ctx  Ctx
}

// OpenDevice retains a device's primary context after checking that the kernels can run on it.
func OpenDevice(d Driver, ordinal int) (*Device, error) {
	n, err := d.DeviceCount()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= n {
		return nil, fmt.Errorf("there is no CUDA device %d: the driver has %d, counted from 0 (CUDA_VISIBLE_DEVICES renumbers them)", ordinal, n)
	}
	info, err := Describe(d, ordinal)
	if err != nil {
		return nil, err
	}
	if err := info.Usable(); err != nil {
		return nil, err
	}
	ctx, err := d.PrimaryRetain(ordinal)
	if err != nil {
		return nil, naming(err, info.String())
	}
	return &Device{Driver: d, Info: info, ctx: ctx}, nil
}

// Do runs f on a locked thread on which the device's context is current, and puts the device's name into a driver error.
// Do may be nested.
func (d *Device) Do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.SetCurrent(d.ctx); err != nil {
		return naming(err, d.Info.String())
	}
	if err := f(); err != nil {
		return naming(err, d.Info.String())
	}
	return nil
}

// Capture records what f puts on the stream into a graph, which the caller destroys.
func (d *Device) Capture(s Stream, f func() error) (g Graph, err error) {
	err = d.Do(func() error {
		if err := d.CaptureBegin(s); err != nil {
			return err
		}
		failed := f()
		// The capture has to end in any case, or the stream stays unusable.
		var err error
		g, err = d.CaptureEnd(s)
		if failed != nil {
			if err == nil {
				_ = d.GraphDestroy(g)
			}
			g = 0
			return failed
		}
		return err
	})
	return g, err
}

// Close releases the primary context.
func (d *Device) Close() error {
	return naming(d.PrimaryRelease(d.Info.Ordinal), d.Info.String())
}

// naming puts the device's name into a driver error that lacks one.
func naming(err error, device string) error {
	var e *Error
	if errors.As(err, &e) && e.Device == "" {
		e.Device = device
	}
	return err
}

// HostSlice is page-locked memory from HostAlloc seen as n elements of T.
func HostSlice[T any](p unsafe.Pointer, n int) []T { return unsafe.Slice((*T)(p), n) }

// text is a C string in a buffer.
func text(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

func uuidText(u [16]byte) string {
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}
