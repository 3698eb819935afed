package gpu

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// scenario is a sequence of batches with chunked prefills beside decodes, alone and in company.
func scenario(all bool) [][]chunk {
	a, b, c := text(1, 40), text(2, 21), text(3, 7)
	return [][]chunk{
		{{slot: 0, tokens: a[:13], all: all}},
		{{slot: 0, start: 13, tokens: a[13:30], all: all}, {slot: 2, tokens: b[:9], all: all}},
		{{slot: 0, start: 30, tokens: a[30:31]}, {slot: 2, start: 9, tokens: b[9:20], all: all}, {slot: 1, tokens: c[:1]}},
		{{slot: 0, start: 31, tokens: a[31:32]}, {slot: 2, start: 20, tokens: b[20:21]}, {slot: 1, start: 1, tokens: c[1:2]}},
		{{slot: 1, start: 2, tokens: c[2:3]}},
		{{slot: 0, start: 32, tokens: a[32:33]}, {slot: 1, start: 3, tokens: c[3:4]}},
	}
}

func TestLogitsAreTheDefinitions(t *testing.T) {
	for _, name := range decoders() {
		for _, c := range []struct {
			name     string
			exact    bool
			compute  tensor.DType
			eager    bool
			relative float64
		}{{"f32", true, tensor.Invalid, false, 2e-5}, {"f32 eager", true, tensor.Invalid, true, 2e-5}, {"bf16", false, tensor.BF16, false, 0.03}, {"f16", false, tensor.F16, false, 0.008}} {
			t.Run(name+" "+c.name, func(t *testing.T) {
				dev := opened(t, Options{Eager: c.eager})
				m, l := tiny(t, name), limits()
				l.Exact, l.Compute = c.exact, c.compute
				got := newRig(t, dev, m, l)
				l.Exact, l.Compute = true, tensor.Invalid
				want := onRef(t, m, l)
				for i, batch := range scenario(true) {
					g, gr := got.run(batch...)
					w, wr := want.run(batch...)
					diff, scale := difference(t, g, w)
					require.LessOrEqual(t, diff, c.relative*scale, "step %d", i)
					if c.exact {
						require.Equal(t, wr.Tokens, gr.Tokens, "step %d", i)
					}
				}
				if r := got.states.(*states).runs; c.eager {
					require.Zero(t, r.captured)
				} else {
					require.Positive(t, r.captured)
				}
			})
		}
	}
}

// A batch of the same bucket replays the graph; one kernel by kernel gives the same bits.
func TestGraphsAreReplayed(t *testing.T) {
	m, l := tiny(t, "llama3_tied"), limits()
	graphs, eager := newRig(t, opened(t, Options{}), m, l), newRig(t, opened(t, Options{Eager: true}), m, l)
	for slot := range 3 {
		c := chunk{slot: slot, tokens: text(slot, 20+slot)}
		graphs.run(c)
		eager.run(c)
	}
	r := graphs.states.(*states).runs
	before := r.replayed
	captured := r.captured
	for i := range 6 {
		var batch []chunk
		for slot := range 3 {
			batch = append(batch, chunk{slot: slot, start: 20 + slot + i, tokens: []int32{int32(40*i + slot)}, how: greedy()})
		}
		g, gr := graphs.run(batch...)
		e, er := eager.run(batch...)
		require.Equal(t, e, g, "step %d", i)
		require.Equal(t, er.Tokens, gr.Tokens)
	}
	require.Equal(t, captured+2, r.captured, "a graph of four rows for each entry (the forward pass and sampling)")
	require.Equal(t, before+12, r.replayed)
	require.Zero(t, eager.states.(*states).runs.replayed)
}

