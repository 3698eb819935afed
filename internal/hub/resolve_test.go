package hub

import (
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func read(t *testing.T, parts ...string) string {
	raw, err := os.ReadFile(filepath.Join(parts...))
	require.NoError(t, err)
	return string(raw)
}

func assertNoLeftovers(t *testing.T, o Options) {
	leftovers, err := filepath.Glob(filepath.Join(o.CacheDir, "models--org--name", "blobs", "*.incomplete"))
	require.NoError(t, err)
	assert.Empty(t, leftovers)
}

func TestModelIsFetchedIntoTheSharedCacheLayout(t *testing.T) {
	f := newFake(t)
	o := f.options()
	o.Token = "hf_secret"
	var last sync.Map
	o.Progress = func(p Progress) { last.Store(p.File, p) }
	dir, err := Resolve(t.Context(), "org/name", o)
	require.NoError(t, err)

	repo := filepath.Join(o.CacheDir, "models--org--name")
	assert.Equal(t, filepath.Join(repo, "snapshots", commit), dir)
	assert.Equal(t, commit, read(t, repo, "refs", "main"))
	for _, name := range []string{"config.json", "tokenizer.json", "model.safetensors"} {
		assert.Equal(t, string(f.files[name]), read(t, dir, name), name)
		target, err := os.Readlink(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(target, "../../blobs/"), "%s links to %s", name, target)
		p, ok := last.Load(name)
		require.True(t, ok, name)
		assert.Equal(t, Progress{File: name, Done: int64(len(f.files[name])), Size: int64(len(f.files[name]))}, p)
	}
	for _, name := range []string{"README.md", "pytorch_model.bin", "onnx/model.onnx"} {
		assert.NoFileExists(t, filepath.Join(dir, name), "not needed for serving")
	}
	assert.Equal(t, map[string]bool{"Bearer hf_secret": true}, f.tokens, "every request to the hub itself carries the token")
	assertNoLeftovers(t, o)
}

func TestCompleteModelInTheCacheNeedsNoHub(t *testing.T) {
	f := newFake(t)
	o := f.options()
	first, err := Resolve(t.Context(), "org/name", o)
	require.NoError(t, err)
	before := f.count("")
	for _, offline := range []bool{false, true} {
		o.Offline = offline
		again, err := Resolve(t.Context(), "org/name@main", o)
		require.NoError(t, err)
		assert.Equal(t, first, again)
		_, err = Resolve(t.Context(), "org/name@"+commit, o)
		require.NoError(t, err)
	}
	assert.Equal(t, before, f.count(""), "no request")

	o.Offline, o.Refresh = false, true
	_, err = Resolve(t.Context(), "org/name", o)
	require.NoError(t, err)
	assert.Equal(t, before+1, f.count(""), "one listing, no file again")
	f.hub.Close()
	again, err := Resolve(t.Context(), "org/name", o)
	require.NoError(t, err, "an unreachable hub does not keep a cached model from serving")
	assert.Equal(t, first, again)
}

func TestWhatTheCacheLacksIsFetched(t *testing.T) {
	f := newFake(t)
	delete(f.files, "model.safetensors")
	f.files["model-00001-of-00002.safetensors"], f.files["model-00002-of-00002.safetensors"] = pattern(50), pattern(60)
	f.files["model.safetensors.index.json"] = []byte(`{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`)
	o := f.options()
	dir, err := Resolve(t.Context(), "org/name", o)
	require.NoError(t, err)
	for _, lost := range []string{"model-00002-of-00002.safetensors", "config.json"} {
		require.NoError(t, os.Remove(filepath.Join(dir, lost)))
		o.Offline = true
		_, err = Resolve(t.Context(), "org/name", o)
		assert.ErrorIs(t, err, ErrOffline)
		o.Offline = false
		_, err = Resolve(t.Context(), "org/name", o)
		require.NoError(t, err)
		assert.Equal(t, string(f.files[lost]), read(t, dir, lost))
		assert.Equal(t, 1, f.count("GET /org/name/resolve/"+commit+"/"+lost), "its blob was still there: linked, not fetched")
	}
	// A link whose blob somebody deleted counts as absent.
	target, err := filepath.EvalSymlinks(filepath.Join(dir, "model-00001-of-00002.safetensors"))
	require.NoError(t, err)
	require.NoError(t, os.Remove(target))
	_, err = Resolve(t.Context(), "org/name", o)
	require.NoError(t, err)
	assert.Equal(t, string(f.files["model-00001-of-00002.safetensors"]), read(t, dir, "model-00001-of-00002.safetensors"))
}

func TestBrokenTransferContinuesWhereItEnded(t *testing.T) {
	f := newFake(t)
	f.cutAfter, f.cuts = 100_000, 2
	o := f.options()
	dir, err := Resolve(t.Context(), "org/name", o)
	require.NoError(t, err)
	assert.Equal(t, string(f.files["model.safetensors"]), read(t, dir, "model.safetensors"))
	assert.Equal(t, 3, f.count("GET /store/model.safetensors"))
	assert.Equal(t, 1, f.count("GET /store/model.safetensors bytes=100000-"))
	assert.Equal(t, 1, f.count("GET /store/model.safetensors bytes=200000-"))
}

func TestNextRunContinuesWhatThisOneLeft(t *testing.T) {
	f := newFake(t)
	f.cutAfter, f.cuts, f.stall = 100_000, 1, time.Minute
	o := f.options()
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(p Progress) {
		if p.File == "model.safetensors" {
			cancel() // the user's interrupt, in the middle of the file
		}
	}
	_, err := Resolve(ctx, "org/name", o)
	require.ErrorIs(t, err, context.Canceled)
	left, err := filepath.Glob(filepath.Join(o.CacheDir, "models--org--name", "blobs", "*.incomplete"))
	require.NoError(t, err)
	require.Len(t, left, 1)
	size := len(read(t, left[0]))
	require.Positive(t, size)

	o.Progress = nil
	dir, err := Resolve(t.Context(), "org/name", o)
	require.NoError(t, err)
	assert.Equal(t, string(f.files["model.safetensors"]), read(t, dir, "model.safetensors"))
	assert.Equal(t, 1, f.count("GET /store/model.safetensors bytes="), "resumed")
	assertNoLeftovers(t, o)
}

func TestSilentTransferIsTakenUpAgain(t *testing.T) {
	f := newFake(t)
	f.cutAfter, f.cuts, f.stall = 100_000, 1, time.Minute
	o := f.options()
	o.Stall = 50 * time.Millisecond
	dir, err := Resolve(t.Context(), "org/name", o)
	require.NoError(t, err)
	assert.Equal(t, string(f.files["model.safetensors"]), read(t, dir, "model.safetensors"))
	assert.Equal(t, 1, f.count("/store/model.safetensors bytes=100000-"))
}

func TestServerThatDoesNotResumeStartsAgain(t *testing.T) {
	f := newFake(t)
	f.cutAfter, f.cuts, f.noResume = 100_000, 1, true
	o := f.options()
	dir, err := Resolve(t.Context(), "org/name", o)
	require.NoError(t, err)
	assert.Equal(t, string(f.files["model.safetensors"]), read(t, dir, "model.safetensors"))
}

func TestLeftoverOfOtherBytesIsThrownAwayOnce(t *testing.T) {
	for name, size := range map[string]int{"shorter": 1000, "as long": 300_000, "longer": 300_001} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			o := f.options()
			dir, err := Resolve(t.Context(), "org/name", o)
			require.NoError(t, err)
			blob, err := filepath.EvalSymlinks(filepath.Join(dir, "model.safetensors"))
			require.NoError(t, err)
			require.NoError(t, os.Remove(blob))
			require.NoError(t, os.WriteFile(blob+".incomplete", make([]byte, size), 0o600))
			_, err = Resolve(t.Context(), "org/name", o)
			require.NoError(t, err)
			assert.Equal(t, string(f.files["model.safetensors"]), read(t, dir, "model.safetensors"))
			assertNoLeftovers(t, o)
		})
	}
}

