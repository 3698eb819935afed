package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

//go:embed assets
var embedded embed.FS

// policy lets the page load from its own server only: no inline script, no outside asset, no frame around it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const (
	defaultList = 50
	longestList = 200
)

// asset is one embedded file.
type asset struct {
	kind, tag string
	data      []byte
}

func assets() map[string]asset {
	kinds := map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
	all := map[string]asset{}
	files, err := embedded.ReadDir("assets")
	if err != nil { // the files are part of the program
		panic(err)
	}
	for _, f := range files {
		data, err := embedded.ReadFile("assets/" + f.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(data)
		path := "/dashboard/" + f.Name()
		if f.Name() == "index.html" {
			path = "/dashboard"
		}
		all[path] = asset{kind: kinds[f.Name()[strings.LastIndexByte(f.Name(), '.'):]], tag: `"` + hex.EncodeToString(sum[:8]) + `"`, data: data}
	}
	return all
}

// Routes returns what GET serves, by path.
func (d *Dashboard) Routes() map[string]http.Handler {
	routes := map[string]http.Handler{
		"/dashboard/state": handle(d.getState), "/dashboard/requests": handle(d.getRequests), "/dashboard/request": handle(d.getRequest),
	}
	for path, f := range d.files {
		routes[path] = handle(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", f.kind)
			w.Header().Set("Cache-Control", "no-cache")
			w.Header().Set("Etag", f.tag)
			if r.Header.Get("If-None-Match") == f.tag {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			_, _ = w.Write(f.data) // the reader went away: nothing to tell it
		})
	}
	return routes
}

// handle adds the headers that every answer has.
func handle(f http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		f(w, r)
	})
}

// getState answers ?window= (seconds, one of [Windows]) and ?since= (milliseconds: the newest sample that the reader has).
func (d *Dashboard) getState(w http.ResponseWriter, r *http.Request) {
	window, err := number(r, "window", int64(Windows()[0]))
	if err != nil || !slices.Contains(Windows(), int(window)) {
		refuse(w, http.StatusBadRequest, "window must be 60, 300 or 900 (seconds)")
		return
	}
	since, err := number(r, "since", 0)
	if err != nil {
		refuse(w, http.StatusBadRequest, "since must be a number (milliseconds since 1970)")
		return
	}
	answer(w, http.StatusOK, d.State(int(window), since))
}

// getRequests answers ?query= and ?limit=.
func (d *Dashboard) getRequests(w http.ResponseWriter, r *http.Request) {
	most, err := number(r, "limit", defaultList)
	if err != nil || most < 1 || most > longestList {
		refuse(w, http.StatusBadRequest, "limit must be between 1 and "+strconv.Itoa(longestList))
		return
	}
	query := r.URL.Query().Get("query")
	if len(query) > 512 {
		refuse(w, http.StatusBadRequest, "query is longer than 512 bytes")
		return
	}
	answer(w, http.StatusOK, d.Requests(query, int(most)))
}

// getRequest answers ?key=.
func (d *Dashboard) getRequest(w http.ResponseWriter, r *http.Request) {
	key, err := number(r, "key", -1)
	if err != nil || key < 0 {
		refuse(w, http.StatusBadRequest, "key must be a number that /dashboard/requests gave")
		return
	}
	v, ok := d.Request(uint64(key))
	if !ok {
		refuse(w, http.StatusNotFound, "this request is no longer kept: only the newest are")
		return
	}
	answer(w, http.StatusOK, v)
}

func number(r *http.Request, name string, absent int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return absent, nil
	}
	return strconv.ParseInt(text, 10, 64)
}

func refuse(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]string{"error": text})
}

func answer(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // every number was checked to be finite
		status, body = http.StatusInternalServerError, []byte(`{"error":"the state does not encode"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
