package ref

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omni-engine/kernels"
)

// The known answers are Random123's (kat_vectors).
func TestPhiloxGivesTheKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0)}, [2]uint32{^uint32(0), ^uint32(0)}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0}, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		require.Equal(t, c.want, philox(c.counter, c.key))
	}
}

func draw(raw []float32, p kernels.RowSampling, mask []uint32) (int32, string) {
	var s sampler
	return s.row(raw, &p, mask)
}

func TestSamplingRules(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		name   string
		logits []float32
		p      kernels.RowSampling
		mask   []uint32
		want   int32
		fault  string
	}{
		{name: "greedy takes the lowest id of equals", logits: []float32{1, 3, 3, 2}, want: 1},
		{name: "a temperature below 1e-5 is greedy", logits: []float32{1, 3, 2}, p: kernels.RowSampling{Temperature: 9e-6}, want: 1},
		{name: "top-k of 1 is the best", logits: []float32{1, 3, 2.9}, p: kernels.RowSampling{Temperature: 5, TopK: 1}, want: 1},
		{name: "a tiny top-p keeps the best", logits: []float32{1, 3, 2.9}, p: kernels.RowSampling{Temperature: 5, TopP: 1e-6}, want: 1},
		{name: "min-p of 1 keeps the best", logits: []float32{1, 3, 2.9}, p: kernels.RowSampling{Temperature: 5, MinP: 1}, want: 1},
		{name: "banned", logits: []float32{1, 3, 2}, p: kernels.RowSampling{Banned: []int32{1, 99}}, want: 2},
		{name: "allowed", logits: []float32{1, 3, 2}, p: kernels.RowSampling{Allowed: []int32{0}}, want: 0},
		{name: "mask", logits: []float32{1, 3, 2}, mask: []uint32{0b101}, want: 2},
		{name: "bias", logits: []float32{1, 3, 2}, p: kernels.RowSampling{BiasIDs: []int32{0}, Bias: []float32{5}}, want: 0},
		{name: "repetition divides positive logits", logits: []float32{1, 3, 2}, p: kernels.RowSampling{Repetition: 2, Prompt: []int32{1}}, want: 2},
		{name: "repetition multiplies negative logits", logits: []float32{-1, -1.5, -9}, p: kernels.RowSampling{Repetition: 2, Output: []int32{0}}, want: 1},
		{name: "presence counts the output once", logits: []float32{2.5, 3, 0}, p: kernels.RowSampling{Presence: 0.4, Output: []int32{1, 1}}, want: 1},
		{name: "frequency counts each", logits: []float32{2.5, 3, 0}, p: kernels.RowSampling{Frequency: 0.4, Output: []int32{1, 1}}, want: 0},
		{name: "presence ignores the prompt", logits: []float32{2.5, 3, 0}, p: kernels.RowSampling{Presence: 1, Prompt: []int32{1}}, want: 1},
		{name: "NaN", logits: []float32{1, nan}, want: -1, fault: "NaN in the logits"},
		{name: "nothing allowed", logits: []float32{1, 2}, p: kernels.RowSampling{Banned: []int32{0, 1}}, want: -1, fault: "no token may be sampled"},
		{name: "nothing allowed to a draw", logits: []float32{1, 2}, p: kernels.RowSampling{Temperature: 1, Banned: []int32{0, 1}}, want: -1, fault: "no token may be sampled"},
		{name: "infinite", logits: []float32{1, inf}, p: kernels.RowSampling{Temperature: 1}, want: -1, fault: "infinite logit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, fault := draw(c.logits, c.p, c.mask)
			require.Equal(t, c.want, got)
			require.Equal(t, c.fault, fault)
		})
	}
}

// kept are the tokens that are ever drawn, with their frequencies.
func kept(logits []float32, p kernels.RowSampling, n int) map[int32]float64 {
	out := map[int32]float64{}
	for i := range n {
		p.Position = uint64(i)
		id, _ := draw(logits, p, nil)
		out[id] += 1 / float64(n)
	}
	return out
}

