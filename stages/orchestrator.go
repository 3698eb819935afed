package stages

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// Policy chooses among a stage's replicas (--omni-lb-policy).
type Policy uint8

// The policies.
const (
	LeastQueue Policy = iota // fewest requests in the core; equal ones in turn
	RoundRobin
	Random
)

// Options of an [Orchestrator]; zero limits mean none.
type Options struct {
	Policy Policy
	// MaxQueuedRequests bounds unfinished requests, waiting and running (--max-num-queued-reqs); n counts as n.
	MaxQueuedRequests int
	// MaxQueuedTokens bounds the prompt tokens of requests without output yet (--max-num-queued-tokens).
	MaxQueuedTokens int
	// OnReject is told each refusal by a queue limit, with the limit's name; nil for none.
	OnReject func(limit string)
}

// Orchestrator takes requests for a pipeline and follows them through its stages. This one has a single stage with any
// number of replicas; streams of further stages hang on the same calls.
type Orchestrator struct {
	replicas []Replica
	opt      Options
	admit    sync.Mutex // a queue limit's check and the submit that it allows are one
	next     atomic.Uint64
	ids      atomic.Uint64
}

// New returns an orchestrator of one stage over its replicas, which it owns: Close closes them.
func New(opt Options, replicas ...Replica) (*Orchestrator, error) {
	if len(replicas) == 0 {
		return nil, errors.New("stages: a stage needs at least one replica")
	}
	return &Orchestrator{replicas: replicas, opt: opt}, nil
}

// Submit checks admission and starts the request on a replica. An empty r.ID is made from r.External, an absent arrival is
// now. The request is aborted when ctx ends before it does.
func (o *Orchestrator) Submit(ctx context.Context, r *request.Request) (Stream, error) {
	o.admit.Lock()
	defer o.admit.Unlock()
	if err := o.CheckAdmission(r, 1); err != nil {
		return nil, err
	}
	return o.submit(ctx, r)
}

// CheckAdmission refuses a request of n sequences that can never run or that a queue limit keeps out ([QueueFullError]),
// without starting it.
func (o *Orchestrator) CheckAdmission(r *request.Request, n int) error {
	if err := o.replicas[0].CheckAdmission(r); err != nil {
		return err
	}
	if o.opt.MaxQueuedRequests <= 0 && o.opt.MaxQueuedTokens <= 0 {
		return nil
	}
	if err := o.checkQueue(n); err != nil {
		if o.opt.OnReject != nil {
			o.opt.OnReject(err.Limit)
		}
		return err
	}
	return nil
}

// checkQueue applies vLLM's two limits: requests would exceed theirs, or waiting prompt tokens have reached theirs.
func (o *Orchestrator) checkQueue(n int) *QueueFullError {
	l := o.Load()
	if m := o.opt.MaxQueuedRequests; m > 0 && l.Requests+n > m {
		return &QueueFullError{Limit: LimitRequests, Current: l.Requests, Add: n, Max: m}
	}
	if m := o.opt.MaxQueuedTokens; m > 0 && l.PrefillTokens >= m {
		return &QueueFullError{Limit: LimitTokens, Current: l.PrefillTokens, Add: n, Max: m}
	}
	return nil
}

func (o *Orchestrator) submit(ctx context.Context, r *request.Request) (Stream, error) {
	if r.ID == "" {
		r.ID = request.ID(r.External + "-" + strconv.FormatUint(o.ids.Add(1), 36))
	}
	if !r.Arrival.IsSet() {
		r.Arrival = clock.WallNow()
	}
	if r.ArrivalOrder == 0 {
		r.ArrivalOrder = float64(r.Arrival.Time().UnixNano()) / 1e9
	}
	s, err := o.pick().Submit(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", r.ID, err)
	}
	return s, nil
}

// pick chooses a healthy replica; when none is healthy the choice falls on any, whose error then says why.
func (o *Orchestrator) pick() Replica {
	n := len(o.replicas)
	if n == 1 {
		return o.replicas[0]
	}
	first := int(o.next.Add(1)-1) % n
	if o.opt.Policy == Random {
		first = rand.IntN(n)
	}
	best, least := -1, 0
	for i := range n {
		k := (first + i) % n
		if o.replicas[k].Health() != nil {
			continue
		}
		if o.opt.Policy != LeastQueue {
			return o.replicas[k]
		}
		if l := o.replicas[k].Load().Requests; best < 0 || l < least {
			best, least = k, l
		}
	}
	if best < 0 {
		best = first
	}
	return o.replicas[best]
}

// Extend gives a streaming-input session its next segment or end marker.
func (o *Orchestrator) Extend(id request.ID, s request.Segment) error {
	err := fmt.Errorf("request %s: %w", id, ErrUnknownRequest)
	for _, r := range o.replicas {
		if err = r.Extend(id, s); !errors.Is(err, ErrUnknownRequest) {
			return err
		}
	}
	return err
}

// Abort ends requests; unknown and ended ids are ignored.
func (o *Orchestrator) Abort(why request.FinishReason, ids ...request.ID) error {
	var errs []error
	for _, r := range o.replicas {
		errs = append(errs, r.Abort(why, ids...))
	}
	return errors.Join(errs...)
}

// Load sums the replicas' loads.
func (o *Orchestrator) Load() Load {
	var sum Load
	for _, r := range o.replicas {
		l := r.Load()
		sum.Requests += l.Requests
		sum.PrefillTokens += l.PrefillTokens
	}
	return sum
}

// Replicas returns the replicas, in the order of their numbers.
func (o *Orchestrator) Replicas() []Replica { return o.replicas }

// Snapshots returns each replica's newest state.
func (o *Orchestrator) Snapshots() []record.Snapshot {
	all := make([]record.Snapshot, len(o.replicas))
	for i, r := range o.replicas {
		all[i] = r.Snapshot()
	}
	return all
}

// Health is nil while at least one replica makes progress; else it joins what each says.
func (o *Orchestrator) Health() error {
	errs := make([]error, len(o.replicas))
	for i, r := range o.replicas {
		if errs[i] = r.Health(); errs[i] == nil {
			return nil
		}
	}
	return errors.Join(errs...)
}

// Controls calls f for each replica that has controls and joins the errors.
func (o *Orchestrator) Controls(f func(Controls) error) error {
	var errs []error
	for _, r := range o.replicas {
		if c, ok := r.(Controls); ok {
			errs = append(errs, f(c))
		}
	}
	return errors.Join(errs...)
}

// Drain refuses new requests and returns once none is left, or with ctx's error.
func (o *Orchestrator) Drain(ctx context.Context) error {
	return o.Controls(func(c Controls) error { return c.Drain(ctx) })
}

// Close aborts what is left and closes every replica.
func (o *Orchestrator) Close(ctx context.Context) error {
	errs := make([]error, len(o.replicas))
	for i, r := range o.replicas {
		errs[i] = r.Close(ctx)
	}
	return errors.Join(errs...)
}