// The tokens of a step in flight are fed on the device.
func TestTokensInFlightAreFedOnTheDevice(t *testing.T) {
	m, l := tiny(t, "qwen3"), limits()
	l.Exact = true
	dev := opened(t, Options{})
	one, two := newRig(t, dev, m, l), newRig(t, dev, m, l)
	prompts := [][]int32{text(4, 9), text(5, 17)}
	const n = 12
	var want, got [2][]int32
	batch := func(tokens [2][]int32, i int) (b []chunk) {
		for slot, p := range prompts {
			c := chunk{slot: slot, tokens: p, how: greedy()}
			if i > 0 {
				c.start, c.tokens = len(p)+i-1, []int32{-1}
				if tokens[slot] != nil {
					c.tokens = tokens[slot][i-1 : i]
				}
			}
			b = append(b, c)
		}
		return b
	}
	for i := range n {
		_, res := one.run(batch(want, i)...)
		for slot := range want {
			want[slot] = append(want[slot], res.Tokens[slot])
		}
	}
	collect := func(s kernels.Step) {
		res, err := s.Wait(context.Background())
		require.NoError(t, err)
		for slot := range got {
			got[slot] = append(got[slot], res.Tokens[slot])
		}
		s.Release()
	}
	for i := range n {
		s := two.steps[i%2]
		two.fill(s.Batch(), batch([2][]int32{}, i)...)
		require.NoError(t, s.Submit(two.calls()...))
		if i > 0 {
			collect(two.steps[(i-1)%2])
		}
	}
	collect(two.steps[(n-1)%2])
	require.Equal(t, want, got)
}

func TestSamplingIsTheDefinitions(t *testing.T) {
	m, l := tiny(t, "llama_default"), limits()
	l.Exact = true
	got, want := newRig(t, opened(t, Options{}), m, l), onRef(t, m, l)
	allowed := make([]uint32, 512/32)
	allowed[3], allowed[9] = 0xF0F0, 0x1
	cases := map[string]func(*kernels.RowSampling){
		"greedy":      func(*kernels.RowSampling) {},
		"temperature": func(s *kernels.RowSampling) { s.Temperature = 1.3 },
		"top-k":       func(s *kernels.RowSampling) { s.Temperature, s.TopK = 1, 7 },
		"top-p":       func(s *kernels.RowSampling) { s.Temperature, s.TopP = 1.5, 0.7 },
		"min-p":       func(s *kernels.RowSampling) { s.Temperature, s.MinP = 2, 0.3 },
		"all":         func(s *kernels.RowSampling) { s.Temperature, s.TopK, s.TopP, s.MinP = 1.1, 40, 0.9, 0.02 },
		"repetition": func(s *kernels.RowSampling) {
			s.Repetition, s.Prompt, s.Output = 1.8, text(1, 13), []int32{5, 6, 7, 5}
		},
		"penalties": func(s *kernels.RowSampling) {
			s.Presence, s.Frequency, s.Output = 0.7, 0.4, []int32{9, 9, 9, 100, 101, 511}
		},
		"bias":     func(s *kernels.RowSampling) { s.BiasIDs, s.Bias = []int32{44, 45}, []float32{3, 5} },
		"banned":   func(s *kernels.RowSampling) { s.Banned = text(7, 200) },
		"allowed":  func(s *kernels.RowSampling) { s.Allowed = []int32{17, 400, 33} },
		"none":     func(s *kernels.RowSampling) { s.Allowed = []int32{} },
		"logprobs": func(s *kernels.RowSampling) { s.Logprobs = 5 },
		"chosen":   func(s *kernels.RowSampling) { s.Logprobs, s.Temperature = 0, 1 },
		"target":   func(s *kernels.RowSampling) { s.Skip, s.Logprobs, s.Target = true, 3, 77 },
		"every":    func(s *kernels.RowSampling) { s.Logprobs = 512 },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(4) {
				how := greedy()
				how.Seed, how.Position = seed*77+1, seed+13
				change(&how)
				batch := []chunk{{slot: 0, tokens: text(1, 13), how: how}, {slot: 1, tokens: text(2, 5), how: greedy()}}
				_, g := got.run(batch...)
				_, w := want.run(batch...)
				require.Equal(t, w.Tokens, g.Tokens)
				require.Equal(t, w.Faults, g.Faults)
				sameLogprobs(t, w.Logprobs, g.Logprobs)
			}
		})
	}
}

