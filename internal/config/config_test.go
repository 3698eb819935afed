package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func load(t *testing.T, env map[string]string, args ...string) (*Serve, *Loader, error) {
	t.Helper()
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	l := NewLoader()
	l.Register(fs)
	if err := fs.Parse(args); err != nil {
		return nil, l, err
	}
	s, err := l.Load(fs, fs.Args(), func(k string) string { return env[k] })
	return s, l, err
}

func file(t *testing.T, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(p, []byte(text), 0o600))
	return p
}

func TestFlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	f := file(t, "threads: 3\ninput_wait_timeout: 7\nport: 1\napi-key: [a, b]\n")
	env := map[string]string{"OMNI_THREADS": "2", "VLLM_OMNI_INPUT_WAIT_TIMEOUT_S": "9"}
	s, l, err := load(t, env, "m.gguf", "--config", f, "--input_wait_timeout", "11")
	require.NoError(t, err)
	require.Equal(t, "m.gguf", s.Model)
	require.Equal(t, 11.0, s.InputWaitTimeout)
	require.Equal(t, 2, s.Threads)
	require.Equal(t, 1, s.Port)
	require.Equal(t, []string{"a", "b"}, s.APIKeys)
	var b strings.Builder
	require.NoError(t, l.Print(&b))
	require.Regexp(t, `input-wait-timeout: +11 +# flag`, b.String())
	require.Regexp(t, `threads: +2 +# environment`, b.String())
	require.Regexp(t, `port: +1 +# file`, b.String())
	require.Regexp(t, `max-num-seqs: +128 +# default`, b.String())
	require.NotContains(t, b.String(), "a,b", "keys are not printed")
}

func TestEveryErrorIsReportedAtOnce(t *testing.T) {
	_, _, err := load(t, map[string]string{"VLLM_CPU_KVCACHE_SPACE": "4"}, "--log-stats", "--no-log-stats", "--block-size", "17",
		"--input-wait-timeout", "-1", "--kv-cache-memory-bytes", "1G", "--max-num-batched-tokens", "8")
	require.Error(t, err)
	for _, want := range []string{"--log-stats", "--block-size", "--input-wait-timeout", "--kv-cache-memory-bytes", "max_num_seqs"} {
		require.ErrorContains(t, err, want)
	}
}

func TestUnsupportedVLLMFlagSaysSo(t *testing.T) {
	require.ErrorContains(t, Unknown("tensor-parallel-size"), "does not support")
	require.ErrorContains(t, Unknown("no-enable-lora"), "does not support")
	require.ErrorContains(t, Unknown("frobnicate"), "unknown option")
	_, _, err := load(t, nil, "--config", file(t, "tensor_parallel_size: 2\n"))
	require.ErrorContains(t, err, "does not support")
	for _, o := range options(&Serve{}) {
		require.NotContains(t, vllmFlags(), o.name)
	}
}

func TestHumanReadableNumbers(t *testing.T) {
	for in, want := range map[string]int64{"1k": 1000, "1K": 1024, "25.6k": 25600, "4096": 4096, "2M": 2 << 20, "1g": 1e9, "0": 0} {
		n, err := parseHuman(in)
		require.NoError(t, err, in)
		require.Equal(t, want, n, in)
	}
	for _, in := range []string{"", "k", "-1", "1.5", "1.5K", "x", "9999999999999999999", "99999999999T", "NaNk"} {
		_, err := parseHuman(in)
		require.Error(t, err, in)
	}
}

func TestNegatedFlags(t *testing.T) {
	s, _, err := load(t, nil, "--no-enable-prefix-caching", "--shutdown-timeout", "1.5", "--allowed-origins", `["*"]`)
	require.NoError(t, err)
	require.False(t, s.PrefixCaching)
	require.Equal(t, 1500*time.Millisecond, s.ShutdownTimeout)
	require.Equal(t, []string{"*"}, s.AllowedOrigins)
	s, _, err = load(t, nil, "--enable-prefix-caching=false")
	require.NoError(t, err)
	require.False(t, s.PrefixCaching)
}

func FuzzHumanNumbersNeverOverflow(f *testing.F) {
	f.Add("1k")
	f.Add("9223372036854775807K")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseHuman(s); err == nil {
			require.GreaterOrEqual(t, n, int64(0))
		}
	})
}
