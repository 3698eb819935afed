package main

import (
	"context"
	"log/slog"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"omni-engine/internal/config"
)

// realServer is the whole server on the chat model's GGUF file, without its socket.
func realServer(t *testing.T, flags ...string) *app {
	t.Helper()
	return serverOf(t, smollm2(t), flags...)
}

func serverOf(t *testing.T, model string, flags ...string) *app {
	t.Helper()
	loader, fs := config.NewLoader(), pflag.NewFlagSet("serve", pflag.ContinueOnError)
	loader.Register(fs)
	require.NoError(t, fs.Parse(append([]string{"--served-model-name", "smollm2"}, flags...)))
	cfg, err := loader.Load(fs, []string{model}, func(string) string { return "" })
	require.NoError(t, err)
	a, err := newApp(context.Background(), cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.close(context.Background())) })
	return a
}
