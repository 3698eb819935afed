// Package hub finds a model by its hub id: in the cache that huggingface_hub keeps, else by downloading it there, so that
// both programs share one copy. Layout, environment variables and the HTTP protocol are huggingface_hub's.
package hub

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Options says where to look; a zero field is taken from the environment variable named beside it, else has the default.
type Options struct {
	CacheDir string // HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub; ~/.cache/huggingface/hub
	Endpoint string // HF_ENDPOINT
	Token    string // HF_TOKEN, HUGGING_FACE_HUB_TOKEN, the file HF_TOKEN_PATH or HF_HOME/token; none
	Offline  bool   // HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE; only the cache is read

	Refresh    bool                       // ask the hub what the revision is now, even when the cache has a complete model for it
	Progress   func(Progress)             // called one at a time, at most ten times a second for each file and at its end; may be nil
	Retrying   func(error, time.Duration) // called before each wait for another attempt, from several goroutines; may be nil
	Parallel   int                        // files at a time; 4
	Retries    int                        // attempts in a row that bring no byte before giving up; 5
	RetryDelay time.Duration              // before the first retry, doubled each time; 1 s
	Stall      time.Duration              // silence after which a transfer is broken off and taken up again; 30 s
	Client     *http.Client               // its redirect policy is not used; proxies come from the environment
}

// Progress is the state of one file.
type Progress struct {
	File       string
	Done, Size int64 // bytes; Size is -1 when the server does not say
}

func (o Options) withDefaults() Options {
	home := expand(firstOf(os.Getenv("HF_HOME"), defaultHome()))
	o.CacheDir = expand(firstOf(o.CacheDir, os.Getenv("HF_HUB_CACHE"), os.Getenv("HUGGINGFACE_HUB_CACHE"), filepath.Join(home, "hub")))
	o.Endpoint = strings.TrimRight(firstOf(o.Endpoint, os.Getenv("HF_ENDPOINT"), "https://huggingface.co"), "/")
	o.Offline = o.Offline || isTrue(firstOf(os.Getenv("HF_HUB_OFFLINE"), os.Getenv("TRANSFORMERS_OFFLINE")))
	if o.Token == "" && !isTrue(os.Getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		o.Token = envToken(home)
	}
	if o.Parallel <= 0 {
		o.Parallel = 4
	}
	if o.Retries <= 0 {
		o.Retries = 5
	}
	if o.RetryDelay <= 0 {
		o.RetryDelay = time.Second
	}
	if o.Stall <= 0 {
		o.Stall = 30 * time.Second
	}
	if o.Client == nil {
		transport := &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: o.Stall, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute,
		}
		o.Client = &http.Client{Transport: transport}
	}
	return o
}

func envToken(home string) string {
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if token := strings.TrimSpace(os.Getenv(name)); token != "" {
			return token
		}
	}
	raw, err := os.ReadFile(expand(firstOf(os.Getenv("HF_TOKEN_PATH"), filepath.Join(home, "token"))))
	if err != nil { // no file is no token; what then fails says so
		return ""
	}
	return strings.TrimSpace(string(raw))
}

func defaultHome() string {
	return filepath.Join(firstOf(os.Getenv("XDG_CACHE_HOME"), "~/.cache"), "huggingface")
}

func expand(path string) string {
	path = os.ExpandEnv(path)
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

func isTrue(s string) bool {
	switch strings.ToUpper(s) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}
