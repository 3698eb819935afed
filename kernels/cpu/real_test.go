//go:build cgo && linux && amd64

package cpu_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"omni-engine/engine/models"
	"omni-engine/internal/weights/gguf"
	"omni-engine/kernels"
	"omni-engine/kernels/cpu"
)

// realModel opens one of the two models that scripts/model.sh fetches.
func realModel(t testing.TB, variable string) *models.Model {
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("set %s to the GGUF file (scripts/model.sh fetches it)", variable)
	}
	f, err := gguf.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	m, err := models.Load(models.Source{Metadata: f.Meta, Weights: f})
	require.NoError(t, err)
	return m
}

// session runs single sequences on a program.
type session struct {
	t       testing.TB
	program kernels.Program
	states  kernels.States
	step    kernels.Step
	groups  int
	calls   []kernels.Call
	blocks  int // of one sequence
	size    int
}

func newSession(t testing.TB, d kernels.Device, m *kernels.Module, l kernels.Limits) *session {
	p, err := d.Compile(m, l)
	require.NoError(t, err)
	plan, err := d.Plan(m, l)
	require.NoError(t, err)
	s := &session{t: t, program: p, groups: max(len(m.Groups), 1), size: l.BlockSize, blocks: (l.MaxModelLen + l.BlockSize - 1) / l.BlockSize}
	plan.Blocks, plan.Slots = 1+l.Rows*s.blocks*s.groups, l.Rows
	s.states, err = p.NewStates(plan)
	require.NoError(t, err)
	s.step, err = p.NewStep(s.states)
	require.NoError(t, err)
	s.calls = []kernels.Call{{Entry: m.Entry("forward")}}
	if e := m.Entry("sample"); e >= 0 {
		s.calls = append(s.calls, kernels.Call{Entry: e})
	}
	t.Cleanup(func() {
		require.NoError(t, s.states.Close())
		require.NoError(t, p.Close())
	})
	return s
}

// part is a piece of one sequence to compute: tokens from a position on, in a slot.
type part struct {
	slot, from int
	tokens     []int32
	logits     int // the last tokens whose logits are wanted
	sampling   kernels.RowSampling
}

// run computes parts together and returns what was sampled.
func (s *session) run(parts ...part) *kernels.Result {
	b := s.step.Batch()
	b.Tokens, b.Positions[0], b.QueryStart, b.SeqLens = b.Tokens[:0], b.Positions[0][:0], append(b.QueryStart[:0], 0), b.SeqLens[:0]
	b.Slots, b.Flags, b.LogitRows, b.LogitOwner, b.Sampling = b.Slots[:0], b.Flags[:0], b.LogitRows[:0], b.LogitOwner[:0], b.Sampling[:0]
	if len(b.Tables) != s.groups {
		b.Tables = make([]kernels.GroupTable, s.groups)
	}
	for g := range b.Tables {
		b.Tables[g].Start, b.Tables[g].Blocks = append(b.Tables[g].Start[:0], 0), b.Tables[g].Blocks[:0]
	}
	for r, p := range parts {
		for i, tok := range p.tokens {
			b.Tokens = append(b.Tokens, tok)
			b.Positions[0] = append(b.Positions[0], int32(p.from+i))
		}
		n := p.from + len(p.tokens)
		b.QueryStart = append(b.QueryStart, int32(len(b.Tokens)))
		b.SeqLens, b.Slots = append(b.SeqLens, int32(n)), append(b.Slots, int32(p.slot))
		b.Flags = append(b.Flags, 0)
		for g := range b.Tables {
			for k := range (n + s.size - 1) / s.size {
				// scattered: consecutive blocks of a sequence are not neighbours
				id := 1 + (p.slot*s.groups+g)*s.blocks + k
				b.Tables[g].Blocks = append(b.Tables[g].Blocks, int32(id))
			}
			b.Tables[g].Start = append(b.Tables[g].Start, int32(len(b.Tables[g].Blocks)))
		}
		for k := p.logits; k > 0; k-- {
			b.LogitRows, b.LogitOwner = append(b.LogitRows, int32(len(b.Tokens)-k)), append(b.LogitOwner, int32(r))
			b.Sampling = append(b.Sampling, p.sampling)
		}
	}
	require.NoError(s.t, s.step.Submit(s.calls...))
	res, err := s.step.Wait(context.Background())
	require.NoError(s.t, err)
	return res
}

// logits of the last run, row by row.
func (s *session) logits() [][]float32 {
	v, err := s.step.Output("logits")
	require.NoError(s.t, err)
	all := make([][]float32, v.Shape[0])
	for i := range all {
		row := v.Row(i, i+1)
		all[i] = make([]float32, v.Shape[1])
		for k := range all[i] {
			all[i][k] = math.Float32frombits(uint32(row[4*k]) | uint32(row[4*k+1])<<8 | uint32(row[4*k+2])<<16 | uint32(row[4*k+3])<<24)
		}
	}
	return all
}

func greedy() kernels.RowSampling { return kernels.RowSampling{Logprobs: -1} }

type recorded struct {
	Prompts []struct {
		IDs, Greedy []int32
		Margins     []float64 `json:"greedy_margin"`
	}
}

func readRecorded(t testing.TB, name string) recorded {
	dir := os.Getenv("OMNI_TESTDATA")
	if dir == "" {
		t.Skip("set OMNI_TESTDATA to the folder with ref/text")
	}
	raw, err := os.ReadFile(filepath.Join(dir, "ref", "text", name+".json"))
	require.NoError(t, err)
	var r recorded
	require.NoError(t, json.Unmarshal(raw, &r))
	return r
}

func TestRealModelsContinueAsTransformers(t *testing.T) {
	for _, c := range []struct{ name, variable string }{{"smollm2", "OMNI_MODEL_SMOLLM2"}, {"gemma3", "OMNI_MODEL_GEMMA3"}} {
		for _, exact := range []bool{true, false} {
			t.Run(c.name+map[bool]string{true: " exact", false: " quantised"}[exact], func(t *testing.T) {
				want := readRecorded(t, c.name)
				m := realModel(t, c.variable)
				s := newSession(t, open(t, cpu.Options{}), m.Module, kernels.Limits{Tokens: 1024, Rows: 1, LogitRows: 512, MaxModelLen: 1024, BlockSize: 16, InFlight: 1, Exact: exact})
				require.NotContains(t, s.program.Explain(), "reference:")
				same, all, limit := 0, 0, 0.3
				if exact {
					limit = 0.01
				}
				for _, p := range want.Prompts { // teacher-forced, so that one flip does not end the comparison
					ids := append(append([]int32{}, p.IDs...), p.Greedy...)
					res := s.run(part{tokens: ids[:len(ids)-1], logits: len(p.Greedy), sampling: greedy()})
					for i, tok := range p.Greedy {
						all++
						if res.Tokens[i] == tok {
							same++
						} else {
							assert.Less(t, p.Margins[i], limit, "a token with a clear margin differs")
						}
					}
					s.step.Release()
				}
				t.Logf("%d of %d tokens agree", same, all)
				require.Greater(t, all, 100)
				require.GreaterOrEqual(t, float64(same), 0.93*float64(all))
				if testing.Verbose() {
					t.Log(strings.TrimSpace(s.program.Explain()))
				}
			})
		}
	}
}
