package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
	"omni-engine/scheduler"
)

// The reasons why a core takes no request.
var (
	ErrDead     = errors.New("engine core is dead")
	ErrStalled  = errors.New("engine core makes no progress")
	ErrClosed   = errors.New("engine core is closed")
	ErrDraining = errors.New("engine core is shutting down")
)

// Outputs receives what a core says, on the core's goroutine, in order. It must not block, and it keeps nothing of its
// arguments: the core reuses their memory.
type Outputs interface {
	// Step follows each executed step.
	Step(*request.StepOutputs)
	// Terminal gives records that the engine made itself, between steps (PS-04).
	Terminal(at clock.Time, outputs []request.Output)
	// Lost says that the core died: no request will hear of it again.
	Lost(err error)
}

// Config of an [EngineCore].
type Config struct {
	Name      string // for logs and errors: stage and replica
	Scheduler scheduler.Config
	Outputs   Outputs
	Clock     *clock.Monotonic // nil: its own
	// Depth is the number of steps in flight: 1 is the plain loop, 2 or more the asynchronous one.
	Depth int
	// InputWaitTimeout ends a parked request whose input or next chunk never comes (PS-36); 0: never.
	InputWaitTimeout time.Duration
	// StallAfter is how long a core with work may finish no step before it counts as stalled; 0: never.
	StallAfter time.Duration
	NoRecord   bool // recording off (PS-15)
	Cache      *record.CacheConfig
	// InboxWait hears how long each submitted request lay in the inbox (vllm_omni:core_inbox_wait_s); nil for none.
	InboxWait func(clock.Span)
	Log       *slog.Logger
}

// maxFailures is how many steps in a row may fail before the core gives the device up.
const maxFailures = 3

// EngineCore runs one stage: a goroutine of its own owns the scheduler, so nothing around it is locked. What reaches it are
// messages in the inbox, what leaves it are values to [Outputs] and snapshots.
type EngineCore struct {
	cfg    Config
	sched  *scheduler.Scheduler
	runner Runner
	clock  *clock.Monotonic
	log    *slog.Logger
	inbox  inbox
	done   chan struct{}
	cancel context.CancelFunc

	snapshot atomic.Pointer[record.Snapshot]
	state    atomic.Pointer[coreState]
	busy     atomic.Int64 // reading of the clock since which work waits for a finished step; 0: idle

	// The core goroutine's own.
	ctx      context.Context
	waits    map[request.ID]clock.Time // deadlines of parked inputs (PS-36)
	drained  []chan struct{}
	totals   record.Totals
	recent   record.CacheWindow
	sleep    int // level; 0: awake
	steps    uint64
	progress uint64
	failures int   // steps that failed in a row
	cause    error // of the last failure
	early    []message
	still    int // empty steps in a row
	paused   bool
	stop     bool
	flights  []flightStep
}

// coreState is the life of a core; it only goes forward.
type coreState struct {
	draining, closed bool
	dead             error
}