func TestFileWithAnotherHashIsRefused(t *testing.T) {
	f := newFake(t)
	f.sha = strings.Repeat("ab", 32)
	o := f.options()
	_, err := Resolve(t.Context(), "org/name", o)
	require.ErrorIs(t, err, ErrCorrupt)
	assert.ErrorContains(t, err, "model.safetensors")
	assert.NoFileExists(t, filepath.Join(o.CacheDir, "models--org--name", "blobs", f.sha))
	assert.NoFileExists(t, filepath.Join(o.CacheDir, "models--org--name", "refs", "main"))
	_, err = Resolve(t.Context(), "org/name", o)
	assert.ErrorIs(t, err, ErrCorrupt, "nothing of it was kept")
}

func TestOverloadedHubIsAskedAgain(t *testing.T) {
	f := newFake(t)
	f.overloads = 3
	o := f.options()
	_, err := Resolve(t.Context(), "org/name", o)
	require.NoError(t, err)

	f.overloads, o.Retries, o.CacheDir = 100, 2, t.TempDir()
	_, err = Resolve(t.Context(), "org/name", o)
	require.ErrorIs(t, err, ErrUnreachable)
	assert.ErrorContains(t, err, "given up after 3 attempts")
	assert.ErrorContains(t, err, "503")
}

