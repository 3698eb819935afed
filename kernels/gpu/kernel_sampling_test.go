//go:build !nocuda && linux && amd64

package gpu

import (
	"context"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
	"omni-engine/kernels/ref"
)

// sampleBatch runs the three kernels over rows of logits.
type sampleBatch struct {
	vocab  int
	logits []float32
	rows   []kernels.RowSampling
	masks  []uint32
	slots  []int32
	recent []int32
}

type sampled struct {
	tokens, faults, ids, ranks, recent []int32
	values                             []float32
	stride                             int
}

func runSampling(x *lab, b sampleBatch) sampled {
	n := len(b.rows)
	var ids []int32
	var bias []float32
	span := func(s []int32) [2]int32 {
		from := int32(len(ids))
		ids = append(ids, s...)
		return [2]int32{from, int32(len(ids))}
	}
	rows := make([]sampleRow, n)
	stride := 1
	for i, r := range b.rows {
		q := sampleRow{Seed: r.Seed, Position: r.Position, Temperature: r.Temperature, TopP: r.TopP, MinP: r.MinP, Presence: r.Presence, Frequency: r.Frequency,
			Repetition: r.Repetition, TopK: r.TopK, Slot: b.slots[i], Target: r.Target}
		q.Prompt, q.Output, q.Allowed, q.Banned, q.Biased = span(r.Prompt), span(r.Output), span(r.Allowed), span(r.Banned), span(r.BiasIDs)
		for len(bias) < len(ids) {
			bias = append(bias, 0)
		}
		copy(bias[q.Biased[0]:], r.Bias)
		if r.Skip {
			q.Flags |= rowSkip
		}
		if b.masks != nil {
			q.Flags |= rowMask | rowProcess
		}
		if r.Allowed != nil {
			q.Flags |= rowAllowed | rowProcess
		}
		if len(r.Banned) > 0 || len(r.BiasIDs) > 0 || r.Presence != 0 || r.Frequency != 0 || (r.Repetition != 0 && r.Repetition != 1) {
			q.Flags |= rowProcess
		}
		if r.Logprobs >= 0 {
			q.Flags |= rowLogprobs
			q.Logprobs = r.Logprobs
			stride = max(stride, 1+int(r.Logprobs))
		}
		rows[i] = q
	}
	chunks := ceilDiv(b.vocab, logitChunk)
	p := sampleParams{Logits: put(x, b.logits, 0), Work: x.alloc(n * b.vocab * 4), Stats: x.alloc(n * chunks * chunkStatBytes), Row: put(x, rows, 0),
		IDs: put(x, append(ids, 0), 0), Bias: put(x, append(bias, 0), 0), Recent: put(x, b.recent, 0), Tokens: put(x, make([]int32, n), 0), Faults: put(x, make([]int32, n), 0),
		TopIDs: put(x, make([]int32, n*stride), 0), TopValues: put(x, make([]float32, n*stride), 0), Ranks: put(x, make([]int32, n), 0),
		Rows: int32(n), Vocab: int32(b.vocab), Chunks: int32(chunks), TopStride: int32(stride)}
	if b.masks != nil {
		p.Masks = put(x, b.masks, 0)
	}
	launchKernel(x, "logits_process", p, chunks, n)
	launchKernel(x, "sample", p, n)
	launchKernel(x, "logprobs", p, n)
	return sampled{tokens: get[int32](x, p.Tokens, n), faults: get[int32](x, p.Faults, n), ids: get[int32](x, p.TopIDs, n*stride), values: get[float32](x, p.TopValues, n*stride),
		ranks: get[int32](x, p.Ranks, n), recent: get[int32](x, p.Recent, len(b.recent)), stride: stride}
}

