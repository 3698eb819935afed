package main

import (
	"context"
	"log/slog"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"omni-engine/internal/config"
)

// realServer is the whole server on the chat model, without its socket.
func realServer(t *testing.T, flags ...string) *app {
	t.Helper()
	loader, fs := config.NewLoader(), pflag.NewFlagSet("serve", pflag.ContinueOnError)
	loader.Register(fs)
	require.NoError(t, fs.Parse(flags))
	cfg, err := loader.Load(fs, []string{smollm2(t)}, func(string) string { return "" })
	require.NoError(t, err)
	a, err := newApp(context.Background(), cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.close(context.Background())) })
	return a
}
