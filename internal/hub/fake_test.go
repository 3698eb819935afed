package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake speaks the hub's protocol for one model: the hub itself, and another host that stores large files.
type fake struct {
	t        *testing.T
	hub, cdn *httptest.Server
	files    map[string][]byte
	large    map[string]bool // LFS files: the hub redirects to the other host

	listing   string         // instead of the right one
	status    map[string]int // by path: the hub refuses
	code      string         // X-Error-Code of a refusal
	sha       string         // instead of the right etag of large files
	cutAfter  int            // bytes after which the other host breaks off a transfer; 0: never
	cuts      int            // how often
	stall     time.Duration  // silence before the cut
	noResume  bool           // ranges are ignored
	overloads int            // first answers that are 503

	mu     sync.Mutex
	seen   []string // METHOD path [range]
	tokens map[string]bool
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, files: map[string][]byte{
		"config.json": []byte(`{"model_type":"llama"}`), "tokenizer.json": []byte("{}"), "README.md": []byte("#"),
		"model.safetensors": pattern(300_000), "pytorch_model.bin": pattern(10), "onnx/model.onnx": pattern(10),
	}, large: map[string]bool{"model.safetensors": true}, status: map[string]int{}, tokens: map[string]bool{}}
	f.hub = httptest.NewServer(http.HandlerFunc(f.serveHub))
	f.cdn = httptest.NewServer(http.HandlerFunc(f.serveCDN))
	t.Cleanup(f.hub.Close)
	t.Cleanup(f.cdn.Close)
	return f
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * i >> 3)
	}
	return b
}

func (f *fake) note(r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	line := r.Method + " " + r.URL.Path
	if ranged := r.Header.Get("Range"); ranged != "" {
		line += " " + ranged
	}
	f.seen = append(f.seen, line)
}

// count is how many requests contained the text.
func (f *fake) count(text string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, line := range f.seen {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (f *fake) serveHub(w http.ResponseWriter, r *http.Request) {
	f.note(r)
	f.mu.Lock()
	f.tokens[r.Header.Get("Authorization")] = true
	overloaded := f.overloads > 0
	f.overloads--
	f.mu.Unlock()
	if overloaded {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if status := f.status[r.URL.Path]; status != 0 {
		w.Header().Set("X-Error-Code", f.code)
		w.WriteHeader(status)
		return
	}
	if strings.HasPrefix(r.URL.Path, "/api/models/org/name/revision/") {
		fmt.Fprint(w, f.list())
		return
	}
	if r.URL.Path == "/api/models/org/name/tree/"+commit { // only huggingface_hub asks
		fmt.Fprint(w, f.tree())
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/org/name/resolve/"+commit+"/")
	content, exists := f.files[name]
	if !ok || !exists {
		w.Header().Set("X-Error-Code", "EntryNotFound")
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("X-Repo-Commit", commit)
	if f.large[name] {
		sum := sha256.Sum256(content)
		etag := hex.EncodeToString(sum[:])
		if f.sha != "" {
			etag = f.sha
		}
		w.Header().Set("X-Linked-Etag", `"`+etag+`"`)
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(content)))
		w.Header().Set("Location", f.cdn.URL+"/store/"+name+"?signature=secret")
		w.WriteHeader(http.StatusFound)
		return
	}
	w.Header().Set("ETag", fmt.Sprintf(`W/"%040x"`, len(content)*1000+len(name)))
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	_, _ = w.Write(content)
}

func (f *fake) list() string {
	if f.listing != "" {
		return f.listing
	}
	l := listing{Commit: commit}
	for name, content := range f.files {
		l.Files = append(l.Files, listed{Name: name, Size: int64(len(content))})
	}
	raw, err := json.Marshal(struct {
		ID string `json:"id"`
		listing
	}{"org/name", l})
	assert.NoError(f.t, err)
	return string(raw)
}

func (f *fake) tree() string {
	type entry map[string]any
	entries := []entry{}
	for name, content := range f.files {
		e := entry{"type": "file", "path": name, "size": len(content), "oid": fmt.Sprintf("%040x", len(content)*1000+len(name))}
		if f.large[name] {
			sum := sha256.Sum256(content)
			e["lfs"] = entry{"oid": hex.EncodeToString(sum[:]), "size": len(content), "pointerSize": 130}
		}
		entries = append(entries, e)
	}
	raw, err := json.Marshal(entries)
	assert.NoError(f.t, err)
	return string(raw)
}

func (f *fake) serveCDN(w http.ResponseWriter, r *http.Request) {
	f.note(r)
	assert.Empty(f.t, r.Header.Get("Authorization"), "the token must not reach another host")
	assert.Equal(f.t, "secret", r.URL.Query().Get("signature"))
	content := f.files[strings.TrimPrefix(r.URL.Path, "/store/")]
	from := 0
	if ranged := r.Header.Get("Range"); ranged != "" && !f.noResume {
		_, err := fmt.Sscanf(ranged, "bytes=%d-", &from)
		assert.NoError(f.t, err)
		if from >= len(content) {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(content)-1, len(content)))
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(content)-from))
	if w.Header().Get("Content-Range") != "" {
		w.WriteHeader(http.StatusPartialContent)
	}
	f.mu.Lock()
	cut := f.cutAfter > 0 && f.cuts > 0 && from+f.cutAfter < len(content)
	f.cuts--
	f.mu.Unlock()
	if !cut {
		_, _ = w.Write(content[from:])
		return
	}
	_, _ = w.Write(content[from : from+f.cutAfter])
	w.(http.Flusher).Flush()
	select {
	case <-time.After(f.stall):
	case <-r.Context().Done():
	}
	panic(http.ErrAbortHandler)
}

// options point at the fake and an empty cache; the environment of whoever runs the tests plays no part.
func (f *fake) options() Options {
	for _, name := range []string{"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN",
		"HF_TOKEN_PATH", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_IMPLICIT_TOKEN", "XDG_CACHE_HOME"} {
		f.t.Setenv(name, "")
	}
	f.t.Setenv("HOME", f.t.TempDir())
	return Options{CacheDir: f.t.TempDir(), Endpoint: f.hub.URL, RetryDelay: time.Millisecond}
}
