package engine

import (
	"context"
	"errors"
	"fmt"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
	"omni-engine/metrics/record"
	"omni-engine/scheduler"
)

// Settings say how a model is to be run on a device.
type Settings struct {
	MaxModelLen int
	MaxSeqs     int // max_num_seqs
	MaxTokens   int // max_num_batched_tokens
	BlockSize   int // tokens
	Depth       int // steps in flight; 0 means 1
	Seed        uint64

	CacheBytes int64 // 0: the default, see [DefaultCacheBytes]
	Blocks     int   // --num-gpu-blocks-override; 0: what fits
	Free       int64 // memory that may still be taken, for the default; 0: unknown
	// Utilization is the share of a device's own memory that this process may take (--gpu-memory-utilization); 0: the default.
	Utilization float64
	KV          tensor.DType
	Exact       bool         // float32 throughout
	Compute     tensor.DType // of activations, where the device has a choice; Invalid: it chooses
	Prefix      bool
	HashAlgo    string
}

// Assembly is a model compiled for a device with its caches, ready for a core.
type Assembly struct {
	Runner *DeviceRunner
	Limits kernels.Limits
	Memory kernels.MemoryPlan
	Cache  CachePlan
	Device *DeviceMemory // how the device's own memory is divided; nil on the CPU
	Facts  *record.CacheConfig
	// Explain says what each entry became on the device.
	Explain string
}

// mostLogits bounds the rows of logits of one submit beyond one a sequence: prompt logprobs come in parts of this size, so that
// 2,048 of them over a large vocabulary do not take gigabytes.
const mostLogits = 64

// Plan sizes what Assemble would take, without taking it: limits, the device's plan, the cache, and how a device with memory of
// its own is divided (nil for others).
func Plan(dev kernels.Device, m *kernels.Module, s Settings) (*Assembly, error) {
	a, _, err := plan(dev, m, s)
	return a, err
}

func plan(dev kernels.Device, m *kernels.Module, s Settings) (*Assembly, CacheRequest, error) {
	a := &Assembly{Limits: kernels.Limits{
		Tokens: s.MaxTokens, Rows: s.MaxSeqs, LogitRows: max(s.MaxSeqs, mostLogits), MaxModelLen: s.MaxModelLen,
		InFlight: max(s.Depth, 1), BlockSize: s.BlockSize, KV: s.KV, Exact: s.Exact, Compute: s.Compute,
	}}
	req := CacheRequest{
		Bytes: s.CacheBytes, Blocks: s.Blocks, MaxModelLen: s.MaxModelLen, MaxTokens: s.MaxTokens, MaxSeqs: s.MaxSeqs,
		BlockSize: s.BlockSize, Groups: m.Groups, DType: s.KV.String(), Prefix: s.Prefix, HashAlgo: s.HashAlgo,
	}
	if s.KV == tensor.Invalid {
		req.DType = "auto"
	}
	var err error
	if a.Memory, err = dev.Plan(m, a.Limits); err != nil {
		return nil, req, fmt.Errorf("planning memory for %s: %w", m.Name, err)
	}
	own, ok := dev.(kernels.MemoryDevice)
	switch {
	case ok:
		free, total, err := own.Memory()
		if err != nil {
			return nil, req, fmt.Errorf("reading the memory of %s: %w", dev.Info().Name, err)
		}
		d := planDevice(dev.Info().Name, free, total, a.Memory, s)
		if err := d.check(); err != nil {
			return nil, req, err
		}
		a.Device, req.Bytes = &d, d.KV
	case req.Bytes == 0:
		req.Bytes = DefaultCacheBytes(&a.Memory, req, s.Free)
	}
	a.Cache, err = a.cache(req)
	return a, req, err
}

