// Package openai serves vLLM's OpenAI-compatible HTTP API over one pipeline: completions, chat, tokenising, models, health
// and metrics, with vLLM 0.32's bodies, key sets and errors (testdata/api holds what it answered).
package openai

import (
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"omni-engine/internal/server/schema"
	"omni-engine/metrics/record"
)

// Options are the front end's settings.
type Options struct {
	Version             string // what /version answers
	APIKeys             []string
	CORS                CORS
	RequestIDHeaders    bool
	KeepAlive           time.Duration
	ResponseRole        string
	TrustTemplate       bool
	TemplateKwargs      *schema.Dict
	TokensAsIDs         bool
	PromptTokensDetails bool
	PerRequestMetrics   bool
	ForceUsage          bool
	LoadTracking        bool
	PriorityPolicy      bool // the scheduler uses priorities
	LogRequests         bool
	LogOutputs          bool   // each answer's text, too
	MaxLogLen           int    // most characters of a logged text; -1: all
	Fingerprint         string // system_fingerprint; empty: null
	AccessLog           bool
	QuietEndpoints      []string
	RootPath            string
	Tracer              Tracer                  // nil: tracing is off
	Front               record.FrontSink        // told each generating request's end; nil: nobody
	Pages               map[string]http.Handler // further GET routes (the dashboard's): looked at, so neither counted nor in the access log
}

// Recorder counts HTTP requests for the http_* families.
type Recorder interface {
	Observe(handler, method string, status int, requestBytes, responseBytes int64, took time.Duration)
}

// Server answers HTTP.
type Server struct {
	opt          Options
	model        *Model
	engine       Engine
	schemas      schemas
	fingerprint  *string
	log          *slog.Logger
	metrics      http.Handler
	recorder     Recorder
	serial       atomic.Uint64
	load         atomic.Int64
	warnPriority sync.Once
	warnTrace    sync.Once
}

// New returns the server of a model. metrics serves /metrics; recorder may be nil.
func New(opt Options, m *Model, e Engine, metrics http.Handler, recorder Recorder, log *slog.Logger) *Server {
	s := &Server{opt: opt, model: m, engine: e, schemas: newSchemas(), log: log, metrics: metrics, recorder: recorder}
	if opt.Fingerprint != "" {
		s.fingerprint = &opt.Fingerprint
	}
	return s
}

// route is one path with its methods.
type route struct {
	path    string
	methods map[string]http.HandlerFunc
}

func (s *Server) routes() []route {
	get := func(h http.HandlerFunc) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{http.MethodGet: h}
	}
	post := func(h http.HandlerFunc) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{http.MethodPost: h}
	}
	ping := map[string]http.HandlerFunc{http.MethodGet: s.health, http.MethodPost: s.health}
	all := []route{
		{"/health", get(s.health)}, {"/ping", ping}, {"/version", get(s.version)}, {"/load", get(s.serverLoad)},
		{"/metrics", get(s.metrics.ServeHTTP)},
		{"/v1/models", get(s.models)},
		{"/v1/completions", post(s.counted(s.completions))}, {"/v1/chat/completions", post(s.counted(s.chat))},
		{"/tokenize", post(s.tokenize)}, {"/detokenize", post(s.detokenize)},
	}
	for path, page := range s.opt.Pages {
		all = append(all, route{path, get(page.ServeHTTP)})
	}
	return all
}

// Handler is the whole API with its middleware.
func (s *Server) Handler() http.Handler {
	byPath := map[string]map[string]http.HandlerFunc{}
	for _, r := range s.routes() {
		byPath[r.path] = r.methods
	}
	return s.wrap(byPath)
}

// counted tracks requests in flight for /load.
func (s *Server) counted(h http.HandlerFunc) http.HandlerFunc {
	if !s.opt.LoadTracking {
		return h
	}
	return func(w http.ResponseWriter, r *http.Request) {
		s.load.Add(1)
		defer s.load.Add(-1)
		h(w, r)
	}
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if err := s.engine.Health(); err != nil {
		s.log.Error("unhealthy", "error", err)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]string{"version": s.opt.Version})
}

func (s *Server) serverLoad(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]int64{"server_load": s.load.Load()})
}

type modelPermission struct {
	ID                 string  `json:"id"`
	Object             string  `json:"object"`
	Created            int64   `json:"created"`
	AllowCreateEngine  bool    `json:"allow_create_engine"`
	AllowSampling      bool    `json:"allow_sampling"`
	AllowLogprobs      bool    `json:"allow_logprobs"`
	AllowSearchIndices bool    `json:"allow_search_indices"`
	AllowView          bool    `json:"allow_view"`
	AllowFineTuning    bool    `json:"allow_fine_tuning"`
	Organization       string  `json:"organization"`
	Group              *string `json:"group"`
	IsBlocking         bool    `json:"is_blocking"`
}

type modelCard struct {
	ID          string            `json:"id"`
	Object      string            `json:"object"`
	Created     int64             `json:"created"`
	OwnedBy     string            `json:"owned_by"` // "vllm": routers detect the API by it
	Root        string            `json:"root"`
	Parent      *string           `json:"parent"`
	MaxModelLen int               `json:"max_model_len"`
	Permission  []modelPermission `json:"permission"`
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	now := time.Now().Unix()
	cards := []modelCard{}
	for _, name := range s.model.Names {
		cards = append(cards, modelCard{ID: name, Object: "model", Created: now, OwnedBy: "vllm", Root: s.model.Root,
			MaxModelLen: s.model.Limits.MaxModelLen, Permission: []modelPermission{{ID: "modelperm-" + randomHex(8), Object: "model_permission",
				Created: now, AllowSampling: true, AllowLogprobs: true, AllowView: true, Organization: "*"}}})
	}
	writeJSON(w, map[string]any{"object": "list", "data": cards})
}
