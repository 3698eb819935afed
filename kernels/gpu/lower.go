package gpu

import (
	"fmt"

	"omni-engine/kernels"
)

// lower turns an entry's operations into nodes: the longest fused form that matches at each operation, else the operation alone.
func (p *plan) lower(spec *kernels.Entry, names map[string]int) {
	e := &entry{spec: spec, logits: kernels.None}
	kept := make([]bool, len(spec.Buffers))
	for i, b := range spec.Buffers {
		shared := b.Name != "" && names[b.Name] > 1
		kept[i] = b.Role == kernels.Output || shared
		kind, ok := rowsOf(b)
		if !ok {
			p.errs = append(p.errs, fmt.Errorf("entry %s: buffers like %s have no CUDA kernels", spec.Name, b.Name))
		}
		nb := &buffer{name: b.Name, width: b.Width, rows: kind, output: kept[i], shared: shared, first: -1}
		if shared {
			nb = p.sharedBuffer(nb)
		}
		e.buffers = append(e.buffers, nb)
	}
	e.flow = kernels.NewFlow(spec, kept)
	p.widen(e)
	for i := 0; i < len(spec.Ops); {
		n := 0
		for _, match := range []func(*entry, int) int{p.headsAndCache, p.gatedUnit, p.residualProduct, p.residualNorm, p.gatherNorm} {
			if n = match(e, i); n > 0 {
				break
			}
		}
		if n == 0 {
			p.single(e, spec.Ops[i])
			n = 1
		}
		i += n
	}
	for i, n := range e.nodes {
		for _, b := range n.touches() {
			if b == kernels.None {
				continue
			}
			buf := e.buffers[b]
			if buf.first < 0 {
				buf.first = i
			}
			buf.last = i
		}
	}
	p.entries = append(p.entries, e)
}

// sharedBuffer is the one buffer of that name, which entries share.
func (p *plan) sharedBuffer(b *buffer) *buffer {
	for _, e := range p.entries {
		for _, o := range e.buffers {
			if o.shared && o.name == b.name && o.width == b.width {
				return o
			}
		}
	}
	return b
}

func rowsOf(b kernels.Buffer) (rowsKind, bool) {
	d := b.Rows
	plain := (d.Mul == 0 || d.Mul == 1) && (d.Div == 0 || d.Div == 1) && d.Add == 0
	switch d.Sym {
	case kernels.Tokens:
		return byToken, plain
	case kernels.LogitRows:
		return byLogit, plain
	}
	return byToken, false
}

func (e *entry) add(n node) { e.nodes = append(e.nodes, n) }

// temp makes a buffer that fusing needs.
func (e *entry) temp(name string, width int, rows rowsKind) kernels.BufferID {
	for i, b := range e.buffers {
		if b.name == name && b.width == width && b.rows == rows && i >= len(e.spec.Buffers) {
			return kernels.BufferID(i)
		}
	}
	e.buffers = append(e.buffers, &buffer{name: name, width: width, rows: rows, first: -1})
	return kernels.BufferID(len(e.buffers) - 1)
}

// op is the operation at i as a T.
func op[T kernels.Op](e *entry, i int) (T, bool) {
	var none T
	if i >= len(e.spec.Ops) {
		return none, false
	}
	o, ok := e.spec.Ops[i].(T)
	return o, ok
}

// headsAndCache: linears of query, key and value, norms of their heads, rotations, cache write and attention.
func (p *plan) headsAndCache(e *entry, i int) int {
	h, ok := e.flow.Heads(i)
	if !ok || e.buffers[h.In].rows != byToken {
		return 0
	}
	att, chains := h.Attention, h.Chains
	n := &headsNode{out: att.Q, heads: att.Heads, kvHeads: att.KVHeads, dim: att.KDim, state: h.Write.State}
	if !p.headNorms(e, n, chains) || !p.headRope(n, chains) {
		return 0
	}
	n.in = e.temp("qkv", (att.Heads+2*att.KVHeads)*att.KDim, byToken)
	p.products(e, h.In, n.in, chains[0].Linear, chains[1].Linear, chains[2].Linear)
	e.add(n)
	p.attention(e, att)
	return h.Ops
}

// headNorms reads the norms of queries and keys, which must be alike.
func (p *plan) headNorms(e *entry, n *headsNode, chains [3]kernels.HeadChain) bool {
	q, k := chains[0].Norm, chains[1].Norm
	if chains[2].Norm != nil || (q == nil) != (k == nil) {
		return false
	}
	if q == nil {
		return true
	}
	for _, m := range []*kernels.Norm{q, k} {
		if m.Kind != kernels.RMS || m.Bias != kernels.None || m.GroupSize != n.dim || m.Eps != q.Eps || m.Weight == kernels.None || p.elems(m.Weight) != n.dim {
			return false
		}
	}
	n.qNorm, n.kNorm, n.eps = p.vector(q.AddOne, q.Weight), p.vector(k.AddOne, k.Weight), q.Eps
	return true
}

