package scheduler

import (
	"errors"
	"fmt"

	"omni-engine/engine/request"
)

// Policy orders the waiting requests and chooses whom to preempt.
type Policy string

// The policies, spelled as vLLM's --scheduling-policy.
const (
	FCFS     Policy = "fcfs"
	Priority Policy = "priority"
)

// GroupKind is the attention type of a KV-cache group.
type GroupKind uint8

// The kinds of groups.
const (
	FullAttention GroupKind = iota
	SlidingWindow
)

func (k GroupKind) String() string {
	if k == SlidingWindow {
		return "sliding_window"
	}
	return "full_attention"
}

// GroupSpec is one KV-cache group: layers that share a block table. All groups draw their blocks from one pool.
type GroupSpec struct {
	Kind      GroupKind
	Window    int // tokens, the current one included; for SlidingWindow
	BlockSize int // tokens a block; 0 takes Config.BlockSize
}

// Config of a [Scheduler]. Start from [DefaultConfig]; the fields are vLLM's settings of the same names.
type Config struct {
	MaxNumBatchedTokens               int
	MaxNumScheduledTokens             int // 0: MaxNumBatchedTokens
	MaxNumSeqs                        int
	MaxNumActiveSeqs                  int // 0: MaxNumSeqs
	LongPrefillTokenThreshold         int // 0: off
	LongPrefillTokenThresholdAdaptive bool
	// MaxPrefillTokensBesideDecode caps all prefill tokens of a step in which some request decodes, so that a prompt does not hold up the
	// tokens of others for a whole budget; 0: no cap. Ours, not vLLM's; it needs chunked prefill.
	MaxPrefillTokensBesideDecode int
	EnableChunkedPrefill         bool
	Policy                       Policy
	ReserveFullISL               bool // scheduler_reserve_full_isl
	Watermark                    float64

	BlockSize           int
	NumBlocks           int         // num_gpu_blocks, the null block 0 included
	Groups              []GroupSpec // nil: one group of full attention
	EnablePrefixCaching bool
	MaxModelLen         int

	NumSpecTokens      int
	NumLookaheadTokens int
	DraftSlots         int // max_num_new_slots_for_drafting

	Async bool // AsyncScheduler: output placeholders
	// DecodeStagger is the number of steps between two decodes of one request (pipeline parallelism with asynchronous
	// scheduling and V2 runner); 0 and 1 mean every step.
	DecodeStagger int
	// MaxConcurrentBatches is the number of steps in flight; it sizes the reservation of sliding-window groups. 0: 1, 2 if Async.
	MaxConcurrentBatches int

	MaxLoRAs int // max_loras: adapters in one step; 0: no limit
	// NonPreemptible is for stages that cannot replay their inputs: a request is admitted only when its longest possible
	// sequence fits beside those of all admitted ones, and none is ever preempted.
	NonPreemptible bool
	NoRecord       bool // no events, no ledger (PS-15)

	// KVResidencySample is the share of KV blocks whose lives are followed (--kv-cache-metrics-sample); 0: none.
	KVResidencySample float64

	KVEvents bool     // collect KV events, see [Scheduler.TakeKVEvents]
	HashAlgo HashAlgo // of the block hashes in KV events; empty: sha256
	HashSeed string   // PYTHONHASHSEED: seeds the first parent hash; empty: vLLM's default text
	// AdapterName gives the name and path of a LoRA adapter, part of its requests' block hashes; nil: its number.
	AdapterName func(id int) (name, path string)
}

// DefaultConfig returns vLLM's defaults; the caller sets the sizes of cache and model.
func DefaultConfig() Config {
	return Config{
		MaxNumBatchedTokens: 2048, MaxNumSeqs: 128, EnableChunkedPrefill: true, Policy: FCFS, ReserveFullISL: true,
		BlockSize: 16, EnablePrefixCaching: true,
	}
}

// Errors of configuration and admission.
var (
	ErrUnknownPolicy    = errors.New("unknown scheduling policy")
	ErrDuplicateRequest = errors.New("duplicate request id")
	ErrUnknownRequest   = errors.New("unknown request id")
	ErrPromptTooLong    = errors.New("prompt too long")
	ErrEmptyPrompt      = errors.New("empty prompt")
	ErrNotResumable     = errors.New("request takes no further input")
	ErrNeverFits        = errors.New("request larger than the KV cache")
)

