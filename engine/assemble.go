package engine

import (
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
	KV         tensor.DType
	Exact      bool // float32 throughout
	Prefix     bool
	HashAlgo   string
}

// Assembly is a model compiled for a device with its caches, ready for a core.
type Assembly struct {
	Runner *DeviceRunner
	Limits kernels.Limits
	Memory kernels.MemoryPlan
	Cache  CachePlan
	Facts  *record.CacheConfig
	// Explain says what each entry became on the device.
	Explain string
}

// mostLogits bounds the rows of logits of one submit beyond one a sequence: prompt logprobs come in parts of this size, so that
// 2,048 of them over a large vocabulary do not take gigabytes.
const mostLogits = 64

// Assemble plans the memory, refuses a cache that is too small before anything is packed, compiles the module and allocates its
// states. The module's weights may be unmapped afterwards if the device packed them.
func Assemble(dev kernels.Device, m *kernels.Module, s Settings) (*Assembly, error) {
	limits := kernels.Limits{
		Tokens: s.MaxTokens, Rows: s.MaxSeqs, LogitRows: max(s.MaxSeqs, mostLogits), MaxModelLen: s.MaxModelLen,
		InFlight: max(s.Depth, 1), BlockSize: s.BlockSize, KV: s.KV, Exact: s.Exact,
	}
	plan, err := dev.Plan(m, limits)
	if err != nil {
		return nil, fmt.Errorf("planning memory for %s: %w", m.Name, err)
	}
	req := CacheRequest{
		Bytes: s.CacheBytes, Blocks: s.Blocks, MaxModelLen: s.MaxModelLen, MaxTokens: s.MaxTokens, MaxSeqs: s.MaxSeqs,
		BlockSize: s.BlockSize, Groups: m.Groups, DType: s.KV.String(), Prefix: s.Prefix, HashAlgo: s.HashAlgo,
	}
	if s.KV == tensor.Invalid {
		req.DType = "auto"
	}
	if req.Bytes == 0 {
		req.Bytes = DefaultCacheBytes(&plan, req, s.Free)
	}
	cache, err := PlanCache(&plan, req)
	if err != nil {
		return nil, err
	}
	program, err := dev.Compile(m, limits)
	if err != nil {
		return nil, fmt.Errorf("compiling %s: %w", m.Name, err)
	}
	runner, err := NewDeviceRunner(program, RunnerConfig{Module: m, Limits: limits, Plan: plan, Seed: s.Seed})
	if err != nil {
		return nil, errors.Join(err, program.Close())
	}
	return &Assembly{Runner: runner, Limits: limits, Memory: plan, Cache: cache, Facts: cache.CacheConfig(req), Explain: program.Explain()}, nil
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
