package engine

import (
	"fmt"
	"strings"

	"omni-engine/kernels"
)

// DeviceMemory is how the memory of a device is divided, in bytes.
type DeviceMemory struct {
	Device      string
	Total, Free int64 // of the device, before anything of this program is on it
	Utilization float64
	Requested   int64 // Total*Utilization: what this process may take
	Weights     int64
	Scratch     int64
	Other       int64 // context, modules, workspaces: what the profiling step showed beyond weights and scratch; 0 before it
	KV          int64 // what remains for the KV cache
	Fixed       bool  // KV was set by --kv-cache-memory-bytes or --num-gpu-blocks-override
	Profiled    bool
}

// planDevice divides a device's memory by what is planned. As vLLM does, the process takes a share of the whole, whatever others
// use; what is then left beside weights and scratch is for the KV cache.
func planDevice(name string, free, total int64, plan kernels.MemoryPlan, s Settings) DeviceMemory {
	d := DeviceMemory{Device: name, Total: total, Free: free, Utilization: s.Utilization, Weights: plan.Weights, Scratch: plan.Scratch}
	if d.Utilization <= 0 {
		d.Utilization = DefaultUtilization
	}
	d.Requested = int64(float64(total) * d.Utilization)
	d.KV = max(d.Requested-d.Weights-d.Scratch, 0)
	if s.CacheBytes > 0 {
		d.KV, d.Fixed = s.CacheBytes, true
	}
	if s.Blocks > 0 {
		d.KV, d.Fixed = int64(s.Blocks)*plan.BlockSpan(), true
	}
	return d
}

// DefaultUtilization is vLLM's default of --gpu-memory-utilization.
const DefaultUtilization = 0.92

// check refuses a plan that cannot come true, before anything is uploaded.
func (d DeviceMemory) check() error {
	switch need := d.Weights + d.Scratch + d.Other; {
	case !d.Fixed && d.Free < d.Requested && !d.Profiled:
		return d.fail("Free memory on device %s (%s/%s GiB) on startup is less than desired GPU memory utilization (%g, %s GiB). Decrease GPU memory "+
			"utilization or reduce GPU memory used by other processes.", d.Device, gib(d.Free), gib(d.Total), d.Utilization, gib(d.Requested))
	case need > d.Free:
		return d.fail("the model's weights and scratch take %s GiB, device %s has %s GiB free. Lower --max-num-batched-tokens or --max-num-seqs, "+
			"or serve a smaller or quantised model.", gib(need), d.Device, gib(d.Free))
	case !d.Fixed && d.KV <= 0:
		return d.fail("the model's weights and scratch take %s GiB, all of the %s GiB that --gpu-memory-utilization %g allows: nothing is left for the KV cache. "+
			"Increase --gpu-memory-utilization or lower --max-num-batched-tokens.", gib(need), gib(d.Requested), d.Utilization)
	case d.Fixed && need+d.KV > d.Free:
		return d.fail("weights, scratch and the KV cache that was asked for take %s GiB, device %s has %s GiB free. Lower --kv-cache-memory-bytes "+
			"(or --num-gpu-blocks-override).", gib(need+d.KV), d.Device, gib(d.Free))
	}
	return nil
}

func (d DeviceMemory) fail(format string, args ...any) error {
	return &DeviceMemoryError{Plan: d, Reason: fmt.Sprintf(format, args...)}
}

// DeviceMemoryError refuses to start a model on a device that is too small for it, with the plan.
type DeviceMemoryError struct {
	Plan   DeviceMemory
	Reason string
	Err    error // what the device said; nil when the plan alone shows it
}

// Error gives the reason, then the plan a line each.
func (e *DeviceMemoryError) Error() string {
	s := e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s + "\nThe memory plan:\n" + e.Plan.String()
}

// Unwrap returns what the device said.
func (e *DeviceMemoryError) Unwrap() error { return e.Err }

// String is the plan, a line each.
func (d DeviceMemory) String() string {
	var b strings.Builder
	line := func(name string, n int64, note string) {
		fmt.Fprintf(&b, "  %-22s %10s GiB  %s\n", name, gib(n), note)
	}
	line("device memory", d.Total, d.Device)
	line("free at start", d.Free, "")
	line("may be used", d.Requested, fmt.Sprintf("--gpu-memory-utilization %g", d.Utilization))
	line("weights", d.Weights, "")
	line("scratch", d.Scratch, "activations, logits, batches (--max-num-batched-tokens, --max-num-seqs)")
	if d.Profiled {
		line("context and libraries", d.Other, "measured by the profiling step")
	}
	note := "the rest"
	if d.Fixed {
		note = "as set"
	}
	line("KV cache", d.KV, note)
	return strings.TrimSuffix(b.String(), "\n")
}

// profiled corrects the plan by what a device has left after the profiling step.
func (d DeviceMemory) profiled(free int64) DeviceMemory {
	used := max(d.Free-free, 0)
	d.Other, d.Profiled = max(used-d.Weights-d.Scratch, 0), true
	if !d.Fixed {
		d.KV = max(min(d.Requested-used, free), 0)
	}
	return d
}