func sameLogprobs(t *testing.T, want, got []kernels.Logprobs) {
	t.Helper()
	require.Equal(t, len(want), len(got))
	for i := range want {
		require.Equal(t, want[i].IDs, got[i].IDs)
		require.Equal(t, want[i].Rank, got[i].Rank)
		require.InDeltaSlice(t, want[i].Values, got[i].Values, 2e-4)
	}
}

func TestGrammarMaskHoldsOnTheDevice(t *testing.T) {
	m, l := tiny(t, "llama_default"), limits()
	r := newRig(t, opened(t, Options{}), m, l)
	step := r.steps[0]
	r.fill(step.Batch(), chunk{slot: 0, tokens: text(1, 13), how: greedy()}, chunk{slot: 1, tokens: text(2, 3), how: greedy()})
	require.NoError(t, step.Submit(r.calls()[0]))
	masks := make([]uint32, 2*512/32)
	masks[300/32] = 1 << (300 % 32)
	masks[16] = 1 << 7
	step.Batch().Masks = masks
	require.NoError(t, step.Submit(r.calls()[1]))
	res, err := step.Wait(context.Background())
	require.NoError(t, err)
	require.Equal(t, []int32{300, 7}, res.Tokens)
}

func TestHistoriesLongerThanPlannedStillCount(t *testing.T) {
	m, l := tiny(t, "llama_default"), limits()
	l.Exact = true
	got, want := newRig(t, opened(t, Options{}), m, l), onRef(t, m, l)
	how := greedy()
	how.Repetition, how.Prompt = 2, text(1, 6000)
	require.Greater(t, len(how.Prompt), got.program.(*program).plan.scratch.sampling.idCap, "the test tests nothing")
	for i := range 3 {
		batch := []chunk{{slot: i, tokens: text(i, 13), how: how}}
		_, g := got.run(batch...)
		_, w := want.run(batch...)
		require.Equal(t, w.Tokens, g.Tokens)
	}
}

func TestNaNEndsItsRowAlone(t *testing.T) {
	m, l := tiny(t, "llama_default"), limits()
	poisoned := *m
	poisoned.Weights = append([]kernels.Weight(nil), m.Weights...)
	for i, w := range poisoned.Weights {
		if w.View.Shape[0] == 512 {
			data := append([]byte(nil), w.View.Data...)
			row := len(data) / 512
			data[99*row], data[99*row+1] = 0xC0, 0x7F // a NaN in the embedding of token 99
			poisoned.Weights[i].View.Data = data
			break
		}
	}
	r := newRig(t, opened(t, Options{}), &poisoned, l)
	_, res := r.run(chunk{slot: 0, tokens: []int32{5, 6, 7}, how: greedy()}, chunk{slot: 1, tokens: []int32{5, 99}, how: greedy()})
	require.Equal(t, []kernels.RowFault{{LogitRow: 1, Reason: "NaN in the logits"}}, res.Faults)
	require.GreaterOrEqual(t, res.Tokens[0], int32(0))
	require.EqualValues(t, -1, res.Tokens[1])
}

func TestBlocksTravelInCanonicalOrder(t *testing.T) {
	m, l := tiny(t, "gemma3_text"), limits()
	l.Exact = true
	got, want := newRig(t, opened(t, Options{}), m, l), onRef(t, m, l)
	c := chunk{slot: 1, tokens: text(1, 40), how: greedy()}
	got.run(c)
	want.run(c)
	for g := range m.Groups {
		blocks := []int32{want.block(1, g, 0), want.block(1, g, 1)}
		bytes := 0
		for _, s := range m.States {
			if s.Group == g {
				bytes += 2 * len(blocks) * l.BlockSize * s.Heads * s.KDim * 4
			}
		}
		a, b := make([]byte, bytes), make([]byte, bytes)
		require.NoError(t, got.states.Export(g, blocks, a))
		require.NoError(t, want.states.Export(g, blocks, b))
		requireFloats(t, b, a)
		// Into other blocks, copied on, and out again.
		require.NoError(t, got.states.Import(g, []int32{60, 61}, a))
		require.NoError(t, got.states.Copy(g, [][2]int32{{60, 62}, {61, 63}}))
		back := make([]byte, bytes)
		require.NoError(t, got.states.Export(g, []int32{62, 63}, back))
		require.Equal(t, a, back)
	}
	require.ErrorContains(t, got.states.Export(0, []int32{rigBlocks}, nil), "block 65 of 65")
	require.ErrorContains(t, got.states.Export(7, nil, nil), "KV group 7")
	require.ErrorContains(t, got.states.Import(0, []int32{1}, make([]byte, 4)), "got 4")
}

