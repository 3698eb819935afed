// Package request holds the messages that cross the engine's rooms: what is asked ([Request], [Segment], [SamplingParams]),
// what happens to it ([Event], [StateChange]) and what comes back ([Output], [StepOutputs]). Values only: what crosses a
// goroutine is never shared afterwards.
package request

import (
	"omni-engine/internal/clock"
	"omni-engine/internal/tensor"
)

// ID names a request inside one engine core. The front end makes it unique.
type ID string

// Request is one unit of work for one stage's core.
type Request struct {
	ID     ID
	Prompt []int32 // token ids; may be empty when Rows gives the input
	Rows   Rows    // input rows that are not token ids; nil for text

	Sampling SamplingParams
	// EOS are the model's end-of-sequence ids; empty when SamplingParams.IgnoreEOS.
	// The first is vLLM's eos_token_id (stop_reason null), the others report themselves as stop_reason.
	EOS []int32

	Priority                int        // smaller is served first, under the priority policy
	Arrival                 clock.Wall // when the front end accepted it
	ArrivalOrder            float64    // vLLM's arrival_time in seconds: orders equal priorities
	CacheSalt               string     // isolates the prefix cache
	SkipReadingPrefixCache  bool       // prompt logprobs and hidden@k>0 need every position computed
	Resumable               bool       // a streaming-input session: a stop ends a segment, not the request
	Client                  int        // front-end client index; outputs are grouped by it
	Adapter                 int        // LoRA adapter id, 0 for none
	Wait                    Wait       // parked from the start: a downstream stage, a grammar, a KV receiver
	NoRecord                bool       // recording off for this request (PS-15)
	External                string     // the user-visible id (cmpl-…), for logs and traces
	Repetition              *Repetition
	Parent                  *Parent // the user request that this is one of n sequences of; nil for n = 1
	TraceParent, TraceState string  // W3C context of the caller, empty when there is none
}

// Rows gives input rows that are not token ids, for every position until the request ends: a preempted request recomputes
// from it. Key feeds the block hash.
type Rows interface {
	// Read fills dst, [n, width] float32, with the rows of positions [from, from+n).
	Read(from, n int, dst tensor.View) error
	// Key returns bytes that identify positions [from, from+n) for the prefix cache.
	Key(from, n int) []byte
}

// Segment is a further piece of a streaming-input session.
type Segment struct {
	Tokens   []int32
	Rows     Rows
	Last     bool            // the end marker: no more input will come
	Sampling *SamplingParams // nil keeps the session's
	Arrival  clock.Wall
	Order    float64 // vLLM's arrival_time of the segment
	// Repetition comes with Sampling: it replaces the session's.
	Repetition *Repetition
}

// Repetition stops a request that repeats a pattern (vLLM's repetition_detection).
type Repetition struct{ MaxPatternSize, MinPatternSize, MinCount int }

// Wait says what a parked request waits for.
type Wait uint8

// The reasons to be parked.
const (
	WaitNone    Wait = iota
	WaitInput        // WAITING_FOR_INPUT: the whole payload is needed first
	WaitChunk        // WAITING_FOR_CHUNK: async chunks stream in
	WaitKV           // WAITING_FOR_REMOTE_KVS
	WaitGrammar      // WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
	WaitSession      // WAITING_FOR_STREAMING_REQ: the user's next input
)

// FinishReason says why a request ended; the strings are vLLM's finished_reason values.
type FinishReason uint8

// The ways to end.
const (
	NotFinished FinishReason = iota
	FinishStop
	FinishLength
	FinishAbort
	FinishError
	FinishRepetition
)

func (f FinishReason) String() string {
	switch f {
	case FinishStop:
		return "stop"
	case FinishLength:
		return "length"
	case FinishAbort:
		return "abort"
	case FinishError:
		return "error"
	case FinishRepetition:
		return "repetition"
	}
	return ""
}
