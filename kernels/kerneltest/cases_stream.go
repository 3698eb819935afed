package kerneltest

import (
	"fmt"
	"math"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// streams are the operations of codec heads and vocoders.
func streams() []Case {
	var out []Case
	out = append(out, convolutions()...)
	out = append(out, rings()...)
	return append(out, frames(), codes(), inputs(), images())
}

// at makes an output buffer of rate rows a token.
func (k *maker) at(name string, rate, width int) kernels.BufferID {
	return k.buffer(kernels.Buffer{Name: name, DType: tensor.F32, Rows: kernels.Dim{Sym: kernels.Tokens, Mul: rate}, Width: width, Role: kernels.Output})
}

// convolutions up-sample, so that what follows has a rate and a delay, then convolve.
func convolutions() []Case {
	var out []Case
	for i, c := range []struct {
		kernel, stride   int // of the transposed one
		conv, dilation   int
		in, mid, channel int
		depthwise        bool
	}{{2, 2, 7, 1, 5, 5, 5, true}, {6, 3, 7, 1, 4, 6, 3, false}, {16, 8, 7, 9, 8, 4, 4, false}, {4, 2, 3, 3, 3, 5, 1, false}} {
		k := newMaker(uint64(110+i), c.in)
		ahead := c.kernel/c.stride - 1
		up := k.at("up", c.stride, c.mid)
		t := &kernels.ConvTranspose1d{Out: up, In: k.x, Weight: k.weight(0.4, c.in, c.mid, c.kernel), Bias: k.weight(1, c.mid), Kernel: c.kernel, Stride: c.stride, Rate: 1, State: none}
		if ahead > 0 {
			t.State = k.state(kernels.StateSpec{Name: "up", Kind: kernels.Slot, Floats: ahead * c.in})
		}
		s := k.at("snake", c.stride, c.mid)
		inner, channel := c.mid, c.channel
		if c.depthwise {
			inner, channel = 1, c.mid
		}
		y := k.at("y", c.stride, channel)
		k.op(t, &kernels.Snake{Out: s, In: up, Alpha: k.weight(0.3, c.mid), Beta: k.weight(0.3, c.mid)},
			&kernels.Conv1d{Out: y, In: s, Weight: k.weight(0.3, channel, inner, c.conv), Bias: k.weight(1, channel), Kernel: c.conv, Dilation: c.dilation, Depthwise: c.depthwise,
				Rate: c.stride, Delay: ahead * c.stride, State: k.state(kernels.StateSpec{Name: "conv", Kind: kernels.Slot, Floats: (c.conv - 1) * c.dilation * c.mid})})
		out = append(out, k.done("conv1d/up=%d,%d,kernel=%d,dilation=%d,depthwise=%v", c.kernel, c.stride, c.conv, c.dilation, c.depthwise))
	}
	return out
}

func rings() []Case {
	var out []Case
	for i, o := range []kernels.RingAttention{{Heads: 2, KVHeads: 2, KDim: 8, VDim: 8, Window: 5}, {Heads: 4, KVHeads: 2, KDim: 6, VDim: 10, Window: 40}} {
		k := newMaker(uint64(120+i), 16)
		o.Q, o.K, o.V = k.projected("q", o.Heads*o.KDim), k.projected("k", o.KVHeads*o.KDim), k.projected("v", o.KVHeads*o.VDim)
		o.Out, o.Scale = k.out("y", o.Heads*o.VDim), 0.4
		o.State = k.state(kernels.StateSpec{Name: "ring", Kind: kernels.Slot, Floats: o.Window * o.KVHeads * (o.KDim + o.VDim)})
		k.op(&o)
		out = append(out, k.done("ring_attention/window=%d", o.Window))
	}
	return out
}

// frames attends within rows whose positions lie side by side, at given positions.
func frames() Case {
	k := newMaker(130, 24)
	q, keys, values := k.projected("q", 4*8), k.projected("k", 3*2*8), k.projected("v", 3*2*6)
	inv := []float64{1, 0.1, 0.01}
	k.op(&kernels.RopeAt{X: q, Heads: 4, HeadDim: 8, RotDim: 6, InvFreq: inv, Position: 7},
		&kernels.RowAttention{Out: k.out("y", 4*6), Q: q, K: keys, V: values, Heads: 4, KVHeads: 2, KDim: 8, VDim: 6, Count: 3, Scale: float32(1 / math.Sqrt(8))})
	k.show(q)
	return k.done("row_attention")
}

// codes samples, draws further codes from the same rows, keeps them in the slot and looks them up in the next step.
func codes() Case {
	k := newMaker(131, 12)
	ids := k.buffer(kernels.Buffer{Name: "last", DType: tensor.I32, Rows: kernels.Of(kernels.Tokens), Width: 3, Role: kernels.Output})
	state := k.state(kernels.StateSpec{Name: "codes", Kind: kernels.Slot, Floats: 3})
	k.op(&kernels.SlotLoad{Out: ids, State: state},
		&kernels.Lookup{Out: k.x, IDs: ids, Column: 1, Table: k.weight(1, 9, 12), Scale: 0.5, Accumulate: true})
	rows := func(name string, d tensor.DType, w int) kernels.BufferID {
		return k.buffer(kernels.Buffer{Name: name, DType: d, Rows: kernels.Of(kernels.LogitRows), Width: w, Role: kernels.Output})
	}
	last, logits, more, drawn := rows("last_x", tensor.F32, 12), rows("logits", tensor.F32, vocab), rows("more", tensor.F32, 9), rows("codes", tensor.I32, 3)
	k.op(&kernels.GatherRows{Out: last, In: k.x},
		&kernels.Linear{Out: logits, In: last, Weight: k.weight(0.5, vocab, 12), Bias: none},
		&kernels.Sample{Logits: logits}, &kernels.Sampled{Out: drawn, Column: 0},
		&kernels.Linear{Out: more, In: last, Weight: k.weight(0.5, 9, 12), Bias: none},
		&kernels.SampleCode{IDs: drawn, Logits: more, Column: 1, TopK: 4, TopP: 0.9},
		&kernels.SampleCode{IDs: drawn, Logits: more, Column: 2, TopK: 4, TopP: 0.9},
		&kernels.SlotStore{In: drawn, State: state})
	c := k.done("codes")
	for i := range c.Batches {
		b := &c.Batches[i]
		for l := range b.Sampling {
			if l%2 == 1 {
				b.Sampling[l].Temperature, b.Sampling[l].Seed, b.Sampling[l].Position = 0.9, uint64(l), uint64(i)
			}
		}
	}
	return c
}

// inputs reads rows and ids that are not tokens, and a diffusion transformer's operations on them.
func inputs() Case {
	k := newMaker(140, 16)
	ids := k.buffer(kernels.Buffer{Name: "ids", DType: tensor.I32, Rows: kernels.Of(kernels.Tokens), Width: 2, Role: kernels.Output})
	k.op(&kernels.InputRows{Out: k.x, Input: "rows"}, &kernels.AddRows{Out: k.x, Input: "more"}, &kernels.InputIDs{Out: ids, Input: "ids"},
		&kernels.Lookup{Out: k.x, IDs: ids, Column: 1, Table: k.weight(1, 5, 16), Scale: 2, Accumulate: true},
		&kernels.FillRows{Out: k.x, Input: "pad", Value: k.weight(1, 16)})
	q, key, v := k.projected("q", 16), k.projected("k", 16), k.projected("v", 16)
	for i, keys := range [][]string{nil, {"rows", "pad"}} {
		k.op(&kernels.FullAttention{Out: k.out(fmt.Sprintf("y%d", i), 16), Q: q, K: key, V: v, Heads: 2, KVHeads: 2, KDim: 8, VDim: 8, Scale: 0.35, Keys: keys})
	}
	t := k.buffer(kernels.Buffer{Name: "t", DType: tensor.F32, Rows: kernels.Of(kernels.Rows), Width: 16, Role: kernels.Output})
	k.op(&kernels.TimestepEmbed{Out: t, Dim: 16, Scale: 1000, MaxPeriod: 10000}, &kernels.ScaleByRow{Out: k.out("scaled", 16), In: k.x, By: t, Plus: 1})
	k.show(k.x)
	c := k.done("inputs")
	c.Scalars = []float32{0.25}
	for i := range c.Batches {
		rows := func(name string, w int, at ...int32) kernels.NamedRows {
			in := kernels.NamedRows{Name: name, Width: w, Rows: at, Data: make([]float32, w*len(at))}
			for j := range in.Data {
				in.Data[j] = float32(k.NormFloat64())
			}
			return in
		}
		in := rows("ids", 2, 1, 2)
		copy(in.Data, []float32{0, 4, 3, 2})
		c.Batches[i].Inputs = []kernels.NamedRows{rows("rows", 16, 0, 2), rows("more", 16, 1), in, rows("pad", 0, 2)}
	}
	return c
}

// images convolves, normalises and up-samples two grids.
func images() Case {
	k := newMaker(150, 6)
	c, n, u := k.out("conv", 8), k.out("norm", 8), k.at("up", 4, 8)
	y := k.at("y", 4, 3)
	k.op(&kernels.Conv2d{Out: c, In: k.x, Weight: k.weight(0.2, 8, 6, 3, 3), Bias: k.weight(1, 8), Kernel: 3, Scale: 1},
		&kernels.GroupNorm{Out: n, In: c, Weight: k.weight(1, 8), Bias: k.weight(1, 8), Groups: 2, Eps: 1e-6, Scale: 1},
		&kernels.Upsample2d{Out: u, In: n, Scale: 1},
		&kernels.Conv2d{Out: y, In: u, Weight: k.weight(0.2, 3, 8, 3, 3), Bias: k.weight(1, 3), Kernel: 3, Scale: 2})
	k.m.Name, k.m.Entries = "image", []kernels.Entry{k.e}
	b := k.Batch(vocab, 0, Row{Slot: 0, N: 12}, Row{Slot: 1, N: 5})
	for _, g := range [][2]int{{3, 4}, {5, 1}} {
		for y := range g[0] {
			for x := range g[1] {
				b.Positions[1], b.Positions[2] = append(b.Positions[1], int32(y)), append(b.Positions[2], int32(x))
			}
		}
	}
	return Case{Name: k.m.Name, Module: &k.m, Batches: []kernels.Batch{b}}
}
