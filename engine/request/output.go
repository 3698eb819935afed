package request

import "omni-engine/internal/clock"

// EventType is one of vLLM's engine-core events.
type EventType uint8

// The lifecycle events (spec phase-split §1).
const (
	Queued EventType = iota + 1
	Scheduled
	Preempted
)

func (e EventType) String() string {
	switch e {
	case Queued:
		return "QUEUED"
	case Scheduled:
		return "SCHEDULED"
	case Preempted:
		return "PREEMPTED"
	}
	return ""
}

// Event is a lifecycle event with the core's time.
type Event struct {
	Type EventType
	At   clock.Time
}

// State is where a request is, at each instant exactly one (PS-32, the ledger).
type State uint8

// The ledger's states.
const (
	StateNone           State = iota // not in a core (before QUEUED, after the end)
	StateQueued                      // waiting to be scheduled for the first time
	StateWaitingInput                // parked for its whole input or its first chunk
	StateWaitingGrammar              // parked until its grammar is compiled
	StateWaitingKVLoad               // parked until remote KV arrived
	StatePrefill                     // running, no output yet
	StateDecode                      // running, after its first output
	StateRecompute                   // resumed after a preemption, until its next output
	StateWaitingChunk                // parked for a later chunk
	StateRequeued                    // back in waiting with its blocks kept (PS-34)
	StatePreempted                   // its blocks were taken
	StateWaitingKVAck                // sender: stopped, until the extraction is acknowledged
	StateWaitingSession              // parked for the user's next input
	StatePaused                      // the core is paused
	StateUncollected                 // stopped, its output not yet collected
	NumStates
)

func (s State) String() string {
	names := [NumStates]string{"none", "queued", "waiting_input", "waiting_grammar", "waiting_kv_load", "prefill", "decode",
		"recompute", "waiting_chunk", "requeued", "preempted", "waiting_kv_ack", "waiting_session", "paused", "uncollected"}
	if s < NumStates {
		return names[s]
	}
	return "unknown"
}

// StateChange says that a request entered a state at a core time.
type StateChange struct {
	To State
	At clock.Time
}

// Output is what one step (or an end without a step) says about one request.
type Output struct {
	ID        ID
	Client    int
	NewTokens []int32 // after trimming at a stop; empty for a token-less output
	Finish    FinishReason
	// Segment is true when Finish ends a segment of a streaming-input session and the request lives on (PS-51).
	Segment bool
	// StopToken is the stop token id that ended the request (vLLM's stop_reason), -1 for none or EOS.
	StopToken int32
	// Repeated is true when a repetition was the last reason to stop: vLLM's stop_reason is then "repetition_detected". Like StopToken
	// it stays set in later segments of a session.
	Repeated bool
	// Terminal is true for a record that the engine makes itself; it sets no output timestamps (PS-04).
	Terminal bool
	Err      string // why Finish is FinishError
	// Corrupted is true when the logits held NaN.
	Corrupted bool

	Events  []Event       // lifecycle events since the last output, applied before its own timestamps (PS-02)
	Changes []StateChange // ledger changes since the last output
	Prefill *PrefillStats // in the request's first output only
	// NumCached is the number of prompt tokens that came from the prefix cache.
	NumCached int

	Logprobs       []TokenLogprobs // one a new token, when asked for
	PromptLogprobs []TokenLogprobs // one a prompt position; the first is empty
	KVReady        bool            // token-less: the KV of a finished prefill may be fetched
	Payload        *Payload        // what a downstream stage needs (hidden states, codes, samples)
}

// PrefillStats says how the prompt was prefilled (vLLM's PrefillStats).
type PrefillStats struct {
	PromptTokens, Computed, Cached, Local, External, Created int
}

// TokenLogprobs holds the sampled (or prompt) token's logprob first, then the n best; Rank is 1-based.
type TokenLogprobs struct {
	IDs      []int32
	Logprobs []float32
	Ranks    []int32 // Ranks[0] is the chosen token's rank; the others are 1..n
}

// Payload crosses an edge between stages.
type Payload struct {
	Name  string
	Shape []int
	Data  []float32
	IDs   []int32
	Last  bool
}

// StepOutputs is all that one step says, with one timestamp taken after sampling.
type StepOutputs struct {
	At        clock.Time
	Scheduled clock.Time // when the step was decided; absent for records between steps
	Outputs   []Output
	Stats     SchedulerStats
}

// SchedulerStats are the core's gauges and the counters since the last step's.
type SchedulerStats struct {
	Running, Waiting, Skipped int // Waiting excludes deferred ones, Skipped counts those
	Parked                    [WaitSession + 1]int
	FreeBlocks, TotalBlocks   int // TotalBlocks counts usable blocks (without the null block)
	Usage                     float64
	PrefixQueries, PrefixHits int // tokens
	PrefixRequests            int
	PreemptedQueries          int // tokens queried by requests that had been preempted
	PreemptedHits             int
	PreemptedRequests         int
	Preemptions               int // PREEMPTED events
	ScheduledTokens           int
	DraftTokens, Accepted     int
	NumDrafts                 int
	AcceptedPerPos            []int
	DraftedPerPos             []int
	PrefixReset               bool

	ExternalQueries, ExternalHits int    // tokens asked from KV connectors, and supplied
	ExternalHitsByTier            [4]int // by host, p2p, disk, unspecified
	Evicted                       []KVEviction
}

// KVEviction is the residency of a sampled KV block that lost its content (--kv-cache-metrics).
type KVEviction struct {
	Lifetime, Idle clock.Span   // allocation → eviction; last use → eviction
	ReuseGaps      []clock.Span // between its last uses
}
