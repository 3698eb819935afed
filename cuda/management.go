package cuda

import "strings"

// Management is NVML: what the machine's administrator sees of a GPU. It needs no context.
type Management interface {
	// DriverVersion is the driver package's, e.g. "580.95.05".
	DriverVersion() (string, error)
	// Status reads a device by its UUID.
	Status(uuid string) (Status, error)
	Close() error
}

// Status is a device's state of the moment. What the device does not report is absent (zero, with its name in Absent).
type Status struct {
	GPUBusy, MemoryBusy  int // percent of the last sample period
	SMClock, MemoryClock int // MHz
	Throttle             ThrottleReasons
	MemoryUsed           int64 // bytes, all processes
	MemoryTotal          int64
	Temperature          int // degrees Celsius
	Power                int // mW
	Processes            []Process
	Absent               []string
}

// Process is one that computes on the device. Memory is 0 where the driver does not tell (containers).
type Process struct {
	PID    int
	Memory int64
}

// ThrottleReasons says why clocks are lower than they could be (nvmlClocksEventReasons).
type ThrottleReasons uint64

// Names lists the reasons that cost speed; being idle or clocked by an application is none.
func (r ThrottleReasons) Names() []string {
	var out []string
	for _, n := range []struct {
		bit  ThrottleReasons
		name string
	}{{0x4, "software power cap"}, {0x8, "hardware slowdown"}, {0x10, "sync boost"}, {0x20, "software thermal slowdown"},
		{0x40, "hardware thermal slowdown"}, {0x80, "hardware power brake"}, {0x100, "display clocks"}} {
		if r&n.bit != 0 {
			out = append(out, n.name)
		}
	}
	return out
}

func (r ThrottleReasons) String() string { return strings.Join(r.Names(), ", ") }
