package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The numbers are those of vLLM 0.32 for UsageContext.OPENAI_API_SERVER (vllm/engine/arg_utils.py, get_batch_defaults).
func TestStepSizesFollowTheDevice(t *testing.T) {
	const gib = 1 << 30
	for name, c := range map[string]struct {
		flags        []string
		kind, gpu    string
		memory       int64
		maxLen       int
		tokens, seqs int
	}{
		"CPU":                  {nil, "cpu", "Xeon", 900 * gib, 8192, 512, 128},
		"L4":                   {nil, "cuda", "NVIDIA L4", 22 * gib, 8192, 2048, 256},
		"A100 80GB":            {nil, "cuda", "NVIDIA A100-SXM4-80GB", 80 * gib, 8192, 2048, 256},
		"H100":                 {nil, "cuda", "NVIDIA H100 80GB HBM3", 79 * gib, 8192, 8192, 1024},
		"B200":                 {nil, "cuda", "NVIDIA B200", 178 * gib, 8192, 16384, 1024},
		"tokens are set":       {[]string{"--max-num-batched-tokens", "4096"}, "cuda", "NVIDIA H100", 79 * gib, 8192, 4096, 1024},
		"sequences are set":    {[]string{"--max-num-seqs", "600"}, "cuda", "NVIDIA L4", 22 * gib, 8192, 2048, 600},
		"few short ones":       {[]string{"--max-num-seqs", "4"}, "cuda", "NVIDIA L4", 22 * gib, 128, 512, 4},
		"whole prompts a step": {[]string{"--no-enable-chunked-prefill"}, "cuda", "NVIDIA L4", 22 * gib, 32768, 32768, 256},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, err := load(t, nil, append([]string{"m.gguf"}, c.flags...)...)
			require.NoError(t, err)
			require.NoError(t, s.ForDevice(c.kind, c.gpu, c.memory, c.maxLen))
			require.Equal(t, []int{c.tokens, c.seqs}, []int{s.MaxNumBatchedTokens, s.MaxNumSeqs})
		})
	}
}

// What fits no device is refused at once; what fits some when the device is known.
func TestStepSizesThatDoNotFitTheDeviceAreRefused(t *testing.T) {
	_, _, err := load(t, nil, "m.gguf", "--max-num-seqs", "600", "--device", "cpu")
	require.EqualError(t, err, "max_num_batched_tokens (512) must be greater than or equal to max_num_seqs (600)")
	s, _, err := load(t, nil, "m.gguf", "--max-num-seqs", "600")
	require.NoError(t, err)
	require.EqualError(t, s.ForDevice("cpu", "", 0, 4096), "max_num_batched_tokens (512) must be greater than or equal to max_num_seqs (600)")
	s, _, err = load(t, nil, "m.gguf", "--max-num-batched-tokens", "200")
	require.NoError(t, err)
	require.EqualError(t, s.ForDevice("cuda", "NVIDIA L4", 22<<30, 4096), "max_num_batched_tokens (200) must be greater than or equal to max_num_seqs (256)")
	s, _, err = load(t, nil, "m.gguf", "--no-enable-chunked-prefill")
	require.NoError(t, err)
	require.ErrorContains(t, s.ForDevice("cpu", "", 0, 4096), "is smaller than max_model_len (4096)")
}

// The device that was opened decides, whatever --device said: auto may be either.
func TestPrefillBesideDecodesFollowsTheDevice(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		kind  string
		want  int
	}{
		"CPU": {nil, "cpu", DefaultPrefillBesideDecode}, "reference": {nil, "ref", DefaultPrefillBesideDecode}, "GPU": {nil, "cuda", 0},
		"set on a GPU": {[]string{"--max-prefill-tokens-beside-decode", "64"}, "cuda", 64}, "off on the CPU": {[]string{"--max-prefill-tokens-beside-decode", "0"}, "cpu", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, err := load(t, nil, append([]string{"m.gguf"}, c.flags...)...)
			require.NoError(t, err)
			require.NoError(t, s.ForDevice(c.kind, "", 22<<30, 4096))
			require.Equal(t, c.want, s.PrefillBesideDecode)
		})
	}
}
