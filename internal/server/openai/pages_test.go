package openai

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type handlers []string

func (h *handlers) Observe(handler, _ string, _ int, _, _ int64, _ time.Duration) {
	*h = append(*h, handler)
}

// Pages are to be looked at: as open as /metrics, GET only, below the root path too, and they leave no trace in what they show.
func TestPagesAreServedAndNotCounted(t *testing.T) {
	var log strings.Builder
	var counted handlers
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a page") })
	s := New(Options{APIKeys: []string{"secret"}, AccessLog: true, RootPath: "/proxy", Pages: map[string]http.Handler{"/dashboard": page}},
		&Model{Names: []string{"m"}}, nil, http.NotFoundHandler(), &counted, slog.New(slog.NewTextHandler(&log, nil)))
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/dashboard", http.StatusOK}, {"GET", "/proxy/dashboard", http.StatusOK}, {"GET", "/dashboard/", http.StatusTemporaryRedirect},
		{"POST", "/dashboard", http.StatusMethodNotAllowed}, {"GET", "/dashboard/other", http.StatusNotFound}, {"GET", "/v1/models", http.StatusUnauthorized},
	} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		require.Equal(t, c.status, w.Code, "%s %s", c.method, c.path)
		require.Equal(t, c.status == http.StatusOK, w.Body.String() == "a page")
	}
	require.Equal(t, handlers{"none", "none", "/v1/models"}, counted)
	require.NotContains(t, log.String(), "path=/dashboard ")
	require.Contains(t, log.String(), "path=/v1/models")
}
