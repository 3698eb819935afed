package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/cuda/sim"
)

// simulator is the driver's library: the one that OMNI_CUDA_LIB names, else the software device, in `make test-sim`.
func simulator(t *testing.T) string {
	t.Helper()
	if lib := os.Getenv("OMNI_CUDA_LIB"); lib != "" {
		return lib
	}
	if os.Getenv("OMNI_SIM") != "require" {
		t.Skip("make test-sim runs this on the software device; OMNI_CUDA_LIB may name another driver")
	}
	return sim.Require(t, "driver", "kernels-plain").Driver()
}

// answer is what one completion gave.
type answer struct {
	IDs    []int32
	Cached int
	Finish string
	Text   string
}

// complete sends prompts of token ids at once and returns the answers in order.
func complete(t *testing.T, h http.Handler, prompts [][]int32, extra string) []answer {
	t.Helper()
	out := make([]answer, len(prompts))
	var wg sync.WaitGroup
	for i, prompt := range prompts {
		wg.Go(func() {
			ids, _ := json.Marshal(prompt)
			body := fmt.Sprintf(`{"prompt":%s,"temperature":0,"ignore_eos":true,"return_token_ids":true%s}`, ids, extra)
			req := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			var a struct {
				Choices []struct {
					IDs    []int32 `json:"token_ids"`
					Finish string  `json:"finish_reason"`
					Text   string
				}
				Usage struct {
					Details struct {
						Cached int `json:"cached_tokens"`
					} `json:"prompt_tokens_details"`
				}
			}
			if json.Unmarshal(w.Body.Bytes(), &a) != nil || len(a.Choices) != 1 {
				out[i].Text = w.Body.String()
				return
			}
			c := a.Choices[0]
			out[i] = answer{c.IDs, a.Usage.Details.Cached, c.Finish, c.Text}
		})
	}
	wg.Wait()
	return out
}

// sample reads one number from /metrics.
func sample(t *testing.T, h http.Handler, family string) float64 {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	m := regexp.MustCompile(`(?m)^` + family + `\{.*\} (\S+)$`).FindStringSubmatch(w.Body.String())
	require.NotNil(t, m, "%s in %s", family, w.Body.String())
	v, err := strconv.ParseFloat(m[1], 64)
	require.NoError(t, err)
	return v
}

// prompts of different lengths; the first ones share a prefix of 32 tokens.
func prompts() [][]int32 {
	var all [][]int32
	for i, n := range []int{5, 19, 33, 47, 16, 28} {
		p := make([]int32, 0, n)
		for k := range n {
			p = append(p, int32(3+(k*(7+i)+i*31)%500))
		}
		if i == 2 || i == 3 {
			for k := range 32 {
				p[k] = int32(3 + (k*11)%500)
			}
		}
		all = append(all, p)
	}
	return all
}

// The server on the software device gives the CPU backend's greedy tokens: with chunked prefills, a warm prefix cache, preemptions,
// graphs captured and replayed, and launched kernel by kernel.
func TestServerOnTheDeviceGivesTheCPUsTokens(t *testing.T) {
	lib := simulator(t)
	const graphs, tokens = "graphs", 14
	variants := map[string][]string{
		graphs:        {"--kv-cache-memory-bytes", "4m"},
		"eager":       {"--enforce-eager", "--kv-cache-memory-bytes", "4m"},
		"synchronous": {"--no-async-scheduling", "--kv-cache-memory-bytes", "4m"},
		"tiny cache":  {"--num-gpu-blocks-override", "8"},
	}
	for model, names := range map[string][]string{"llama3_tied": {graphs, "eager", "synchronous", "tiny cache"}, "llama_default": {graphs},
		"qwen2": {graphs}, "qwen3": {graphs, "tiny cache"}, "gemma3_text": {graphs}} {
		t.Run(model, func(t *testing.T) {
			dir := tinyModel(t, model)
			flags := []string{"--dtype", "float32", "--max-model-len", "64", "--max-num-seqs", "4", "--max-num-batched-tokens", "24", "--enable-prompt-tokens-details"}
			most := fmt.Sprintf(`,"max_tokens":%d`, tokens)
			want := complete(t, serverOf(t, dir, append(flags, "--device", "cpu")...).handler, prompts(), most)
			for i, a := range want {
				require.Len(t, a.IDs, tokens, "prompt %d: %s", i, a.Text)
			}
			gpu := append(flags, "--device", "cuda", "--cuda-lib", lib)
			for _, name := range names {
				t.Run(name, func(t *testing.T) {
					h := serverOf(t, dir, append(gpu, variants[name]...)...).handler
					rounds := 2
					if name == "tiny cache" {
						rounds = 20 // whether requests meet, and one is preempted, depends on when they arrive
					}
					for round := range rounds {
						got := complete(t, h, prompts(), most)
						for i := range want {
							require.Equal(t, want[i].IDs, got[i].IDs, "round %d, prompt %d: %s", round, i, got[i].Text)
						}
						if round == 1 && name == graphs {
							require.Positive(t, got[3].Cached, "the second round finds its prefixes in the cache")
						}
						if name == "tiny cache" && sample(t, h, "vllm:num_preemptions_total") > 0 {
							break
						}
					}
					if name == "tiny cache" {
						require.Positive(t, sample(t, h, "vllm:num_preemptions_total"))
					}
				})
			}
		})
	}
}
