package cpu

import "omni-engine/kernels"

// flow answers who reads what an operation wrote. A buffer may be written many times (layers reuse buffers), so answers are about
// the value, from its write to the next one that replaces it.
type flow struct {
	entry *kernels.Entry
	uses  []kernels.Uses
	kept  []bool // by buffer: its last value is read after the entry (outputs, and what other entries share)
}

func newFlow(e *kernels.Entry, kept []bool) *flow {
	f := &flow{entry: e, kept: kept}
	for _, op := range e.Ops {
		f.uses = append(f.uses, op.Uses())
	}
	return f
}

func has(list []kernels.BufferID, b kernels.BufferID) bool {
	for _, x := range list {
		if x == b {
			return true
		}
	}
	return false
}

// onlyReader reports whether op `reader` alone reads the value of b that is current after op `at`.
func (f *flow) onlyReader(b kernels.BufferID, at, reader int) bool {
	for i := at + 1; i < len(f.uses); i++ {
		if i != reader && has(f.uses[i].In, b) {
			return false
		}
		if has(f.uses[i].Out, b) && !has(f.uses[i].In, b) {
			return i >= reader
		}
		if i == reader && has(f.uses[i].Out, b) {
			return true // replaced in place
		}
	}
	return !f.kept[b]
}

// chain is how a query, key or value comes about: a linear, then possibly a norm of its heads and a rotation.
type chain struct {
	linear *kernels.Linear
	norm   *kernels.Norm
	rope   *kernels.Rope
	ops    []int
}

// chainOf follows buffer b, read by op `reader`, back to its linear within ops [from, reader).
func (f *flow) chainOf(b kernels.BufferID, from, reader int) (c chain, ok bool) {
	for i := reader - 1; i >= from; i-- {
		if !has(f.uses[i].Out, b) {
			continue
		}
		if !f.onlyReader(b, i, reader) {
			return c, false
		}
		c.ops = append(c.ops, i)
		switch op := f.entry.Ops[i].(type) {
		case *kernels.Rope:
			if c.rope != nil || c.norm != nil {
				return c, false
			}
			c.rope = op
		case *kernels.Norm:
			if c.norm != nil {
				return c, false
			}
			c.norm = op
			b = op.In
		case *kernels.Linear:
			c.linear = op
			return c, true
		default:
			return c, false
		}
		reader = i
	}
	return c, false
}
