package gpu

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/cuda"
	"omni-engine/cuda/sim"
	"omni-engine/kernels"
	"omni-engine/kernels/ref"
)

// opened is a device of the driver that OMNI_CUDA_LIB names (`make test-gpu`), or the software one in `make test-sim`.
func opened(t testing.TB, o Options) *device {
	t.Helper()
	lib := os.Getenv("OMNI_CUDA_LIB")
	if lib == "" {
		if os.Getenv("OMNI_SIM") != "require" {
			t.Skip("make test-sim runs this on the software device; OMNI_CUDA_LIB may name a GPU's driver")
		}
		lib = sim.Require(t, "driver", "kernels-plain").Driver()
	}
	driver, _, err := cuda.OpenDriver(cuda.Options{Driver: lib})
	require.NoError(t, err)
	d, err := Open(driver, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d.(*device)
}

// rig drives a module on a device. Each slot owns blocks of its own, in an order that is not ascending.
type rig struct {
	t       testing.TB
	m       *kernels.Module
	l       kernels.Limits
	program kernels.Program
	states  kernels.States
	steps   []kernels.Step
}

const rigBlocks = 65

func newRig(t testing.TB, d kernels.Device, m *kernels.Module, l kernels.Limits) *rig {
	t.Helper()
	p, err := d.Compile(m, l)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	plan, err := d.Plan(m, l)
	require.NoError(t, err)
	plan.Blocks, plan.Slots = rigBlocks, l.Rows
	s, err := p.NewStates(plan)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	r := &rig{t: t, m: m, l: l, program: p, states: s}
	for range l.InFlight {
		step, err := p.NewStep(s)
		require.NoError(t, err)
		if c, ok := step.(interface{ Close() error }); ok {
			t.Cleanup(func() { require.NoError(t, c.Close()) })
		}
		r.steps = append(r.steps, step)
	}
	return r
}

func onRef(t testing.TB, m *kernels.Module, l kernels.Limits) *rig {
	return newRig(t, ref.Open(ref.Options{Threads: 2}), m, l)
}

// chunk is part of a request in a batch.
type chunk struct {
	slot   int
	start  int // position of the first token
	tokens []int32
	all    bool // logits of every token, else of the last
	how    kernels.RowSampling
}

// fill puts chunks in a step's batch.
func (r *rig) fill(b *kernels.Batch, chunks ...chunk) {
	b.Tokens, b.Positions[0], b.QueryStart = b.Tokens[:0], b.Positions[0][:0], append(b.QueryStart[:0], 0)
	b.SeqLens, b.Slots, b.Flags = b.SeqLens[:0], b.Slots[:0], b.Flags[:0]
	b.LogitRows, b.LogitOwner, b.Sampling, b.Masks = b.LogitRows[:0], b.LogitOwner[:0], b.Sampling[:0], nil
	if len(b.Tables) != len(r.m.Groups) {
		b.Tables = make([]kernels.GroupTable, len(r.m.Groups))
	}
	for g := range b.Tables {
		b.Tables[g].Start, b.Tables[g].Blocks = append(b.Tables[g].Start[:0], 0), b.Tables[g].Blocks[:0]
	}
	for row, c := range chunks {
		for i, id := range c.tokens {
			b.Tokens, b.Positions[0] = append(b.Tokens, id), append(b.Positions[0], int32(c.start+i))
			if c.all || i == len(c.tokens)-1 {
				b.LogitRows, b.LogitOwner = append(b.LogitRows, int32(len(b.Tokens)-1)), append(b.LogitOwner, int32(row))
				b.Sampling = append(b.Sampling, c.how)
			}
		}
		end := c.start + len(c.tokens)
		b.QueryStart, b.SeqLens, b.Slots = append(b.QueryStart, int32(len(b.Tokens))), append(b.SeqLens, int32(end)), append(b.Slots, int32(c.slot))
		flags := kernels.RowFlags(0)
		if c.start == 0 {
			flags = kernels.RowFirst
		}
		b.Flags = append(b.Flags, flags)
		for g := range b.Tables {
			for i := range (end + r.l.BlockSize - 1) / r.l.BlockSize {
				b.Tables[g].Blocks = append(b.Tables[g].Blocks, r.block(c.slot, g, i))
			}
			b.Tables[g].Start = append(b.Tables[g].Start, int32(len(b.Tables[g].Blocks)))
		}
	}
}

// block is the i-th block of a slot in a group.
func (r *rig) block(slot, group, i int) int32 {
	const per = 8 // blocks of a slot and a group
	return int32(1 + ((slot*len(r.m.Groups)+group)*per+(i*5+group*3)%per)%(rigBlocks-1))
}

func (r *rig) calls() []kernels.Call {
	calls := []kernels.Call{{Entry: r.m.Entry("forward")}}
	if e := r.m.Entry("sample"); e >= 0 {
		calls = append(calls, kernels.Call{Entry: e})
	}
	return calls
}

// run runs one batch and returns the logits and what was sampled.
func (r *rig) run(chunks ...chunk) ([][]float32, *kernels.Result) {
	r.t.Helper()
	step := r.steps[0]
	r.fill(step.Batch(), chunks...)
	require.NoError(r.t, step.Submit(r.calls()...))
	res, err := step.Wait(context.Background())
	require.NoError(r.t, err)
	v, err := step.Output("logits")
	require.NoError(r.t, err)
	rows := make([][]float32, v.Shape[0])
	for i := range rows {
		rows[i] = make([]float32, v.Shape[1])
		for k := range rows[i] {
			rows[i][k] = math.Float32frombits(binary.LittleEndian.Uint32(v.Data[4*(i*v.Shape[1]+k):]))
		}
	}
	out := *res
	out.Tokens = append([]int32(nil), res.Tokens...)
	step.Release()
	return rows, &out
}

// difference is the largest of two sets of logits, and the largest value.
func difference(t testing.TB, got, want [][]float32) (diff, scale float64) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.Len(t, got[i], len(want[i]))
		for k := range want[i] {
			diff = max(diff, math.Abs(float64(got[i][k])-float64(want[i][k])))
			scale = max(scale, math.Abs(float64(want[i][k])))
			require.False(t, math.IsNaN(float64(got[i][k])), "row %d", i)
		}
	}
	return diff, scale
}

func text(seed, n int) []int32 {
	t := make([]int32, n)
	for i := range t {
		t[i] = int32(3 + (seed*37+i*(11+seed))%500)
	}
	return t
}

func greedy() kernels.RowSampling { return kernels.RowSampling{Logprobs: -1} }
