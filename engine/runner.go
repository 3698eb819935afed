// Package engine runs one stage: [EngineCore] owns the scheduler and steps it, a [Runner] executes each decision on a device.
package engine

import (
	"context"
	"errors"

	"omni-engine/scheduler"
)

// Ticket names a step in flight.
type Ticket int

// Masks are the grammar's masks of a step's logit rows; nil when no row has a grammar.
type Masks struct{ Bits []uint32 }

// Runner executes scheduling decisions. One goroutine calls it. At most Depth tickets are in flight, collected in the order
// of their start.
type Runner interface {
	// Depth is the most steps in flight.
	Depth() int
	// Start fills the device's batch and submits the forward pass; it does not wait.
	Start(*scheduler.Decision) (Ticket, error)
	// Sample submits sampling; a mask may need the tokens of the step before.
	Sample(Ticket, *Masks) error
	// Collect waits for the step. The result is valid until the ticket's next Start. After an error the ticket is free.
	Collect(context.Context, Ticket) (*scheduler.StepResult, error)
	Close() error
}

// ErrDeviceLost marks a runner's error after which no step can run: the core ends instead of trying on.
var ErrDeviceLost = errors.New("device lost")