// New starts a core over a runner, which it then owns.
func New(cfg Config, runner Runner) (*EngineCore, error) {
	if cfg.Outputs == nil {
		return nil, errors.New("engine: a core needs Outputs")
	}
	sched, err := scheduler.New(cfg.Scheduler)
	if err != nil {
		return nil, fmt.Errorf("engine core %s: %w", cfg.Name, err)
	}
	cfg.Depth = max(cfg.Depth, 1)
	if cfg.Depth > runner.Depth() {
		return nil, fmt.Errorf("engine core %s: %d steps in flight, the runner has %d", cfg.Name, cfg.Depth, runner.Depth())
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.NewMonotonic()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &EngineCore{
		cfg: cfg, sched: sched, runner: runner, clock: cfg.Clock, log: cfg.Log.With("core", cfg.Name),
		done: make(chan struct{}), ctx: ctx, cancel: cancel, waits: make(map[request.ID]clock.Time),
	}
	c.inbox.wake = make(chan struct{}, 1)
	c.state.Store(&coreState{})
	c.publish()
	go c.run()
	return c, nil
}

// Clock is the core's monotonic clock; all its times come from it.
func (c *EngineCore) Clock() *clock.Monotonic { return c.clock }

// CheckAdmission refuses a request that can never run, before it is submitted.
func (c *EngineCore) CheckAdmission(r *request.Request) error {
	if err := checkParameters(r); err != nil {
		return err
	}
	return c.cfg.Scheduler.CheckAdmission(r)
}

// Submit hands a request to the core. It is refused when it can never run, or when the core takes none.
func (c *EngineCore) Submit(r *request.Request) error {
	if err := c.open(); err != nil {
		return err
	}
	if err := c.CheckAdmission(r); err != nil {
		return err
	}
	r.NoRecord = r.NoRecord || c.cfg.NoRecord
	if r.Sampling.PromptLogprobs != nil {
		r.SkipReadingPrefixCache = true // every position must be computed
	}
	return c.send(message{kind: submit, req: r, id: r.ID})
}

// Extend gives a streaming-input session its next segment, or with Last its end marker.
func (c *EngineCore) Extend(id request.ID, s request.Segment) error {
	if s.Last && len(s.Tokens) > 0 {
		more := s
		more.Last = false
		if err := c.send(message{kind: extend, id: id, segment: more}); err != nil {
			return err
		}
		s = request.Segment{Last: true}
	}
	return c.send(message{kind: extend, id: id, segment: s})
}

// Deliver gives a parked request what it waits for.
func (c *EngineCore) Deliver(id request.ID, p request.Payload) error {
	return c.send(message{kind: deliver, id: id, payload: p})
}

// Abort ends requests; unknown and ended ids are ignored.
func (c *EngineCore) Abort(why request.FinishReason, ids ...request.ID) {
	_ = c.send(message{kind: abort, why: why, ids: ids}) // a core that takes no message has ended its requests
}

// Snapshot returns the newest published state; it waits for nothing.
func (c *EngineCore) Snapshot() record.Snapshot {
	s := *c.snapshot.Load()
	s.Inbox = c.inbox.submits()
	return s
}

// Health is nil while the core is idle or makes progress: a busy core has finished a step within StallAfter.
func (c *EngineCore) Health() error {
	if dead := c.state.Load().dead; dead != nil {
		return fmt.Errorf("%w: %w", ErrDead, dead)
	}
	if c.state.Load().closed {
		return ErrClosed
	}
	since := c.busy.Load()
	if since == 0 || c.cfg.StallAfter <= 0 {
		return nil
	}
	if d := time.Duration(c.clock.Now().Nanos() - since); d > c.cfg.StallAfter {
		return fmt.Errorf("%w: no step finished for %s with %d requests in the core", ErrStalled, d.Round(time.Second), c.snapshot.Load().InCore)
	}
	return nil
}

// Drain refuses new requests and returns once none is left in the core, or with ctx's error.
func (c *EngineCore) Drain(ctx context.Context) error {
	c.advance(func(s *coreState) { s.draining = true })
	empty := make(chan struct{})
	if err := c.send(message{kind: drain, empty: empty}); err != nil {
		return nil // a closed core holds nothing
	}
	select {
	case <-empty:
		return nil
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("draining engine core %s: %d requests left: %w", c.cfg.Name, c.Snapshot().InCore, ctx.Err())
	}
}

// Close aborts what is left, waits for the goroutine to end and closes the runner.
func (c *EngineCore) Close() error {
	already := false
	c.advance(func(s *coreState) { already, s.closed = s.closed, true })
	if !already {
		c.inbox.put(message{kind: quit})
	}
	<-c.done
	return nil
}

func (c *EngineCore) advance(f func(*coreState)) {
	for {
		old := c.state.Load()
		next := *old
		f(&next)
		if c.state.CompareAndSwap(old, &next) {
			return
		}
	}
}

// open says why the core takes no request, if so.
func (c *EngineCore) open() error {
	switch s := c.state.Load(); {
	case s.dead != nil:
		return fmt.Errorf("%w: %w", ErrDead, s.dead)
	case s.closed:
		return ErrClosed
	case s.draining:
		return ErrDraining
	}
	return nil
}

func (c *EngineCore) send(m message) error {
	if s := c.state.Load(); s.dead != nil {
		return fmt.Errorf("%w: %w", ErrDead, s.dead)
	} else if s.closed {
		return ErrClosed
	}
	m.at = c.clock.Now()
	if !c.inbox.put(m) {
		return ErrClosed
	}
	return nil
}