// fill returns c with its zero values replaced by what they stand for.
func (c Config) fill() Config {
	if c.MaxNumScheduledTokens == 0 {
		c.MaxNumScheduledTokens = c.MaxNumBatchedTokens
	}
	if c.MaxNumActiveSeqs == 0 {
		c.MaxNumActiveSeqs = c.MaxNumSeqs
	}
	if c.MaxConcurrentBatches == 0 {
		c.MaxConcurrentBatches = 1
		if c.Async {
			c.MaxConcurrentBatches = 2
		}
	}
	if len(c.Groups) == 0 {
		c.Groups = []GroupSpec{{Kind: FullAttention}}
	}
	groups := make([]GroupSpec, len(c.Groups))
	for i, g := range c.Groups {
		if g.BlockSize == 0 {
			g.BlockSize = c.BlockSize
		}
		groups[i] = g
	}
	c.Groups = groups
	if c.HashAlgo == "" {
		c.HashAlgo = SHA256
	}
	return c
}

// Validate reports all that is wrong with the configuration at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Policy != FCFS && c.Policy != Priority {
		errs = append(errs, fmt.Errorf("%w: %q (fcfs and priority are known)", ErrUnknownPolicy, c.Policy))
	}
	for _, v := range []struct {
		name string
		v    int
	}{{"max_num_batched_tokens", c.MaxNumBatchedTokens}, {"max_num_seqs", c.MaxNumSeqs}, {"block_size", c.BlockSize}, {"max_model_len", c.MaxModelLen}} {
		if v.v < 1 {
			bad("%s must be at least 1, got %d", v.name, v.v)
		}
	}
	for _, v := range []struct {
		name string
		v    int
	}{{"max_num_scheduled_tokens", c.MaxNumScheduledTokens}, {"max_num_active_seqs", c.MaxNumActiveSeqs},
		{"long_prefill_token_threshold", c.LongPrefillTokenThreshold}, {"max_prefill_tokens_beside_decode", c.MaxPrefillTokensBesideDecode}, {"num_speculative_tokens", c.NumSpecTokens},
		{"num_lookahead_tokens", c.NumLookaheadTokens}, {"max_loras", c.MaxLoRAs}, {"draft slots", c.DraftSlots}} {
		if v.v < 0 {
			bad("%s must not be negative, got %d", v.name, v.v)
		}
	}
	if c.NumBlocks < 2 {
		bad("num_gpu_blocks must be at least 2 (block 0 is the null block), got %d", c.NumBlocks)
	}
	if c.MaxNumActiveSeqs > c.MaxNumSeqs {
		bad("max_num_active_seqs (%d) cannot be greater than max_num_seqs (%d)", c.MaxNumActiveSeqs, c.MaxNumSeqs)
	}
	if c.MaxNumScheduledTokens > c.MaxNumBatchedTokens {
		bad("max_num_scheduled_tokens (%d) cannot be greater than max_num_batched_tokens (%d)", c.MaxNumScheduledTokens, c.MaxNumBatchedTokens)
	}
	if !(c.Watermark >= 0 && c.Watermark < 1) {
		bad("watermark must be in [0, 1), got %v", c.Watermark)
	}
	if !(c.KVResidencySample >= 0 && c.KVResidencySample <= 1) {
		bad("kv_cache_metrics_sample must be in (0, 1], or 0 for none, got %v", c.KVResidencySample)
	}
	if c.DraftSlots >= c.MaxNumBatchedTokens && c.MaxNumBatchedTokens > 0 {
		bad("max_num_batched_tokens (%d) leaves no room beside %d draft slots", c.MaxNumBatchedTokens, c.DraftSlots)
	}
	if !c.EnableChunkedPrefill && c.MaxNumBatchedTokens < c.MaxModelLen {
		bad("max_num_batched_tokens (%d) is smaller than max_model_len (%d), which chunked prefill alone allows", c.MaxNumBatchedTokens, c.MaxModelLen)
	}
	errs = append(errs, c.validateGroups()...)
	if _, err := newHasher(c.HashAlgo, c.HashSeed); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("scheduler configuration: %w", err)
	}
	return nil
}

func (c Config) validateGroups() (errs []error) {
	unit := 0
	for _, g := range c.Groups {
		if g.BlockSize > 0 && (unit == 0 || g.BlockSize < unit) {
			unit = g.BlockSize
		}
	}
	for i, g := range c.Groups {
		switch {
		case g.BlockSize < 1:
			errs = append(errs, fmt.Errorf("KV group %d: block size must be at least 1, got %d", i, g.BlockSize))
		case g.BlockSize%unit != 0:
			errs = append(errs, fmt.Errorf("KV group %d: block size %d is no multiple of the smallest, %d", i, g.BlockSize, unit))
		case g.Kind == SlidingWindow && g.Window < 1:
			errs = append(errs, fmt.Errorf("KV group %d: sliding window must be at least 1, got %d", i, g.Window))
		case g.Kind != SlidingWindow && g.Kind != FullAttention:
			errs = append(errs, fmt.Errorf("KV group %d: unknown kind %d", i, g.Kind))
		}
	}
	return errs
}

