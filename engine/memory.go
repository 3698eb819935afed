package engine

import (
	"fmt"
	"math"

	"omni-engine/kernels"
	"omni-engine/metrics/record"
)

// CacheRequest asks for a KV cache.
type CacheRequest struct {
	Bytes       int64 // memory for the cache
	Blocks      int   // --num-gpu-blocks-override; 0: as many as fit in Bytes
	MaxModelLen int
	MaxTokens   int // max_num_batched_tokens
	MaxSeqs     int
	BlockSize   int
	Groups      []kernels.GroupSpec
	DType       string
	Prefix      bool
	HashAlgo    string
}

// CachePlan is the KV cache that fits.
type CachePlan struct {
	Blocks         int   // the null block included
	Bytes          int64 // of all blocks
	BlockBytes     int64 // one block, whichever group holds it
	BlocksPerSeq   int   // that one sequence of max_model_len needs at most
	Tokens         int   // that fit, in sequences of max_model_len
	MaxConcurrency float64
}

// PlanCache sizes the KV cache from a device's memory plan: it sets plan.Blocks and plan.Slots. A cache that cannot hold one
// sequence of max_model_len is refused with the numbers and what to do.
func PlanCache(plan *kernels.MemoryPlan, r CacheRequest) (CachePlan, error) {
	c := CachePlan{BlocksPerSeq: blocksPerSeq(r, r.MaxModelLen), BlockBytes: plan.BlockSpan()}
	if c.BlockBytes <= 0 { // a module without attention: only slots
		c.BlockBytes = 1
	}
	c.Blocks = r.Blocks
	if c.Blocks == 0 {
		c.Blocks = int(min(r.Bytes/c.BlockBytes, math.MaxInt32))
	}
	// Block 0 is the null block; no sequence lives in it.
	if c.Blocks < c.BlocksPerSeq+1 {
		return CachePlan{}, tooSmall(r, c)
	}
	c.Bytes = int64(c.Blocks) * c.BlockBytes
	c.MaxConcurrency = float64(c.Blocks-1) / float64(max(c.BlocksPerSeq, 1))
	c.Tokens = int(c.MaxConcurrency * float64(r.MaxModelLen))
	plan.Blocks, plan.Slots = c.Blocks, r.MaxSeqs
	return c, nil
}

// blocksPerSeq is the most blocks that a sequence of n tokens holds at once: all of them in a full-attention group; in a
// sliding-window group those that the window and one step's tokens can touch.
func blocksPerSeq(r CacheRequest, n int) int {
	groups := r.Groups
	if len(groups) == 0 {
		groups = []kernels.GroupSpec{{}}
	}
	total := 0
	for _, g := range groups {
		full := ceilDiv(n, r.BlockSize)
		if g.Window > 0 {
			full = min(full, ceilDiv(min(g.Window-1+r.MaxTokens, n), r.BlockSize)+1)
		}
		total += full
	}
	return total
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// CacheTooSmallError refuses a KV cache that cannot hold one sequence.
type CacheTooSmallError struct {
	MaxModelLen       int
	Needed, Available int64 // bytes
	FittingLen        int   // the longest sequence that would fit; 0: none
	Override          bool  // the number of blocks was set by hand
}

// Error follows vLLM's words for it.
func (e *CacheTooSmallError) Error() string {
	fits := ""
	if e.FittingLen > 0 {
		fits = fmt.Sprintf("Based on the available memory, the estimated maximum model length is %d. ", e.FittingLen)
	}
	todo := "Try increasing --kv-cache-memory-bytes (or VLLM_CPU_KVCACHE_SPACE) or decreasing --max-model-len."
	if e.Override {
		todo = "Try increasing --num-gpu-blocks-override or decreasing --max-model-len."
	}
	return fmt.Sprintf("To serve at least one request with the model's max seq len (%d), %s GiB KV cache is needed, which is "+
		"larger than the available KV cache memory (%s GiB). %s%s", e.MaxModelLen, gib(e.Needed), gib(e.Available), fits, todo)
}

// gib prints bytes so that a small difference still shows.
func gib(b int64) string {
	f := float64(b) / (1 << 30)
	if f != 0 && f < 0.1 {
		return fmt.Sprintf("%.6f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

func tooSmall(r CacheRequest, c CachePlan) error {
	e := &CacheTooSmallError{MaxModelLen: r.MaxModelLen, Needed: int64(c.BlocksPerSeq+1) * c.BlockBytes, Override: r.Blocks > 0}
	e.Available = r.Bytes
	if r.Blocks > 0 {
		e.Available = int64(r.Blocks) * c.BlockBytes
	}
	lo, hi := 0, r.MaxModelLen
	for lo < hi {
		if mid := (lo + hi + 1) / 2; blocksPerSeq(r, mid)+1 <= c.Blocks {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	e.FittingLen = lo
	return e
}

// DefaultCacheBytes is the cache's size when nobody sets it: min(4 GiB, half of the free memory, what max_num_seqs sequences
// of max_model_len need). free is what the machine and the cgroup leave ([FreeMemory]); 0: unknown.
func DefaultCacheBytes(plan *kernels.MemoryPlan, r CacheRequest, free int64) int64 {
	need := plan.BlockSpan() * (int64(blocksPerSeq(r, r.MaxModelLen))*int64(r.MaxSeqs) + 1)
	limit := int64(4 << 30)
	if free > 0 {
		limit = min(limit, free/2)
	}
	return min(need, limit)
}

// CacheConfig returns the facts that the snapshot carries: they equal what is printed at start.
func (c CachePlan) CacheConfig(r CacheRequest) *record.CacheConfig {
	window := 0
	for _, g := range r.Groups {
		window = max(window, g.Window)
	}
	return &record.CacheConfig{
		BlockSize: r.BlockSize, NumBlocks: c.Blocks, DType: r.DType, MemoryBytes: c.Bytes, SizeTokens: c.Tokens,
		MaxConcurrency: c.MaxConcurrency, PrefixCaching: r.Prefix, HashAlgo: r.HashAlgo, NumBlocksOverridden: r.Blocks,
		SlidingWindow: window,
	}
}

// Lines are vLLM's lines about the cache, for the log at start.
func (c CachePlan) Lines(device string, maxModelLen int) []string {
	return []string{
		fmt.Sprintf("Available KV cache memory: %s GiB", gib(c.Bytes)),
		fmt.Sprintf("%s KV cache size: %s tokens (%d blocks)", device, grouped(c.Tokens), c.Blocks),
		fmt.Sprintf("Maximum concurrency for %s tokens per request: %.2fx", grouped(maxModelLen), c.MaxConcurrency),
	}
}

// grouped writes n with a comma between groups of three digits.
func grouped(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
