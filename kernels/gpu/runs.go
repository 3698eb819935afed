package gpu

import (
	"errors"
	"fmt"

	"omni-engine/cuda"
)

// call is one launch whose parameters that change from step to step are written by set before it.
type call struct {
	name   string
	launch *cuda.Launch
	set    func(sz *sizes) (skip bool)
	// library runs it by cuBLASLt where that is for the step, in place of the launch; nil: never.
	library func(sz *sizes) (done bool, err error)
}

// runs are a program's launches over one states' memory, and the graphs that were captured of them.
type runs struct {
	program  *program
	states   *states
	entries  [][]*call
	logprobs *call // after sampling, where a row wants them; nil: the module does not sample
	graphs   map[graphKey]cuda.GraphExec
	// captured and replayed count graphs, launched the kernels that were launched one by one.
	// library products that cuBLASLt ran.
	captured, replayed, launched, library int
}

// graphKey names a graph: an entry at a bucket.
type graphKey struct{ entry, bucket int }

func (pr *program) newRuns(s *states) (*runs, error) {
	r := &runs{program: pr, states: s, graphs: map[graphKey]cuda.GraphExec{}}
	for _, e := range pr.plan.entries {
		m := &emitter{runs: r, entry: e}
		for _, n := range e.nodes {
			m.emit(n)
		}
		r.entries = append(r.entries, m.calls)
		if err := errors.Join(m.errs...); err != nil {
			return nil, errors.Join(fmt.Errorf("entry %s: %w", e.spec.Name, err), r.close())
		}
	}
	return r, nil
}

// run puts an entry's kernels on the stream: as a graph where the step fills one, else one by one. It must be called inside
// Device.Do.
func (r *runs) run(entry int, sz *sizes, graph int) error {
	d := r.program.dev
	if graph == 0 {
		return r.launch(entry, sz)
	}
	exec, ok := r.graphs[graphKey{entry, graph}]
	if !ok {
		var err error
		if exec, err = r.keep(entry, sz, graph); err != nil {
			return err
		}
	}
	if exec == 0 { // there was no memory for it
		return r.launch(entry, sz)
	}
	r.replayed++
	return d.cuda.GraphLaunch(exec, d.stream)
}

func (r *runs) launch(entry int, sz *sizes) error {
	for _, c := range r.entries[entry] {
		if err := r.one(c, sz); err != nil {
			return err
		}
	}
	return nil
}

// one launches a kernel where there is something to do.
func (r *runs) one(c *call, sz *sizes) error {
	if c.library != nil && !sz.captured {
		switch done, err := c.library(sz); {
		case err != nil:
			return fmt.Errorf("%s: %w", c.name, err)
		case done:
			r.library++
			return nil
		}
	}
	if c.set(sz) {
		return nil
	}
	if err := r.program.dev.cuda.Launch(c.launch); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	r.launched++
	return nil
}

func (r *runs) close() error {
	d := r.program.dev
	err := d.cuda.Do(func() error {
		var errs []error
		for _, g := range r.graphs {
			if g == 0 {
				continue
			}
			errs = append(errs, d.cuda.GraphExecDestroy(g))
		}
		return errors.Join(errs...)
	})
	for _, calls := range r.entries {
		for _, c := range calls {
			c.launch.Release()
		}
	}
	if r.logprobs != nil {
		r.logprobs.launch.Release()
	}
	r.entries, r.graphs = nil, nil
	return err
}