// CheckCapacity reports a cache in which one request of the maximum length does not fit. vLLM refuses to start then: such a request would
// preempt itself for ever. The scheduler does not ask, since recordings hold such caches.
func (c Config) CheckCapacity() error {
	c = c.fill()
	if need := c.blocksFor(c.MaxModelLen); need > c.NumBlocks-1 {
		return fmt.Errorf("to serve at least one request with the model's max seq len (%d), %d KV blocks are needed, the cache has %d: "+
			"raise the cache's memory or lower max_model_len", c.MaxModelLen, need, c.NumBlocks-1)
	}
	return nil
}

// AdmissionError says why a request can never run. Its text is vLLM's where vLLM has one, for the client to read; Reason is one of the
// Err values, for errors.Is.
type AdmissionError struct {
	ID     request.ID
	Reason error
	Text   string
}

func (e *AdmissionError) Error() string { return e.Text }

// Unwrap returns Reason.
func (e *AdmissionError) Unwrap() error { return e.Reason }

// CheckAdmission refuses a request that could never run with an [AdmissionError], so that it is not queued for ever. The scheduler itself
// does not ask: like vLLM's it would keep such a request waiting.
func (c Config) CheckAdmission(r *request.Request) error {
	c = c.fill()
	n := len(r.Prompt)
	refuse := func(why error, format string, args ...any) error {
		return &AdmissionError{ID: r.ID, Reason: why, Text: fmt.Sprintf(format, args...)}
	}
	switch {
	case n == 0 && r.Rows == nil && r.Wait == request.WaitNone:
		return refuse(ErrEmptyPrompt, "The decoder prompt cannot be empty")
	case n > c.MaxModelLen:
		return refuse(ErrPromptTooLong, "The decoder prompt (length %d) is longer than the maximum model length of %d. Make sure that `max_model_len` "+
			"is no smaller than the number of text tokens.", n, c.MaxModelLen)
	case n == c.MaxModelLen:
		return refuse(ErrPromptTooLong, "The decoder prompt (length %d) plus the number of requested output tokens (at least 1) is longer than the "+
			"maximum model length of %d. Make sure that `max_model_len` is no smaller than the number of text tokens (prompt + requested output tokens).",
			n, c.MaxModelLen)
	}
	// The first output's KV must have a place too if a second is asked for, or the request would preempt itself for ever.
	longest := n + min(max(r.Sampling.MaxTokens-1, 0), 1)
	if c.NonPreemptible {
		longest = n + r.Sampling.MaxTokens + c.NumLookaheadTokens + c.draftRoom()
	}
	if need := c.blocksFor(min(longest, c.MaxModelLen)); need > c.NumBlocks-1 {
		return refuse(ErrNeverFits, "The decoder prompt (length %d) needs %d KV cache blocks for %d tokens, more than the %d blocks of the whole KV cache. "+
			"Shorten the prompt or give the KV cache more memory.", n, need, longest, c.NumBlocks-1)
	}
	return nil
}

// draftRoom is how many tokens past the end of its sequence a request may hold blocks for: drafts that will be rejected, and those of the steps in flight.
func (c *Config) draftRoom() int {
	n := c.NumSpecTokens
	if n > 0 && c.Async {
		n += c.MaxConcurrentBatches * (1 + c.NumSpecTokens)
	}
	return n
}

// blocksFor counts the blocks that a sequence of n tokens holds at most, over all groups.
func (c *Config) blocksFor(n int) int {
	total := 0
	for _, g := range c.Groups {
		total += min(ceilDiv(n, g.BlockSize), c.admissionCap(g))
	}
	return total
}

// admissionCap is the most blocks one request holds in a group: a window's worth plus the tokens in flight.
func (c *Config) admissionCap(g GroupSpec) int {
	if g.Kind != SlidingWindow {
		return int(^uint(0) >> 1)
	}
	tokens := min(g.Window-1+c.MaxConcurrentBatches*c.MaxNumBatchedTokens+c.NumLookaheadTokens, c.MaxModelLen)
	return ceilDiv(tokens, g.BlockSize) + 1
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
