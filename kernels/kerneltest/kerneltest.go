// Package kerneltest compares devices: it makes modules and batches over odd shapes and runs them on two devices. Each device's own
// tests call Compare with kernels/ref as the other.
package kerneltest

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// Tolerance bounds how far a device may be from the other: |got-want| <= Absolute + Relative*|want|.
type Tolerance struct{ Absolute, Relative float64 }

// Exact is what float32 arithmetic in another order needs.
func Exact() Tolerance { return Tolerance{Absolute: 2e-4, Relative: 2e-4} }

// Compare runs every case on both devices and compares each output buffer, and what was sampled.
func Compare(t *testing.T, dev, reference kernels.Device, tol Tolerance) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			want := Run(t, reference, c)
			got := Run(t, dev, c)
			require.Len(t, got, len(want))
			for i := range want {
				requireClose(t, c, i, got[i], want[i], tol)
			}
		})
	}
}

func requireClose(t *testing.T, c Case, step int, got, want Outputs, tol Tolerance) {
	t.Helper()
	require.Equal(t, want.Tokens, got.Tokens, "step %d: sampled", step)
	for name, w := range want.Buffers {
		g := got.Buffers[name]
		require.Len(t, g, len(w), "step %d: output %s", step, name)
		for i := range w {
			d := math.Abs(float64(g[i]) - float64(w[i]))
			require.LessOrEqual(t, d, tol.Absolute+tol.Relative*math.Abs(float64(w[i])),
				"%s step %d: output %s[%d] is %g, not %g", c.Name, step, name, i, g[i], w[i])
		}
	}
}

// Case is a module and the batches that run on it, one after another.
type Case struct {
	Name    string
	Module  *kernels.Module
	Batches []kernels.Batch
	Scalars []float32 // of each call
}

// Outputs are what one batch gave.
type Outputs struct {
	Buffers map[string][]float32
	Tokens  []int32
}

// Limits fit every case.
func Limits() kernels.Limits {
	return kernels.Limits{Tokens: 64, Rows: 4, LogitRows: 64, MaxModelLen: 128, InFlight: 1, BlockSize: BlockSize, Frames: 8, Exact: true}
}

// BlockSize of the cases, in tokens.
const BlockSize = 16

// Run runs a case on a device: every batch through all entries in order.
func Run(t testing.TB, d kernels.Device, c Case) []Outputs {
	t.Helper()
	l := Limits()
	p, err := d.Compile(c.Module, l)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	plan, err := d.Plan(c.Module, l)
	require.NoError(t, err)
	plan.Blocks, plan.Slots = 33, 4
	states, err := p.NewStates(plan)
	require.NoError(t, err)
	defer func() { require.NoError(t, states.Close()) }()
	step, err := p.NewStep(states)
	require.NoError(t, err)
	var out []Outputs
	for _, b := range c.Batches {
		out = append(out, runBatch(t, c, step, b))
	}
	return out
}

func runBatch(t testing.TB, c Case, step kernels.Step, b kernels.Batch) Outputs {
	m := c.Module
	Fill(step.Batch(), b)
	for e := range m.Entries {
		require.NoError(t, step.Submit(kernels.Call{Entry: e, Scalars: c.Scalars}))
	}
	res, err := step.Wait(context.Background())
	require.NoError(t, err)
	o := Outputs{Buffers: map[string][]float32{}, Tokens: append([]int32(nil), res.Tokens...)}
	for _, e := range m.Entries {
		for _, buf := range e.Buffers {
			if buf.Role != kernels.Output {
				continue
			}
			v, err := step.Output(buf.Name)
			require.NoError(t, err)
			f := make([]float32, len(v.Data)/4)
			for i := range f {
				if bits := binary.LittleEndian.Uint32(v.Data[4*i:]); v.DType == tensor.I32 {
					f[i] = float32(int32(bits))
				} else {
					f[i] = math.Float32frombits(bits)
				}
			}
			o.Buffers[buf.Name] = f
		}
	}
	step.Release()
	return o
}

