package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/internal/config"
)

func TestUnreadableCertificateIsToldBeforeTheModelIsOpened(t *testing.T) {
	cfg := config.Default()
	cfg.Model, cfg.Port = filepath.Join(t.TempDir(), "absent.gguf"), 0
	cfg.SSLCertFile, cfg.SSLKeyFile = filepath.Join(t.TempDir(), "c.pem"), filepath.Join(t.TempDir(), "k.pem")
	require.ErrorContains(t, serve(t.Context(), &cfg, io.Discard), "--ssl-certfile")
}

// waiting is a server whose one request ends only with its context, and a channel that tells the request's end.
func waiting(t *testing.T) (*http.Server, *app, chan struct{}) {
	t.Helper()
	a := &app{}
	a.requests, a.abort = context.WithCancel(context.Background())
	begun, ended := make(chan struct{}), make(chan struct{})
	server := &http.Server{BaseContext: func(net.Listener) context.Context { return a.requests }, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(ended)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(l) }()
	go func() {
		if resp, err := http.Get("http://" + l.Addr().String()); err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-begun
	return server, a, ended
}

func TestSecondSignalEndsTheDrain(t *testing.T) {
	server, a, ended := waiting(t)
	again, signal := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- shutdown(again, server, a, time.Hour, slog.New(slog.DiscardHandler)) }()
	select {
	case <-ended:
		t.Fatal("the request ended before the second signal")
	case <-time.After(50 * time.Millisecond):
	}
	signal()
	<-ended
	require.NoError(t, <-done)
}

func TestRequestsEndWithTheDrainTime(t *testing.T) {
	server, a, ended := waiting(t)
	require.NoError(t, shutdown(t.Context(), server, a, 20*time.Millisecond, slog.New(slog.DiscardHandler)))
	<-ended
}

func TestHealthCommandAsksAServer(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.WriteHeader(status)
	}))
	defer server.Close()
	ask := func(url string) error {
		cmd := root()
		cmd.SetArgs([]string{"health", "--url", url})
		return cmd.ExecuteContext(t.Context())
	}
	require.NoError(t, ask(server.URL))
	require.NoError(t, ask(server.URL+"/"))
	status = http.StatusServiceUnavailable
	require.ErrorContains(t, ask(server.URL), "503")
}

func TestErrorsKeepTheirWords(t *testing.T) {
	run := func(args ...string) string {
		cmd := root()
		cmd.SetArgs(args)
		err := cmd.ExecuteContext(t.Context())
		require.Error(t, err)
		return explain(err)
	}
	require.Equal(t, "the configuration has errors:\n  --port must be between 0 and 65535, got -1\n  --max-num-seqs must be at least 1, got 0",
		run("serve", "--port", "-1", "--max-num-seqs", "0"))
	require.Equal(t, "--port must be between 0 and 65535, got -1", run("serve", "--port", "-1"))
	require.Contains(t, run("serve", "--tensor-parallel-size", "2"), "does not support")
	deep := fmt.Errorf("model a/b: %w", fmt.Errorf("%w at host: %w", errors.New("hub not reached"), errors.New("refused")))
	require.Equal(t, "model a/b: hub not reached at host: refused", explain(deep))
	joined := fmt.Errorf("model a/b: %w", errors.Join(errors.New("one"), errors.New("two")))
	require.Equal(t, "model a/b: one\ntwo", explain(joined))
}
