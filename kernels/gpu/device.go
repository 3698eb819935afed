// Package gpu compiles modules for a CUDA device: operations are fused into the kernels of this folder's sources (see ABI.md), weights
// stream to the device, the KV cache is paged there, decode steps are CUDA graphs by batch bucket, and sampling happens on the
// device, so that only token ids come back. kernels/ref defines what each operation means.
package gpu

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"omni-engine/cuda"
	"omni-engine/kernels"
)

// Options of a device.
type Options struct {
	Ordinal int  // of the GPU
	Eager   bool // launch every kernel by itself instead of replaying graphs (--enforce-eager)
	// BLAS says where cuBLASLt is, which then multiplies by dense 16-bit weights in eager steps of many rows: its file or folder, which
	// must work; or [AnyBLAS], the first that the system has, if any. Empty: own kernels only.
	BLAS string
	Log  *slog.Logger // of what was chosen; nil: nobody reads it
}

// device is one GPU with the kernels loaded on it.
type device struct {
	cuda   *cuda.Device
	eager  bool
	log    *slog.Logger
	module cuda.Module
	blas   *blas       // nil: own kernels only
	stream cuda.Stream // all steps of all programs run on it, in the order of their submission

	mu        sync.Mutex
	functions map[string]cuda.Function
	close     sync.Once
}

var _ kernels.MemoryDevice = (*device)(nil)

// Open retains the GPU and loads the kernels. The device must be closed after its programs; the driver is the caller's.
func Open(driver cuda.Driver, o Options) (kernels.MemoryDevice, error) {
	c, err := cuda.OpenDevice(driver, o.Ordinal)
	if err != nil {
		return nil, fmt.Errorf("opening the GPU: %w", err)
	}
	d := &device{cuda: c, eager: o.Eager, log: o.Log, functions: map[string]cuda.Function{}}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	err = c.Do(func() (err error) {
		if d.module, err = c.ModuleLoad(fatbin()); err != nil {
			return fmt.Errorf("loading the kernels: %w", err)
		}
		if d.stream, err = c.StreamCreate(0); err != nil {
			return err
		}
		return d.openBLAS(o)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the GPU: %w", err), d.Close())
	}
	return d, nil
}

// Info says what the device is.
func (d *device) Info() kernels.DeviceInfo {
	i := d.cuda.Info
	return kernels.DeviceInfo{Kind: "cuda", Name: i.Name, Level: "sm_" + fmt.Sprint(i.Capability.Major) + fmt.Sprint(i.Capability.Minor), Threads: i.Multiprocessors, Memory: i.Memory}
}

// Memory is what the driver says.
func (d *device) Memory() (free, total int64, err error) {
	err = d.cuda.Do(func() (err error) {
		free, total, err = d.cuda.MemInfo()
		return err
	})
	return free, total, err
}

// Plan sizes a module.
func (d *device) Plan(m *kernels.Module, l kernels.Limits) (kernels.MemoryPlan, error) {
	p, err := newPlan(m, l, d.hardware())
	if err != nil {
		return kernels.MemoryPlan{}, err
	}
	return p.memory(), nil
}

// Close unloads the kernels and releases the GPU.
func (d *device) Close() (err error) {
	d.close.Do(func() {
		err = d.cuda.Do(func() error {
			var errs []error
			if d.blas != nil {
				errs = append(errs, d.blas.close())
			}
			if d.stream != 0 {
				errs = append(errs, d.cuda.StreamDestroy(d.stream))
			}
			if d.module != 0 {
				errs = append(errs, d.cuda.ModuleUnload(d.module))
			}
			return errors.Join(errs...)
		})
		err = errors.Join(err, d.cuda.Close())
	})
	return err
}

// function finds a kernel by its symbol; large dynamic shared memory is allowed once.
func (d *device) function(name string, shared int) (cuda.Function, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f, ok := d.functions[name]; ok { // a kernel's shared memory never differs
		return f, nil
	}
	var f cuda.Function
	err := d.cuda.Do(func() (err error) {
		if f, err = d.cuda.ModuleFunction(d.module, name); err != nil {
			return err
		}
		if shared > 48<<10 {
			err = d.cuda.SetFuncAttribute(f, cuda.FuncMaxDynamicShared, shared)
		}
		if err == nil {
			// The driver loads kernels lazily, which it may not do in a capture: a question loads it.
			_, err = d.cuda.FuncAttribute(f, cuda.FuncRegisters)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("kernel %s: %w", name, err)
	}
	d.functions[name] = f
	return f, nil
}