// refSample samples on kernels/ref: a module that embeds row i of the logits as token i.
func refSample(t *testing.T, b sampleBatch) *kernels.Result {
	t.Helper()
	n := len(b.rows)
	rows := func(name string, s kernels.Sym) kernels.Buffer {
		return kernels.Buffer{Name: name, DType: tensor.F32, Rows: kernels.Of(s), Width: b.vocab}
	}
	m := &kernels.Module{Name: "sampling", Vocab: b.vocab, Weights: []kernels.Weight{{Name: "logits", View: tensor.View{DType: tensor.F32, Shape: []int{n, b.vocab}, Data: asBytes(b.logits)}}},
		Entries: []kernels.Entry{{Name: "sample", Buffers: []kernels.Buffer{rows("x", kernels.Tokens), rows("logits", kernels.LogitRows)},
			Ops: []kernels.Op{&kernels.Embed{Out: 0, Table: 0, Scale: 1}, &kernels.GatherRows{Out: 1, In: 0}, &kernels.Sample{Logits: 1}}}}}
	l := kernels.Limits{Tokens: n, Rows: n, LogitRows: n, MaxModelLen: 8, InFlight: 1, BlockSize: 16, Exact: true}
	d := ref.Open(ref.Options{Threads: 2})
	p, err := d.Compile(m, l)
	require.NoError(t, err)
	plan, err := d.Plan(m, l)
	require.NoError(t, err)
	plan.Blocks, plan.Slots = 1, n
	states, err := p.NewStates(plan)
	require.NoError(t, err)
	step, err := p.NewStep(states)
	require.NoError(t, err)
	batch := step.Batch()
	batch.QueryStart = append(batch.QueryStart[:0], 0)
	for i := range int32(n) {
		batch.Tokens, batch.Positions[0] = append(batch.Tokens, i), append(batch.Positions[0], 0)
		batch.QueryStart, batch.SeqLens = append(batch.QueryStart, i+1), append(batch.SeqLens, 1)
		batch.Slots, batch.Flags = append(batch.Slots, i), append(batch.Flags, kernels.RowFirst)
		batch.LogitRows, batch.LogitOwner = append(batch.LogitRows, i), append(batch.LogitOwner, i)
	}
	batch.Sampling, batch.Masks = append(batch.Sampling[:0], b.rows...), b.masks
	require.NoError(t, step.Submit(kernels.Call{}))
	res, err := step.Wait(context.Background())
	require.NoError(t, err)
	return res
}

func sampleCases(r *rand.Rand, vocab, n int) []kernels.RowSampling {
	some := func(n int) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = int32(r.Intn(vocab))
		}
		return out
	}
	rows := make([]kernels.RowSampling, n)
	for i := range rows {
		s := kernels.RowSampling{Seed: r.Uint64(), Position: uint64(i), Logprobs: int32(i%5 - 1)}
		if i%4 != 0 {
			s.Temperature = 0.2 + 1.5*r.Float32()
		}
		if i%3 == 1 {
			s.TopK = int32(1 + r.Intn(60))
		}
		if i%5 >= 2 {
			s.TopP = 0.05 + 0.9*r.Float32()
		}
		if i%7 == 3 {
			s.MinP = 0.2 * r.Float32()
		}
		if i%2 == 1 {
			s.Prompt, s.Output = some(40), append(some(30), some(3)...)
			s.Output = append(s.Output, s.Output[:9]...)
			s.Presence, s.Frequency, s.Repetition = r.Float32(), r.Float32()/2, 1+r.Float32()
		}
		if i%6 == 5 {
			s.BiasIDs = some(4)
			slices.Sort(s.BiasIDs)
			s.BiasIDs = slices.Compact(s.BiasIDs)
			s.Bias = randoms(int64(i), len(s.BiasIDs), 3)
			s.Banned = some(10)
		}
		if i%11 == 7 {
			s.Allowed = some(20)
		}
		if i%13 == 12 {
			s.Skip, s.Target, s.Logprobs = true, int32(r.Intn(vocab)), 3
		}
		rows[i] = s
	}
	return rows
}

