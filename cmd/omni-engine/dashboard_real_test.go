package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/internal/server/dashboard"
)

func asked(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestDashboardShowsWhatTheServerAnswered(t *testing.T) {
	h := serverOf(t, smollm2(t), "--max-model-len", "512", "--api-key", "secret").handler
	r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{"prompt": "Top secret words", "max_tokens": 5, "ignore_eos": true, "temperature": 0}`))
	r.Header.Set("Authorization", "Bearer secret")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Request-Id", "seen")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())

	require.Equal(t, http.StatusOK, asked(t, h, "/dashboard").Code, "as open as /metrics")
	var s dashboard.State
	body := asked(t, h, "/dashboard/state").Body.Bytes()
	require.NoError(t, json.Unmarshal(body, &s))
	require.Equal(t, []string{"smollm2"}, s.Models)
	core := s.Stages[0].Replicas[0]
	require.Equal(t, 1, core.Recent.Requests)
	require.Equal(t, 4, core.Latency.ITL.N)
	require.EqualValues(t, 5, core.Core.GenerationTokens)
	list := asked(t, h, "/dashboard/requests").Body.Bytes()
	var l dashboard.List
	require.NoError(t, json.Unmarshal(list, &l))
	require.Equal(t, "cmpl-seen", l.Requests[0].ID)
	detail := asked(t, h, "/dashboard/request?key=1").Body.Bytes()
	var lanes struct{ Lanes []map[string]any }
	require.NoError(t, json.Unmarshal(detail, &lanes))
	require.Len(t, lanes.Lanes, 1)
	for _, text := range [][]byte{body, list, detail} {
		require.NotContains(t, string(text), "secret", "no text of a prompt")
	}
}

func TestDashboardMayBeLeftOut(t *testing.T) {
	h := serverOf(t, smollm2(t), "--max-model-len", "512", "--disable-dashboard").handler
	for _, path := range []string{"/dashboard", "/dashboard/state", "/dashboard/main.js"} {
		require.Equal(t, http.StatusNotFound, asked(t, h, path).Code, path)
	}
	require.Equal(t, http.StatusOK, asked(t, h, "/metrics").Code)
}
