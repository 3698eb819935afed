package models_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/models"
	"omni-engine/internal/tensor"
	"omni-engine/internal/weights/safetensors"
	"omni-engine/kernels"
	"omni-engine/kernels/ref"
)

// checkpoints lists the tiny checkpoints: those beside the test, or all where OMNI_TESTDATA names the given material.
func checkpoints(t testing.TB) []string {
	t.Helper()
	root := filepath.Join("testdata", "tiny")
	if given := os.Getenv("OMNI_TESTDATA"); given != "" {
		root = filepath.Join(given, "ref", "tiny")
	}
	all, err := filepath.Glob(filepath.Join(root, "*", "config.json"))
	require.NoError(t, err)
	require.NotEmpty(t, all)
	var out []string
	for _, p := range all {
		out = append(out, filepath.Dir(p))
	}
	return out
}

func open(t testing.TB, dir string, change func(*models.Source)) *models.Model {
	t.Helper()
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	w, err := safetensors.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	src := models.Source{Config: config, Weights: w}
	if change != nil {
		change(&src)
	}
	m, err := models.Load(src)
	require.NoError(t, err)
	return m
}

// runner drives a module on the reference device, one step at a time.
type runner struct {
	t      testing.TB
	m      *kernels.Module
	step   kernels.Step
	states kernels.States
	fwd    int
	size   int // tokens a block
}

func newRunner(t testing.TB, m *kernels.Module, l kernels.Limits) *runner {
	t.Helper()
	d := ref.Open(ref.Options{Threads: 2})
	p, err := d.Compile(m, l)
	require.NoError(t, err)
	plan, err := d.Plan(m, l)
	require.NoError(t, err)
	plan.Blocks = 64
	states, err := p.NewStates(plan)
	require.NoError(t, err)
	step, err := p.NewStep(states)
	require.NoError(t, err)
	return &runner{t: t, m: m, step: step, states: states, fwd: m.Entry("forward"), size: l.BlockSize}
}

func limits() kernels.Limits {
	return kernels.Limits{Tokens: 128, Rows: 4, LogitRows: 128, MaxModelLen: 64, InFlight: 1, BlockSize: 4}
}

// chunk is part of a request in a batch.
type chunk struct {
	slot   int
	start  int // position of the first token
	tokens []int32
}

// fill puts chunks in the batch; each slot owns blocks of its own, in an order that is not ascending.
func (r *runner) fill(logits []int32, chunks ...chunk) {
	b := r.step.Batch()
	*b = kernels.Batch{QueryStart: []int32{0}, Tables: make([]kernels.GroupTable, len(r.m.Groups))}
	for g := range b.Tables {
		b.Tables[g].Start = []int32{0}
	}
	for row, c := range chunks {
		for i, id := range c.tokens {
			b.Tokens = append(b.Tokens, id)
			b.Positions[0] = append(b.Positions[0], int32(c.start+i))
		}
		end := c.start + len(c.tokens)
		b.QueryStart = append(b.QueryStart, int32(len(b.Tokens)))
		b.SeqLens = append(b.SeqLens, int32(end))
		b.Slots = append(b.Slots, int32(c.slot))
		flags := kernels.RowFlags(0)
		if c.start == 0 {
			flags = kernels.RowFirst
		}
		b.Flags = append(b.Flags, flags)
		for g := range b.Tables {
			for i := range (end + r.size - 1) / r.size {
				b.Tables[g].Blocks = append(b.Tables[g].Blocks, int32(1+(c.slot*15+(i*7+g*4)%15)))
			}
			b.Tables[g].Start = append(b.Tables[g].Start, int32(len(b.Tables[g].Blocks)))
		}
		for i := int(b.QueryStart[row]); i < len(b.Tokens); i++ {
			if logits == nil || slices.Contains(logits, int32(i)) {
				b.LogitRows = append(b.LogitRows, int32(i))
				b.LogitOwner = append(b.LogitOwner, int32(row))
				b.Sampling = append(b.Sampling, kernels.RowSampling{Logprobs: -1})
			}
		}
	}
}

// last runs one chunk and returns the logits of its last token.
func (r *runner) last(c chunk) []float32 {
	r.t.Helper()
	return r.run([]int32{int32(len(c.tokens) - 1)}, c)[0]
}

// forward runs the chunks and returns logits of every token.
func (r *runner) forward(chunks ...chunk) [][]float32 {
	r.t.Helper()
	return r.run(nil, chunks...)
}

