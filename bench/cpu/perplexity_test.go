package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWindowsAreCutAsThePeerCutsThem(t *testing.T) {
	bos := int32(2)
	ids := []int32{2, 10, 11, 12, 13, 14, 15, 16, 17, 18}
	got, err := cut(ids, &bos, 4)
	require.NoError(t, err)
	require.Equal(t, [][]int32{{2, 10, 11, 12}, {2, 14, 15, 16}}, got, "the rest of the text is no window")
	require.Equal(t, int32(13), ids[4], "the text itself stays")
	got, err = cut(ids, nil, 4)
	require.NoError(t, err)
	require.Equal(t, []int32{13, 14, 15, 16}, got[1])
	_, err = cut(ids, nil, 8)
	require.ErrorContains(t, err, "fills no two windows")
}

// scoring answers as a server whose model gives token k the probability 1/k, and whose tokenizer adds begin-of-text 2.
func scoring(t *testing.T) string {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tokenize", func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Add bool `json:"add_special_tokens"`
		}
		require.NoError(t, json.NewDecoder(r.Body).Decode(&q))
		ids := []int32{10, 11, 12}
		if q.Add {
			ids = append([]int32{2}, ids...)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"tokens": ids})
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Prompt []int32 }
		require.NoError(t, json.NewDecoder(r.Body).Decode(&q))
		lps := []any{nil}
		for _, id := range q.Prompt[1:] {
			lps = append(lps, map[string]any{fmt.Sprint(id): map[string]any{"logprob": -math.Log(float64(id))}})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"prompt_logprobs": lps}}})
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func TestPromptTokensAreScoredInTheirPlaces(t *testing.T) {
	base := scoring(t)
	ids, bos, err := tokenise(t.Context(), base, "x")
	require.NoError(t, err)
	require.Equal(t, []int32{2, 10, 11, 12}, ids)
	require.Equal(t, int32(2), *bos)
	lp, err := promptLogprobs(t.Context(), base, ids)
	require.NoError(t, err)
	require.True(t, math.IsNaN(lp[0]))
	require.InDelta(t, -math.Log(12), lp[3], 1e-12)
}

func TestPeersEstimateIsRead(t *testing.T) {
	v, err := finalEstimate([]byte("[1]26.2378,[2]26.6267,\n0.50.494 I Final estimate: PPL = 26.6267 +/- 3.38639\n"))
	require.NoError(t, err)
	require.Equal(t, 26.6267, v)
	_, err = finalEstimate([]byte("out of memory"))
	require.ErrorContains(t, err, "out of memory")
}

// TestPerplexityIsThePeers holds our quantised activations, at every vector level of this machine, to what llama.cpp gave for the same
// file and text: testdata/perplexity.json says how it was measured. The whole text in one pass (1,480 and 1,458 tokens) is held to half a
// percent of llama.cpp's. Its own program scores no more than 510 tokens of it, on which the difference of two quantisations of
// activations has a standard error of half a percent itself, and its two builds differ by up to 1.3 % in a window: there we are held to
// half a percent above it, and below it no further than float32 is plus as much.
func TestPerplexityIsThePeers(t *testing.T) {
	if os.Getenv("OMNI_LONG") != "1" {
		t.Skip("set OMNI_LONG=1")
	}
	raw, err := os.ReadFile("testdata/perplexity.json")
	require.NoError(t, err)
	var recorded struct{ Models []peerPerplexity }
	require.NoError(t, json.Unmarshal(raw, &recorded))
	require.Len(t, recorded.Models, 2)
	binary := filepath.Join(t.TempDir(), "omni-engine")
	out, err := exec.Command("go", "build", "-o", binary, "../../cmd/omni-engine").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, m := range recorded.Models {
		model := os.Getenv(m.Env)
		if model == "" {
			t.Logf("%s is not set: %s is not measured", m.Env, m.File)
			continue
		}
		measure := func(t *testing.T, window int, args ...string) float64 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			v, err := (&omni{binary: binary, model: model, threads: 2, level: args}).perplexity(ctx, perplexityText, window)
			require.NoError(t, err)
			return v
		}
		exact := measure(t, perplexityWindow, "--dtype", "float32")
		t.Logf("%s: float32 in windows %.4f", m.File, exact)
		for _, level := range levelsHere(t.Context(), t, binary, model) {
			t.Run(m.File+"/"+level, func(t *testing.T) {
				whole, want := measure(t, 0, "--cpu-level", level), m.Whole
				t.Logf("whole text %.4f, llama.cpp's %.4f: %+.2f %%", whole, want, 100*(whole/want-1))
				require.InEpsilon(t, want, whole, 0.005)
				windows, want := measure(t, perplexityWindow, "--cpu-level", level), m.Levels[nearest(level)]
				t.Logf("in windows %.4f, llama.cpp's %.4f: %+.2f %%, float32 %+.2f %%", windows, want, 100*(windows/want-1), 100*(exact/want-1))
				require.LessOrEqual(t, windows, want*1.005)
				require.GreaterOrEqual(t, windows, min(want, exact)*0.995)
			})
		}
	}
}

type peerPerplexity struct {
	File, Env string
	Whole     float64            // the whole text in one pass, libllama
	Levels    map[string]float64 // llama-perplexity in windows, by build
}

// nearest is the peer's build for a level of ours: with tiles where ours has them.
func nearest(level string) string {
	if strings.Contains(level, "amx") {
		return "native"
	}
	return "avx512-vnni"
}

// levelsHere are the levels that our binary knows and this processor has; the scalar one takes minutes.
func levelsHere(ctx context.Context, t *testing.T, binary, model string) (levels []string) {
	for _, level := range []string{"avx2", "avx-vnni", "avx512-vnni", "avx512-amx", "amx-bf16"} {
		o := &omni{binary: binary, model: model, threads: 1, level: []string{"--cpu-level", level}}
		if _, err := o.bench(ctx, 1, 1, 1); err == nil {
			levels = append(levels, level)
		} else {
			require.ErrorContains(t, err, "level", "refused for another reason")
		}
	}
	require.NotEmpty(t, levels, "no vector level here")
	return levels
}
