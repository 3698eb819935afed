package kernels

import "slices"

// Patterns of operations that devices fuse. Each says that the operations from i on are one, in which nobody else reads what lies between them;
// what a device's kernels can do with it (types, widths, factors) is the device's to check.

// at is operation i of an entry as a T.
func at[T Op](f *Flow, i int) (o T, ok bool) {
	if i >= len(f.ops) {
		return o, false
	}
	o, ok = f.ops[i].(T)
	return o, ok
}

// HeadsPattern is how attention gets its inputs: products of one input for query, key and value, each possibly normed and rotated, then the
// write to the cache and the attention.
type HeadsPattern struct {
	In        BufferID
	Chains    [3]HeadChain // of query, key and value
	Write     *KVWrite
	Attention *Attention
	Ops       int // of the pattern
}

// Heads matches a [HeadsPattern].
func (f *Flow) Heads(i int) (h HeadsPattern, ok bool) {
	first, ok := at[*Linear](f, i)
	if !ok {
		return h, false
	}
	// Three chains of at most three operations come before the write.
	j := i + slices.IndexFunc(f.ops[i:min(len(f.ops), i+10)], func(o Op) bool { _, ok := o.(*KVWrite); return ok })
	if j < i {
		return h, false
	}
	h.In, h.Write = first.In, f.ops[j].(*KVWrite)
	if h.Attention, ok = at[*Attention](f, j+1); !ok || h.Attention.State != h.Write.State {
		return h, false
	}
	seen := 0
	for k, b := range []BufferID{h.Attention.Q, h.Write.K, h.Write.V} {
		reader := j
		if k == 0 {
			reader = j + 1
		}
		c, ok := f.HeadChain(b, i, reader)
		if !ok || c.Linear.In != h.In {
			return h, false
		}
		h.Chains[k] = c
		seen += len(c.Ops)
	}
	h.Ops = j + 2 - i
	return h, seen == j-i
}

// Gated matches two products of one input whose results an activation joins: three operations.
func (f *Flow) Gated(i int) (g *Gated, gate, up *Linear, ok bool) {
	a, ok1 := at[*Linear](f, i)
	b, ok2 := at[*Linear](f, i+1)
	g, ok3 := at[*Gated](f, i+2)
	if !ok1 || !ok2 || !ok3 || a.In != b.In || a.Out == b.Out {
		return nil, nil, nil, false
	}
	gate, up = a, b
	if g.Gate == b.Out && g.Up == a.Out {
		gate, up = b, a
	} else if g.Gate != a.Out || g.Up != b.Out {
		return nil, nil, nil, false
	}
	return g, gate, up, f.OnlyReader(a.Out, i, i+2) && f.OnlyReader(b.Out, i+1, i+2)
}

// Residual matches a product that is added to another buffer, in place: two operations.
func (f *Flow) Residual(i int) (l *Linear, add *Binary, ok bool) {
	l, ok1 := at[*Linear](f, i)
	b, ok2 := at[*Binary](f, i+1)
	if !ok1 || !ok2 || b.Kind != Add || b.Out != b.A || b.B != l.Out || b.A == l.Out || l.In == b.Out {
		return nil, nil, false
	}
	return l, b, f.OnlyReader(l.Out, i, i+1)
}

// GatherNorm matches rows that are normed, whole, as soon as they are gathered: two operations.
func (f *Flow) GatherNorm(i int) (g *GatherRows, n *Norm, ok bool) {
	g, ok1 := at[*GatherRows](f, i)
	n, ok2 := at[*Norm](f, i+1)
	if !ok1 || !ok2 || n.In != g.Out || n.GroupSize != 0 {
		return nil, nil, false
	}
	return g, n, n.Out == g.Out || f.OnlyReader(g.Out, i, i+1)
}
