//go:build cgo && linux && amd64

package cpu

// #include "omni.h"
import "C"

import (
	"fmt"
	"strings"

	"omni-engine/kernels"
)

// lower turns an entry's operations into phases: the longest fused form that matches at each operation, else the operation alone.
func (p *plan) lower(ep *entryPlan) {
	ops := ep.entry.Ops
	for i := 0; i < len(ops); {
		n := 0
		for _, match := range []func(*entryPlan, int) int{p.headsAndCache, p.gatedUnit, p.residual, p.postNorm, p.gatherNorm, p.activated} {
			if n = match(ep, i); n > 0 {
				break
			}
		}
		if n == 0 {
			p.single(ep, i)
			n = 1
		}
		i += n
	}
}

func (ep *entryPlan) add(ph phase) { ep.phases = append(ep.phases, ph) }

func (ep *entryPlan) rows(b kernels.BufferID) C.int32_t { return ep.buffers[b].rows }

func tilesOf(n int) int { return (n + 31) / 32 * 2 }

// store is the plain epilogue of a linear, in units of two tiles.
func (p *plan) store(l *kernels.Linear, epilogue C.int32_t) segment {
	m := p.matrix(l.Weight)
	return segment{w: m, bias: p.vector(l.Bias, false), units: tilesOf(m.n) / 2, tiles: 2, epilogue: epilogue, out: l.Out, scale: 1, post: 1, alpha: 1}
}

func (p *plan) linearPhase(ep *entryPlan, in kernels.BufferID, label string, segs ...segment) phase {
	ph := newPhase(C.P_LINEAR, ep.rows(in), label)
	ph.in, ph.segs = in, segs
	var formats []string
	for _, s := range segs {
		for _, m := range []*matrix{s.w, s.w2} {
			if m == nil {
				continue
			}
			if m.k != ep.buffers[in].width {
				p.errs = append(p.errs, fmt.Errorf("entry %s: a linear of %d inputs reads a buffer of %d columns", ep.entry.Name, m.k, ep.buffers[in].width))
			}
			if f := formatName(m.format); len(formats) == 0 || formats[len(formats)-1] != f {
				formats = append(formats, f)
			}
		}
	}
	ph.label += " [" + strings.Join(formats, " ") + "]"
	return ph
}

// headsAndCache: linears of query, key and value, norms of their heads, rotations, cache write and attention become two phases.
func (p *plan) headsAndCache(ep *entryPlan, i int) int {
	h, ok := ep.flow.Heads(i)
	if !ok || ep.rows(h.In) != C.ROWS_TOKENS {
		return 0
	}
	att, st := h.Attention, p.module.States[h.Write.State]
	heads := [3]int{att.Heads, st.Heads, st.Heads}
	dims := [3]int{st.KDim, st.KDim, st.VDim}
	epilogues := [3]C.int32_t{C.E_HEAD_Q, C.E_HEAD_K, C.E_HEAD_V}
	var segs []segment
	label := "qkv"
	for k, c := range h.Chains {
		s, ok := p.headSegment(ep, c, heads[k], dims[k])
		if !ok {
			return 0
		}
		s.epilogue, s.state = epilogues[k], h.Write.State
		if k == 0 {
			s.out = att.Q
		} else {
			s.out = kernels.None
		}
		if k == 1 && c.Norm != nil {
			label += " + qk-norm"
		}
		if k == 1 && c.Rope != nil {
			label += " + rope"
		}
		segs = append(segs, s)
	}
	ep.add(p.linearPhase(ep, h.In, label+" + cache", segs...))
	p.attention(ep, att)
	return h.Ops
}

