package scheduler_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/bench/replaytrace/replay"
)

func traces(t *testing.T) []string {
	files, err := replay.Find([]string{"testdata/traces"})
	require.NoError(t, err)
	require.Len(t, files, 70)
	return files
}

func TestReplaysVLLMsRecordings(t *testing.T) {
	steps := 0
	for _, f := range traces(t) {
		tr, err := replay.Read(f)
		require.NoError(t, err)
		res := replay.Run(tr)
		steps += res.Steps
		require.Empty(t, res.First, filepath.Base(f))
	}
	require.Equal(t, 10689, steps)
}

// A comparison that finds nothing must be able to find something.
func TestReplayNoticesATamperedRecording(t *testing.T) {
	for name, tamper := range map[string]func(*replay.Trace){
		"token budget":   func(tr *replay.Trace) { tr.Config.MaxNumBatchedTokens++ },
		"cache size":     func(tr *replay.Trace) { tr.Config.NumBlocks++ },
		"prefix caching": func(tr *replay.Trace) { tr.Config.PrefixCaching = !tr.Config.PrefixCaching },
		"running limit":  func(tr *replay.Trace) { tr.Config.MaxNumSeqs-- },
		"a token":        func(tr *replay.Trace) { tr.Steps[40].Upd.Sampled[0].Tokens[0]++ },
		"a prompt":       func(tr *replay.Trace) { tr.Requests[0].Prompt = tr.Requests[0].Prompt[1:] },
	} {
		tr, err := replay.Read("testdata/traces/mixed-0000.json.gz")
		require.NoError(t, err)
		tamper(tr)
		require.NotEmpty(t, replay.Run(tr).First, name)
	}
}