func (r *runner) run(logits []int32, chunks ...chunk) [][]float32 {
	r.t.Helper()
	r.fill(logits, chunks...)
	calls := []kernels.Call{{Entry: r.fwd}}
	if s := r.m.Entry("sample"); s >= 0 {
		calls = append(calls, kernels.Call{Entry: s})
	}
	require.NoError(r.t, r.step.Submit(calls...))
	_, err := r.step.Wait(context.Background())
	require.NoError(r.t, err)
	out := r.output("logits")
	r.step.Release()
	return out
}

func (r *runner) output(name string) [][]float32 {
	r.t.Helper()
	v, err := r.step.Output(name)
	require.NoError(r.t, err)
	return rowsOf(v)
}

func rowsOf(v tensor.View) [][]float32 {
	var out [][]float32
	for i := range v.Shape[0] {
		row := make([]float32, v.Shape[1])
		for j := range row {
			b := v.Data[(i*v.Shape[1]+j)*4:]
			row[j] = math.Float32frombits(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24)
		}
		out = append(out, row)
	}
	return out
}

func maxDiff(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	var m float64
	for i := range a {
		d := math.Abs(float64(a[i]) - float64(b[i]))
		if !(d <= m) {
			m = d
		}
	}
	return m
}

func argmax(v []float32) int32 {
	at := 0
	for i := range v {
		if v[i] > v[at] {
			at = i
		}
	}
	return int32(at)
}

// reference is a checkpoint's ref.json.
type reference struct {
	IDs       []int32 `json:"input_ids"`
	Positions []int   `json:"prefill_positions"`
	Argmax    []int32 `json:"prefill_argmax"`
	Greedy    []int32 `json:"greedy"`
}

func references(t testing.TB, dir string) map[string]reference {
	raw, err := os.ReadFile(filepath.Join(dir, "ref.json"))
	require.NoError(t, err)
	var all map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(raw, &all))
	out := map[string]reference{}
	for _, k := range []string{"A", "B"} {
		var r reference
		require.NoError(t, json.Unmarshal(all[k], &r))
		require.NotEmpty(t, r.Greedy)
		out[k] = r
	}
	return out
}

// served sets the length that longrope's frequencies depend on: the short prompt's reference uses the short ones.
func served(dir, prompt string) func(*models.Source) {
	return func(s *models.Source) {
		if filepath.Base(dir) == "phi4mini_longrope" && prompt == "B" {
			s.MaxModelLen = 16
		}
	}
}

func TestTinyCheckpointsMatchTransformers(t *testing.T) {
	for _, dir := range checkpoints(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			want := npz(t, filepath.Join(dir, "ref.npz"))
			for prompt, r := range references(t, dir) {
				m := open(t, dir, served(dir, prompt))
				run := newRunner(t, m.Module, limits())
				got := run.forward(chunk{tokens: r.IDs})
				for i, p := range r.Positions {
					require.LessOrEqual(t, maxDiff(got[p], want[prompt+".prefill_logits"].row(i)), 1e-3, "%s position %d", prompt, p)
				}
				for p, id := range r.Argmax {
					require.Equal(t, id, argmax(got[p]), "%s position %d", prompt, p)
				}
				next := argmax(got[len(got)-1])
				for i, id := range r.Greedy { // cached decode
					require.Equal(t, id, next, "%s token %d", prompt, i)
					got = run.forward(chunk{start: len(r.IDs) + i, tokens: []int32{id}})
					require.LessOrEqual(t, maxDiff(got[0], want[prompt+".decode_logits"].row(i)), 1e-3, "%s decode %d", prompt, i)
					next = argmax(got[0])
				}
			}
		})
	}
}

// Chunks, batches and neighbours change no bit.
func TestChunkedPrefillIsBitEqualToWhole(t *testing.T) {
	for _, dir := range checkpoints(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			r := references(t, dir)
			m := open(t, dir, nil)
			run := newRunner(t, m.Module, limits())
			ids := r["A"].IDs
			whole := run.forward(chunk{tokens: ids})
			for _, size := range []int{1, 7} {
				var got [][]float32
				for at := 0; at < len(ids); at += size {
					part := ids[at:min(at+size, len(ids))]
					other := chunk{slot: 2, start: at, tokens: r["B"].IDs[:1]}
					got = append(got, run.forward(other, chunk{slot: 1, start: at, tokens: part})[1:]...)
				}
				require.Equal(t, whole, got, "chunks of %d", size)
			}
		})
	}
}
