package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// build makes a folder as scripts/bench-peers.sh does, with shell scripts for programs; each appends its arguments to a file.
func build(t *testing.T, programs map[string]string) (folder, asked string) {
	folder = t.TempDir()
	asked = filepath.Join(folder, "asked")
	require.NoError(t, os.Mkdir(filepath.Join(folder, "bin"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "facts.tsv"), []byte("name\tllama.cpp\nversion\tb11434\nvpdpbusd\t1191\n"), 0o644))
	for name, body := range programs {
		script := "#!/bin/sh\necho \"$0 $*\" >>" + asked + "\n" + body
		require.NoError(t, os.WriteFile(filepath.Join(folder, "bin", name), []byte(script), 0o755))
	}
	return folder, asked
}

func TestPeerGivesItsBetterSetting(t *testing.T) {
	folder, asked := build(t, map[string]string{
		"llama-bench": `echo '[{"n_prompt":512,"flash_attn":false,"avg_ts":279.5},{"n_prompt":512,"flash_attn":true,"avg_ts":140.25}]'`,
		"llama-batched-bench": `echo 'some log'
case "$*" in *"-fa on"*) r=165.5 ;; *) r=184.25 ;; esac
echo "{\"n_kv_max\": 3088, \"pp\": 128, \"tg\": 64, \"pl\": 16, \"speed_pp\": 270.0, \"speed_tg\": $r, \"speed\": 200.0}"`,
	})
	l, err := openLlama(folder, "m.gguf", 2, true)
	require.NoError(t, err)
	v, err := l.prefill(t.Context(), 512)
	require.NoError(t, err)
	require.Equal(t, 279.5, v)
	for range 2 {
		v, err = l.parallel(t.Context(), 16, 128, 64)
		require.NoError(t, err)
		require.Equal(t, 184.25, v)
	}
	raw, err := os.ReadFile(asked)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(raw), "-fa on"), "the worse setting is compared once in the short form")
	require.Equal(t, 2, strings.Count(string(raw), "-fa off"))
	require.Contains(t, string(raw), "-t 2")
	require.Contains(t, l.facts(), [2]string{"vpdpbusd", "1191"})
	require.Equal(t, "off", l.attention)
}

func TestPeerThatPrintsNoRateIsAnError(t *testing.T) {
	folder, _ := build(t, map[string]string{"llama-bench": "echo '[]'", "llama-batched-bench": "echo '{\"speed_tg\": 0}'"})
	l, err := openLlama(folder, "m.gguf", 2, false)
	require.NoError(t, err)
	_, err = l.decode(t.Context(), 128, 64)
	require.ErrorContains(t, err, "no rate")
	_, err = l.parallel(t.Context(), 2, 8, 8)
	require.ErrorContains(t, err, "no rate")
	_, err = openLlama(t.TempDir(), "m.gguf", 2, false)
	require.ErrorContains(t, err, "bench-peers.sh")
}

func TestOurBinaryIsAskedForOneRound(t *testing.T) {
	folder, asked := build(t, map[string]string{"omni-engine": `case "$1" in
version) echo "omni-engine v1" ;;
*) echo '{"level":"avx2","prefill_tokens_per_second":[900.5],"decode_tokens_per_second":[200.25]}' ;;
esac`})
	o, err := openOmni(t.Context(), filepath.Join(folder, "bin", "omni-engine"), "m.gguf", "avx2", 2)
	require.NoError(t, err)
	p, err := o.prefill(t.Context(), 512)
	require.NoError(t, err)
	d, err := o.parallel(t.Context(), 16, 128, 64)
	require.NoError(t, err)
	require.Equal(t, []float64{900.5, 200.25}, []float64{p, d})
	raw, err := os.ReadFile(asked)
	require.NoError(t, err)
	require.Contains(t, string(raw), "bench engine m.gguf --prompt 128 --gen 64 --batch 16 --rounds 1 --threads 2 --json --cpu-level avx2")
	require.Contains(t, o.facts(), [2]string{"level", "avx2"})
}