func (p *plan) headSegment(ep *entryPlan, c kernels.HeadChain, heads, dim int) (segment, bool) {
	s := p.store(c.Linear, C.E_HEAD_Q)
	if s.w.n != heads*dim || dim%16 != 0 || dim > 16*C.MAX_UNIT_TILES {
		return s, false
	}
	s.units, s.tiles, s.headDim = heads, dim/16, dim
	if n := c.Norm; n != nil {
		if n.Kind != kernels.RMS || n.Bias != kernels.None || n.GroupSize != dim {
			return s, false
		}
		s.normOn, s.eps = true, n.Eps
		s.norm = p.vector(n.Weight, n.AddOne)
		if s.norm == nil {
			s.norm = p.ones(dim)
		} else if elems(p.module.Weights[n.Weight]) != dim {
			return s, false
		}
	}
	if r := c.Rope; r != nil {
		if r.Heads != heads || r.HeadDim != dim || r.From+r.RotDim > dim {
			return s, false
		}
		s.rope, s.rotFrom, s.rotDim, s.pair = p.ropeTable(r), r.From, r.RotDim, int(r.Pairing)
	}
	return s, true
}

func elems(w kernels.Weight) int {
	n := 1
	for _, d := range w.View.Shape {
		n *= d
	}
	return n
}

func (p *plan) ones(n int) *vector {
	key := vectorKey{kernels.WeightID(-1 - n), false}
	if v, ok := p.vectors[key]; ok {
		return v
	}
	v := &vector{data: make([]float32, n+32)}
	for i := range v.data {
		v.data[i] = 1
	}
	p.vectors[key] = v
	p.vecOrder = append(p.vecOrder, v)
	return v
}

func (p *plan) attention(ep *entryPlan, a *kernels.Attention) {
	st := p.module.States[a.State]
	if a.Heads%a.KVHeads != 0 || a.KVHeads != st.Heads || a.KDim != st.KDim || a.VDim != st.VDim {
		p.errs = append(p.errs, fmt.Errorf("entry %s: attention of %d/%d heads of %d/%d does not fit state %s", ep.entry.Name, a.Heads, a.KVHeads, a.KDim, a.VDim, st.Name))
		return
	}
	label := "attention"
	if a.Window > 0 {
		label += fmt.Sprintf(" window %d", a.Window)
	}
	ph := newPhase(C.P_ATTENTION, C.ROWS_TOKENS, label)
	ph.in, ph.out, ph.state = a.Q, a.Out, a.State
	ph.heads, ph.kvHeads, ph.window, ph.chunk = a.Heads, a.KVHeads, a.Window, a.Chunk
	ph.scale, ph.softcap, ph.sinks = a.Scale, a.Softcap, p.vector(a.Sinks, false)
	ph.ratio = p.ratio(a.Heads, a.KVHeads)
	ep.add(ph)
}

// gatedUnit: gate and up products, activation and product in one phase.
func (p *plan) gatedUnit(ep *entryPlan, i int) int {
	g, gate, up, ok := ep.flow.Gated(i)
	if !ok || g.Limit != 0 {
		return 0
	}
	s := p.store(gate, C.E_GATED)
	s.w2, s.bias2, s.out, s.act = p.matrix(up.Weight), p.vector(up.Bias, false), g.Out, g.Act
	if s.w.n != s.w2.n || s.w.k != s.w2.k {
		return 0
	}
	ep.add(p.linearPhase(ep, gate.In, "gate, up + "+actName(g.Act), s))
	return 3
}

// residual: a product is added to the residual stream.
func (p *plan) residual(ep *entryPlan, i int) int {
	l, b, ok := ep.flow.Residual(i)
	if !ok {
		return 0
	}
	s := p.store(l, C.E_ADD)
	s.out, s.alpha = b.Out, orOne(b.Alpha)
	ep.add(p.linearPhase(ep, l.In, "product + residual", s))
	return 2
}