// cache sizes the KV cache; a device's plan explains one that is too small.
func (a *Assembly) cache(req CacheRequest) (CachePlan, error) {
	c, err := PlanCache(&a.Memory, req)
	if err != nil && a.Device != nil {
		return c, &DeviceMemoryError{Plan: *a.Device, Reason: "the KV cache is too small", Err: err}
	}
	return c, err
}

// Assemble plans the memory, refuses a cache that is too small before anything is packed, compiles the module and allocates its
// states. The module's weights may be unmapped afterwards if the device packed them. On a device with memory of its own the cache's size
// follows a profiling step, as in vLLM.
func Assemble(dev kernels.Device, m *kernels.Module, s Settings) (*Assembly, error) {
	a, req, err := plan(dev, m, s)
	if err != nil {
		return nil, err
	}
	program, err := dev.Compile(m, a.Limits)
	if err != nil {
		return nil, a.outOfMemory(fmt.Errorf("compiling %s: %w", m.Name, err))
	}
	if a.Device != nil {
		if err := a.profile(dev.(kernels.MemoryDevice), program, m, &req); err != nil {
			return nil, errors.Join(a.outOfMemory(err), program.Close())
		}
	}
	a.Runner, err = NewDeviceRunner(program, RunnerConfig{Module: m, Limits: a.Limits, Plan: a.Memory, Seed: s.Seed})
	if err != nil {
		return nil, errors.Join(a.outOfMemory(err), program.Close())
	}
	if g, ok := a.Runner.States().(kernels.GraphStates); ok {
		if err := g.CaptureGraphs(); err != nil {
			return nil, errors.Join(a.outOfMemory(err), a.Runner.Close())
		}
	}
	a.Facts, a.Explain = a.Cache.CacheConfig(req), program.Explain()
	return a, nil
}

// profile runs the largest step and gives the cache what it leaves.
func (a *Assembly) profile(dev kernels.MemoryDevice, program kernels.Program, m *kernels.Module, req *CacheRequest) error {
	if err := profile(context.Background(), program, m, a.Limits, a.Memory); err != nil {
		return fmt.Errorf("profiling %s: %w", m.Name, err)
	}
	free, _, err := dev.Memory()
	if err != nil {
		return fmt.Errorf("reading the memory of %s: %w", dev.Info().Name, err)
	}
	d := a.Device.profiled(free)
	if err := d.check(); err != nil {
		return err
	}
	a.Device = &d
	if !d.Fixed {
		req.Bytes = d.KV
	}
	a.Cache, err = a.cache(*req)
	return err
}

// outOfMemory adds the plan to a device's word that its memory is used up.
func (a *Assembly) outOfMemory(err error) error {
	if a.Device == nil || !errors.Is(err, kernels.ErrOutOfMemory) {
		return err
	}
	return &DeviceMemoryError{Plan: *a.Device, Reason: "device " + a.Device.Device + " ran out of memory", Err: err}
}

// Scheduler returns c with what the assembly decides: sizes, KV groups, steps in flight. Prefix caching is off for a module with
// slot states: what a slot holds after a prefix is not in the cache.
func (a *Assembly) Scheduler(c scheduler.Config, m *kernels.Module) scheduler.Config {
	c.MaxNumSeqs, c.MaxNumBatchedTokens, c.MaxModelLen = a.Limits.Rows, a.Limits.Tokens, a.Limits.MaxModelLen
	c.BlockSize, c.NumBlocks = a.Limits.BlockSize, a.Cache.Blocks
	c.Async, c.MaxConcurrentBatches = a.Limits.InFlight > 1, a.Limits.InFlight
	c.Groups = nil
	for _, g := range m.Groups {
		spec := scheduler.GroupSpec{BlockSize: a.Limits.BlockSize}
		if g.Window > 0 {
			spec.Kind, spec.Window = scheduler.SlidingWindow, g.Window
		}
		c.Groups = append(c.Groups, spec)
	}
	for _, s := range m.States {
		if s.Kind == kernels.Slot {
			c.EnablePrefixCaching = false
		}
	}
	return c
}