// headRope reads the rotations of queries and keys, which must be alike and of one kind that the kernel has.
func (p *plan) headRope(n *headsNode, chains [3]kernels.HeadChain) bool {
	q, k := chains[0].Rope, chains[1].Rope
	if chains[2].Rope != nil || (q == nil) != (k == nil) {
		return false
	}
	if q == nil {
		return true
	}
	for _, r := range []*kernels.Rope{q, k} {
		if r.HeadDim != n.dim || r.LongFrom != 0 || len(r.LongFreq) > 0 || !sameRope(r, q) {
			return false
		}
		for _, a := range r.Axis {
			if a != 0 {
				return false
			}
		}
	}
	if q.Heads != n.heads || k.Heads != n.kvHeads {
		return false
	}
	n.rope = p.rope(q)
	return true
}

func sameRope(a, b *kernels.Rope) bool {
	same := a.RotDim == b.RotDim && a.From == b.From && a.Pairing == b.Pairing && a.Factor == b.Factor && len(a.InvFreq) == len(b.InvFreq)
	for i := 0; same && i < len(a.InvFreq); i++ {
		same = a.InvFreq[i] == b.InvFreq[i]
	}
	return same
}

func (p *plan) rope(op *kernels.Rope) *ropeTable {
	for _, r := range p.ropes {
		if sameRope(r.op, op) {
			return r
		}
	}
	r := &ropeTable{op: op}
	p.ropes = append(p.ropes, r)
	return r
}

func (p *plan) attention(e *entry, a *kernels.Attention) {
	st := p.module.States[a.State]
	switch {
	case a.KVHeads != st.Heads || a.KDim != st.KDim || a.VDim != st.VDim || a.KVHeads == 0 || a.Heads%a.KVHeads != 0:
		p.fail(e, "attention of %d/%d heads of %d/%d does not fit state %s", a.Heads, a.KVHeads, a.KDim, a.VDim, st.Name)
	case a.Chunk > 0:
		p.fail(e, "attention in chunks %w", errOperation)
	case a.Sinks != kernels.None:
		p.fail(e, "attention with sinks %w", errOperation)
	}
	p.tile(a.Heads, a.KVHeads, a.KDim)
	e.add(&attentionNode{in: a.Q, out: a.Out, heads: a.Heads, kvHeads: a.KVHeads, dim: a.KDim, scale: a.Scale, softcap: a.Softcap, window: a.Window, state: a.State})
}

func (p *plan) fail(e *entry, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("entry "+e.spec.Name+": "+format, args...))
}

// gatedUnit: gate and up products, activation and product.
func (p *plan) gatedUnit(e *entry, i int) int {
	g, gate, up, ok := e.flow.Gated(i)
	if !ok || g.Limit != 0 {
		return 0
	}
	both := e.temp("gate_up", 2*e.buffers[g.Out].width, e.buffers[g.Out].rows)
	p.products(e, gate.In, both, gate, up)
	e.add(&gatedNode{in: both, out: g.Out, act: g.Act})
	return 3
}

// products puts linears of one input side by side into out: one product where their weights are of one type.
func (p *plan) products(e *entry, in, out kernels.BufferID, ls ...*kernels.Linear) {
	column, lastQuantised := 0, false
	for i := 0; i < len(ls); {
		j := i + 1
		for j < len(ls) && p.joins(ls[i], ls[j]) {
			j++
		}
		node := p.product(e, in, out, column, ls[i:j]...)
		node.again = i > 0 && lastQuantised
		lastQuantised = lastQuantised || node.weight.dtype.Quantised()
		e.add(node)
		column += node.weight.n
		i = j
	}
	if column != e.buffers[out].width {
		p.fail(e, "linears give %d columns where %d are read", column, e.buffers[out].width)
	}
}

// joins reports whether two weights may lie one below the other.
func (p *plan) joins(a, b *kernels.Linear) bool {
	va, vb := p.module.Weights[a.Weight].View, p.module.Weights[b.Weight].View
	return p.deviceType(va.DType) == p.deviceType(vb.DType) && len(va.Shape) == 2 && len(vb.Shape) == 2 && va.Shape[1] == vb.Shape[1] &&
		(a.Bias == kernels.None) == (b.Bias == kernels.None)
}