func TestKernelSampling(t *testing.T) {
	x := newLab(t)
	for _, vocab := range []int{31, 5000, 9001} {
		for seed := range int64(3) {
			r := rand.New(rand.NewSource(seed))
			const n = 26
			b := sampleBatch{vocab: vocab, logits: randoms(seed, n*vocab, 3), rows: sampleCases(r, vocab, n), slots: make([]int32, n), recent: make([]int32, n*8)}
			if seed == 1 { // many ties
				for i := range b.logits {
					b.logits[i] = float32(math.Round(float64(b.logits[i])))
				}
			}
			if seed == 2 {
				b.masks = make([]uint32, n*ceilDiv(vocab, 32))
				for i := range b.masks {
					b.masks[i] = r.Uint32() | r.Uint32()
				}
			}
			for i := range b.slots {
				b.slots[i] = int32(n - 1 - i)
			}
			want, got := refSample(t, b), runSampling(x, b)
			faults := map[int]string{}
			for _, f := range want.Faults {
				faults[f.LogitRow] = f.Reason
			}
			for i := range n {
				what := fmt.Sprintf("vocab %d seed %d row %d %+v", vocab, seed, i, b.rows[i])
				require.Equal(t, want.Tokens[i], got.tokens[i], what)
				require.Equal(t, faults[i] != "", got.faults[i] != 0, what)
				if tok := got.tokens[i]; tok >= 0 {
					require.Equal(t, tok, got.recent[int(b.slots[i])*8], what)
				}
				if b.rows[i].Logprobs >= 0 && faults[i] == "" {
					lp := want.Logprobs[i]
					require.Equal(t, lp.IDs, got.ids[i*got.stride:i*got.stride+len(lp.IDs)], what)
					require.Equal(t, lp.Rank, got.ranks[i], what)
					near(t, what, widen(lp.Values), got.values[i*got.stride:i*got.stride+len(lp.Values)], 1e-5, 1e-5)
				}
			}
		}
	}
}

// A row whose logits hold a NaN, no legal token or an infinity is told apart from the others, which are sampled.
func TestKernelSamplingFaults(t *testing.T) {
	x := newLab(t)
	const vocab, n = 6000, 5
	b := sampleBatch{vocab: vocab, logits: randoms(1, n*vocab, 1), rows: make([]kernels.RowSampling, n), slots: []int32{0, 1, 2, 3, 4}, recent: make([]int32, n*8)}
	for i := range b.rows {
		b.rows[i] = kernels.RowSampling{Temperature: 1, Logprobs: 0, Seed: 3}
	}
	b.logits[1*vocab+5999] = float32(math.NaN())
	b.rows[2].Allowed = []int32{}
	b.logits[3*vocab+17] = float32(math.Inf(1))
	b.rows[4].Temperature = 0
	for i := range b.recent {
		b.recent[i] = int32(i)
	}
	got, want := runSampling(x, b), refSample(t, b)
	require.Equal(t, want.Tokens, got.tokens)
	require.Equal(t, []int32{faultNone, faultNaN, faultNoToken, faultInfinite, faultNone}, got.faults)
	require.Len(t, want.Faults, 3)
	require.Equal(t, []int32{8, 9, 10}, got.recent[8:11], "a row without a token remembers none")
	require.Equal(t, []int32{got.tokens[4], 32, 33, 34, 35, 36, 37, 38}, got.recent[32:])
}

// The distribution of draws follows the probabilities.
func TestKernelSamplingFollowsProbabilities(t *testing.T) {
	x := newLab(t)
	const vocab, n = 5, 600
	p := []float64{0.5, 0.25, 0.15, 0.07, 0.03}
	b := sampleBatch{vocab: vocab, slots: make([]int32, n), recent: make([]int32, 8)}
	for i := range n {
		for _, v := range p {
			b.logits = append(b.logits, float32(math.Log(v)))
		}
		b.rows = append(b.rows, kernels.RowSampling{Temperature: 1, Seed: uint64(i) * 977, Position: uint64(i % 7), Logprobs: -1})
		b.slots[i] = -1
	}
	counts := make([]float64, vocab)
	for _, tok := range runSampling(x, b).tokens {
		counts[tok]++
	}
	chi := 0.
	for i, v := range p {
		d := counts[i] - v*n
		chi += d * d / (v * n)
	}
	require.Less(t, chi, 18.5, "chi squared of 4 degrees of freedom, p = 0.001: %v", counts)
}
