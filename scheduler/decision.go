// Package scheduler decides what runs next: queues, token budget, KV blocks, prefix cache, preemption, lifecycle events.
// It is pure: no clock, goroutine, I/O or tensor of its own; the caller gives the time.
package scheduler

import (
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// Decision is what one Schedule decided. The scheduler reuses it: it and all its slices are valid until its Update.
// With asynchronous scheduling several decisions are in flight; each is its own until updated.
type Decision struct {
	Seq  uint64
	At   clock.Time
	Rows []Row // running requests first, then admitted ones: the batch, in order

	TotalTokens int          // sum of Row.NumTokens
	Preempted   []request.ID // in the order of preemption, also those of a cache reset since the last Schedule
	Finished    []request.ID // ended since the last Schedule: a runner drops what it keeps for them (slots are freed)

	Held    Held // why no further request was admitted
	Running int  // requests in running after this decision
	Waiting int  // requests that still wait
	Free    int  // free blocks after this decision

	items []item    // parallel to Rows
	high  int       // rows that are not cleared
	news  [][]int32 // memory of Row.NewBlocks
}

// item is what the scheduler itself keeps of a row. It and its row outlive the decision: in the next one with this memory only what a step changes is
// written when the same request stands here.
type item struct {
	q      *seq
	n      int32 // Row.NumTokens
	drafts int32 // len(Row.Drafts)
	epoch  uint32
	seldom bool // the row has Drafts or NewBlocks
}

// Row is one request's part of a step; it is read-only. Slices alias scheduler memory.
type Row struct {
	// What changes with every step comes first, in one cache line.
	NumComputed int // num_computed_tokens before this step: the position of the first scheduled token
	NumTokens   int // tokens scheduled, drafts included
	NumOutput   int // output tokens, placeholders included
	// InFlight is the number of output placeholders before this row's first unknown position (asynchronous scheduling):
	// the device feeds its own last samples.
	InFlight int
	// Tokens are all tokens known so far (prompt then output); positions at and beyond len(Tokens) are placeholders of steps in
	// flight (asynchronous) or Drafts.
	Tokens  []int32
	First   bool // first row of this slot's life: reset its state (also after a preemption)
	New     bool // first time scheduled
	Resumed bool // scheduled again after a preemption
	Samples bool // false for a prefill chunk: its logits are not needed

	ID        request.ID
	Req       *request.Request // the admitted request
	Slot      int              // held from admission to the end or preemption; indexes per-request device state
	PromptLen int              // number of prompt tokens at the front of Tokens
	Drafts    []int32          // speculative tokens to verify, the last len(Drafts) of NumTokens
	Blocks    [][]int32        // by KV group: the whole block table; 0 is the null block
	NewBlocks [][]int32        // by KV group: blocks added by this step (nil when none)

	_ [16]byte // to 192 bytes: whole cache lines
}

// RowResult is what the device sampled for one row.
type RowResult struct {
	Tokens         []int32 // empty when the row did not sample
	Logprobs       []request.TokenLogprobs
	PromptLogprobs []request.TokenLogprobs
	Fault          string           // not empty: this request ends with FinishError (NaN in logits, no legal token)
	Corrupted      bool             // the fault is NaN in the logits
	Payload        *request.Payload // kept outputs for a downstream stage
}

// StepResult answers a Decision: Rows is parallel to Decision.Rows.
type StepResult struct{ Rows []RowResult }
