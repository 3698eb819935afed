// Package stages runs pipelines of engine cores: it picks a replica for each request, ties the request's life to its
// context, refuses what can never run, and gathers every stage's record. A plain LLM server is a pipeline of one stage.
package stages

import (
	"context"

	"omni-engine/engine/request"
	"omni-engine/metrics/record"
	"omni-engine/output"
)

// Update is what happened to a request since the last [Stream.Next]; Record comes once, with the last one.
type Update = output.Update

// TokenLogprobs are one position's candidates, the chosen token first.
type TokenLogprobs = output.TokenLogprobs

// TokenLogprob is one candidate at a position.
type TokenLogprob = output.TokenLogprob

// Stream is a request's output. Next blocks until there is something new; a slow reader gets several steps in one Update and
// never holds up the core. After the last Update it returns io.EOF. When ctx ends, Next returns its error and the
// stream stays readable; the request itself lives by the context that it was submitted with.
type Stream interface {
	Next(ctx context.Context) (Update, error)
}

// Replica is an engine core with its output processor: in this process, in a child process, or on another host.
type Replica interface {
	// Submit starts a request. When ctx ends before the request does, the request is aborted.
	Submit(ctx context.Context, r *request.Request) (Stream, error)
	// Extend gives a streaming-input session its next segment, or its end marker.
	Extend(id request.ID, s request.Segment) error
	// Abort ends requests; unknown and ended ids are ignored.
	Abort(why request.FinishReason, ids ...request.ID) error
	// CheckAdmission refuses what can never run; see the error types of this package.
	CheckAdmission(r *request.Request) error
	// Load counts the front end's unfinished requests: it knows of a submit at once, while a snapshot lags by the inbox.
	Load() Load
	Snapshot() record.Snapshot
	// Health is nil while the core makes progress, [ErrDead] or [ErrStalled] (wrapped, with the reason) otherwise.
	Health() error
	Close(ctx context.Context) error
}

// Load is a replica's unfinished work as its front end sees it.
type Load struct {
	Requests      int // not ended
	PrefillTokens int // prompt tokens of requests without output yet
}

// Controls are what an operator may do to a replica; replicas in this process have them.
type Controls interface {
	// Pause stops scheduling: new requests only, or all.
	Pause(ctx context.Context, all bool) error
	Resume(ctx context.Context) error
	// ResetPrefixCache forgets cached blocks; false when blocks are in use and running requests are not to be preempted.
	ResetPrefixCache(ctx context.Context, preemptRunning bool) (bool, error)
	// Drain returns once no request is left; new ones are refused meanwhile.
	Drain(ctx context.Context) error
}
