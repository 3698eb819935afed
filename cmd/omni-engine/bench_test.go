package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// failing answers the first so many requests with 500 and the others with a token.
func failing(t *testing.T, failures int) string {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked <= failures {
			http.Error(w, "the model is gone", http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"x\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func benchServe(t *testing.T, base, dir string) (stderr string, err error) {
	cmd := benchServeCommand()
	var out, log strings.Builder
	cmd.SetOut(&out)
	cmd.SetErr(&log)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"--base-url", base, "--model", "m", "--num-prompts", "3", "--max-concurrency", "1", "--random-input-len", "2",
		"--random-output-len", "1", "--save-result", "--result-dir", dir, "--result-filename", "r.json"})
	err = cmd.ExecuteContext(context.Background())
	require.Contains(t, out.String(), "Failed requests:", "the report is printed in any case")
	return log.String(), err
}

func TestBenchServeFailsWhenEveryRequestDoes(t *testing.T) {
	dir := t.TempDir()
	_, err := benchServe(t, failing(t, 3), dir)
	require.ErrorContains(t, err, "all 3 requests failed")
	require.ErrorContains(t, err, "500")
	require.FileExists(t, filepath.Join(dir, "r.json"), "what was asked to be saved is")
}

func TestBenchServeTellsOfSomeFailures(t *testing.T) {
	log, err := benchServe(t, failing(t, 1), t.TempDir())
	require.NoError(t, err)
	require.Contains(t, log, "1 of 3 requests failed")
	log, err = benchServe(t, failing(t, 0), t.TempDir())
	require.NoError(t, err)
	require.Empty(t, log)
}
