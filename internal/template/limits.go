package template

import (
	"context"
	"fmt"
)

// Limits bounds one rendering. Templates come with models and are not trusted. A zero field takes its default.
type Limits struct {
	Depth  int   // nested macro, caller and recursive loop calls; also nesting of printed values
	Steps  int64 // evaluated nodes, loop rounds and, at 64 bytes a step, bytes that functions walk over
	Output int   // bytes of the result
	Memory int64 // bytes that all strings, lists and dicts made on the way take together
}

// DefaultLimits gives the limits of an ordinary server: enough for megabytes of conversation, out of reach of an endless loop.
func DefaultLimits() Limits {
	return Limits{Depth: 200, Steps: 50_000_000, Output: 64 << 20, Memory: 1 << 30}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	if l.Depth <= 0 {
		l.Depth = d.Depth
	}
	if l.Steps <= 0 {
		l.Steps = d.Steps
	}
	if l.Output <= 0 {
		l.Output = d.Output
	}
	if l.Memory <= 0 {
		l.Memory = d.Memory
	}
	return l
}

// state is one rendering.
type state struct {
	ctx    context.Context
	tmpl   *Template
	lim    Limits
	steps  int64
	polled int64 // steps at the last look at ctx
	memory int64
	depth  int
	line   int
	buf    []byte  // the output; a macro's or a set block's text is the tail of it while that runs
	root   []Value // the template's variables, by name id; nil where missing
}

// pollEvery is how many steps pass between two looks at the context: about a tenth of a millisecond.
const pollEvery = 2048

// step counts n units of work.
func (st *state) step(n int) error {
	st.steps += int64(n)
	if st.steps-st.polled < pollEvery {
		return nil
	}
	st.polled = st.steps
	if st.steps > st.lim.Steps {
		return &LimitError{What: "evaluation steps"}
	}
	if st.ctx != nil {
		if err := context.Cause(st.ctx); err != nil {
			return fmt.Errorf("rendering the template: %w", err)
		}
	}
	return nil
}

// walk counts the work of going over n bytes.
func (st *state) walk(n int) error { return st.step(1 + n/64) }

// grow counts n bytes of new memory, before they are taken, and the work of filling them.
func (st *state) grow(n int) error {
	if n < 0 || int64(n) > st.lim.Memory-st.memory {
		return &LimitError{What: "memory"}
	}
	st.memory += int64(n)
	return st.walk(n)
}

// slotBytes is what an element of a list or dict is counted as.
const slotBytes = 16

func (st *state) growItems(n int) error {
	if n < 0 || n > 1<<40 {
		return &LimitError{What: "memory"}
	}
	return st.grow(n * slotBytes)
}

// write appends to the output.
func (st *state) write(s string) error {
	if len(st.buf)+len(s) > st.lim.Output {
		return &LimitError{What: "output size"}
	}
	st.buf = append(st.buf, s...)
	return st.walk(len(s))
}

// enter counts one level of calls; leave undoes it.
func (st *state) enter() error {
	if st.depth >= st.lim.Depth {
		return errorf(RecursionError, "maximum recursion depth exceeded")
	}
	st.depth++
	return nil
}

func (st *state) leave() { st.depth-- }

// capture runs f and gives what it wrote, taking it off the output again.
func (st *state) capture(f func() (flow, error)) (string, flow, error) {
	start := len(st.buf)
	fl, err := f()
	if err != nil {
		return "", fl, err
	}
	if err := st.grow(len(st.buf) - start); err != nil {
		return "", fl, err
	}
	s := string(st.buf[start:])
	st.buf = st.buf[:start]
	return s, fl, nil
}
