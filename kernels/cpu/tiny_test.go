//go:build cgo && linux && amd64

package cpu_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"omni-engine/internal/tensor"
	"omni-engine/internal/weights/quant"
	"omni-engine/kernels"
)

// tiny is the shape of a small random decoder.
type tiny struct {
	layers, hidden, heads, kvHeads, dim, ffn, vocab int
	window                                          int // of every second layer
	gemma                                           bool
	pair                                            bool
	bias                                            bool
	dtype                                           tensor.DType
}

// randomWeight fills a matrix with blocks of random numbers of about 1/sqrt(k).
func randomWeight(r *rand.Rand, d tensor.DType, n, k int) tensor.View {
	scale := float32(1 / math.Sqrt(float64(k)))
	size, err := d.Bytes(int64(n * k))
	if err != nil {
		panic(err)
	}
	data := make([]byte, size)
	half := func(b []byte, f float32) { binary.LittleEndian.PutUint16(b, quant.F32ToF16(f)) }
	switch d {
	case tensor.F32, tensor.F16, tensor.BF16:
		for i := range n * k {
			f := scale * (2*r.Float32() - 1)
			switch d {
			case tensor.F32:
				binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(f))
			case tensor.F16:
				half(data[2*i:], f)
			default:
				binary.LittleEndian.PutUint16(data[2*i:], quant.F32ToBF16(f))
			}
		}
		return tensor.View{DType: d, Shape: []int{n, k}, Data: data}
	}
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	b := d.BlockBytes()
	for at := 0; at < len(data); at += b {
		s := scale * (0.5 + r.Float32())
		switch d {
		case tensor.Q4_0:
			half(data[at:], s/8)
		case tensor.Q5_0:
			half(data[at:], s/16)
		case tensor.Q8_0:
			half(data[at:], s/128)
		case tensor.Q4_1:
			half(data[at:], s/8)
			half(data[at+2:], -s)
		case tensor.Q5_1:
			half(data[at:], s/16)
			half(data[at+2:], -s)
		case tensor.Q4_K:
			half(data[at:], s/8/32)
			half(data[at+2:], s/32)
		case tensor.Q5_K:
			half(data[at:], s/16/32)
			half(data[at+2:], s/32)
		case tensor.Q6_K:
			half(data[at+208:], s/32/64)
		}
	}
	return tensor.View{DType: d, Shape: []int{n, k}, Data: data}
}

// builder adds operations and weights in the order in which decoders emit them.
type builder struct {
	m *kernels.Module
	e kernels.Entry
	r *rand.Rand
	t tiny
}

func (b *builder) buffer(name string, width int, rows kernels.Sym, role kernels.Role) kernels.BufferID {
	b.e.Buffers = append(b.e.Buffers, kernels.Buffer{Name: name, DType: tensor.F32, Rows: kernels.Of(rows), Width: width, Role: role})
	return kernels.BufferID(len(b.e.Buffers) - 1)
}

func (b *builder) temp(name string, width int) kernels.BufferID {
	return b.buffer(name, width, kernels.Tokens, kernels.Temp)
}

func (b *builder) weight(d tensor.DType, n, k int) kernels.WeightID {
	b.m.Weights = append(b.m.Weights, kernels.Weight{Name: fmt.Sprint("w", len(b.m.Weights)), View: randomWeight(b.r, d, n, k)})
	return kernels.WeightID(len(b.m.Weights) - 1)
}

func (b *builder) vector(n int) kernels.WeightID {
	w := b.weight(tensor.F32, 1, n)
	b.m.Weights[w].View.Shape = []int{n}
	return w
}

func (b *builder) op(ops ...kernels.Op) { b.e.Ops = append(b.e.Ops, ops...) }

func (b *builder) norm(out, in kernels.BufferID, width, group int) {
	b.op(&kernels.Norm{Out: out, In: in, Weight: b.vector(width), Bias: kernels.None, Eps: 1e-5, AddOne: true, GroupSize: group})
}

func (b *builder) linear(out, in kernels.BufferID, n, k int) {
	l := &kernels.Linear{Out: out, In: in, Weight: b.weight(b.t.dtype, n, k), Bias: kernels.None}
	if b.t.bias {
		l.Bias = b.vector(n)
	}
	b.op(l)
}

