package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fake answers at once and writes down who was asked for what.
type fake struct {
	called string
	asked  *[]string
	rate   float64
	err    error
	slow   time.Duration
}

func (f *fake) name() string       { return f.called }
func (f *fake) facts() [][2]string { return [][2]string{{"version", "1"}} }

func (f *fake) note(ctx context.Context, what string) (float64, error) {
	*f.asked = append(*f.asked, f.called+" "+what)
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(f.slow):
		return f.rate, f.err
	}
}

func (f *fake) prefill(ctx context.Context, _ int) (float64, error)   { return f.note(ctx, "prefill") }
func (f *fake) decode(ctx context.Context, _, _ int) (float64, error) { return f.note(ctx, "decode") }
func (f *fake) parallel(ctx context.Context, _, _, _ int) (float64, error) {
	return f.note(ctx, "parallel")
}
func (f *fake) serve(context.Context, int, int) (*server, error) { return nil, errUnsupported }

func (f *fake) perplexity(ctx context.Context, _ string, _ int) (float64, error) {
	return f.note(ctx, "perplexity")
}

func newSession(t *testing.T, names string) (*session, *fake, *fake, *[]string) {
	asked := &[]string{}
	a, b := &fake{called: "a", asked: asked, rate: 30}, &fake{called: "b", asked: asked, rate: 10}
	chosen, err := selection(&flags{only: names})
	require.NoError(t, err)
	return &session{a: a, b: b, works: chosen, quiet: 99, log: io.Discard}, a, b, asked
}

func TestEnginesTakeTurnsAndRoundsGoOverAllWorks(t *testing.T) {
	s, _, _, asked := newSession(t, "decode,prefill")
	s.rounds = 2
	results, err := s.run(t.Context())
	require.NoError(t, err)
	round := []string{"a decode", "b decode", "a prefill", "b prefill"}
	require.Equal(t, append(round, round...), *asked)
	require.Len(t, results, 2)
	require.Len(t, results[0].Pairs, 2)
	require.Equal(t, 30.0, results[0].Pairs[1].A)
	require.Equal(t, 10.0, results[0].Pairs[1].B)
}

func TestShortFormLeavesLongWorksOutAndSaysSo(t *testing.T) {
	s, _, _, asked := newSession(t, "busy_decode,decode")
	s.quick = true
	results, err := s.run(t.Context())
	require.NoError(t, err)
	require.Len(t, *asked, 10, "five rounds of decode alone")
	require.Equal(t, "only without -quick", results[0].Why)
	require.False(t, results[0].Failed)
}

func TestTimeLimitEndsRunsAndKeepsWhatIsMeasured(t *testing.T) {
	s, a, _, asked := newSession(t, "decode")
	a.slow, s.rounds = 300*time.Millisecond, 50
	s.until = time.Now().Add(time.Second)
	begin := time.Now()
	results, err := s.run(t.Context())
	require.NoError(t, err)
	require.Less(t, time.Since(begin), 3*time.Second)
	require.NotEmpty(t, results[0].Pairs)
	require.Less(t, len(*asked), 20)
	require.Equal(t, "the time limit was reached", results[0].Why)
	require.False(t, results[0].Failed)
}

func TestFailureOfOneWorkIsReportedAndLeavesTheOthers(t *testing.T) {
	s, _, b, asked := newSession(t, "decode,http1")
	s.rounds = 1
	b.err = errors.New("boom")
	results, err := s.run(t.Context())
	require.NoError(t, err)
	require.Len(t, *asked, 2)
	require.True(t, results[0].Failed)
	require.Equal(t, "b: boom", results[0].Why)
	require.Equal(t, "http1", results[1].Work)
	require.Contains(t, results[1].Why, "not supported")
	require.False(t, results[1].Failed, "what an engine cannot do is no failure")
	r := &report{results: results}
	require.Equal(t, []string{"decode"}, r.failures())
	require.Empty(t, r.ratios(""))
}

func TestCancelEndsTheSession(t *testing.T) {
	s, a, _, _ := newSession(t, "decode")
	a.slow, s.rounds = time.Minute, 1
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(700*time.Millisecond, cancel)
	_, err := s.run(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestNamesOfFiguresAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range works() {
		require.NotEmpty(t, w.figures, w.name)
		require.Positive(t, w.full, w.name)
		for _, f := range w.figures {
			require.False(t, seen[f.name], f.name)
			require.False(t, strings.ContainsAny(f.name, " \t"), f.name)
			seen[f.name] = true
		}
	}
	for _, name := range []string{"decode", "decode2048", "prefill", "prefill2048", "par16", "par64", "http16", "http16_p99_itl", "start", "memory16", "prefix64"} {
		require.True(t, seen[name], name)
	}
}

func TestUnknownWorkIsRefused(t *testing.T) {
	_, err := selection(&flags{only: "decode,decod"})
	require.ErrorContains(t, err, `"decod"`)
}

func TestTheLevelOfTheGoalsIsHeldWhereTheMachineHasMore(t *testing.T) {
	amx := []string{"avx2", "avx512_vnni", "amx_tile"}
	for _, c := range []struct {
		flag          string
		has           []string
		level, failed string
	}{
		{"", amx, "avx512-vnni", ""}, {"native", amx, "", ""}, {"", amx[:2], "", ""}, {"", amx[:1], "", ""}, {"avx2", amx, "avx2", ""}, {"sse", amx, "", "known"},
	} {
		f := &flags{level: c.flag, section: "bench/cpu"}
		err := f.chooseLevel(c.has)
		if c.failed != "" {
			require.ErrorContains(t, err, c.failed)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.level, f.level)
		want := "bench/cpu:" + c.level
		if c.level == "" {
			want += "native"
		}
		require.Equal(t, want, f.section)
	}
}
