package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const recording = "../../scheduler/testdata/traces/mixed-0000.json.gz"

func replayed(args ...string) (status int, out, errs string) {
	var o, e bytes.Buffer
	status = run(args, &o, &e)
	return status, o.String(), e.String()
}

// write puts a changed recording into a file.
func write(t *testing.T, change func(trace map[string]any)) string {
	t.Helper()
	f, err := os.Open(recording)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var trace map[string]any
	require.NoError(t, json.NewDecoder(z).Decode(&trace))
	change(trace)
	b, err := json.Marshal(trace)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "changed.json")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	return path
}

func TestARecordingThatAgreesEndsWithZero(t *testing.T) {
	status, out, errs := replayed(recording)
	require.Zero(t, status, out+errs)
	require.Regexp(t, `^1 traces, \d+ steps, 0 mismatches\n$`, out)
	status, out, _ = replayed(write(t, func(map[string]any) {}))
	require.Zero(t, status, "unpacked, unchanged: %s", out)
}

func TestATamperedRecordingIsNamedWithItsFirstDifference(t *testing.T) {
	path := write(t, func(trace map[string]any) {
		sched := trace["steps"].([]any)[7].(map[string]any)["sched"].(map[string]any)
		sched["free"] = sched["free"].(float64) - 1
	})
	status, out, _ := replayed(path, recording)
	require.Equal(t, 1, status)
	require.Regexp(t, `changed\.json: step 7: sched\.free\s+vLLM (-?\d+)\s+ours \d+\n`, out)
	require.Regexp(t, `2 traces, \d+ steps, [1-9]\d* mismatches\n$`, out)
}

func TestWhatCannotBeReplayedIsSaid(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.json.gz")
	require.NoError(t, os.WriteFile(broken, []byte("no gzip"), 0o600))
	for name, c := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"nothing named":           {nil, 2, "usage: replaytrace DIR_OR_FILE..."},
		"no such file":            {[]string{filepath.Join(t.TempDir(), "absent.json")}, 2, "absent.json"},
		"an empty folder":         {[]string{t.TempDir()}, 1, "0 traces, 0 steps, 0 mismatches"},
		"a broken file":           {[]string{broken}, 1, "reading trace " + broken},
		"another format":          {[]string{write(t, func(tr map[string]any) { tr["format"] = 2 })}, 1, "format 2 is not known"},
		"a broken and a good one": {[]string{broken, recording}, 1, "1 mismatches"},
	} {
		status, out, errs := replayed(c.args...)
		require.Equal(t, c.status, status, name)
		require.Contains(t, out+errs, c.says, name)
	}
}
