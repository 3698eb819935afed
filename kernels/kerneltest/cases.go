package kerneltest

import (
	"fmt"
	"math"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

const (
	vocab = 67
	none  = kernels.None
)

// Cases are all cases: each operation over odd shapes, chunks and mixed batches.
func Cases() []Case {
	var out []Case
	out = append(out, linears()...)
	out = append(out, norms()...)
	out = append(out, elementwise()...)
	out = append(out, ropes()...)
	out = append(out, attentions()...)
	out = append(out, mixtures()...)
	out = append(out, recurrences()...)
	return append(out, streams()...)
}

// maker builds a one-entry module whose first operation embeds the tokens in a buffer of the given width.
type maker struct {
	Random
	m kernels.Module
	e kernels.Entry
	x kernels.BufferID
}

func newMaker(seed uint64, width int) *maker {
	k := &maker{Random: NewRandom(seed), m: kernels.Module{Vocab: vocab}, e: kernels.Entry{Name: "forward"}}
	k.x = k.temp("x", width)
	k.op(&kernels.Embed{Out: k.x, Table: k.weight(1, vocab, width), Scale: 1.5})
	return k
}

func (k *maker) op(ops ...kernels.Op) { k.e.Ops = append(k.e.Ops, ops...) }

func (k *maker) buffer(b kernels.Buffer) kernels.BufferID {
	k.e.Buffers = append(k.e.Buffers, b)
	return kernels.BufferID(len(k.e.Buffers) - 1)
}

func (k *maker) temp(name string, width int) kernels.BufferID {
	return k.buffer(kernels.Buffer{Name: name, DType: tensor.F32, Rows: kernels.Of(kernels.Tokens), Width: width})
}

func (k *maker) out(name string, width int) kernels.BufferID {
	return k.buffer(kernels.Buffer{Name: name, DType: tensor.F32, Rows: kernels.Of(kernels.Tokens), Width: width, Role: kernels.Output})
}

func (k *maker) weight(scale float64, shape ...int) kernels.WeightID {
	k.m.Weights = append(k.m.Weights, kernels.Weight{Name: fmt.Sprintf("w%d", len(k.m.Weights)), View: k.Weight(scale, shape...)})
	return kernels.WeightID(len(k.m.Weights) - 1)
}

// projected is a linear of x: a buffer that an operation under test may overwrite.
func (k *maker) projected(name string, width int) kernels.BufferID {
	y := k.temp(name, width)
	in := k.e.Buffers[k.x].Width
	k.op(&kernels.Linear{Out: y, In: k.x, Weight: k.weight(1/math.Sqrt(float64(in)), width, in), Bias: none})
	return y
}

func (k *maker) state(s kernels.StateSpec) kernels.StateID {
	k.m.States = append(k.m.States, s)
	return kernels.StateID(len(k.m.States) - 1)
}

// show copies a buffer to an output.
func (k *maker) show(x kernels.BufferID) {
	w := k.e.Buffers[x].Width
	k.op(&kernels.Copy{Out: k.out("out_"+k.e.Buffers[x].Name, w), In: x, Groups: 1, Width: w})
}

// done makes the case: a prefill, then a batch that mixes a chunk, a decode and a new request, then decodes.
func (k *maker) done(format string, args ...any) Case {
	k.m.Name = fmt.Sprintf(format, args...)
	k.m.Entries = []kernels.Entry{k.e}
	c := Case{Name: k.m.Name, Module: &k.m}
	for _, rows := range [][]Row{
		{{Slot: 0, Start: 0, N: 19}, {Slot: 2, Start: 0, N: 3}},
		{{Slot: 2, Start: 3, N: 1}, {Slot: 1, Start: 0, N: 17}, {Slot: 0, Start: 19, N: 7}},
		{{Slot: 0, Start: 26, N: 1}, {Slot: 1, Start: 17, N: 1}, {Slot: 2, Start: 4, N: 1}},
	} {
		c.Batches = append(c.Batches, k.Batch(vocab, len(k.m.Groups), rows...))
	}
	return c
}

func linears() []Case {
	var out []Case
	for i, s := range [][2]int{{1, 1}, {3, 5}, {32, 64}, {33, 63}, {96, 31}, {576, 49}} {
		k := newMaker(uint64(10+i), s[0])
		y := k.out("y", s[1])
		k.op(&kernels.Linear{Out: y, In: k.x, Weight: k.weight(1/math.Sqrt(float64(s[0])), s[1], s[0]), Bias: k.weight(1, s[1])})
		out = append(out, k.done("linear/%dx%d", s[0], s[1]))
	}
	return out
}

func norms() []Case {
	var out []Case
	for i, o := range []kernels.Norm{
		{Kind: kernels.RMS, Eps: 1e-6}, {Kind: kernels.RMS, Eps: 1e-5, AddOne: true}, {Kind: kernels.LayerNorm, Eps: 1e-5},
		{Kind: kernels.RMS, Eps: 1e-6, GroupSize: 8}, {Kind: kernels.L2Norm, Eps: 1e-6, GroupSize: 12},
	} {
		k := newMaker(uint64(20+i), 24)
		o.In, o.Out, o.Weight, o.Bias = k.x, k.out("y", 24), none, none
		if o.Kind != kernels.L2Norm {
			size := o.GroupSize
			if size == 0 {
				size = 24
			}
			o.Weight = k.weight(1, size)
		}
		if o.Kind == kernels.LayerNorm {
			o.Bias = k.weight(1, 24)
		}
		k.op(&o)
		out = append(out, k.done("norm/kind=%d,add_one=%v,group=%d", o.Kind, o.AddOne, o.GroupSize))
	}
	return out
}

func elementwise() []Case {
	var out []Case
	for a := kernels.Identity; a <= kernels.Quick; a++ {
		k := newMaker(uint64(40+a), 13)
		k.op(&kernels.Unary{Out: k.out("unary", 13), In: k.x, Act: a, Scale: 0.7, PostScale: 1.3, Offset: 0.1, Clamp: 1.5},
			&kernels.Gated{Out: k.out("gated", 13), Gate: k.projected("g", 13), Up: k.x, Act: a},
			&kernels.Gated{Out: k.out("limited", 13), Gate: k.x, Up: k.x, Act: a, Limit: 1})
		out = append(out, k.done("activation/%d", a))
	}
	k := newMaker(60, 15)
	y, w := k.projected("y", 15), k.projected("w", 1)
	both := k.out("copy", 20)
	k.op(&kernels.Binary{Out: k.out("add", 15), A: k.x, B: y, Kind: kernels.Add, Alpha: 0.22},
		&kernels.Binary{Out: k.out("mul", 15), A: k.x, B: y, Kind: kernels.Mul},
		&kernels.Binary{Out: k.out("first", 15), A: k.x, B: w, Kind: kernels.MulFirst},
		&kernels.ColumnScale{Out: k.out("scaled", 15), In: k.x, Scale: k.weight(1, 15), Shift: k.weight(1, 15)},
		&kernels.Copy{Out: both, In: k.x, Groups: 5, Width: 2, InStride: 3, InFrom: 1, OutStride: 4},
		&kernels.Copy{Out: both, In: k.x, Groups: 5, Width: 2, InFrom: 4, OutStride: 4, OutFrom: 2})
	return append(out, k.done("binary"))
}

func ropes() []Case {
	var out []Case
	for i, o := range []kernels.Rope{
		{Heads: 2, HeadDim: 16, RotDim: 16}, {Heads: 3, HeadDim: 12, RotDim: 6, Pairing: kernels.Pair}, {Heads: 1, HeadDim: 24, From: 8, RotDim: 16, Factor: 1.2},
	} {
		k := newMaker(uint64(70+i), 32)
		o.X = k.projected("x", o.Heads*o.HeadDim)
		for j := range o.RotDim / 2 {
			o.InvFreq = append(o.InvFreq, math.Pow(10000, -2*float64(j)/float64(o.RotDim)))
		}
		k.op(&o, &kernels.PositionScale{X: o.X, Beta: 0.1, Floor: 8, Plus: 1})
		k.show(o.X)
		out = append(out, k.done("rope/%d", i))
	}
	return out
}

func attentions() []Case {
	var out []Case
	for i, o := range []kernels.Attention{
		{Heads: 4, KVHeads: 2, KDim: 16, VDim: 16}, {Heads: 3, KVHeads: 3, KDim: 24, VDim: 8}, {Heads: 6, KVHeads: 1, KDim: 16, VDim: 16, Window: 5},
		{Heads: 2, KVHeads: 1, KDim: 32, VDim: 32, Softcap: 2}, {Heads: 4, KVHeads: 2, KDim: 16, VDim: 16, Chunk: 8}, {Heads: 4, KVHeads: 4, KDim: 16, VDim: 16, Sinks: 1},
	} {
		k := newMaker(uint64(80+i), 32)
		k.m.Groups = []kernels.GroupSpec{{Name: "full"}}
		if o.Window > 0 {
			k.m.Groups = append(k.m.Groups, kernels.GroupSpec{Name: "window", Window: o.Window})
		}
		o.State = k.state(kernels.StateSpec{Name: "kv", Kind: kernels.Paged, Group: len(k.m.Groups) - 1, Heads: o.KVHeads, KDim: o.KDim, VDim: o.VDim})
		o.Scale = float32(1 / math.Sqrt(float64(o.KDim)))
		sinks := o.Sinks
		o.Sinks = none
		if sinks == 1 {
			o.Sinks = k.weight(1, o.Heads)
		}
		o.Q = k.projected("q", o.Heads*o.KDim)
		key, value := k.projected("k", o.KVHeads*o.KDim), k.projected("v", o.KVHeads*o.VDim)
		o.Out = k.out("y", o.Heads*o.VDim)
		k.op(&kernels.KVWrite{K: key, V: value, State: o.State}, &o)
		out = append(out, k.done("attention/heads=%d,kv=%d,dim=%d,%d,window=%d,chunk=%d,cap=%g", o.Heads, o.KVHeads, o.KDim, o.VDim, o.Window, o.Chunk, o.Softcap))
	}
	return out
}

func mixtures() []Case {
	var out []Case
	for i, r := range []kernels.Route{
		{Score: kernels.ScoreSoftmax, TopK: 2, Renormalise: true}, {Score: kernels.ScoreSigmoid, TopK: 3, Groups: 4, GroupTopK: 2, GroupSum2: true, Factor: 2.5},
		{Score: kernels.ScoreTopKSoftmax, TopK: 2}, {Score: kernels.ScoreSparseMixer, TopK: 2, Jitter: 0.01}, {Score: kernels.ScoreTopKSigmoid, TopK: 1},
	} {
		const n, width, inner = 8, 24, 10
		k := newMaker(uint64(90+i), width)
		r.Logits = k.projected("router", n)
		r.IDs = k.buffer(kernels.Buffer{Name: "ids", DType: tensor.I32, Rows: kernels.Of(kernels.Tokens), Width: r.TopK, Role: kernels.Output})
		r.Weights, r.SelectBias = k.out("weights", r.TopK), none
		if r.Score == kernels.ScoreSigmoid {
			r.SelectBias = k.weight(0.2, n)
		}
		e := kernels.Experts{Out: k.out("y", width), In: k.x, IDs: r.IDs, Weights: r.Weights, Act: kernels.Silu, WeightInput: r.TopK == 1}
		for range n {
			e.Gate = append(e.Gate, k.weight(0.2, inner, width))
			e.Up = append(e.Up, k.weight(0.2, inner, width))
			e.Down = append(e.Down, k.weight(0.3, width, inner))
			if i == 2 {
				e.GateBias, e.UpBias, e.DownBias = append(e.GateBias, k.weight(1, inner)), append(e.UpBias, k.weight(1, inner)), append(e.DownBias, k.weight(1, width))
				e.Limit = 2
			}
		}
		k.op(&r, &e)
		out = append(out, k.done("experts/score=%d", r.Score))
	}
	return out
}

func recurrences() []Case {
	k := newMaker(100, 12)
	conv := k.out("conv", 12)
	k.op(&kernels.ConvState{Out: conv, In: k.x, Weight: k.weight(0.5, 12, 4), Bias: k.weight(1, 12), Kernel: 4, Act: kernels.Silu,
		State: k.state(kernels.StateSpec{Name: "conv", Kind: kernels.Slot, Floats: 36})})
	out := []Case{k.done("conv_state")}

	k = newMaker(101, 16)
	d := kernels.DeltaRule{Q: k.projected("q", 16), K: k.projected("k", 16), V: k.projected("v", 24), G: k.projected("g", 4), Beta: k.projected("beta", 4),
		KHeads: 2, VHeads: 4, KDim: 8, VDim: 6, Scale: 0.35}
	k.op(&kernels.Norm{Out: d.K, In: d.K, Kind: kernels.L2Norm, Weight: none, Bias: none, Eps: 1e-6, GroupSize: 8},
		&kernels.Unary{Out: d.Beta, In: d.Beta, Act: kernels.Sigmoid},
		&kernels.Unary{Out: d.G, In: d.G, Act: kernels.Softplus, PostScale: -1})
	d.Out = k.out("y", 24)
	d.State = k.state(kernels.StateSpec{Name: "delta", Kind: kernels.Slot, Floats: 4 * 8 * 6})
	k.op(&d)
	return append(out, k.done("delta_rule"))
}
