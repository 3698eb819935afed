package main

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"omni-engine/kernels"
	"omni-engine/kernels/cpu"
	"omni-engine/kernels/ref"
)

// tolerance says how far a mode may be from the float32 reference.
type tolerance struct {
	rows           bool    // whole rows of logits are held to 1e-4
	margin         float64 // below it the reference's greedy choice may flip
	mean, max      float64 // |difference of logprobs|
	agreement      float64 // of the likeliest token
	kl, perplexity float64 // nats; relative
}

// The modes that a server has: --dtype float32, and quantised activations.
var ( // read only
	exactly   = tolerance{rows: true, margin: 0.01, mean: 1e-3, max: 1e-2, agreement: 0.99, kl: 1e-6, perplexity: 1e-4}
	quantised = tolerance{margin: 0.3, mean: 0.1, max: 0.9, agreement: 0.93, kl: 0.06, perplexity: 5e-3}
)

func openCPU(t *testing.T) kernels.Device {
	t.Helper()
	d, err := cpu.Open(cpu.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func TestRealModelsMatchTransformers(t *testing.T) {
	for _, m := range realModels(t) {
		t.Run(m.name, func(t *testing.T) {
			f := readFacts(t, m.name)
			for mode, tol := range map[string]tolerance{"float32": exactly, "default": quantised} {
				t.Run(mode, func(t *testing.T) {
					d := openDriver(t, openCPU(t), m.path, tol.rows)
					t.Run("logits", func(t *testing.T) { holdLogits(t, d, f, tol) })
					t.Run("greedy", func(t *testing.T) { holdGreedy(t, d, f, tol) })
					t.Run("prompt logprobs", func(t *testing.T) { holdLogprobs(t, d, f, tol) })
					t.Run("perplexity", func(t *testing.T) { holdPerplexity(t, d, f, tol) })
					t.Run("same bits", func(t *testing.T) { holdBits(t, d, f) })
					t.Run("no reference operation", func(t *testing.T) { holdExplain(t, d) })
				})
			}
		})
	}
}

func openDriver(t *testing.T, dev kernels.Device, path string, exact bool) *driver {
	t.Helper()
	src, cfg := openReal(t, path)
	m, err := src.load(cfg)
	require.NoError(t, err)
	return newDriver(t, dev, m.Module, driverLimits(exact))
}

// Folders hold the weights in three types; float32 is what the references ran on, the others are held to the reference device.
func TestHuggingFaceFoldersMatch(t *testing.T) {
	path := smollm2(t)
	f := readFacts(t, "smollm2")
	for _, dtype := range []string{"f32", "f16", "bf16"} {
		t.Run(dtype, func(t *testing.T) {
			if dtype == "f16" && !long() {
				t.Skip("set OMNI_LONG=1")
			}
			dir := folder(t, path, dtype)
			d := openDriver(t, openCPU(t), dir, true)
			ids := f.Prompts[0].IDs
			got := d.run(feed{tokens: ids}).logits[0]
			if dtype == "f32" {
				holdLogits(t, d, f, exactly)
				return
			}
			definition := openDriver(t, ref.Open(ref.Options{}), dir, true)
			require.LessOrEqual(t, relativeL2(got, definition.run(feed{tokens: ids}).logits[0]), 1e-4)
			require.Equal(t, f.Prompts[0].Greedy[0], largest(got))
			rel := relativeL2(got, f.logits[0])
			require.LessOrEqual(t, rel, map[string]float64{"f16": 5e-3, "bf16": 4e-2}[dtype], "rounded weights")
			require.Greater(t, rel, 1e-5, "the weights were not rounded")
		})
	}
}

// The definition of the operations agrees too.
func TestReferenceDeviceMatchesTransformers(t *testing.T) {
	for _, m := range realModels(t) {
		f := readFacts(t, m.name)
		d := openDriver(t, ref.Open(ref.Options{}), m.path, true)
		holdRow(t, d.run(feed{tokens: f.Prompts[f.LogitPrompts[0]].IDs}).logits[0], f, f.LogitPrompts[0])
	}
}

func relativeL2(got, want []float32) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	var d, n float64
	for i := range want {
		e := float64(got[i]) - float64(want[i])
		d, n = d+e*e, n+float64(want[i])*float64(want[i])
	}
	return math.Sqrt(d / n)
}

func largest(row []float32) int32 { return int32(slices.Index(row, slices.Max(row))) }

// divergence is KL(want || got) in nats.
func divergence(want, got []float32) (kl float64) {
	p, q := logSoftmax(want), logSoftmax(got)
	for i := range p {
		kl += math.Exp(p[i]) * (p[i] - q[i])
	}
	return kl
}

func logSoftmax(row []float32) []float64 {
	top, sum := float64(slices.Max(row)), 0.0
	for _, v := range row {
		sum += math.Exp(float64(v) - top)
	}
	out := make([]float64, len(row))
	for i, v := range row {
		out[i] = float64(v) - top - math.Log(sum)
	}
	return out
}

func holdLogits(t *testing.T, d *driver, f *facts, tol tolerance) {
	t.Helper()
	for _, p := range f.LogitPrompts {
		got := d.run(feed{tokens: f.Prompts[p].IDs}).logits[0]
		if tol.rows {
			holdRow(t, got, f, p)
			continue
		}
		kl := divergence(f.logits[p], got)
		t.Logf("prompt %d: KL %.4f, relative L2 %.4f", p, kl, relativeL2(got, f.logits[p]))
		assert.LessOrEqual(t, kl, tol.kl, "prompt %d", p)
	}
}

// holdRow compares a row of logits. Rows stored as float16 are coarser; the twenty best are stored exactly.
func holdRow(t *testing.T, got []float32, f *facts, p int) {
	t.Helper()
	limit := 1e-4
	if f.LogitType == "float16" {
		limit = 5e-4
	}
	rel := relativeL2(got, f.logits[p])
	t.Logf("prompt %d: relative L2 %.1e", p, rel)
	assert.LessOrEqual(t, rel, limit, "prompt %d", p)
	var a, b []float32
	for _, best := range f.Prompts[p].Top20 {
		a, b = append(a, got[int(best[0])]), append(b, float32(best[1]))
	}
	assert.LessOrEqual(t, relativeL2(a, b), 1e-4, "prompt %d: best logits", p)
}

// holdGreedy compares 64 tokens of every prompt, and some decoded one by one.
func holdGreedy(t *testing.T, d *driver, f *facts, tol tolerance) {
	compared := 0
	for i, p := range f.Prompts {
		if i > 4 && !long() {
			continue
		}
		for k, got := range d.greedy(p.IDs, p.Greedy) {
			if p.Margin[k] < tol.margin {
				continue
			}
			compared++
			require.Equal(t, p.Greedy[k], got, "prompt %d token %d, margin %.3f", i, k, p.Margin[k])
		}
	}
	require.Greater(t, compared, 200)
	p := f.Prompts[0]
	next := d.run(feed{tokens: p.IDs}).tokens[0]
	for k := range p.Greedy[:8] {
		if p.Margin[k] >= tol.margin {
			require.Equal(t, p.Greedy[k], next, "decoded token %d", k)
		}
		next = d.run(feed{start: len(p.IDs) + k, tokens: p.Greedy[k : k+1]}).tokens[0]
	}
}

func holdLogprobs(t *testing.T, d *driver, f *facts, tol tolerance) {
	p := &f.Paragraph
	got := d.promptLogprobs(p.IDs)
	require.Len(t, got, len(p.Logprobs))
	mean, worst, agree := 0.0, 0.0, 0
	for i, lp := range got {
		require.Equal(t, p.IDs[i+1], lp.IDs[0])
		diff := math.Abs(float64(lp.Values[0]) - p.Logprobs[i])
		mean, worst = mean+diff/float64(len(got)), max(worst, diff)
		require.Len(t, lp.IDs, 6)
		if lp.IDs[1] == p.Argmax[i] {
			agree++
		}
		if tol.rows {
			assert.InDelta(t, p.Ranks[i], lp.Rank, 1+0.01*float64(p.Ranks[i]), "rank at %d", i)
			for n, best := range p.Top5[i] {
				assert.InDelta(t, best[1], lp.Values[1+n], 1e-2, "position %d, candidate %d", i, n)
			}
		}
	}
	share := float64(agree) / float64(len(got))
	t.Logf("logprobs: mean difference %.5f, largest %.5f, argmax agreement %.3f", mean, worst, share)
	assert.LessOrEqual(t, mean, tol.mean)
	assert.LessOrEqual(t, worst, tol.max)
	assert.GreaterOrEqual(t, share, tol.agreement)
}

// holdPerplexity scores the text; its first part where the time is short. A part is noisier than the whole.
func holdPerplexity(t *testing.T, d *driver, f *facts, tol tolerance) {
	n, limit := 257, 3*tol.perplexity
	if long() {
		n, limit = len(f.Perplexity.IDs), tol.perplexity
	}
	want, got := 0.0, 0.0
	for i, lp := range d.promptLogprobs(f.Perplexity.IDs[:n]) {
		want, got = want+f.Perplexity.NLL[i], got-float64(lp.Values[0])
	}
	ratio := math.Exp((got - want) / float64(n-1))
	t.Logf("perplexity of %d tokens: %.5f times the reference's", n-1, ratio)
	assert.InDelta(t, 1, ratio, limit)
}

func holdExplain(t *testing.T, d *driver) {
	head, phases, _ := strings.Cut(d.program.Explain(), "\n")
	require.Contains(t, head, "no reference operations")
	require.NotContains(t, strings.ToLower(phases), "reference")
	for _, e := range d.m.Entries {
		require.Contains(t, phases, e.Name)
	}
}

// holdBits runs one text alone, among 63 others, over a warm prefix and in chunks: not one bit may differ.
func holdBits(t *testing.T, d *driver, f *facts) {
	text := f.Perplexity.IDs
	ids := text[:45]
	alone := d.run(feed{slot: 1, tokens: ids}).logits[0]
	feeds := []feed{}
	for s := range mostRows {
		switch at := 50 + 17*s; s {
		case 31:
			feeds = append(feeds, feed{slot: 1, tokens: ids})
		case 1:
			feeds = append(feeds, feed{slot: 31, tokens: text[at : at+9]})
		default:
			feeds = append(feeds, feed{slot: s, tokens: text[at : at+1+s%19]})
		}
	}
	same := func(what string, got []float32) {
		t.Helper()
		require.True(t, slices.Equal(alone, got), "%s: %d of %d logits differ", what, different(alone, got), len(alone))
	}
	same("among 63 others", d.run(feeds...).logits[31])
	same("warm", d.run(feed{slot: 2, start: 32, tokens: ids[32:], prefix: 32, from: 1}).logits[0])
	same("again, cold", d.run(feed{slot: 3, tokens: ids}).logits[0])
	for _, size := range []int{1, 7} {
		same("in chunks", d.prefill(4, ids, size).logits[0])
	}
	text = text[:600]
	alone = d.run(feed{tokens: text}).logits[0]
	same("chunks of 512", d.prefill(0, text, 512).logits[0])
	if long() {
		same("chunks of 77", d.prefill(0, text, 77).logits[0])
	}
}

func different(a, b []float32) (n int) {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			n++
		}
	}
	return n
}