// postNorm: a normed product joins the residual stream; the norm that follows reads it in the same phase.
func (p *plan) postNorm(ep *entryPlan, i int) int {
	ops := ep.entry.Ops
	if i+1 >= len(ops) {
		return 0
	}
	n, ok1 := ops[i].(*kernels.Norm)
	b, ok2 := ops[i+1].(*kernels.Binary)
	if !ok1 || !ok2 || n.GroupSize != 0 || b.Kind != kernels.Add || b.Out != b.A || b.B != n.Out || n.In == b.A || n.Out == b.A {
		return 0
	}
	if !ep.flow.OnlyReader(n.Out, i, i+1) || !p.wholeWeight(n, ep) {
		return 0
	}
	ph := newPhase(C.P_NORM, ep.rows(n.In), "post-norm + residual")
	ph.in, ph.res, ph.addFirst = n.In, b.Out, true
	ph.weight2, ph.bias2, ph.norm2, ph.eps2, ph.alpha = p.vector(n.Weight, n.AddOne), p.vector(n.Bias, false), int(n.Kind), n.Eps, orOne(b.Alpha)
	used := 2
	if i+2 < len(ops) {
		if m, ok := ops[i+2].(*kernels.Norm); ok && m.In == b.Out && m.Out != b.Out && m.GroupSize == 0 && p.wholeWeight(m, ep) && m.Out != n.In {
			ph.label += " + norm"
			ph.out = m.Out
			ph.weight, ph.bias, ph.norm, ph.eps = p.vector(m.Weight, m.AddOne), p.vector(m.Bias, false), int(m.Kind), m.Eps
			used = 3
		}
	}
	ep.add(ph)
	return used
}

func (p *plan) wholeWeight(n *kernels.Norm, ep *entryPlan) bool {
	return n.Weight == kernels.None || elems(p.module.Weights[n.Weight]) == ep.buffers[n.In].width
}

// gatherNorm: the rows whose logits are wanted are normed as they are gathered.
func (p *plan) gatherNorm(ep *entryPlan, i int) int {
	g, n, ok := ep.flow.GatherNorm(i)
	if !ok || !p.wholeWeight(n, ep) {
		return 0
	}
	ph := p.norm(ep, n)
	ph.in, ph.gather, ph.label = g.In, true, "norm of logit rows"
	ph.rows = ep.rows(g.Out)
	ep.add(ph)
	return 2
}

// activated: a product and an activation of it, such as an MLP without a gate or the logits' soft cap.
func (p *plan) activated(ep *entryPlan, i int) int {
	ops := ep.entry.Ops
	if i+1 >= len(ops) {
		return 0
	}
	l, ok1 := ops[i].(*kernels.Linear)
	u, ok2 := ops[i+1].(*kernels.Unary)
	if !ok1 || !ok2 || u.In != l.Out || (u.Out != l.Out && !ep.flow.OnlyReader(l.Out, i, i+1)) {
		return 0
	}
	s := p.store(l, C.E_STORE)
	s.out, s.act = u.Out, u.Act
	s.scale, s.post, s.offset, s.clamp = orOne(u.Scale), orOne(u.PostScale), u.Offset, u.Clamp
	ep.add(p.linearPhase(ep, l.In, "product + "+actName(u.Act), s))
	return 2
}

func orOne(x float32) float32 {
	if x == 0 {
		return 1
	}
	return x
}

func actName(a kernels.Act) string {
	names := [...]string{"identity", "silu", "gelu", "gelu-tanh", "relu", "relu2", "sigmoid", "tanh", "exp", "softplus", "quick-gelu"}
	if int(a) < len(names) {
		return names[a]
	}
	return "?"
}

func formatName(f C.int32_t) string {
	return [...]string{"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"}[f]
}

