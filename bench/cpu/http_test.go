package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/bench/load"
)

// completions streams as many tokens as asked, less the given number; the first answers are 503, as while loading.
func completions(loading int32, short int) http.Handler {
	var asked atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"data":[{"id":"m"}]}`) })
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) <= loading {
			http.Error(w, "loading", http.StatusServiceUnavailable)
			return
		}
		var req struct {
			N int `json:"max_tokens"`
		}
		_ = json.NewDecoder(r.Body).Decode(&req)
		n := max(1, req.N-short)
		for range n {
			fmt.Fprint(w, "data: {\"id\":\"x\",\"choices\":[{\"text\":\"a\"}]}\n\n")
		}
		fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", n)
	})
	return mux
}

func running(t *testing.T, base string) *server {
	s := &server{base: base, began: time.Now(), cmd: exec.Command("true"), log: &bytes.Buffer{}, ended: make(chan struct{})}
	return s
}

func TestFirstTokenWaitsWhileTheServerLoads(t *testing.T) {
	web := httptest.NewServer(completions(3, 0))
	defer web.Close()
	took, err := running(t, web.URL).firstToken(t.Context())
	require.NoError(t, err)
	require.Greater(t, took, 9*time.Millisecond, "three refusals, each followed by a pause")
}

func TestFirstTokenTellsOfARefusal(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	_, err := running(t, web.URL).firstToken(t.Context())
	require.ErrorContains(t, err, "404")
}

func TestFirstTokenTellsOfADeadServer(t *testing.T) {
	s, err := start(t.Context(), "http://127.0.0.1:1", "", "sh", "-c", "echo no such model >&2; exit 3")
	require.NoError(t, err)
	_, err = s.firstToken(t.Context())
	require.ErrorContains(t, err, "no such model")
	s.stop()
}

func TestServerEndsWithTheHarness(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := start(ctx, "http://127.0.0.1:1", "", "sleep", "60")
	require.NoError(t, err)
	cancel() // the harness is interrupted: the server goes too
	select {
	case <-s.ended:
	case <-time.After(5 * time.Second):
		t.Fatal("the server outlived its context")
	}
	s.stop()
}

func TestAShortAnswerIsNoRate(t *testing.T) {
	cfg := load.Config{NumPrompts: 2, InputLen: 4, OutputLen: 8, IgnoreEOS: true}
	whole := httptest.NewServer(completions(0, 0))
	defer whole.Close()
	values, err := drive(t.Context(), whole.URL, cfg)
	require.NoError(t, err)
	require.Len(t, values, 2)
	require.Positive(t, values[0])
	short := httptest.NewServer(completions(0, 3))
	defer short.Close()
	_, err = drive(t.Context(), short.URL, cfg)
	require.ErrorContains(t, err, "generated 5 tokens where 8")
}
