package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func rounds(quads ...[4]float64) (pairs []pair) {
	for _, q := range quads {
		pairs = append(pairs, pair{A: q[0], B: q[1], During: [2]disturbance{{Foreign: q[2]}, {Foreign: q[3]}}})
	}
	return pairs
}

func TestSummaryCountsUndisturbedRounds(t *testing.T) {
	r := result{Pairs: rounds([4]float64{30, 10, 0, 0.1}, [4]float64{8, 8, 0, 1.5}, [4]float64{50, 10, 0.05, 0}, [4]float64{40, 10, 0, 0})}
	s, ok := summarise(r, 0.15)
	require.True(t, ok)
	require.Equal(t, summary{a: 40, b: 10, median: 4, low: 3, high: 5, counted: 3, all: 4, foreign: 0.1}, s)
}

func TestSummaryOfDisturbedRoundsIsMarked(t *testing.T) {
	r := result{Name: "decode", What: "w", Unit: "tokens/s", Pairs: rounds([4]float64{20, 10, 2, 0}, [4]float64{40, 10, 0, 1})}
	s, ok := summarise(r, 0.15)
	require.True(t, ok)
	require.True(t, s.disturbed)
	require.Equal(t, 3.0, s.median)
	require.Equal(t, 2.0, s.foreign)
	rep := &report{model: "m.gguf", a: &fake{called: "ours"}, b: &fake{called: "theirs"}, results: []result{r}, quiet: 0.15}
	require.Contains(t, markdown([]*report{rep}, "cmd"), "| decode | w (tokens/s) | 30.0 | 10.0 | **3.00** (2.00 … 4.00) † | 2 of 2 | 2.00 |")
}

func TestRatioLines(t *testing.T) {
	rep := &report{quiet: 1, results: []result{
		{Name: "decode", Pairs: rounds([4]float64{450, 92, 0, 0})},
		{Name: "start", Cost: true, Pairs: rounds([4]float64{200, 1000, 0, 0})},
		{Name: "par64", Why: "the time limit was reached"},
	}}
	require.Equal(t, []string{"ratio decode 4.89", "ratio start 0.2"}, rep.ratios(""))
	require.Equal(t, "ratio gemma_decode 4.89", rep.ratios("gemma_")[0])
	require.Equal(t, "gemma", short("gemma-3-270m-q4_k_m.gguf"))
}

func TestBusyRunsAreComparedWithQuietOnes(t *testing.T) {
	rep := &report{model: "m", a: &fake{called: "ours"}, b: &fake{called: "theirs"}, quiet: 1, results: []result{
		{Name: "decode", Pairs: rounds([4]float64{400, 100, 0, 0})},
		{Name: "busy_decode", Pairs: rounds([4]float64{200, 10, 0, 0})},
	}}
	require.Contains(t, markdown([]*report{rep}, "cmd"), "Beside one busy process ours keeps 0.500 of its decode speed, theirs 0.100.")
}

func TestSectionIsReplacedAndTheRestKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "RESULTS.md")
	require.NoError(t, os.WriteFile(path, []byte("# Results\n\n<!-- bench/cpu:begin -->\nold\n<!-- bench/cpu:end -->\n\nrest\n"), 0o644))
	require.NoError(t, replaceSection(path, "bench/cpu", "new\n"))
	require.NoError(t, replaceSection(path, "bench/cpu", "newer\n"))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "# Results\n\n<!-- bench/cpu:begin -->\nnewer\n<!-- bench/cpu:end -->\n\nrest\n", string(got))
	require.ErrorContains(t, replaceSection(path, "other", "x"), "<!-- other:begin -->")
}

func TestNumbersShowThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{2418.4: "2418", 92.53: "92.5", 4.888: "4.89", 0.3333: "0.333", 0: "0"} {
		require.Equal(t, want, number(v))
	}
}

func TestErrorFitsATable(t *testing.T) {
	require.NotContains(t, cell("a | b\nc"), "|")
	require.NotContains(t, cell("a | b\nc"), "\n")
	require.Less(t, len(cell(strings.Repeat("x", 999))), 200)
}

func TestPublishedCommandNamesNoFolder(t *testing.T) {
	require.Equal(t, "-omni omni-engine -model a.gguf,b.gguf -quick",
		withoutPaths([]string{"-omni", "bin/omni-engine", "-model", "/x/y/a.gguf,z/b.gguf", "-quick"}))
}
