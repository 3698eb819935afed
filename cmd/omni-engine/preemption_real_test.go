package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A cache in which the requests do not fit together preempts some of them; their texts are those of an ample one.
func TestPreemptedRequestsGiveTheSameTokens(t *testing.T) {
	flags := []string{"--max-model-len", "128", "--max-num-seqs", "8", "--no-enable-prefix-caching"}
	ample, none := completeAll(t, realServer(t, flags...).handler)
	require.Zero(t, none, "preemptions with an ample cache")
	tiny, some := completeAll(t, realServer(t, append(flags, "--num-gpu-blocks-override", "20")...).handler)
	require.Positive(t, some, "no preemption: the test compares nothing")
	require.Equal(t, ample, tiny)
	t.Logf("%.0f preemptions", some)
}

// completeAll sends six prompts at once and returns their token ids, and how many preemptions there were.
func completeAll(t *testing.T, h http.Handler) (all [6][]int32, preemptions float64) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			body := fmt.Sprintf(`{"prompt":"%d. Once upon a time there was","max_tokens":60,"temperature":0,"ignore_eos":true,"return_token_ids":true}`, i)
			req := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			var answer struct {
				Choices []struct {
					IDs []int32 `json:"token_ids"`
				}
			}
			if json.Unmarshal(w.Body.Bytes(), &answer) == nil && len(answer.Choices) == 1 {
				all[i] = answer.Choices[0].IDs
			}
		})
	}
	wg.Wait()
	for i := range all {
		require.Len(t, all[i], 60, "prompt %d", i)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	m := regexp.MustCompile(`(?m)^vllm:num_preemptions_total\{.*\} (\S+)$`).FindStringSubmatch(w.Body.String())
	require.NotNil(t, m, w.Body.String())
	preemptions, err := strconv.ParseFloat(m[1], 64)
	require.NoError(t, err)
	return all, preemptions
}
