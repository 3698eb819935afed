package load

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNumbersThatMeanNothingAreRefused(t *testing.T) {
	good := func() Config {
		return Config{BaseURL: "http://127.0.0.1:0", Model: "m", NumPrompts: 1, InputLen: 2, OutputLen: 1, Burstiness: 1}
	}
	cfg := good()
	require.NoError(t, cfg.complete(t.Context(), nil))
	for want, change := range map[string]func(*Config){
		"shared prefix":       func(c *Config) { c.PrefixLen = -5 },
		"vocabulary":          func(c *Config) { c.VocabSize = -1 },
		"concurrency":         func(c *Config) { c.MaxConcurrency = -1 },
		"warm-ups":            func(c *Config) { c.Warmups = -1 },
		"burstiness":          func(c *Config) { c.Burstiness = math.NaN() },
		"burstiness must":     func(c *Config) { c.Burstiness = -1 },
		"range ratio":         func(c *Config) { c.RangeRatio = math.NaN() },
		"range ratio must":    func(c *Config) { c.RangeRatio = 1 },
		"number of prompts":   func(c *Config) { c.NumPrompts = 0 },
		"lengths":             func(c *Config) { c.InputLen = -1 },
		"unknown backend":     func(c *Config) { c.Backend = "grpc" },
		"their lengths must ": func(c *Config) { c.OutputLen = 0 },
	} {
		cfg := good()
		change(&cfg)
		_, _, err := Run(t.Context(), cfg)
		require.ErrorContains(t, err, want)
	}
}
