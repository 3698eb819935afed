package stages

import (
	"slices"
	"sync"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/output"
)

// parcel is a copy of what a core said; its memory is reused.
type parcel struct {
	so       request.StepOutputs
	terminal bool // records between steps
	lost     error
	tokens   []int32
	events   []request.Event
	changes  []request.StateChange
	prefill  []request.PrefillStats
}

// outputQueue takes a core's outputs over to the output goroutine. The core never waits for it: it copies and goes on.
type outputQueue struct {
	mu     sync.Mutex
	full   []*parcel
	free   []*parcel
	closed bool
	wake   chan struct{}
	done   chan struct{}
}

func newOutputQueue() *outputQueue {
	return &outputQueue{wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// Step queues an executed step's outputs.
func (q *outputQueue) Step(so *request.StepOutputs) {
	p := q.get()
	p.copy(so.At, so.Outputs)
	p.so.Stats, p.so.Scheduled = so.Stats, so.Scheduled
	p.so.Stats.AcceptedPerPos = slices.Clone(so.Stats.AcceptedPerPos)
	// so.Stats.Evicted is made fresh each time and passes on
	p.so.Stats.DraftedPerPos = slices.Clone(so.Stats.DraftedPerPos)
	q.put(p)
}

// Terminal queues records that the engine made itself.
func (q *outputQueue) Terminal(at clock.Time, outputs []request.Output) {
	p := q.get()
	p.copy(at, outputs)
	p.terminal = true
	q.put(p)
}

// Lost queues the core's death.
func (q *outputQueue) Lost(err error) {
	p := q.get()
	p.copy(clock.Time{}, nil)
	p.lost = err
	q.put(p)
}

func (q *outputQueue) get() *parcel {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.free)
	if n == 0 {
		return &parcel{}
	}
	p := q.free[n-1]
	q.free = q.free[:n-1]
	return p
}

func (q *outputQueue) put(p *parcel) {
	q.mu.Lock()
	q.full = append(q.full, p)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// close ends the goroutine once the queue is empty.
func (q *outputQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// copy takes outputs over by value: what the core reuses is copied, logprobs and payloads are made fresh each time and pass on.
func (p *parcel) copy(at clock.Time, outputs []request.Output) {
	p.terminal, p.lost = false, nil
	p.tokens, p.events, p.changes, p.prefill = p.tokens[:0], p.events[:0], p.changes[:0], p.prefill[:0]
	p.so.At, p.so.Scheduled, p.so.Stats = at, clock.Time{}, request.SchedulerStats{}
	p.so.Outputs = append(p.so.Outputs[:0], outputs...)
	for i := range outputs {
		o := &outputs[i]
		p.tokens = append(p.tokens, o.NewTokens...)
		p.events = append(p.events, o.Events...)
		p.changes = append(p.changes, o.Changes...)
		if o.Prefill != nil {
			p.prefill = append(p.prefill, *o.Prefill)
		}
	}
	tokens, events, changes, prefill := p.tokens, p.events, p.changes, p.prefill
	for i := range p.so.Outputs { // only now: the arrays have stopped moving
		o := &p.so.Outputs[i]
		o.NewTokens, tokens = cut(tokens, len(o.NewTokens))
		o.Events, events = cut(events, len(o.Events))
		o.Changes, changes = cut(changes, len(o.Changes))
		if o.Prefill != nil {
			o.Prefill, prefill = &prefill[0], prefill[1:]
		}
	}
}

func cut[T any](s []T, n int) (head, tail []T) {
	if n == 0 {
		return nil, s
	}
	return s[:n:n], s[n:]
}

// run hands parcels to the processor, in order, until the queue is closed and empty.
func (q *outputQueue) run(proc *output.Processor, observe func(*request.StepOutputs)) {
	defer close(q.done)
	for {
		q.mu.Lock()
		batch, closed := q.full, q.closed
		q.full = nil
		q.mu.Unlock()
		for _, p := range batch {
			if observe != nil && p.lost == nil {
				observe(&p.so)
			}
			switch {
			case p.lost != nil:
				proc.Fail(p.lost)
			case p.terminal:
				proc.Terminal(p.so.At, p.so.Outputs)
			default:
				proc.Process(&p.so)
			}
		}
		q.mu.Lock()
		q.free = append(q.free, batch...)
		q.mu.Unlock()
		if len(batch) > 0 {
			continue
		}
		if closed {
			return
		}
		<-q.wake
	}
}
