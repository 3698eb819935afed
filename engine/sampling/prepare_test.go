package sampling

import (
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/kernels"
)

func prepare(r *request.Request) *Prepared {
	var p Prepared
	p.For(r, 1, 100)
	return &p
}

func ask(id request.ID) *request.Request {
	return &request.Request{ID: id, Sampling: request.DefaultSampling(), EOS: []int32{2, 7}}
}

func TestMinTokensBansEveryStopUntilTheyAreThere(t *testing.T) {
	r := ask("a")
	r.Sampling.MinTokens, r.Sampling.StopTokenIDs = 2, []int32{9}
	p := prepare(r)
	var row kernels.RowSampling
	var mem Scratch
	tokens := []int32{50, 51, 60, 61}
	// In this order: rows share the scratch's memory, and an empty list of it is not nil once it has some.
	for i, banned := range [][]int32{{2, 7, 9}, {2, 7, 9}, {}} {
		pos := 2 + i
		p.Row(&row, &mem, tokens[:pos], nil, 2, pos)
		require.Equal(t, banned, row.Banned, "with %d output tokens", i)
		require.EqualValues(t, pos, row.Position)
	}
}

func TestBadWordsBanTheirLastTokenAfterTheOthers(t *testing.T) {
	r := ask("a")
	r.Sampling.BadWords = [][]int32{{5}, {60, 61}, {1, 2, 3}}
	p := prepare(r)
	var row kernels.RowSampling
	var mem Scratch
	p.Row(&row, &mem, []int32{60, 60}, nil, 2, 2)
	require.Equal(t, []int32{5}, row.Banned, "the prompt does not count")
	p.Row(&row, &mem, []int32{50, 51, 60}, nil, 2, 3)
	require.Equal(t, []int32{5, 61}, row.Banned)
	p.Row(&row, &mem, []int32{50, 51, 1}, []int32{2}, 2, 4)
	require.Equal(t, []int32{5, 3}, row.Banned, "a sample that the scheduler does not know yet counts")
}

func TestHistoryOnlyForPenalties(t *testing.T) {
	r := ask("a")
	p := prepare(r)
	var row kernels.RowSampling
	var mem Scratch
	p.Row(&row, &mem, []int32{50, 51, 60}, nil, 2, 3)
	require.Nil(t, row.Prompt)
	r = ask("b")
	r.Sampling.FrequencyPenalty = 0.5
	p = prepare(r)
	p.Row(&row, &mem, []int32{50, 51, 60}, []int32{61}, 2, 4)
	require.Equal(t, []int32{50, 51}, row.Prompt)
	require.Equal(t, []int32{60, 61}, row.Output)
	first := row
	p.Row(&row, &mem, []int32{50, 51, 70}, []int32{71}, 2, 4)
	require.Equal(t, []int32{60, 61}, first.Output, "rows of one step do not share memory")
}

func TestSeeds(t *testing.T) {
	seed := func(id request.ID, s *int64, engine uint64) uint64 {
		r := ask(id)
		r.Sampling.Seed = s
		var p Prepared
		p.For(r, engine, 100)
		return p.base.Seed
	}
	seven := int64(7)
	require.EqualValues(t, 7, seed("a", &seven, 1))
	require.Equal(t, seed("a", nil, 1), seed("a", nil, 1), "the same after a preemption")
	require.NotEqual(t, seed("a", nil, 1), seed("b", nil, 1))
	require.NotEqual(t, seed("a", nil, 1), seed("a", nil, 2))
}

func TestBiasIsInOrderAndLogprobsCount(t *testing.T) {
	r := ask("a")
	r.Sampling.LogitBias = map[int32]float32{9: 1, 3: -2, 5: 4}
	p := prepare(r)
	require.Equal(t, []int32{3, 5, 9}, p.base.BiasIDs)
	require.Equal(t, []float32{-2, 4, 1}, p.base.Bias)
	require.EqualValues(t, -1, p.base.Logprobs)
	for n, want := range map[int]int32{0: 0, 5: 5, -1: 100, 1000: 100} {
		require.Equal(t, want, Best(n, 100))
	}
}

func TestSteadyRowsAllocateNothing(t *testing.T) {
	r := ask("a")
	r.Sampling.FrequencyPenalty, r.Sampling.BadWords, r.Sampling.MinTokens = 1, [][]int32{{5}, {60, 61}}, 10
	p := prepare(r)
	var row kernels.RowSampling
	var mem Scratch
	tokens, late := []int32{50, 51, 60}, []int32{61}
	p.Row(&row, &mem, tokens, late, 2, 4)
	require.Zero(t, testing.AllocsPerRun(100, func() { mem.Reset(); p.For(r, 1, 100); p.Row(&row, &mem, tokens, late, 2, 4) }))
}

func TestStructuredIsRefused(t *testing.T) {
	s := request.DefaultSampling()
	require.NoError(t, Check(&s))
	s.Structured = &request.Structured{Regex: "a*"}
	require.ErrorContains(t, Check(&s), "not supported")
}
