// Package enginetest holds a runner without a device, for tests of what surrounds a device.
package enginetest

import (
	"context"
	"fmt"
	"time"

	"omni-engine/engine"
	"omni-engine/engine/request"
	"omni-engine/scheduler"
)

// Runner answers each sampling row with a token that is a function of the request's tokens alone, so that batches, chunks,
// preemptions and asynchronous steps change nothing. Its fields are set before its first use.
type Runner struct {
	InFlight int           // steps in flight; 0 means 1
	StepTime time.Duration // of the (fake) time that a step takes
	Vocab    int32         // tokens are in [3, Vocab); 0 means 1000
	// Next overrides the token that follows position pos-1 of a request.
	Next func(r *request.Request, pos int) int32
	// Fail is asked before each step is collected, with the step's number from 1; it may return an error or panic.
	Fail func(step int, d *scheduler.Decision) error
	// OnStart sees each decision.
	OnStart func(*scheduler.Decision)

	steps   int
	started []*scheduler.Decision
	results []scheduler.StepResult
	tokens  [][]int32
	ready   []time.Time
	last    time.Time // when the device is free
	next    int
	Closed  bool
}

var _ engine.Runner = (*Runner)(nil)

// Depth is the most steps in flight.
func (r *Runner) Depth() int { return max(r.InFlight, 1) }

// Start notes the decision; the fake device begins it when it is free.
func (r *Runner) Start(d *scheduler.Decision) (engine.Ticket, error) {
	if r.started == nil {
		n := r.Depth()
		r.started = make([]*scheduler.Decision, n)
		r.results = make([]scheduler.StepResult, n)
		r.tokens = make([][]int32, n)
		r.ready = make([]time.Time, n)
	}
	t := r.next % r.Depth()
	if r.started[t] != nil {
		return 0, fmt.Errorf("ticket %d is in flight", t)
	}
	r.next++
	if r.OnStart != nil {
		r.OnStart(d)
	}
	r.started[t] = d
	if r.StepTime > 0 {
		now := time.Now()
		if r.last.Before(now) {
			r.last = now
		}
		r.last = r.last.Add(r.StepTime)
		r.ready[t] = r.last
	}
	return engine.Ticket(t), nil
}

// Sample does nothing.
func (r *Runner) Sample(engine.Ticket, *engine.Masks) error { return nil }

// Collect waits until the fake device is done.
func (r *Runner) Collect(ctx context.Context, t engine.Ticket) (*scheduler.StepResult, error) {
	d := r.started[t]
	r.started[t] = nil
	if r.StepTime > 0 {
		select {
		case <-time.After(time.Until(r.ready[t])):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	r.steps++
	if r.Fail != nil {
		if err := r.Fail(r.steps, d); err != nil {
			return nil, err
		}
	}
	res := &r.results[t]
	tokens := r.tokens[t][:0]
	if cap(tokens) < len(d.Rows) {
		tokens = make([]int32, 0, 2*len(d.Rows))
	}
	res.Rows = append(res.Rows[:0], make([]scheduler.RowResult, len(d.Rows))...)
	for i := range d.Rows {
		row := &d.Rows[i]
		if !row.Samples {
			continue
		}
		tokens = append(tokens, r.Token(row.Req, row.NumComputed+row.NumTokens))
		n := len(tokens)
		res.Rows[i].Tokens = tokens[n-1 : n : n]
	}
	r.tokens[t] = tokens
	return res, nil
}

// Token is what follows position pos-1 of a request.
func (r *Runner) Token(q *request.Request, pos int) int32 {
	if r.Next != nil {
		return r.Next(q, pos)
	}
	vocab := uint32(1000)
	if r.Vocab > 3 {
		vocab = uint32(r.Vocab)
	}
	h := uint32(2166136261)
	for _, t := range q.Prompt {
		h = (h ^ uint32(t)) * 16777619
	}
	h = (h ^ uint32(pos)) * 16777619
	return int32(3 + (h>>7)%(vocab-3))
}

// Close notes it.
func (r *Runner) Close() error { r.Closed = true; return nil }