func requireFloats(t *testing.T, want, got []byte) {
	t.Helper()
	w, g := floatsOf(want), floatsOf(got)
	for i := range w {
		require.InDelta(t, w[i], g[i], 1e-4*math.Max(1, math.Abs(float64(w[i]))), "%d", i)
	}
}

func floatsOf(b []byte) []float32 {
	f := make([]float32, len(b)/4)
	copy(asBytes(f), b)
	return f
}

func TestBatchesThatDoNotFitAreRefused(t *testing.T) {
	m, l := tiny(t, "llama_default"), limits()
	r := newRig(t, opened(t, Options{}), m, l)
	b := r.steps[0].Batch()
	r.fill(b, chunk{slot: 0, tokens: text(1, 49), how: greedy()})
	require.ErrorContains(t, r.steps[0].Submit(r.calls()...), "49 tokens exceed the limit of 48")
	r.fill(b, chunk{slot: 6, tokens: text(1, 4), how: greedy()})
	require.ErrorContains(t, r.steps[0].Submit(r.calls()...), "slot 6 of 6")
	require.ErrorContains(t, r.program.SetAdapter(0, &kernels.Adapter{}), "not supported")
}

func TestMemoryIsWhatWasPlanned(t *testing.T) {
	m, l := tiny(t, "qwen3"), limits()
	dev := opened(t, Options{})
	before, total, err := dev.Memory()
	require.NoError(t, err)
	require.LessOrEqual(t, before, total)
	plan, err := dev.Plan(m, l)
	require.NoError(t, err)
	newRig(t, dev, m, l)
	after, _, err := dev.Memory()
	require.NoError(t, err)
	kv := int64(rigBlocks) * plan.BlockSpan()
	require.InDelta(t, plan.Weights+plan.Scratch+kv, before-after, float64(64<<10), "weights %d, scratch %d, cache %d", plan.Weights, plan.Scratch, kv)
}

// Graphs that were captured before there was a batch are those that batches would have captured.
func TestGraphsCapturedAtStartServeEveryBatch(t *testing.T) {
	for _, model := range []string{"llama3_tied", "gemma3_text"} {
		m, l := tiny(t, model), limits()
		dev := opened(t, Options{})
		graphs, lazy := newRig(t, dev, m, l), newRig(t, opened(t, Options{}), m, l)
		require.NoError(t, graphs.states.(kernels.GraphStates).CaptureGraphs())
		r := graphs.states.(*states).runs
		require.Equal(t, 2*len(buckets(6)), r.captured)
		for slot := range 5 {
			c := chunk{slot: slot, tokens: text(slot, 20+slot)}
			graphs.run(c)
			lazy.run(c)
		}
		before := r.captured
		for rows := 1; rows <= 5; rows++ {
			var batch []chunk
			for slot := range rows {
				batch = append(batch, chunk{slot: slot, start: 20 + slot + rows, tokens: []int32{int32(40*rows + slot)}, how: greedy()})
			}
			g, gr := graphs.run(batch...)
			w, wr := lazy.run(batch...)
			require.Equal(t, w, g, "%d rows", rows)
			require.Equal(t, wr.Tokens, gr.Tokens)
		}
		require.Equal(t, before, r.captured, "no batch captured one")
		require.Positive(t, r.replayed)
	}
	eager := newRig(t, opened(t, Options{Eager: true}), tiny(t, "llama3_tied"), limits())
	require.NoError(t, eager.states.(kernels.GraphStates).CaptureGraphs())
	require.Zero(t, eager.states.(*states).runs.captured)
}
