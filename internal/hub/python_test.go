package hub

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// python runs a script with the real huggingface_hub; OMNI_PYTHON names an interpreter that has it (python3 when unset).
func python(t *testing.T, script string, env ...string) string {
	if os.Getenv("OMNI_LONG") == "" {
		t.Skip("set OMNI_LONG=1 (and OMNI_PYTHON to a Python with huggingface_hub) to compare with huggingface_hub")
	}
	interpreter := firstOf(os.Getenv("OMNI_PYTHON"), "python3")
	if exec.Command(interpreter, "-c", "import huggingface_hub").Run() != nil {
		t.Skipf("%s has no huggingface_hub: set OMNI_PYTHON to a Python that does", interpreter)
	}
	command := exec.Command(interpreter, "-c", script)
	set := slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasSuffix(s, "=") }) // it takes empty ones for set
	command.Env = append(set, append(env, "HF_HUB_DISABLE_PROGRESS_BARS=1", "HF_HUB_DISABLE_XET=1", "HF_HUB_DISABLE_TELEMETRY=1")...)
	out, err := command.CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.TrimSpace(string(out))
}

func TestHuggingfaceHubReadsTheCacheWeLeave(t *testing.T) {
	f := newFake(t)
	o := f.options()
	dir, err := Resolve(t.Context(), "org/name", o)
	require.NoError(t, err)
	out := python(t, `
import os
from huggingface_hub import scan_cache_dir, snapshot_download, try_to_load_from_cache
print(try_to_load_from_cache("org/name", "model.safetensors"))
print(snapshot_download("org/name", local_files_only=True))
info = scan_cache_dir()
repo, = info.repos
revision, = repo.revisions
print(len(info.warnings), repo.repo_id, repo.repo_type, revision.commit_hash, *sorted(revision.refs), len(revision.files), repo.size_on_disk)
`, "HF_HUB_CACHE="+o.CacheDir)
	size := 0
	for _, name := range []string{"config.json", "tokenizer.json", "model.safetensors"} {
		size += len(f.files[name])
	}
	assert.Equal(t, []string{filepath.Join(dir, "model.safetensors"), dir, "0 org/name model " + commit + " main 3 " + strconv.Itoa(size)}, strings.Split(out, "\n"))
}

func TestWeReadTheCacheHuggingfaceHubLeaves(t *testing.T) {
	f := newFake(t)
	o := f.options()
	want := python(t, `
from huggingface_hub import snapshot_download
print(snapshot_download("org/name", allow_patterns=["*.json", "*.safetensors"]))
`, "HF_HUB_CACHE="+o.CacheDir, "HF_ENDPOINT="+f.hub.URL)
	before := f.count("")
	require.Positive(t, before)
	got, err := Resolve(t.Context(), "org/name", o)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	assert.Equal(t, before, f.count(""), "no request")
}
