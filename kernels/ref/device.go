// Package ref is the device that defines every operation of package kernels: pure Go, float32, plain loops. Other devices are
// compared with it. The order of every reduction is a function of the shapes and the position alone, so a row's results do not depend on the
// rest of the batch, on chunking, or on the number of threads.
package ref

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// Options of the device.
type Options struct {
	Threads int // 0: GOMAXPROCS
}

// Device runs modules by definition.
type Device struct{ threads int }

var _ kernels.Device = (*Device)(nil)

// Open returns the reference device.
func Open(o Options) *Device {
	n := o.Threads
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	return &Device{threads: n}
}

// Info says what the device is.
func (d *Device) Info() kernels.DeviceInfo {
	return kernels.DeviceInfo{Kind: "ref", Name: "pure Go reference", Level: "float32", Threads: d.threads}
}

// Plan sizes states; weights stay where they are.
func (d *Device) Plan(m *kernels.Module, l kernels.Limits) (kernels.MemoryPlan, error) {
	if err := m.Validate(); err != nil {
		return kernels.MemoryPlan{}, fmt.Errorf("plan %s: %w", m.Name, err)
	}
	p := kernels.MemoryPlan{BlockBytes: make([]int64, len(m.Groups)), Slots: l.Rows}
	for _, w := range m.Weights {
		p.Weights += int64(len(w.View.Data))
	}
	for _, s := range m.States {
		switch s.Kind {
		case kernels.Paged:
			p.BlockBytes[s.Group] += 4 * int64(l.BlockSize) * int64(s.Heads) * int64(s.KDim+s.VDim)
		case kernels.Slot:
			p.SlotBytes += 4 * int64(s.Floats)
		}
	}
	sizes := kernels.Sizes{Tokens: l.Tokens, Rows: l.Rows, LogitRows: l.LogitRows, Frames: l.Frames}
	for _, e := range m.Entries {
		for _, b := range e.Buffers {
			rows, width := b.Shape(sizes)
			p.Scratch += 4 * int64(rows) * int64(width) * int64(max(l.InFlight, 1))
		}
	}
	return p, nil
}

// Compile checks the module and readies its small weights.
func (d *Device) Compile(m *kernels.Module, l kernels.Limits) (kernels.Program, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("compile %s: %w", m.Name, err)
	}
	var errs []error
	for _, e := range m.Entries {
		for i, op := range e.Ops {
			if run(op) == nil {
				errs = append(errs, fmt.Errorf("entry %s op %d: operation %s (%T) is not supported by the reference device", e.Name, i, op.Name(), op))
			}
		}
	}
	if l.KV != tensor.Invalid && l.KV != tensor.F32 {
		errs = append(errs, fmt.Errorf("the reference device keeps its caches in F32, not %s", l.KV))
	}
	if len(m.Groups) > 0 && l.BlockSize <= 0 {
		errs = append(errs, fmt.Errorf("block size %d", l.BlockSize))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("compile %s: %w", m.Name, err)
	}
	w, err := NewWeights(m)
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", m.Name, err)
	}
	return &program{module: m, limits: l, weights: w, threads: d.threads, adapters: make([]*kernels.Adapter, l.AdapterSlots)}, nil
}

// Close does nothing: the device owns nothing.
func (d *Device) Close() error { return nil }

type program struct {
	module   *kernels.Module
	limits   kernels.Limits
	weights  *Weights
	threads  int
	adapters []*kernels.Adapter
}

func (p *program) SetAdapter(slot int, a *kernels.Adapter) error {
	if slot < 0 || slot >= len(p.adapters) {
		return fmt.Errorf("set adapter: slot %d of %d", slot, len(p.adapters))
	}
	p.adapters[slot] = a
	return nil
}

// Explain lists the operations of each entry: nothing is fused.
func (p *program) Explain() string {
	var s strings.Builder
	for _, e := range p.module.Entries {
		fmt.Fprintf(&s, "%s: %d operations, each by definition\n", e.Name, len(e.Ops))
		for i, op := range e.Ops {
			fmt.Fprintf(&s, "  %3d %s\n", i, op.Name())
		}
	}
	return s.String()
}

func (p *program) Close() error { return nil }
