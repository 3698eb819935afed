package ref_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
	"omni-engine/kernels/kerneltest"
	"omni-engine/kernels/ref"
)

func TestThreadsChangeNoBit(t *testing.T) {
	kerneltest.Compare(t, ref.Open(ref.Options{Threads: 3}), ref.Open(ref.Options{Threads: 1}), kerneltest.Tolerance{})
}

// odd is an operation that no device knows.
type odd struct{}

func (odd) Name() string       { return "odd" }
func (odd) Uses() kernels.Uses { return kernels.Uses{} }

func TestCompileNamesEveryUnsupportedOperation(t *testing.T) {
	m := &kernels.Module{Name: "m", Entries: []kernels.Entry{{Name: "a", Ops: []kernels.Op{odd{}}}, {Name: "b", Ops: []kernels.Op{odd{}}}}}
	_, err := ref.Open(ref.Options{}).Compile(m, kerneltest.Limits())
	require.ErrorContains(t, err, "entry a op 0: operation odd")
	require.ErrorContains(t, err, "entry b op 0: operation odd")
}

func TestCompileRefusesBadWeights(t *testing.T) {
	for name, v := range map[string]tensor.View{
		"short":       {DType: tensor.F32, Shape: []int{2, 2}, Data: make([]byte, 12)},
		"invalid":     {Shape: []int{2}, Data: make([]byte, 8)},
		"half a row":  {DType: tensor.Q8_0, Shape: []int{2, 16}, Data: make([]byte, 34)},
		"overflowing": {DType: tensor.F32, Shape: []int{1 << 40, 1 << 40}},
	} {
		m := &kernels.Module{Weights: []kernels.Weight{{Name: "w", View: v}}}
		_, err := ref.Open(ref.Options{}).Compile(m, kerneltest.Limits())
		require.ErrorContains(t, err, "weight w", name)
	}
}

// attentionModule has one paged state and a sampled head over the embedding.
func attentionModule(r kerneltest.Random) *kernels.Module {
	rows := func(s kernels.Sym, name string, w int, role kernels.Role) kernels.Buffer {
		return kernels.Buffer{Name: name, DType: tensor.F32, Rows: kernels.Of(s), Width: w, Role: role}
	}
	return &kernels.Module{Name: "m", Vocab: 11, Groups: []kernels.GroupSpec{{Name: "full"}},
		Weights: []kernels.Weight{{Name: "table", View: r.Weight(1, 11, 8)}, {Name: "head", View: r.Weight(1, 11, 8)}},
		States:  []kernels.StateSpec{{Name: "kv", Kind: kernels.Paged, Heads: 1, KDim: 8, VDim: 8}},
		Entries: []kernels.Entry{
			{Name: "forward", Buffers: []kernels.Buffer{rows(kernels.Tokens, "x", 8, kernels.Temp), rows(kernels.Tokens, "y", 8, kernels.Temp),
				rows(kernels.LogitRows, "l", 8, kernels.Temp), rows(kernels.LogitRows, "logits", 11, kernels.Output)},
				Ops: []kernels.Op{&kernels.Embed{Out: 0, Table: 0, Scale: 1}, &kernels.KVWrite{K: 0, V: 0, State: 0},
					&kernels.Attention{Out: 1, Q: 0, State: 0, Heads: 1, KVHeads: 1, KDim: 8, VDim: 8, Scale: 1, Sinks: kernels.None},
					&kernels.GatherRows{Out: 2, In: 1}, &kernels.Linear{Out: 3, In: 2, Weight: 1, Bias: kernels.None}}},
			{Name: "sample", Buffers: []kernels.Buffer{rows(kernels.LogitRows, "logits", 11, kernels.Output)}, Ops: []kernels.Op{&kernels.Sample{Logits: 0}}},
		}}
}

func program(t *testing.T, m *kernels.Module) (kernels.Program, kernels.MemoryPlan) {
	d := ref.Open(ref.Options{Threads: 2})
	p, err := d.Compile(m, kerneltest.Limits())
	require.NoError(t, err)
	plan, err := d.Plan(m, kerneltest.Limits())
	require.NoError(t, err)
	plan.Blocks = 33
	return p, plan
}

func forward(t *testing.T, s kernels.Step, b kernels.Batch) (tokens []int32, logits []byte) {
	kerneltest.Fill(s.Batch(), b)
	require.NoError(t, s.Submit(kernels.Call{Entry: 0}, kernels.Call{Entry: 1}))
	res, err := s.Wait(context.Background())
	require.NoError(t, err)
	v, err := s.Output("logits")
	require.NoError(t, err)
	tokens, logits = append(tokens, res.Tokens...), append(logits, v.Data...)
	s.Release()
	return tokens, logits
}

