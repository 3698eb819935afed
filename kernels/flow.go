package kernels

import "slices"

// Flow answers who reads what an operation of an entry wrote, for devices that fuse. A buffer may be written many times (layers
// reuse buffers), so answers are about the value, from its write to the next one that replaces it.
type Flow struct {
	ops  []Op
	uses []Uses
	kept []bool // by buffer: its last value is read after the entry
}

// NewFlow looks at an entry. kept says which buffers' last values are read after it: outputs, and what other entries share.
func NewFlow(e *Entry, kept []bool) *Flow {
	f := &Flow{ops: e.Ops, kept: kept}
	for _, op := range e.Ops {
		f.uses = append(f.uses, op.Uses())
	}
	return f
}

// OnlyReader reports whether op `reader` alone reads the value of b that is current after op `at`.
func (f *Flow) OnlyReader(b BufferID, at, reader int) bool {
	for i := at + 1; i < len(f.uses); i++ {
		reads, writes := slices.Contains(f.uses[i].In, b), slices.Contains(f.uses[i].Out, b)
		switch {
		case i != reader && reads:
			return false
		case writes && !reads:
			return i >= reader
		case i == reader && writes:
			return true // replaced in place
		}
	}
	return !f.kept[b]
}

// HeadChain is how a query, key or value comes about: a linear, then possibly a norm of its heads and a rotation.
type HeadChain struct {
	Linear *Linear
	Norm   *Norm
	Rope   *Rope
	Ops    []int // of the entry
}

// HeadChain follows buffer b, read by op `reader`, back to its linear within ops [from, reader).
func (f *Flow) HeadChain(b BufferID, from, reader int) (c HeadChain, ok bool) {
	for i := reader - 1; i >= from; i-- {
		if !slices.Contains(f.uses[i].Out, b) {
			continue
		}
		if !f.OnlyReader(b, i, reader) {
			return c, false
		}
		c.Ops = append(c.Ops, i)
		switch op := f.ops[i].(type) {
		case *Rope:
			if c.Rope != nil || c.Norm != nil {
				return c, false
			}
			c.Rope = op
		case *Norm:
			if c.Norm != nil {
				return c, false
			}
			c.Norm = op
			b = op.In
		case *Linear:
			c.Linear = op
			return c, true
		default:
			return c, false
		}
		reader = i
	}
	return c, false
}
