package openai

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// CORS says which pages of other origins may call the API.
type CORS struct {
	Origins, Methods, Headers []string
	Credentials               bool
}

// answer remembers what was written.
type answer struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(b)
	a.bytes += int64(n)
	return n, err
}

// Unwrap lets the response controller reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// wrap puts the middleware around the routes: recording, panics, request ids, CORS, authorisation, routing.
func (s *Server) wrap(byPath map[string]map[string]http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		a := &answer{ResponseWriter: w}
		path := strings.TrimPrefix(r.URL.Path, strings.TrimSuffix(s.opt.RootPath, "/"))
		methods, known := byPath[path]
		defer s.finish(a, r, path, known, begin)
		a.Header().Set("Vary", "Origin")
		if s.opt.RequestIDHeaders {
			id := r.Header.Get("X-Request-Id")
			if id == "" {
				id = randomHex(16)
			}
			a.Header().Set("X-Request-Id", clean(id))
		}
		if origin := r.Header.Get("Origin"); origin != "" && s.cors(a, r, origin) {
			return
		}
		if !s.authorised(r, path) {
			writeRaw(a, http.StatusUnauthorized, []byte(`{"error":"Unauthorized"}`))
			return
		}
		s.dispatch(a, r, path, methods, byPath)
	})
}

func (s *Server) dispatch(w http.ResponseWriter, r *http.Request, path string, methods map[string]http.HandlerFunc, byPath map[string]map[string]http.HandlerFunc) {
	switch h := methods[r.Method]; {
	case h != nil:
		h(w, r)
	case methods != nil:
		w.Header().Set("Allow", allowed(methods))
		writeDetail(w, http.StatusMethodNotAllowed, "Method Not Allowed")
	case len(path) > 1 && byPath[strings.TrimSuffix(path, "/")] != nil:
		to := *r.URL
		to.Path, to.RawPath = strings.TrimSuffix(to.Path, "/"), ""
		w.Header().Set("Location", to.RequestURI())
		w.WriteHeader(http.StatusTemporaryRedirect)
	default:
		writeDetail(w, http.StatusNotFound, "Not Found")
	}
}

func allowed(methods map[string]http.HandlerFunc) string {
	var names []string
	for m := range methods {
		names = append(names, m)
	}
	slices.Sort(names)
	return join(names)
}

// finish records the request, and answers a panic of a handler: it never takes the server down.
func (s *Server) finish(a *answer, r *http.Request, path string, known bool, begin time.Time) {
	if p := recover(); p != nil {
		if p == http.ErrAbortHandler {
			panic(p)
		}
		s.log.Error("a handler panicked", "path", path, "panic", p, "stack", string(debug.Stack()))
		if a.status == 0 {
			writeError(a, internalError(fmt.Errorf("internal error")))
		}
	}
	if s.opt.Pages[path] != nil {
		return
	}
	took := time.Since(begin)
	if s.recorder != nil {
		handler := path
		if !known {
			handler = "none" // a client must not make label values
		}
		s.recorder.Observe(handler, r.Method, a.status, r.ContentLength, a.bytes, took)
	}
	if s.opt.AccessLog && !slices.Contains(s.opt.QuietEndpoints, path) {
		s.log.Info("request", "client", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "status", a.status, "ms", float64(took.Microseconds())/1000)
	}
}

// authorised guards /v1 and /inference with the API keys, compared in constant time.
func (s *Server) authorised(r *http.Request, path string) bool {
	if len(s.opt.APIKeys) == 0 || r.Method == http.MethodOptions || !(strings.HasPrefix(path, "/v1") || strings.HasPrefix(path, "/inference")) {
		return true
	}
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	given, match := sha256.Sum256([]byte(token)), 0
	for _, k := range s.opt.APIKeys {
		want := sha256.Sum256([]byte(k))
		match |= subtle.ConstantTimeCompare(given[:], want[:])
	}
	return match == 1
}

const preflightVary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers, Access-Control-Request-Private-Network"

// cors answers a preflight (true: done) and marks other answers.
func (s *Server) cors(w http.ResponseWriter, r *http.Request, origin string) bool {
	c, h := s.opt.CORS, w.Header()
	every := slices.Contains(c.Origins, "*")
	allowed := every || slices.Contains(c.Origins, origin)
	if allowed {
		if h.Set("Access-Control-Allow-Origin", origin); every && !c.Credentials {
			h.Set("Access-Control-Allow-Origin", "*")
		}
		if c.Credentials {
			h.Set("Access-Control-Allow-Credentials", "true")
		}
	}
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Vary", preflightVary)
	h.Set("Access-Control-Max-Age", "600")
	methods := join(c.Methods)
	if slices.Contains(c.Methods, "*") {
		methods = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, QUERY"
	}
	h.Set("Access-Control-Allow-Methods", methods)
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" && allowed {
		if slices.Contains(c.Headers, "*") {
			h.Set("Access-Control-Allow-Headers", asked)
		} else {
			h.Set("Access-Control-Allow-Headers", join(c.Headers))
		}
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	if !allowed {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte("Disallowed CORS origin"))
		return true
	}
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write([]byte("OK"))
	return true
}
