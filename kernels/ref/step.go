package ref

import (
	"context"
	"fmt"
	"unsafe"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// step runs at Submit, on the caller's goroutine: order is then the order of submission, whatever is in flight.
type step struct {
	program *program
	states  *states
	batch   kernels.Batch
	envs    []Env // by entry
	outputs map[string]Value
	result  kernels.Result
	started bool
}

// NewStep makes a step over the states of this program.
func (p *program) NewStep(s kernels.States) (kernels.Step, error) {
	st, ok := s.(*states)
	if !ok || st.module != p.module {
		return nil, fmt.Errorf("new step: states of another program")
	}
	return &step{program: p, states: st, envs: make([]Env, len(p.module.Entries)), outputs: map[string]Value{}}, nil
}

func (s *step) Batch() *kernels.Batch { return &s.batch }

func (s *step) Submit(calls ...kernels.Call) error {
	b := &s.batch
	if !s.started {
		if err := b.Check(s.program.module, s.program.limits, s.states.plan); err != nil {
			return err
		}
		s.started = true
		for r, f := range b.Flags {
			if f&kernels.RowFirst != 0 {
				s.states.reset(b.Slots[r])
			}
		}
	}
	for _, c := range calls {
		if c.Entry < 0 || c.Entry >= len(s.envs) {
			return fmt.Errorf("submit: entry %d of %d", c.Entry, len(s.envs))
		}
		if err := s.run(c); err != nil {
			return fmt.Errorf("entry %s: %w", s.program.module.Entries[c.Entry].Name, err)
		}
	}
	return nil
}

func (s *step) run(c kernels.Call) error {
	e := &s.envs[c.Entry]
	s.prepare(e, c)
	for i, op := range e.Entry.Ops {
		if err := Run(op, e); err != nil {
			return fmt.Errorf("op %d %s: %w", i, op.Name(), err)
		}
	}
	return nil
}

// prepare sizes the entry's buffers for this batch. Outputs of one name share memory over the entries.
func (s *step) prepare(e *Env, c kernels.Call) {
	entry := &s.program.module.Entries[c.Entry]
	b := &s.batch
	e.Entry, e.Batch, e.Scalars, e.Threads = entry, b, c.Scalars, s.program.threads
	e.Module, e.Weights, e.Limits, e.Result = s.program.module, s.program.weights, s.program.limits, &s.result
	e.Adapters, e.states = s.program.adapters, s.states
	e.Sizes = kernels.Sizes{Tokens: len(b.Tokens), Rows: len(b.SeqLens), LogitRows: len(b.LogitRows), Frames: b.Frames}
	if e.Buffers == nil {
		e.Buffers = make([]Value, len(entry.Buffers))
	}
	for i, spec := range entry.Buffers {
		rows, width := spec.Shape(e.Sizes)
		rows = max(rows, 0)
		v := e.Buffers[i]
		if spec.Role == kernels.Output {
			v = s.outputs[spec.Name]
		}
		v.Rows, v.Width = rows, width
		if spec.DType == tensor.I32 {
			v.I = sized(v.I, rows*width)
		} else {
			v.F = sized(v.F, rows*width)
		}
		e.Buffers[i] = v
		if spec.Role == kernels.Output {
			s.outputs[spec.Name] = v
		}
	}
}

func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

func (s *step) Wait(ctx context.Context) (*kernels.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &s.result, nil
}

// Output views a named output: [rows, width] float32 or int32.
func (s *step) Output(name string) (tensor.View, error) {
	v, ok := s.outputs[name]
	if !ok {
		return tensor.View{}, fmt.Errorf("output %q: no entry that ran has it", name)
	}
	if v.F == nil {
		return tensor.NewView(tensor.I32, []int{v.Rows, v.Width}, bytesOf(v.I))
	}
	return tensor.NewView(tensor.F32, []int{v.Rows, v.Width}, bytesOf(v.F))
}

func bytesOf[T float32 | int32](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

func (s *step) Release() {
	s.started = false
	s.result = kernels.Result{}
}