func (p *plan) norm(ep *entryPlan, n *kernels.Norm) phase {
	ph := newPhase(C.P_NORM, ep.rows(n.In), "norm")
	ph.in, ph.out = n.In, n.Out
	ph.weight, ph.bias, ph.norm, ph.eps = p.vector(n.Weight, n.AddOne), p.vector(n.Bias, false), int(n.Kind), n.Eps
	if n.GroupSize != 0 && n.GroupSize != ep.buffers[n.In].width {
		ph.group, ph.label = n.GroupSize, "norm of groups"
		ph.whole = n.Weight != kernels.None && elems(p.module.Weights[n.Weight]) != n.GroupSize
		if n.GroupSize > 2048 {
			p.errs = append(p.errs, fmt.Errorf("entry %s: norm of groups of %d is not supported on the CPU", ep.entry.Name, n.GroupSize))
		}
	}
	return ph
}

// single lowers one operation on float rows.
func (p *plan) single(ep *entryPlan, i int) {
	switch op := ep.entry.Ops[i].(type) {
	case *kernels.Embed:
		ph := newPhase(C.P_EMBED, C.ROWS_TOKENS, "embed")
		ph.out, ph.table, ph.scale = op.Out, p.matrix(op.Table), orOne(op.Scale)
		ep.add(ph)
	case *kernels.InputRows:
		ph := newPhase(hostInput, C.ROWS_TOKENS, "input rows "+op.Input)
		ph.in, ph.out, ph.input = op.Out, op.Out, op.Input
		ep.add(ph)
	case *kernels.Norm:
		ep.add(p.norm(ep, op))
	case *kernels.Linear:
		ep.add(p.linearPhase(ep, op.In, "product", p.store(op, C.E_STORE)))
	case *kernels.Binary:
		ph := newPhase(C.P_BINARY, ep.rows(op.Out), "element-wise")
		ph.in, ph.in2, ph.out, ph.op, ph.alpha = op.A, op.B, op.Out, int(op.Kind), orOne(op.Alpha)
		ep.add(ph)
	case *kernels.Unary:
		ph := newPhase(C.P_UNARY, ep.rows(op.Out), actName(op.Act))
		ph.in, ph.out, ph.act = op.In, op.Out, op.Act
		ph.scale, ph.post, ph.offset, ph.clamp = orOne(op.Scale), orOne(op.PostScale), op.Offset, op.Clamp
		ep.add(ph)
	case *kernels.Gated:
		ph := newPhase(C.P_GATED, ep.rows(op.Out), "gated "+actName(op.Act))
		ph.in, ph.in2, ph.out, ph.act, ph.clamp = op.Gate, op.Up, op.Out, op.Act, op.Limit
		ep.add(ph)
	case *kernels.Copy:
		ph := newPhase(C.P_COPY, ep.rows(op.Out), "copy columns")
		ph.in, ph.in2, ph.out, ph.copy = op.In, op.Out, op.Out, op
		ep.add(ph)
	case *kernels.Rope:
		ph := newPhase(C.P_ROPE, C.ROWS_TOKENS, "rope")
		ph.in, ph.out, ph.heads, ph.headDim = op.X, op.X, op.Heads, op.HeadDim
		ph.rope, ph.rotFrom, ph.rotDim, ph.pair = p.ropeTable(op), op.From, op.RotDim, int(op.Pairing)
		ep.add(ph)
	case *kernels.KVWrite:
		ph := newPhase(C.P_KV_WRITE, C.ROWS_TOKENS, "cache write")
		ph.in, ph.in2, ph.state = op.K, op.V, op.State
		ep.add(ph)
	case *kernels.Attention:
		p.attention(ep, op)
	case *kernels.GatherRows:
		ph := newPhase(C.P_GATHER, ep.rows(op.Out), "gather logit rows")
		ph.in, ph.out = op.In, op.Out
		ep.add(ph)
	case *kernels.Sample:
		ph := newPhase(C.P_LOGITS, C.ROWS_LOGITS, "sample")
		ph.in = op.Logits
		ep.samples = op.Logits
		ep.add(ph)
	default:
		p.errs = append(p.errs, fmt.Errorf("entry %s: operation %d %s: %w", ep.entry.Name, i, op.Name(), errOperation))
	}
}