// Fill copies a batch into a step's, in place as an engine does.
func Fill(dst *kernels.Batch, b kernels.Batch) {
	dst.Tokens = append(dst.Tokens[:0], b.Tokens...)
	for i := range b.Positions {
		dst.Positions[i] = append(dst.Positions[i][:0], b.Positions[i]...)
	}
	dst.QueryStart = append(dst.QueryStart[:0], b.QueryStart...)
	dst.SeqLens = append(dst.SeqLens[:0], b.SeqLens...)
	dst.Slots = append(dst.Slots[:0], b.Slots...)
	dst.Flags = append(dst.Flags[:0], b.Flags...)
	if len(dst.Tables) != len(b.Tables) {
		dst.Tables = make([]kernels.GroupTable, len(b.Tables))
	}
	for i, g := range b.Tables {
		dst.Tables[i].Start = append(dst.Tables[i].Start[:0], g.Start...)
		dst.Tables[i].Blocks = append(dst.Tables[i].Blocks[:0], g.Blocks...)
	}
	dst.Inputs = append(dst.Inputs[:0], b.Inputs...)
	dst.LogitRows = append(dst.LogitRows[:0], b.LogitRows...)
	dst.LogitOwner = append(dst.LogitOwner[:0], b.LogitOwner...)
	dst.Sampling = append(dst.Sampling[:0], b.Sampling...)
	dst.Adapters = append(dst.Adapters[:0], b.Adapters...)
	dst.Masks, dst.Frames = b.Masks, b.Frames
}

// Random draws reproducible values.
type Random struct{ *rand.Rand }

// NewRandom is seeded.
func NewRandom(seed uint64) Random { return Random{rand.New(rand.NewPCG(seed, 1))} }

// Weight draws a float32 tensor of standard deviation scale.
func (r Random) Weight(scale float64, shape ...int) tensor.View {
	n := 1
	for _, d := range shape {
		n *= d
	}
	data := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(r.NormFloat64()*scale)))
	}
	return tensor.View{DType: tensor.F32, Shape: shape, Data: data}
}

// Row is a row of a batch: n tokens of the request in Slot, from position Start on.
type Row struct{ Slot, Start, N int }

// Batch makes a batch with random tokens; every token is a logit row. A request in a slot keeps its blocks over batches.
func (r Random) Batch(vocab, groups int, rows ...Row) kernels.Batch {
	b := kernels.Batch{QueryStart: []int32{0}, Tables: make([]kernels.GroupTable, groups)}
	for g := range b.Tables {
		b.Tables[g].Start = []int32{0}
	}
	for i, row := range rows {
		for p := row.Start; p < row.Start+row.N; p++ {
			b.LogitRows = append(b.LogitRows, int32(len(b.Tokens)))
			b.LogitOwner = append(b.LogitOwner, int32(i))
			b.Sampling = append(b.Sampling, kernels.RowSampling{Logprobs: -1})
			b.Tokens = append(b.Tokens, r.Int32N(int32(vocab)))
			b.Positions[0] = append(b.Positions[0], int32(p))
		}
		end := row.Start + row.N
		b.QueryStart = append(b.QueryStart, int32(len(b.Tokens)))
		b.SeqLens = append(b.SeqLens, int32(end))
		b.Slots = append(b.Slots, int32(row.Slot))
		flags := kernels.RowFlags(0)
		if row.Start == 0 {
			flags = kernels.RowFirst
		}
		b.Flags = append(b.Flags, flags)
		for g := range b.Tables {
			for k := range (end + BlockSize - 1) / BlockSize {
				b.Tables[g].Blocks = append(b.Tables[g].Blocks, int32(1+row.Slot*8+(k*5+g*4)%8))
			}
			b.Tables[g].Start = append(b.Tables[g].Start, int32(len(b.Tables[g].Blocks)))
		}
	}
	return b
}
