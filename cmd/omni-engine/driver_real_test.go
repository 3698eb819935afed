package main

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// driver runs a model's module on a device, below the engine: steps are filled by hand.
type driver struct {
	t       testing.TB
	m       *kernels.Module
	program kernels.Program
	step    kernels.Step
	forward int
	sample  int // -1: none
}

// The driver's geometry: slot 0 holds a long text, the others short ones.
const (
	driverBlock = 16
	longTokens  = 1536
	shortTokens = 128
	mostRows    = 64
)

func driverLimits(exact bool) kernels.Limits {
	l := kernels.Limits{Tokens: 1024, Rows: mostRows, LogitRows: 128, MaxModelLen: longTokens, InFlight: 1, BlockSize: driverBlock, Exact: exact}
	if exact {
		l.KV = tensor.F32
	}
	return l
}

func newDriver(t *testing.T, d kernels.Device, m *kernels.Module, l kernels.Limits) *driver {
	t.Helper()
	plan, err := d.Plan(m, l)
	require.NoError(t, err)
	program, err := d.Compile(m, l)
	require.NoError(t, err)
	plan.Blocks, plan.Slots = 1+len(m.Groups)*groupBlocks, mostRows
	states, err := program.NewStates(plan)
	require.NoError(t, err)
	step, err := program.NewStep(states)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, states.Close())
		require.NoError(t, program.Close())
	})
	return &driver{t: t, m: m, program: program, step: step, forward: m.Entry("forward"), sample: m.Entry("sample")}
}

const groupBlocks = (longTokens + (mostRows-1)*shortTokens) / driverBlock

// block is the i-th block of a slot in a KV group.
func block(group, slot, i int) int32 {
	at := 1 + group*groupBlocks + i
	if slot > 0 {
		at += (longTokens + (slot-1)*shortTokens) / driverBlock
	}
	return int32(at)
}

// feed is one request's part of a step.
type feed struct {
	slot, start int
	tokens      []int32
	all         bool    // logits of every token; otherwise of the last
	next        []int32 // report the logprob of this token at each position, and sample nothing
	prefix      int     // tokens whose blocks are those of slot from: a warm prefix cache
	from        int
}

// ran is what a step gave: one row a position that was asked for.
type ran struct {
	tokens   []int32
	logits   [][]float32
	logprobs []kernels.Logprobs
}

func (d *driver) run(feeds ...feed) ran {
	d.t.Helper()
	b := d.step.Batch()
	d.begin(b)
	for row, f := range feeds {
		d.put(b, row, &f)
	}
	calls := []kernels.Call{{Entry: d.forward}}
	if d.sample >= 0 {
		calls = append(calls, kernels.Call{Entry: d.sample})
	}
	require.NoError(d.t, d.step.Submit(calls...))
	r, err := d.step.Wait(context.Background())
	require.NoError(d.t, err)
	require.Empty(d.t, r.Faults)
	out := ran{tokens: append([]int32{}, r.Tokens...)}
	for _, lp := range r.Logprobs {
		out.logprobs = append(out.logprobs, kernels.Logprobs{IDs: append([]int32{}, lp.IDs...), Values: append([]float32{}, lp.Values...), Rank: lp.Rank})
	}
	v, err := d.step.Output("logits")
	require.NoError(d.t, err)
	for i := range v.Shape[0] {
		row := make([]float32, v.Shape[1])
		for j := range row {
			at := v.Data[(i*v.Shape[1]+j)*4:]
			row[j] = math.Float32frombits(uint32(at[0]) | uint32(at[1])<<8 | uint32(at[2])<<16 | uint32(at[3])<<24)
		}
		out.logits = append(out.logits, row)
	}
	d.step.Release()
	return out
}

func (d *driver) begin(b *kernels.Batch) {
	b.Tokens, b.QueryStart, b.SeqLens, b.Slots, b.Flags = b.Tokens[:0], append(b.QueryStart[:0], 0), b.SeqLens[:0], b.Slots[:0], b.Flags[:0]
	b.LogitRows, b.LogitOwner, b.Sampling = b.LogitRows[:0], b.LogitOwner[:0], b.Sampling[:0]
	b.Positions[0] = b.Positions[0][:0]
	if len(b.Tables) != len(d.m.Groups) {
		b.Tables = make([]kernels.GroupTable, len(d.m.Groups))
	}
	for g := range b.Tables {
		b.Tables[g].Start, b.Tables[g].Blocks = append(b.Tables[g].Start[:0], 0), b.Tables[g].Blocks[:0]
	}
}

func (d *driver) put(b *kernels.Batch, row int, f *feed) {
	first, end := len(b.Tokens), f.start+len(f.tokens)
	for i, id := range f.tokens {
		b.Tokens = append(b.Tokens, id)
		b.Positions[0] = append(b.Positions[0], int32(f.start+i))
	}
	b.QueryStart, b.SeqLens, b.Slots = append(b.QueryStart, int32(len(b.Tokens))), append(b.SeqLens, int32(end)), append(b.Slots, int32(f.slot))
	flags := kernels.RowFlags(0)
	if f.start == f.prefix {
		flags = kernels.RowFirst
	}
	b.Flags = append(b.Flags, flags)
	for g := range b.Tables {
		t := &b.Tables[g]
		for i := range (end + driverBlock - 1) / driverBlock {
			slot := f.slot
			if i < f.prefix/driverBlock {
				slot = f.from
			}
			t.Blocks = append(t.Blocks, block(g, slot, i))
		}
		t.Start = append(t.Start, int32(len(t.Blocks)))
	}
	for i := range f.tokens {
		if !f.all && i < len(f.tokens)-1 {
			continue
		}
		s := kernels.RowSampling{Logprobs: -1}
		if f.next != nil {
			s = kernels.RowSampling{Skip: true, Target: f.next[i], Logprobs: 5}
		}
		b.LogitRows, b.LogitOwner, b.Sampling = append(b.LogitRows, int32(first+i)), append(b.LogitOwner, int32(row)), append(b.Sampling, s)
	}
}

// prefill runs a text in slot 0 in parts of size and returns the last part's rows.
func (d *driver) prefill(slot int, ids []int32, size int) (out ran) {
	d.t.Helper()
	for at := 0; at < len(ids); at += size {
		out = d.run(feed{slot: slot, start: at, tokens: ids[at:min(at+size, len(ids))]})
	}
	return out
}

// promptLogprobs are the logprobs of each token but the first, given those before it.
func (d *driver) promptLogprobs(ids []int32) (out []kernels.Logprobs) {
	d.t.Helper()
	for at := 0; at < len(ids)-1; at += 64 {
		end := min(at+64, len(ids)-1)
		out = append(out, d.run(feed{start: at, tokens: ids[at:end], all: true, next: ids[at+1 : end+1]}).logprobs...)
	}
	return out
}

// greedy feeds a text with its reference continuation in one go and returns the tokens that the model would have chosen.
func (d *driver) greedy(ids, continuation []int32) []int32 {
	d.t.Helper()
	if at := len(ids) - 1; at > 0 {
		d.prefill(0, ids[:at], 512)
	}
	rest := append([]int32{ids[len(ids)-1]}, continuation[:len(continuation)-1]...)
	return d.run(feed{start: len(ids) - 1, tokens: rest, all: true}).tokens
}