func TestRefusalsAreToldInClearWords(t *testing.T) {
	const list = "/api/models/org/name/revision/main"
	for name, c := range map[string]struct {
		status      int
		code, token string
		is          error
		says        string
	}{
		"anonymous":       {401, "RepoNotFound", "", ErrNoAccess, "set HF_TOKEN"},
		"bad token":       {401, "", "x", ErrNoAccess, "not valid"},
		"gated":           {403, "GatedRepo", "x", ErrNoAccess, "accept its terms"},
		"gated, no token": {401, "GatedRepo", "", ErrNoAccess, "accept its terms"},
		"revision":        {404, "RevisionNotFound", "", ErrNotFound, "no such revision"},
		"repo":            {404, "RepoNotFound", "x", ErrNotFound, "check the name"},
		"teapot":          {418, "", "", ErrUnreachable, "418"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.status[list], f.code = c.status, c.code
			o := f.options()
			o.Token = c.token
			_, err := Resolve(t.Context(), "org/name", o)
			require.ErrorIs(t, err, c.is)
			assert.ErrorContains(t, err, c.says)
			assert.Equal(t, 1, f.count(""), "trying again is no use")
		})
	}
}

func TestUnreachableHubIsToldWithItsHost(t *testing.T) {
	f := newFake(t)
	o := f.options()
	o.Retries = 1
	waits := 0
	o.Retrying = func(err error, wait time.Duration) {
		waits++
		assert.ErrorIs(t, err, ErrUnreachable)
		assert.Equal(t, o.RetryDelay, wait)
	}
	f.hub.Close()
	_, err := Resolve(t.Context(), "org/name", o)
	require.ErrorIs(t, err, ErrUnreachable)
	assert.Equal(t, 1, waits, "a wait is told before it begins")
	assert.ErrorContains(t, err, strings.TrimPrefix(f.hub.URL, "http://"))
}

func TestNamesThatLeadElsewhereAreRefused(t *testing.T) {
	for _, name := range []string{"../config.json", "/etc/passwd", "a/../../config.json", "a//b.json", "./config.json", `..\\config.json`, "", "a/", "a\\u0000.json"} {
		f := newFake(t)
		f.listing = `{"sha":"` + commit + `","siblings":[{"rfilename":"` + name + `"}]}`
		_, err := Resolve(t.Context(), "org/name", f.options())
		assert.ErrorContains(t, err, "is refused", "%q", name)
	}
}

func TestAnswersThatAreNotAHubsAreRefused(t *testing.T) {
	for _, answer := range []string{"<html>", `{}`, `{"sha":"../../x"}`, `{"sha":"` + strings.ToUpper(commit) + `"}`} {
		f := newFake(t)
		f.listing = answer
		_, err := Resolve(t.Context(), "org/name", f.options())
		assert.ErrorContains(t, err, "HF_ENDPOINT", answer)
	}
	f := newFake(t)
	f.sha = "../../../escape"
	_, err := Resolve(t.Context(), "org/name", f.options())
	assert.ErrorContains(t, err, "etag")
	o := newFake(t).options()
	o.Endpoint = "ftp://host"
	_, err = Resolve(t.Context(), "org/name", o)
	assert.ErrorContains(t, err, "not an http or https address")
}

func TestGGUFModelResolvesToItsFile(t *testing.T) {
	f := newFake(t)
	f.files = map[string][]byte{"m.Q4_0.gguf": pattern(10), "m.Q8_0-00001-of-00002.gguf": pattern(20), "m.Q8_0-00002-of-00002.gguf": pattern(30),
		"mmproj-m.gguf": pattern(5), "config.json": []byte("{}")}
	o := f.options()
	for id, want := range map[string]string{"org/name:q8_0": "m.Q8_0-00001-of-00002.gguf", "org/name:m.Q4_0.gguf": "m.Q4_0.gguf",
		"org/name@main:mmproj-m.gguf": "mmproj-m.gguf"} {
		path, err := Resolve(t.Context(), id, o)
		require.NoError(t, err, id)
		assert.Equal(t, want, filepath.Base(path))
		assert.Equal(t, string(f.files[want]), read(t, path))
	}
	assert.Equal(t, 1, f.count("GET /org/name/resolve/"+commit+"/m.Q8_0-00002"), "all parts")

	o.CacheDir = t.TempDir()
	_, err := Resolve(t.Context(), "org/name", o)
	assert.ErrorIs(t, err, ErrUnsupported)
	assert.ErrorContains(t, err, "org/name:FILE out of m.Q4_0.gguf, m.Q8_0-00001-of-00002.gguf")
	_, err = Resolve(t.Context(), "org/name:absent.gguf", o)
	assert.ErrorIs(t, err, ErrNotFound)
}

