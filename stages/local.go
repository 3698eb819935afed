package stages

import (
	"context"
	"errors"
	"fmt"

	"omni-engine/engine"
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
	"omni-engine/output"
)

// Local is a replica in this process: an engine core, and a goroutine that turns its outputs into updates.
type Local struct {
	core  *engine.EngineCore
	proc  *output.Processor
	queue *outputQueue
}

// LocalConfig of a [Local].
type LocalConfig struct {
	Core   engine.Config // Outputs is set here
	Output output.Config // Abort and CoreNow are set here
	// Observe sees each step's outputs on the output goroutine before they are processed (a trace file); nil for none.
	Observe func(*request.StepOutputs)
}

// NewLocal starts a core over runner, which it then owns.
func NewLocal(cfg LocalConfig, runner engine.Runner) (*Local, error) {
	l := &Local{queue: newOutputQueue()}
	cfg.Output.NoRecord = cfg.Output.NoRecord || cfg.Core.NoRecord
	cfg.Output.Abort = func(ids ...request.ID) { l.core.Abort(request.FinishStop, ids...) }
	cfg.Output.CoreNow = func() clock.Time { return l.core.Clock().Now() }
	l.proc = output.New(cfg.Output)
	cfg.Core.Outputs = l.queue
	core, err := engine.New(cfg.Core, runner)
	if err != nil {
		return nil, err
	}
	l.core = core
	go l.queue.run(l.proc, cfg.Observe)
	return l, nil
}

// Submit starts a request; it is aborted when ctx ends before it does.
func (l *Local) Submit(ctx context.Context, r *request.Request) (Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("submitting: %w", err)
	}
	s, err := l.proc.Add(r)
	if err != nil {
		return nil, translate(err)
	}
	if err := l.core.Submit(r); err != nil {
		l.proc.Forget(r.ID)
		return nil, translate(err)
	}
	id := r.ID
	stop := context.AfterFunc(ctx, func() { l.core.Abort(request.FinishAbort, id) })
	s.OnEnd(func() { stop() })
	return s, nil
}

// Extend gives a session its next segment, or its end marker.
func (l *Local) Extend(id request.ID, s request.Segment) error {
	if err := l.proc.Extend(id, s); err != nil {
		return translate(err)
	}
	return translate(l.core.Extend(id, s))
}

// Abort ends requests; unknown and ended ids are ignored.
func (l *Local) Abort(why request.FinishReason, ids ...request.ID) error {
	l.core.Abort(why, ids...)
	return nil
}

// CheckAdmission refuses what can never run.
func (l *Local) CheckAdmission(r *request.Request) error { return l.core.CheckAdmission(r) }

// Load counts the requests that have not ended.
func (l *Local) Load() Load {
	n, tokens := l.proc.Load()
	return Load{Requests: n, PrefillTokens: tokens}
}

// Snapshot returns the core's newest state.
func (l *Local) Snapshot() record.Snapshot { return l.core.Snapshot() }

// Health is nil while the core makes progress.
func (l *Local) Health() error { return translate(l.core.Health()) }

// Core gives access to the engine core.
func (l *Local) Core() *engine.EngineCore { return l.core }

// Pause stops scheduling: of new requests, or of all.
func (l *Local) Pause(ctx context.Context, all bool) error { return translate(l.core.Pause(ctx, all)) }

// Resume goes on after a Pause.
func (l *Local) Resume(ctx context.Context) error { return translate(l.core.Resume(ctx)) }

// ResetPrefixCache forgets cached blocks.
func (l *Local) ResetPrefixCache(ctx context.Context, preemptRunning bool) (bool, error) {
	ok, err := l.core.ResetPrefixCache(ctx, preemptRunning)
	return ok, translate(err)
}

// Drain refuses new requests and returns once none is left.
func (l *Local) Drain(ctx context.Context) error { return translate(l.core.Drain(ctx)) }

// Close aborts what is left, and returns when every stream had its last update.
func (l *Local) Close(ctx context.Context) error {
	err := l.core.Close()
	l.queue.close()
	select {
	case <-l.queue.done:
		return translate(err)
	case <-ctx.Done():
		return fmt.Errorf("closing a replica: %w", ctx.Err())
	}
}

// translate gives the engine's and the processor's errors this package's names.
func translate(err error) error {
	for _, t := range []struct{ from, to error }{
		{engine.ErrDead, ErrDead}, {engine.ErrStalled, ErrStalled}, {engine.ErrClosed, ErrClosed}, {engine.ErrDraining, ErrClosed},
		{output.ErrUnknown, ErrUnknownRequest},
	} {
		if errors.Is(err, t.from) {
			return fmt.Errorf("%w: %w", t.to, err)
		}
	}
	return err
}
