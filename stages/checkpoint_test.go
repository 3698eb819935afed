package stages

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/models"
	"omni-engine/engine/request"
	"omni-engine/internal/weights/safetensors"
	"omni-engine/kernels"
	"omni-engine/kernels/cpu"
	"omni-engine/kernels/ref"
)

// checkpoint loads a tiny model and what transformers continued its prompt with.
func checkpoint(t *testing.T, name string) (m *models.Model, prompt, greedy []int32) {
	t.Helper()
	dir := filepath.Join("testdata", name)
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	w, err := safetensors.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	m, err = models.Load(models.Source{Config: config, Weights: w})
	require.NoError(t, err)
	var ref struct {
		A struct {
			InputIDs []int32 `json:"input_ids"`
			Greedy   []int32 `json:"greedy"`
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "ref.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &ref))
	return m, ref.A.InputIDs, ref.A.Greedy
}

// The whole chain gives transformers' greedy tokens: alone, in a crowd, in small chunks, planned ahead, from the prefix cache, and
// with a cache so small that requests are preempted.
func TestGreedyTokensAreTheReferences(t *testing.T) {
	processor, err := cpu.Open(cpu.Options{Threads: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, processor.Close()) })
	for _, name := range []string{"llama3_tied", "gemma3_text"} {
		for _, dev := range []kernels.Device{ref.Open(ref.Options{Threads: 1}), processor} {
			greedy(t, name, dev)
		}
	}
}

func greedy(t *testing.T, name string, dev kernels.Device) {
	m, prompt, want := checkpoint(t, name)
	for how, o := range map[string]options{
		"alone": {seqs: 1}, "crowd": {}, "chunks of 5": {tokens: 5}, "asynchronous": {depth: 2},
		"tiny cache": {blocks: 3*len(m.Groups) + 3, maxLen: 40}, "tiny cache, asynchronous": {blocks: 3*len(m.Groups) + 3, maxLen: 40, depth: 2},
	} {
		t.Run(name+" on "+dev.Info().Kind+", "+how, func(t *testing.T) {
			b := on(t, dev, m.Module, o)
			preempted := 0
			for range 2 { // the second time from the prefix cache
				var streams []Stream
				for i := range 6 {
					r := ask(request.ID(fmt.Sprint("r", i)), 0, len(want))
					r.Prompt = append(r.Prompt, prompt...)
					if i%2 == 1 {
						r.Prompt = append(r.Prompt, want[:i]...)
					}
					streams = append(streams, b.submit(t, r))
				}
				for i, s := range streams {
					u := all(t, s)
					from := 0
					if i%2 == 1 {
						from = i
					}
					n := len(want) - from
					require.Equal(t, want[from:], u.Output.NewTokens[:n], "request %d: %s", i, u.Output.Err)
					preempted += u.Record.NumPreemptions
				}
			}
			if o.blocks > 0 {
				require.Positive(t, preempted)
			}
		})
	}
}