// A token of -1 is the slot's last sample, -2 the one before: steps may run before the host knows them.
func TestNegativeTokensAreTheSlotsLastSamples(t *testing.T) {
	r := kerneltest.NewRandom(5)
	p, plan := program(t, attentionModule(r))
	run := func(relative bool) []byte {
		states, err := p.NewStates(plan)
		require.NoError(t, err)
		s, err := p.NewStep(states)
		require.NoError(t, err)
		r := kerneltest.NewRandom(6)
		a, _ := forward(t, s, r.Batch(11, 1, kerneltest.Row{Slot: 1, Start: 0, N: 1}))
		next := r.Batch(11, 1, kerneltest.Row{Slot: 1, Start: 1, N: 1})
		next.Tokens[0] = a[0]
		b, _ := forward(t, s, next)
		last := r.Batch(11, 1, kerneltest.Row{Slot: 1, Start: 2, N: 2})
		last.Tokens[0], last.Tokens[1] = a[0], b[0]
		if relative {
			last.Tokens[0], last.Tokens[1] = -2, -1
		}
		_, l := forward(t, s, last)
		return l
	}
	require.Equal(t, run(false), run(true))
}

func TestBlocksMoveByCopyExportAndImport(t *testing.T) {
	r := kerneltest.NewRandom(7)
	p, plan := program(t, attentionModule(r))
	first, err := p.NewStates(plan)
	require.NoError(t, err)
	second, err := p.NewStates(plan)
	require.NoError(t, err)
	s, err := p.NewStep(first)
	require.NoError(t, err)
	other, err := p.NewStep(second)
	require.NoError(t, err)

	_, _ = forward(t, s, r.Batch(11, 1, kerneltest.Row{Slot: 0, Start: 0, N: 16}))
	next := r.Batch(11, 1, kerneltest.Row{Slot: 0, Start: 16, N: 1})
	_, want := forward(t, s, next)

	old := next.Tables[0].Blocks[0]
	require.NoError(t, first.Copy(0, [][2]int32{{old, 30}}))
	next.Tables[0].Blocks[0] = 30
	_, got := forward(t, s, next)
	require.Equal(t, want, got, "copied block")

	data := make([]byte, plan.BlockBytes[0])
	require.NoError(t, first.Export(0, []int32{30}, data))
	require.NoError(t, second.Import(0, []int32{31}, data))
	next.Tables[0].Blocks[0] = 31
	_, got = forward(t, other, next)
	require.Equal(t, want, got, "imported block")

	require.ErrorContains(t, first.Copy(0, [][2]int32{{1, 33}}), "block 33 of 33")
	require.ErrorContains(t, first.Export(1, nil, nil), "KV group 1 of 1")
	require.ErrorContains(t, first.Export(0, []int32{1}, data[1:]), "bytes")
}

