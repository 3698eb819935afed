package gpu

import (
	"fmt"

	"omni-engine/kernels"
)

// A node is one step of an entry: one launch, or a few that belong together.
type node interface {
	label() string
	// touches lists the buffers that the node reads and writes, for their lifetimes.
	touches() []kernels.BufferID
}

type embedNode struct {
	out   kernels.BufferID
	table *matrix
	scale float32
}

// linearNode is one matrix product into the columns of out from column on, with a bias; or added to out, the residual stream.
type linearNode struct {
	in, out kernels.BufferID
	column  int
	weight  *matrix
	bias    *vector
	add     bool
	again   bool // the product before read the same value: it is quantised already
}

// normNode: out = rms(in)*weight, over groups of columns or the whole row. With add, in (normed by inWeight if that is there) is first
// added to that buffer, whose new value is normed; out may then be absent. With gather only the rows whose logits are wanted are normed.
type normNode struct {
	in, out, add     kernels.BufferID
	weight, inWeight *vector
	eps, alpha       float32
	group            int // columns; 0: the row
	gather           bool
}

// headsNode norms and rotates the heads of a fused query-key-value row, writes keys and values to the cache and the queries to out.
type headsNode struct {
	in, out        kernels.BufferID
	heads, kvHeads int
	dim            int
	qNorm, kNorm   *vector // nil: none
	eps            float32
	rope           *ropeTable // nil: none
	state          kernels.StateID
}

type attentionNode struct {
	in, out        kernels.BufferID
	heads, kvHeads int
	dim            int
	scale, softcap float32
	window         int
	state          kernels.StateID
}

// gatedNode: out = act(in[:, :F]) * in[:, F:].
type gatedNode struct {
	in, out kernels.BufferID
	act     kernels.Act
}

type gatherNode struct{ in, out kernels.BufferID }

type unaryNode struct {
	in, out                         kernels.BufferID
	act                             kernels.Act
	scale, postScale, offset, clamp float32
}

type sampleNode struct{ logits kernels.BufferID }

func (n *embedNode) label() string { return fmt.Sprintf("embed [%s]", n.table.dtype) }
func (n *linearNode) label() string {
	s := fmt.Sprintf("product [%s]", n.weight.dtype)
	if n.bias != nil {
		s += " + bias"
	}
	if n.add {
		s += " + residual"
	}
	return s
}
func (n *normNode) label() string {
	var s string
	switch {
	case n.gather:
		return "norm of logit rows"
	case n.add == kernels.None && n.group > 0:
		return "norm of groups"
	case n.add == kernels.None:
		return "norm"
	case n.inWeight != nil:
		s = "post-norm + "
	}
	s += "residual"
	if n.out != kernels.None {
		s += " + norm"
	}
	return s
}
func (n *headsNode) label() string {
	s := "cache"
	if n.rope != nil {
		s = "rope + " + s
	}
	if n.qNorm != nil {
		s = "qk-norm + " + s
	}
	return s
}
func (n *attentionNode) label() string {
	if n.window > 0 {
		return fmt.Sprintf("attention window %d", n.window)
	}
	return "attention"
}
func (n *gatedNode) label() string  { return "gated " + actName(n.act) }
func (n *gatherNode) label() string { return "gather logit rows" }
func (n *unaryNode) label() string  { return actName(n.act) }
func (n *sampleNode) label() string { return "sample" }

func (n *embedNode) touches() []kernels.BufferID     { return []kernels.BufferID{n.out} }
func (n *linearNode) touches() []kernels.BufferID    { return []kernels.BufferID{n.in, n.out} }
func (n *normNode) touches() []kernels.BufferID      { return []kernels.BufferID{n.in, n.out, n.add} }
func (n *headsNode) touches() []kernels.BufferID     { return []kernels.BufferID{n.in, n.out} }
func (n *attentionNode) touches() []kernels.BufferID { return []kernels.BufferID{n.in, n.out} }
func (n *gatedNode) touches() []kernels.BufferID     { return []kernels.BufferID{n.in, n.out} }
func (n *gatherNode) touches() []kernels.BufferID    { return []kernels.BufferID{n.in, n.out} }
func (n *unaryNode) touches() []kernels.BufferID     { return []kernels.BufferID{n.in, n.out} }
func (n *sampleNode) touches() []kernels.BufferID    { return []kernels.BufferID{n.logits} }

func actName(a kernels.Act) string {
	names := [...]string{"identity", "silu", "gelu", "gelu-tanh", "relu", "relu2", "sigmoid", "tanh", "exp", "softplus", "quick-gelu"}
	if int(a) < len(names) {
		return names[a]
	}
	return "?"
}