func TestDrawsFollowTheDistribution(t *testing.T) {
	logits := []float32{0, 1, 2, 3, -2}
	const n = 40000
	got := kept(logits, kernels.RowSampling{Temperature: 2, Seed: 7}, n)
	var sum float64
	for _, v := range logits {
		sum += math.Exp(float64(v) / 2)
	}
	for i, v := range logits {
		p := math.Exp(float64(v)/2) / sum
		require.InDelta(t, p, got[int32(i)], 5*math.Sqrt(p*(1-p)/n), "token %d", i)
	}
}

func TestTopKKeepsTies(t *testing.T) {
	got := kept([]float32{1, 2, 2, 0}, kernels.RowSampling{Temperature: 1, TopK: 1}, 200)
	require.Contains(t, got, int32(1))
	require.Contains(t, got, int32(2))
	require.Len(t, got, 2)
}

// Probabilities 0.5, 0.3, 0.2: 0.5 is reached by the first alone, 0.51 needs the second.
func TestTopPKeepsTheSmallestSetThatReachesP(t *testing.T) {
	logits := []float32{float32(math.Log(0.2)), float32(math.Log(0.5)), float32(math.Log(0.3))}
	require.Len(t, kept(logits, kernels.RowSampling{Temperature: 1, TopP: 0.49}, 300), 1)
	require.Len(t, kept(logits, kernels.RowSampling{Temperature: 1, TopP: 0.51}, 300), 2)
	require.Len(t, kept(logits, kernels.RowSampling{Temperature: 1, TopP: 0.81}, 300), 3)
}

func TestMinPIsRelativeToTheBest(t *testing.T) {
	logits := []float32{float32(math.Log(0.2)), float32(math.Log(0.5)), float32(math.Log(0.3))}
	require.Len(t, kept(logits, kernels.RowSampling{Temperature: 1, MinP: 0.5}, 300), 2)
	require.Len(t, kept(logits, kernels.RowSampling{Temperature: 1, MinP: 0.3}, 300), 3)
}

func TestSeedAndPositionDecideTheDraw(t *testing.T) {
	logits := make([]float32, 100)
	p := kernels.RowSampling{Temperature: 1, Seed: 3, Position: 9}
	first, _ := draw(logits, p, nil)
	again, _ := draw(logits, p, nil)
	require.Equal(t, first, again)
	p.Seed = 4
	other, _ := draw(logits, p, nil)
	require.NotEqual(t, first, other)
}

func TestRawLogprobs(t *testing.T) {
	logits := []float32{1, 3, 2, 3}
	var sum float64
	for _, v := range logits {
		sum += math.Exp(float64(v))
	}
	lp := func(v float64) float64 { return v - math.Log(sum) }
	got := RawLogprobs(logits, kernels.RowSampling{Logprobs: 2, Temperature: 5}, 2)
	require.Equal(t, []int32{2, 1, 3}, got.IDs)
	require.InDeltaSlice(t, []float64{lp(2), lp(3), lp(3)}, []float64{float64(got.Values[0]), float64(got.Values[1]), float64(got.Values[2])}, 1e-6)
	require.EqualValues(t, 3, got.Rank)
	require.EqualValues(t, 2, RawLogprobs(logits, kernels.RowSampling{}, 1).Rank, "ties rank after each other, as vLLM counts")
	require.Equal(t, []int32{0}, RawLogprobs(logits, kernels.RowSampling{Skip: true, Target: 0}, -1).IDs)
}

func TestBestOfManyAgreesWithSorting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Float32Range(-3, 3), 1, 200).Draw(t, "v")
		for i := range v {
			v[i] = float32(math.Round(float64(v[i]) * 3)) // many equals
		}
		n := rapid.IntRange(0, min(64, len(v))).Draw(t, "n")
		all := best(v, len(v))
		got := nBest(v, n)
		require.Equal(t, append([]int32{}, all[:n]...), append([]int32{}, got...))
	})
}
