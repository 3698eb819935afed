package stages

import (
	"context"
	"errors"
	"fmt"
	"io"

	"omni-engine/engine/request"
)

// Group is one user request of n sequences: n requests in the engine, each with its own record, read as one.
type Group struct {
	streams []Stream
	ids     []request.ID
	updates chan indexed
	ctx     context.Context
	stop    context.CancelFunc
	open    int
}

type indexed struct {
	index int
	u     Update
	err   error
}

// SubmitN starts n sequences of one request: ids INDEX_ID, seeds seed+INDEX when r has a seed, as in vLLM. All or none start. n = 1
// starts r itself. Read it with Next until io.EOF, or end it by ctx.
func (o *Orchestrator) SubmitN(ctx context.Context, r *request.Request, n int) (*Group, error) {
	if n < 1 {
		return nil, fmt.Errorf("request %s: n must be at least 1, got %d", r.External, n)
	}
	o.admit.Lock()
	defer o.admit.Unlock()
	if err := o.CheckAdmission(r, n); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	g := &Group{updates: make(chan indexed), ctx: ctx, stop: stop, open: n}
	parent := request.NewParent(n)
	for i := range n {
		child := child(r, i, n)
		child.Parent = parent
		s, err := o.submit(ctx, child)
		if err != nil {
			stop()
			return nil, err
		}
		g.streams = append(g.streams, s)
		g.ids = append(g.ids, child.ID)
	}
	for i := range g.streams {
		go g.pump(ctx, i)
	}
	return g, nil
}

// child copies r for sequence i of n. Slices are shared: nobody writes them.
func child(r *request.Request, i, n int) *request.Request {
	if n == 1 {
		return r
	}
	c := *r
	if c.ID != "" {
		c.ID = request.ID(fmt.Sprintf("%d_%s", i, r.ID))
	}
	if r.Sampling.Seed != nil {
		seed := *r.Sampling.Seed + int64(i)
		c.Sampling.Seed = &seed
	}
	return &c
}

// pump hands one sequence's updates to the reader, one at a time: what comes meanwhile coalesces in the stream. It ends with
// ctx; the engine has aborted the sequence then.
func (g *Group) pump(ctx context.Context, i int) {
	for {
		u, err := g.streams[i].Next(ctx)
		select {
		case g.updates <- indexed{i, u, err}:
		case <-ctx.Done():
			return
		}
		if err != nil || u.Done() {
			return
		}
	}
}

// IDs returns the engine's ids of the sequences, in order.
func (g *Group) IDs() []request.ID { return g.ids }

// Next returns the next update of any sequence and its index. After every sequence's last update it returns io.EOF.
func (g *Group) Next(ctx context.Context) (int, Update, error) {
	if g.open == 0 {
		return 0, Update{}, io.EOF
	}
	select {
	case v := <-g.updates:
		if errors.Is(v.err, io.EOF) || v.u.Done() {
			if g.open--; g.open == 0 {
				g.stop()
			}
		}
		return v.index, v.u, v.err
	case <-g.ctx.Done():
		return 0, Update{}, g.ctx.Err()
	case <-ctx.Done():
		return 0, Update{}, ctx.Err()
	}
}

// Close ends what still runs. It is safe after the end.
func (g *Group) Close() { g.stop() }