// module makes a llama-like decoder, or with gemma one with norms after the sub-layers and norms of heads.
func (t tiny) module(seed uint64) *kernels.Module {
	b := &builder{m: &kernels.Module{Name: "tiny", Vocab: t.vocab, Groups: []kernels.GroupSpec{{Name: "full"}}}, r: rand.New(rand.NewPCG(seed, 7)), t: t}
	if t.window > 0 {
		b.m.Groups = append(b.m.Groups, kernels.GroupSpec{Name: "sliding", Window: t.window})
	}
	b.e.Name = "forward"
	x, h, y := b.temp("x", t.hidden), b.temp("h", t.hidden), b.temp("y", t.hidden)
	q, k, v := b.temp("q", t.heads*t.dim), b.temp("k", t.kvHeads*t.dim), b.temp("v", t.kvHeads*t.dim)
	a, g, u := b.temp("a", t.heads*t.dim), b.temp("g", t.ffn), b.temp("u", t.ffn)
	table := b.weight(t.dtype, t.vocab, t.hidden)
	b.op(&kernels.Embed{Out: x, Table: table, Scale: 8})
	freq := make([]float64, t.dim/2)
	for i := range freq {
		freq[i] = math.Pow(10000, -2*float64(i)/float64(t.dim))
	}
	for layer := range t.layers {
		b.layer(layer, x, h, y, q, k, v, a, g, u, freq)
	}
	last := b.buffer("last", t.hidden, kernels.LogitRows, kernels.Temp)
	logits := b.buffer("logits", t.vocab, kernels.LogitRows, kernels.Output)
	b.op(&kernels.GatherRows{Out: last, In: x})
	b.norm(last, last, t.hidden, 0)
	b.op(&kernels.Linear{Out: logits, In: last, Weight: table, Bias: kernels.None})
	if t.gemma {
		b.op(&kernels.Unary{Out: logits, In: logits, Act: kernels.Tanh, Scale: 1. / 30, PostScale: 30})
	}
	b.op(&kernels.Sample{Logits: logits})
	b.m.Entries = []kernels.Entry{b.e}
	return b.m
}

func (b *builder) layer(layer int, x, h, y, q, k, v, a, g, u kernels.BufferID, freq []float64) {
	t := b.t
	group, window := 0, 0
	if t.window > 0 && layer%2 == 0 {
		group, window = 1, t.window
	}
	state := kernels.StateID(len(b.m.States))
	b.m.States = append(b.m.States, kernels.StateSpec{Name: fmt.Sprint("kv", layer), Kind: kernels.Paged, Group: group, Heads: t.kvHeads, KDim: t.dim, VDim: t.dim})
	b.norm(h, x, t.hidden, 0)
	b.linear(q, h, t.heads*t.dim, t.hidden)
	b.linear(k, h, t.kvHeads*t.dim, t.hidden)
	b.linear(v, h, t.kvHeads*t.dim, t.hidden)
	if t.gemma {
		b.norm(q, q, t.dim, t.dim)
		b.norm(k, k, t.dim, t.dim)
	}
	pairing := kernels.Half
	if t.pair {
		pairing = kernels.Pair
	}
	b.op(&kernels.Rope{X: q, Heads: t.heads, HeadDim: t.dim, RotDim: t.dim, Pairing: pairing, InvFreq: freq},
		&kernels.Rope{X: k, Heads: t.kvHeads, HeadDim: t.dim, RotDim: t.dim, Pairing: pairing, InvFreq: freq},
		&kernels.KVWrite{K: k, V: v, State: state},
		&kernels.Attention{Out: a, Q: q, State: state, Heads: t.heads, KVHeads: t.kvHeads, KDim: t.dim, VDim: t.dim,
			Scale: float32(1 / math.Sqrt(float64(t.dim))), Window: window, Sinks: kernels.None})
	b.linear(y, a, t.hidden, t.heads*t.dim)
	if t.gemma {
		b.norm(y, y, t.hidden, 0)
	}
	b.op(&kernels.Binary{Out: x, A: x, B: y, Kind: kernels.Add})
	b.norm(h, x, t.hidden, 0)
	b.linear(g, h, t.ffn, t.hidden)
	b.linear(u, h, t.ffn, t.hidden)
	act := kernels.Silu
	if t.gemma {
		act = kernels.GeluTanh
	}
	b.op(&kernels.Gated{Out: g, Gate: g, Up: u, Act: act})
	b.linear(y, g, t.hidden, t.ffn)
	if t.gemma {
		b.norm(y, y, t.hidden, 0)
	}
	b.op(&kernels.Binary{Out: x, A: x, B: y, Kind: kernels.Add})
}
