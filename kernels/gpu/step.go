package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"omni-engine/cuda"
	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// step is one batch. Its arrays lie in page-locked memory; Submit puts copies and kernels on the device's stream and returns; Wait
// waits for the event behind them. Steps of a program share the device's copy of the batch: the stream keeps them apart.
type step struct {
	program *program
	states  *states
	batch   kernels.Batch
	host    *pinned // the batch, then the sampling rows, then the results
	event   cuda.Event

	checked  bool
	moved    bool // the batch is on its way to the device
	sampled  bool
	layout   hostLayout
	sizes    sizes
	graph    int // bucket of the forward graph; 0: none
	used     []int64
	sampling samplingState
	tokens   []int32
	result   kernels.Result
}

// NewStep makes a step over the states of this program.
func (pr *program) NewStep(ks kernels.States) (kernels.Step, error) {
	st, ok := ks.(*states)
	if !ok || st.program != pr {
		return nil, errors.New("new step: states of another program")
	}
	s := &step{program: pr, states: st, layout: pr.plan.hostLayout(), used: make([]int64, len(pr.plan.module.Groups))}
	err := pr.dev.cuda.Do(func() (err error) {
		s.event, err = pr.dev.cuda.EventCreate(false, false)
		return err
	})
	if err == nil {
		s.host, err = pr.dev.pin("a step", s.layout.size)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("new step: %w", err), s.Close())
	}
	s.expose()
	return s, nil
}

// expose lets the batch's longest arrays lie where the image of the limits has them.
func (s *step) expose() {
	p, m := s.program.plan, s.program.plan.images.limits
	s.batch.Tokens = ints(s.host.p, m.tokenIDs, m.tokens)[:0]
	s.batch.Tables = make([]kernels.GroupTable, len(p.module.Groups))
	for g := range s.batch.Tables {
		s.batch.Tables[g].Blocks = ints(s.host.p, m.groups[g].blocks, m.groups[g].capacity)[:0]
	}
}

// Close frees the step's memory after what still runs on it.
func (s *step) Close() error {
	d := s.program.dev
	err := d.cuda.Do(func() error {
		errs := []error{d.cuda.StreamSynchronize(d.stream)}
		if s.event != 0 {
			errs = append(errs, d.cuda.EventDestroy(s.event))
		}
		s.event = 0
		return errors.Join(errs...)
	})
	return errors.Join(append(s.sampling.free(), err, s.host.free())...)
}

// Batch is what the next Submit runs.
func (s *step) Batch() *kernels.Batch { return &s.batch }

// Submit puts entries on the device's stream, in order. It does not wait.
func (s *step) Submit(calls ...kernels.Call) error {
	p := s.program.plan
	if !s.checked {
		if s.states.memory == nil {
			return errors.New("submit: the states are closed")
		}
		if err := s.batch.Check(p.module, p.limits, s.states.plan); err != nil {
			return err
		}
		if len(s.batch.Inputs) > 0 {
			return errors.New("submit: rows that are not tokens are not supported on CUDA")
		}
		s.checked = true
		s.measure()
	}
	for _, c := range calls {
		if c.Entry < 0 || c.Entry >= len(p.entries) {
			return fmt.Errorf("submit: entry %d of %d", c.Entry, len(p.entries))
		}
	}
	return classed(s.program.dev.cuda.Do(func() error {
		for _, c := range calls {
			if err := s.run(c.Entry); err != nil {
				return fmt.Errorf("entry %s: %w", p.entries[c.Entry].spec.Name, err)
			}
		}
		return s.program.dev.cuda.EventRecord(s.event, s.program.dev.stream)
	}))
}

// measure decides how the step runs: as the graph of a bucket when every row decodes one token and samples it.
func (s *step) measure() {
	b := &s.batch
	s.graph = 0
	if s.program.dev.eager || len(b.Tokens) != len(b.SeqLens) || len(b.LogitRows) != len(b.SeqLens) {
		return
	}
	for i, row := range b.LogitRows {
		if int(row) != i {
			return
		}
	}
	s.graph = bucket(len(b.SeqLens), s.program.plan.graphRows())
}

// graphRows is the largest batch that has graphs.
func (p *plan) graphRows() int {
	return min(p.limits.Rows, p.limits.Tokens, max(p.limits.LogitRows, 1))
}

