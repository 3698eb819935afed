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
)

// simulator is the library of the software device, which `make test-sim` builds and names.
func simulator(t *testing.T) string {
	t.Helper()
	lib := os.Getenv("OMNI_CUDA_LIB")
	if lib == "" {
		t.Skip("OMNI_CUDA_LIB names no CUDA driver library; make test-sim runs this on the software device")
	}
	return lib
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
	for _, model := range []string{"llama_default", "llama3_tied", "qwen2", "qwen3", "gemma3_text"} {
		t.Run(model, func(t *testing.T) {
			dir := tinyModel(t, model)
			flags := []string{"--dtype", "float32", "--max-model-len", "96", "--max-num-seqs", "4", "--max-num-batched-tokens", "24", "--enable-prompt-tokens-details"}
			want := complete(t, serverOf(t, dir, append(flags, "--device", "cpu")...).handler, prompts(), `,"max_tokens":24`)
			for i, a := range want {
				require.Len(t, a.IDs, 24, "prompt %d: %s", i, a.Text)
			}
			gpu := append(flags, "--device", "cuda", "--cuda-lib", lib)
			for name, more := range map[string][]string{
				"graphs":      {"--kv-cache-memory-bytes", "4m"},
				"eager":       {"--enforce-eager", "--kv-cache-memory-bytes", "4m"},
				"synchronous": {"--no-async-scheduling", "--kv-cache-memory-bytes", "4m"},
				"tiny cache":  {"--num-gpu-blocks-override", "14"},
			} {
				t.Run(name, func(t *testing.T) {
					h := serverOf(t, dir, append(gpu, more...)...).handler
					for round := range 2 {
						got := complete(t, h, prompts(), `,"max_tokens":24`)
						for i := range want {
							require.Equal(t, want[i].IDs, got[i].IDs, "round %d, prompt %d: %s", round, i, got[i].Text)
						}
						if round == 1 && name == "graphs" {
							require.Positive(t, got[3].Cached, "the second round finds its prefixes in the cache")
						}
					}
					if name == "tiny cache" && model != "gemma3_text" {
						require.Positive(t, sample(t, h, "vllm:num_preemptions_total"))
					}
				})
			}
		})
	}
}