func (p *plan) product(e *entry, in, out kernels.BufferID, column int, ls ...*kernels.Linear) *linearNode {
	var weights, biases []kernels.WeightID
	for _, l := range ls {
		weights = append(weights, l.Weight)
		if l.Bias != kernels.None {
			biases = append(biases, l.Bias)
		}
	}
	n := &linearNode{in: in, out: out, column: column, weight: p.matrix(weights...)}
	if len(biases) > 0 {
		n.bias = p.vector(false, biases...)
		if len(n.bias.data) != n.weight.n {
			p.fail(e, "a bias of %d for a linear of %d", len(n.bias.data), n.weight.n)
		}
	}
	if n.weight.k != e.buffers[in].width {
		p.fail(e, "a linear of %d inputs reads a buffer of %d columns", n.weight.k, e.buffers[in].width)
	}
	return n
}

// residualProduct: a product is added to the residual stream.
func (p *plan) residualProduct(e *entry, i int) int {
	l, b, ok := e.flow.Residual(i)
	if !ok || orOne(b.Alpha) != 1 {
		return 0
	}
	n := p.product(e, l.In, b.Out, 0, l)
	n.add = true
	e.add(n)
	return 2
}

// residualNorm: a value, perhaps normed, joins the residual stream, and the norm that follows reads it in the same pass.
func (p *plan) residualNorm(e *entry, i int) int {
	from := i
	post, isNorm := op[*kernels.Norm](e, i)
	if isNorm {
		i++
	}
	b, ok := op[*kernels.Binary](e, i)
	if !ok || b.Kind != kernels.Add || b.Out != b.A || b.B == b.A {
		return 0
	}
	add := &normNode{in: b.B, out: kernels.None, add: b.Out, alpha: orOne(b.Alpha)}
	if isNorm {
		if post.Out != b.B || post.In == b.Out || post.GroupSize != 0 || !p.plainNorm(e, post) || post.Out != post.In && !e.flow.OnlyReader(post.Out, from, i) {
			return 0
		}
		add.in, add.inWeight, add.eps = post.In, p.vector(post.AddOne, post.Weight), post.Eps
	}
	e.add(add)
	used := i + 1 - from
	n, ok := op[*kernels.Norm](e, i+1)
	if ok && n.In == b.Out && n.Out != b.Out && n.Out != add.in && n.GroupSize == 0 && p.plainNorm(e, n) && (!isNorm || n.Eps == post.Eps) {
		add.out, add.weight, add.eps = n.Out, p.vector(n.AddOne, n.Weight), n.Eps
		used++
	}
	return used
}

// gatherNorm: the rows whose logits are wanted are normed as they are gathered.
func (p *plan) gatherNorm(e *entry, i int) int {
	g, n, ok := e.flow.GatherNorm(i)
	if !ok || !p.plainNorm(e, n) {
		return 0
	}
	e.add(&normNode{in: g.In, out: n.Out, add: kernels.None, weight: p.vector(n.AddOne, n.Weight), eps: n.Eps, alpha: 1, gather: true})
	return 2
}

// plainNorm is a root-mean-square norm with a weight.
func (p *plan) plainNorm(e *entry, n *kernels.Norm) bool {
	if n.Kind != kernels.RMS || n.Bias != kernels.None || n.Weight == kernels.None {
		return false
	}
	width := n.GroupSize
	if width == 0 {
		width = e.buffers[n.In].width
	}
	return p.elems(n.Weight) == width
}

func orOne(x float32) float32 {
	if x == 0 {
		return 1
	}
	return x
}

// single lowers one operation.
func (p *plan) single(e *entry, o kernels.Op) {
	switch o := o.(type) {
	case *kernels.Embed:
		e.add(&embedNode{out: o.Out, table: p.table(o.Table, e.buffers[o.Out].width), scale: orOne(o.Scale)})
	case *kernels.Norm:
		if !p.plainNorm(e, o) {
			p.fail(e, "norms of this kind (layer norm, L2, biases, no weight) %w", errOperation)
			return
		}
		e.add(&normNode{in: o.In, out: o.Out, add: kernels.None, weight: p.vector(o.AddOne, o.Weight), eps: o.Eps, alpha: 1, group: o.GroupSize})
	case *kernels.Linear:
		e.add(p.product(e, o.In, o.Out, 0, o))
	case *kernels.GatherRows:
		e.add(&gatherNode{in: o.In, out: o.Out})
	case *kernels.Unary:
		e.add(&unaryNode{in: o.In, out: o.Out, act: o.Act, scale: orOne(o.Scale), postScale: orOne(o.PostScale), offset: o.Offset, clamp: o.Clamp})
	case *kernels.Sample:
		if p.samples++; p.samples > 1 {
			p.fail(e, "a module that samples more than once a step %w", errOperation)
		}
		e.logits = o.Logits
		e.add(&sampleNode{logits: o.Logits})
	default:
		p.fail(e, "operation %s %w", o.Name(), errOperation)
	}
}