// run moves what an entry reads and launches it.
func (s *step) run(i int) error {
	e := s.program.plan.entries[i]
	if !s.moved {
		if err := s.move(); err != nil {
			return err
		}
	}
	if e.logits == kernels.None {
		return s.states.runs.run(i, &s.sizes, s.graph)
	}
	graph, padded := s.graph, len(s.batch.LogitRows)
	if e.logitsOnly() && !s.program.dev.eager {
		graph = bucket(padded, s.program.plan.graphRows())
	}
	if graph > 0 {
		padded = graph
	}
	if err := s.ask(padded); err != nil {
		return err
	}
	if s.sampling.special {
		graph = 0 // its addresses differ from those that a graph holds
	}
	sz := s.sizes
	sz.logits = padded
	if err := s.states.runs.run(i, &sz, graph); err != nil {
		return err
	}
	s.sampled = true
	return s.fetch()
}

// logitsOnly reports whether an entry depends on the number of logit rows alone.
func (e *entry) logitsOnly() bool {
	for _, n := range e.nodes {
		switch n.(type) {
		case *sampleNode, *unaryNode:
		default:
			return false
		}
		for _, b := range n.touches() {
			if e.buffers[b].rows != byLogit {
				return false
			}
		}
	}
	return true
}

// move sends the batch.
func (s *step) move() error {
	pr, m := s.program, s.program.plan.images.limits
	if s.graph > 0 {
		m = pr.plan.images.buckets[s.graph]
	}
	s.sizes = m.fill(s.host.p, &s.batch, pr.plan.limits.BlockSize, pr.plan.tiles, s.graph > 0, s.used)
	if s.graph > 0 {
		s.sizes.longest = pr.plan.limits.MaxModelLen // the graph serves any length
	}
	d := pr.dev
	to := pr.scratch.at(pr.plan.scratch.batch)
	end := m.fixed
	if len(m.groups) > 0 {
		end = m.groups[0].blocks + s.used[0]
	}
	if err := d.cuda.CopyToDevice(to, s.host.p, end, d.stream); err != nil {
		return err
	}
	for g := 1; g < len(m.groups); g++ {
		at := m.groups[g].blocks
		if err := d.cuda.CopyToDevice(to.Add(at), s.host.at(at), s.used[g], d.stream); err != nil {
			return err
		}
	}
	s.moved = true
	return nil
}

// Wait waits for what was submitted and reads what was sampled.
func (s *step) Wait(ctx context.Context) (*kernels.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d := s.program.dev
	if err := d.cuda.Do(func() error { return d.cuda.EventSynchronize(s.event) }); err != nil {
		return nil, fmt.Errorf("running a step: %w", classed(err))
	}
	s.result = kernels.Result{}
	if s.sampled {
		s.answer()
	}
	return &s.result, nil
}

// Release readies the step for the next batch.
func (s *step) Release() {
	s.checked, s.moved, s.sampled = false, false, false
	s.result = kernels.Result{}
}

// Output copies a named output's rows to host memory. It must be asked for before the next step of the program is submitted.
func (s *step) Output(name string) (tensor.View, error) {
	d := s.program.dev
	for _, e := range s.program.plan.entries {
		for _, b := range e.buffers {
			if b.name != name || !b.output || b.first < 0 {
				continue
			}
			rows := len(s.batch.Tokens)
			if b.rows == byLogit {
				rows = len(s.batch.LogitRows)
			}
			size := int64(rows) * int64(b.width) * 4
			h, err := d.pin("an output", size)
			if err != nil {
				return tensor.View{}, fmt.Errorf("output %s: %w", name, err)
			}
			err = d.cuda.Do(func() error {
				if err := d.cuda.CopyToHost(h.p, s.program.scratch.at(b.offset), size, d.stream); err != nil {
					return err
				}
				return d.cuda.StreamSynchronize(d.stream)
			})
			data := slices.Clone(h.bytes()[:size])
			if err := errors.Join(err, h.free()); err != nil {
				return tensor.View{}, fmt.Errorf("output %s: %w", name, err)
			}
			return tensor.NewView(tensor.F32, []int{rows, b.width}, data)
		}
	}
	return tensor.View{}, fmt.Errorf("output %q: the module has none of that name", name)
}