func TestEnvironmentIsHonoured(t *testing.T) {
	f := newFake(t)
	o := f.options()
	t.Setenv("HF_ENDPOINT", f.hub.URL+"/")
	t.Setenv("HF_HOME", filepath.Join(t.TempDir(), "hf"))
	require.NoError(t, os.MkdirAll(os.Getenv("HF_HOME"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("HF_HOME"), "token"), []byte("from-file\n"), 0o600))
	dir, err := Resolve(t.Context(), "org/name", Options{RetryDelay: o.RetryDelay})
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(dir, filepath.Join(os.Getenv("HF_HOME"), "hub")), dir)
	assert.Contains(t, f.tokens, "Bearer from-file")

	t.Setenv("HF_TOKEN", "from-env")
	assert.Equal(t, "from-env", Options{}.withDefaults().Token)
	t.Setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
	assert.Empty(t, Options{}.withDefaults().Token)
	t.Setenv("HF_HUB_CACHE", "$HF_HOME/elsewhere")
	assert.Equal(t, filepath.Join(os.Getenv("HF_HOME"), "elsewhere"), Options{}.withDefaults().CacheDir)
	t.Setenv("HF_HUB_OFFLINE", "yes")
	_, err = Resolve(t.Context(), "org/name", Options{})
	require.ErrorIs(t, err, ErrOffline)
	assert.ErrorContains(t, err, "HF_HUB_OFFLINE")
}

func TestTwoRunsFetchAFileOnce(t *testing.T) {
	f := newFake(t)
	o := f.options()
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			_, err := Resolve(t.Context(), "org/name", o)
			assert.NoError(t, err)
		})
	}
	wait.Wait()
	assert.Equal(t, 1, f.count("GET /store/model.safetensors"))
}

func TestReadOnlyCacheIsTold(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write everywhere")
	}
	f := newFake(t)
	o := f.options()
	require.NoError(t, os.Chmod(o.CacheDir, 0o500))
	_, err := Resolve(t.Context(), "org/name", o)
	assert.ErrorContains(t, err, "set HF_HOME")
}

func TestFailuresToStoreSayWhatToDo(t *testing.T) {
	full := storing("x", &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC})
	assert.ErrorIs(t, full, ErrDiskFull)
	assert.ErrorIs(t, full, syscall.ENOSPC)
	assert.ErrorContains(t, full, "larger disk")
	assert.ErrorContains(t, storing("x", syscall.EROFS), "a folder that is yours")
	other := storing("x", syscall.EIO)
	assert.ErrorIs(t, other, syscall.EIO)
	assert.NotErrorIs(t, other, ErrDiskFull)
}

// Every write to the device fails as on a full disk.
func TestFullDiskEndsATransferWithoutAnotherTry(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	f := newFake(t)
	o := f.options().withDefaults()
	c, err := newClient(o)
	require.NoError(t, err)
	defer o.Client.CloseIdleConnections()
	device, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer device.Close()
	r := &resolver{client: c, cache: openCache(o.CacheDir, "org/name"), id: ID{Repo: "org/name"}, options: o}
	tr := &transfer{resolver: r, commit: commit, name: "model.safetensors", blob: blob{size: 300_000}, path: "/dev/full", file: device, sum: sha256.New()}
	err = c.retry(t.Context(), func() (bool, error) { return tr.attempt(t.Context()) })
	require.ErrorIs(t, err, ErrDiskFull)
	assert.Equal(t, 1, f.count("GET /store/"))
}

func TestModelLargerThanTheDiskIsRefusedBeforeItBegins(t *testing.T) {
	f := newFake(t)
	f.listing = `{"sha":"` + commit + `","siblings":[{"rfilename":"config.json"},{"rfilename":"model.safetensors","size":1152921504606846976}]}`
	_, err := Resolve(t.Context(), "org/name", f.options())
	require.ErrorIs(t, err, ErrDiskFull)
	assert.Zero(t, f.count("resolve"))
}
