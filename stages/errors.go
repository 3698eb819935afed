package stages

import (
	"errors"

	"omni-engine/scheduler"
)

// The states of a replica that cannot serve.
var (
	// ErrDead: the core ended after a failure; restart the process.
	ErrDead = errors.New("engine core is dead")
	// ErrStalled: the core has work but has finished no step for the set time.
	ErrStalled = errors.New("engine core makes no progress")
	// ErrClosed: the replica is shutting down and takes no more requests.
	ErrClosed = errors.New("engine is shutting down")
	// ErrUnknownRequest: no request of that id lives here.
	ErrUnknownRequest = errors.New("no such request")
)

// What [Replica.CheckAdmission] refuses: a request that can never run. The wrapping error has the numbers.
var (
	ErrPromptTooLong = scheduler.ErrPromptTooLong
	ErrEmptyPrompt   = scheduler.ErrEmptyPrompt
	ErrNeverFits     = scheduler.ErrNeverFits
)

// QueueFullError refuses a request above a queue limit: HTTP 503, so that clients and balancers try elsewhere.
type QueueFullError struct {
	Limit   string // "max_num_queued_reqs" or "max_num_queued_tokens": the label of the rejection counter
	Current int    // requests in the engine, or prompt tokens that wait for prefill
	Add     int    // what the request would add
	Max     int
}

// Error has vLLM's words.
func (e *QueueFullError) Error() string {
	if e.Limit == LimitTokens {
		return "The engine has reached its prefill token backlog limit. Please try again later or on a different instance."
	}
	return "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."
}

// The queue limits' names.
const (
	LimitRequests = "max_num_queued_reqs"
	LimitTokens   = "max_num_queued_tokens"
)