func TestSubmitRefusesInconsistentBatches(t *testing.T) {
	p, plan := program(t, attentionModule(kerneltest.NewRandom(8)))
	states, err := p.NewStates(plan)
	require.NoError(t, err)
	for name, spoil := range map[string]func(*kernels.Batch){
		"too many tokens":   func(b *kernels.Batch) { b.Tokens = make([]int32, 65) },
		"missing slot":      func(b *kernels.Batch) { b.Slots = nil },
		"slot out of range": func(b *kernels.Batch) { b.Slots[0] = 99 },
		"few blocks":        func(b *kernels.Batch) { b.Tables[0].Start[1] = 0 },
		"unknown block":     func(b *kernels.Batch) { b.Tables[0].Blocks[0] = 33 },
		"logit row":         func(b *kernels.Batch) { b.LogitRows[0] = 5 },
		"token id":          func(b *kernels.Batch) { b.Tokens[0] = 11 },
		"old sample":        func(b *kernels.Batch) { b.Tokens[0] = -100 },
		"query start":       func(b *kernels.Batch) { b.QueryStart[1] = 2 },
		"positions":         func(b *kernels.Batch) { b.Positions[0] = nil },
		"masks":             func(b *kernels.Batch) { b.Masks = make([]uint32, 2) },
		"inputs": func(b *kernels.Batch) {
			b.Inputs = []kernels.NamedRows{{Name: "x", Width: 8, Rows: []int32{7}, Data: make([]float32, 8)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := p.NewStep(states)
			require.NoError(t, err)
			b := kerneltest.NewRandom(9).Batch(11, 1, kerneltest.Row{Slot: 0, Start: 0, N: 1})
			spoil(&b)
			*s.Batch() = b
			require.Error(t, s.Submit(kernels.Call{Entry: 0}))
		})
	}
}

func TestFaultEndsOnlyItsRow(t *testing.T) {
	m := attentionModule(kerneltest.NewRandom(10))
	m.Weights[0].View.Data[3], m.Weights[0].View.Data[2] = 0x7f, 0xc0 // NaN in the embedding of token 0
	p, plan := program(t, m)
	states, err := p.NewStates(plan)
	require.NoError(t, err)
	s, err := p.NewStep(states)
	require.NoError(t, err)
	b := kerneltest.NewRandom(11).Batch(11, 1, kerneltest.Row{Slot: 0, N: 1}, kerneltest.Row{Slot: 1, N: 1})
	b.Tokens[0], b.Tokens[1] = 0, 4
	kerneltest.Fill(s.Batch(), b)
	require.NoError(t, s.Submit(kernels.Call{Entry: 0}, kernels.Call{Entry: 1}))
	res, err := s.Wait(context.Background())
	require.NoError(t, err)
	require.Equal(t, []kernels.RowFault{{LogitRow: 0, Reason: "NaN in the logits"}}, res.Faults)
	require.EqualValues(t, -1, res.Tokens[0])
	require.GreaterOrEqual(t, res.Tokens[1], int32(0))
}

func TestAdapterAddsItsLowRankUpdate(t *testing.T) {
	r := kerneltest.NewRandom(12)
	m := attentionModule(r)
	buffer := kernels.Buffer{Name: "y", DType: tensor.F32, Rows: kernels.Of(kernels.Tokens), Width: 11, Role: kernels.Output}
	m.Entries[0].Buffers = append(m.Entries[0].Buffers, buffer)
	m.Entries[0].Ops = append(m.Entries[0].Ops, &kernels.Linear{Out: 4, In: 0, Weight: 1, Bias: kernels.None, Site: "site"})
	d := ref.Open(ref.Options{})
	l := kerneltest.Limits()
	l.AdapterSlots = 2
	p, err := d.Compile(m, l)
	require.NoError(t, err)
	_, plan := program(t, m)
	states, err := p.NewStates(plan)
	require.NoError(t, err)
	s, err := p.NewStep(states)
	require.NoError(t, err)
	one := func(v float32, n int) tensor.View {
		data := make([]byte, 4*n)
		for i := range n {
			bits := math.Float32bits(v)
			data[4*i], data[4*i+1], data[4*i+2], data[4*i+3] = byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24)
		}
		return tensor.View{DType: tensor.F32, Data: data}
	}
	a, b := one(1, 8), one(1, 11)
	a.Shape, b.Shape = []int{1, 8}, []int{11, 1}
	require.NoError(t, p.SetAdapter(1, &kernels.Adapter{Scale: 2, A: map[string]tensor.View{"site": a}, B: map[string]tensor.View{"site": b}}))
	require.Error(t, p.SetAdapter(2, nil))
	batch := kerneltest.NewRandom(13).Batch(11, 1, kerneltest.Row{Slot: 0, N: 1}, kerneltest.Row{Slot: 1, N: 1})
	out := func(adapters []int32) []float32 {
		batch.Adapters = adapters
		kerneltest.Fill(s.Batch(), batch)
		require.NoError(t, s.Submit(kernels.Call{Entry: 0}))
		v, err := s.Output("y")
		require.NoError(t, err)
		defer s.Release()
		f := make([]float32, len(v.Data)/4)
		for i := range f {
			f[i] = math.Float32frombits(uint32(v.Data[4*i]) | uint32(v.Data[4*i+1])<<8 | uint32(v.Data[4*i+2])<<16 | uint32(v.Data[4*i+3])<<24)
		}
		return f
	}
	plain, adapted := out(nil), out([]int32{-1, 1})
	require.Equal(t, plain[:11], adapted[:11], "row without an adapter")
	delta := adapted[11] - plain[11]
	require.NotZero(t, delta)
	for i := 11; i < 22; i++ { // scale * 1 * sum(x): the same for every output
		require.InDelta(t, delta, adapted[i]-plain[i], 1e-4)
	}
}
