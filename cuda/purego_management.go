//go:build !nocuda && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Numbers of nvml.h.
const (
	nvmlNotSupported    = 3
	nvmlClockSM         = 1
	nvmlClockMem        = 2
	nvmlTemperatureGPU  = 0
	nvmlInsufficientBuf = 7
)

type dynamicManagement struct {
	init, shutdown, errorString, driverVersion, byUUID, utilization, clock, throttle, memory, temperature, power, processes proc
}

// OpenManagement opens and initialises NVML.
func OpenManagement(o Options) (Management, []Probe, error) {
	l := ManagementLibrary()
	h, probes, err := systemFinder(dlopen).find(l, o.Management)
	if err != nil {
		return nil, probes, err
	}
	m := &dynamicManagement{}
	if err := bind(h, probes[len(probes)-1].Path, []binding{{"nvmlInit_v2", &m.init}, {"nvmlShutdown", &m.shutdown}, {"nvmlErrorString", &m.errorString},
		{"nvmlSystemGetDriverVersion", &m.driverVersion}, {"nvmlDeviceGetHandleByUUID", &m.byUUID}, {"nvmlDeviceGetUtilizationRates", &m.utilization},
		{"nvmlDeviceGetClockInfo", &m.clock}, {"nvmlDeviceGetCurrentClocksThrottleReasons", &m.throttle}, {"nvmlDeviceGetMemoryInfo", &m.memory},
		{"nvmlDeviceGetTemperature", &m.temperature}, {"nvmlDeviceGetPowerUsage", &m.power}, {"nvmlDeviceGetComputeRunningProcesses_v3", &m.processes}}); err != nil {
		return nil, probes, err
	}
	if err := m.failed(&m.init, m.init.invoke()); err != nil {
		return nil, probes, err
	}
	return m, probes, nil
}

func (m *dynamicManagement) failed(p *proc, r int32) error {
	if r == 0 {
		return nil
	}
	s, _, _ := purego.SyscallN(m.errorString.addr, uintptr(r))
	return &LibraryError{Call: p.name, Code: int(r), Text: cString(s)}
}

func (m *dynamicManagement) Close() error { return m.failed(&m.shutdown, m.shutdown.invoke()) }

func (m *dynamicManagement) DriverVersion() (string, error) {
	var buf [96]byte
	err := m.failed(&m.driverVersion, m.driverVersion.invoke(uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf))))
	return text(buf[:]), err
}

func (m *dynamicManagement) Status(uuid string) (Status, error) {
	var s Status
	var dev uintptr
	name := append([]byte(uuid), 0)
	if err := m.failed(&m.byUUID, m.byUUID.invoke(uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&dev)))); err != nil {
		return s, err
	}
	var busy struct{ gpu, memory uint32 }
	var mem struct{ total, free, used uint64 }
	var sm, memClock, temperature, power uint32
	var why uint64
	var errs []error
	for _, q := range []struct {
		what string
		p    *proc
		r    int32
	}{
		{"utilisation", &m.utilization, m.utilization.invoke(dev, uintptr(unsafe.Pointer(&busy)))},
		{"SM clock", &m.clock, m.clock.invoke(dev, nvmlClockSM, uintptr(unsafe.Pointer(&sm)))},
		{"memory clock", &m.clock, m.clock.invoke(dev, nvmlClockMem, uintptr(unsafe.Pointer(&memClock)))},
		{"throttling", &m.throttle, m.throttle.invoke(dev, uintptr(unsafe.Pointer(&why)))},
		{"memory", &m.memory, m.memory.invoke(dev, uintptr(unsafe.Pointer(&mem)))},
		{"temperature", &m.temperature, m.temperature.invoke(dev, nvmlTemperatureGPU, uintptr(unsafe.Pointer(&temperature)))},
		{"power", &m.power, m.power.invoke(dev, uintptr(unsafe.Pointer(&power)))},
	} {
		switch q.r {
		case 0:
		case nvmlNotSupported:
			s.Absent = append(s.Absent, q.what)
		default:
			errs = append(errs, m.failed(q.p, q.r))
		}
	}
	s.GPUBusy, s.MemoryBusy, s.SMClock, s.MemoryClock = int(busy.gpu), int(busy.memory), int(sm), int(memClock)
	s.Throttle, s.MemoryUsed, s.MemoryTotal = ThrottleReasons(why), int64(mem.used), int64(mem.total)
	s.Temperature, s.Power = int(temperature), int(power)
	var err error
	if s.Processes, err = m.running(dev); err != nil {
		errs = append(errs, err)
	}
	return s, errors.Join(errs...)
}

// running lists the processes that compute on the device.
func (m *dynamicManagement) running(dev uintptr) ([]Process, error) {
	type info struct {
		pid    uint32
		memory uint64
		gi, ci uint32
	}
	const unknown = ^uint64(0)
	for room := uint32(64); ; room *= 2 {
		list, n := make([]info, room), room
		r := m.processes.invoke(dev, uintptr(unsafe.Pointer(&n)), uintptr(unsafe.Pointer(&list[0])))
		if r == nvmlInsufficientBuf && room < 1<<16 {
			continue
		}
		if r == nvmlNotSupported {
			return nil, nil
		}
		if err := m.failed(&m.processes, r); err != nil {
			return nil, err
		}
		out := make([]Process, 0, n)
		for _, i := range list[:n] {
			if i.memory == unknown {
				i.memory = 0
			}
			out = append(out, Process{PID: int(i.pid), Memory: int64(i.memory)})
		}
		return out, nil
	}
}
