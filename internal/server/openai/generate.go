package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"omni-engine/engine/request"
	"omni-engine/stages"
)

// Engine is the pipeline that answers requests; *stages.Orchestrator is one.
type Engine interface {
	Submit(ctx context.Context, r *request.Request) (stages.Stream, error)
	SubmitN(ctx context.Context, r *request.Request, n int) (*stages.Group, error)
	CheckAdmission(r *request.Request, n int) error
	Health() error
}

// job is one choice of an answer.
type job struct {
	index  int
	prompt *prompt
	tokens int             // generated so far
	cached int             // prompt tokens from the prefix cache
	added  int             // prompt tokens that the request put into it
	text   strings.Builder // kept for --enable-log-outputs only
}

// source is one prompt's sequences, read as one.
type source struct {
	jobs []*job
	next func(context.Context) (sequence int, u stages.Update, err error)
	seen func(*part) // every update
}

// part is a job's update.
type part struct {
	job *job
	stages.Update
}

// answerer is an endpoint's way to answer: whole, or as events.
type answerer interface {
	answer(ctx context.Context, w http.ResponseWriter, sources []*source, jobs []*job)
	stream(ctx context.Context, w http.ResponseWriter, sources []*source, jobs []*job)
}

// generate submits a checked call and answers it. What was submitted ends when the handler returns.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, c *call, prompts []prompt, a answerer) {
	s.openFront(w, r, c)
	w = c.front.sent
	defer s.closeFront(c, prompts)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	sources, jobs, err := s.submit(ctx, c, prompts)
	if err != nil {
		writeError(w, err)
		return
	}
	if c.body.Bool("stream", false) {
		a.stream(ctx, w, sources, jobs)
		return
	}
	a.answer(ctx, w, sources, jobs)
}

// submit starts every prompt's sequences. When one is refused, those before it end with ctx.
func (s *Server) submit(ctx context.Context, c *call, prompts []prompt) ([]*source, []*job, error) {
	if s.opt.LogRequests {
		s.logRequest(c, prompts, c.body.Bool("stream", false))
	}
	var sources []*source
	var jobs []*job
	for i := range prompts {
		r := c.base
		r.Prompt = prompts[i].ids
		r.Sampling.MaxTokens = c.maxTokens(&s.model.Limits, len(r.Prompt))
		// A client may repeat its ids: the serial number keeps the engine's unique.
		r.ID = request.ID(fmt.Sprintf("%s-%d-%x", r.External, i, s.serial.Add(1)))
		src := &source{}
		for range c.n {
			src.jobs = append(src.jobs, &job{index: len(jobs), prompt: &prompts[i]})
			jobs = append(jobs, src.jobs[len(src.jobs)-1])
		}
		src.seen = func(p *part) { c.see(s, p) }
		if err := s.start(ctx, src, &r, c.n); err != nil {
			if busy := unavailable(err); busy != nil {
				return nil, nil, busy
			}
			return nil, nil, internalError(err)
		}
		c.front.started += c.n
		sources = append(sources, src)
	}
	return sources, jobs, nil
}

func (s *Server) start(ctx context.Context, src *source, r *request.Request, n int) error {
	if n > 1 {
		g, err := s.engine.SubmitN(ctx, r, n)
		if err == nil {
			src.next = g.Next
		}
		return err
	}
	stream, err := s.engine.Submit(ctx, r)
	if err == nil {
		src.next = func(ctx context.Context) (int, stages.Update, error) {
			u, err := stream.Next(ctx)
			return 0, u, err
		}
	}
	return err
}

// admit checks every prompt before any is submitted, so that a refusal is an error and not half an answer. What the engine can
// never run is the client's to change: 400.
func (s *Server) admit(base request.Request, prompts []prompt, n int) error {
	for i := range prompts {
		r := base
		r.Prompt = prompts[i].ids
		if err := s.engine.CheckAdmission(&r, n*len(prompts)); err != nil {
			if busy := unavailable(err); busy != nil {
				return busy
			}
			return badRequest("%v", err)
		}
	}
	return nil
}

// unavailable maps errors that another try, or another server, may not meet; nil for others.
func unavailable(err error) error {
	var full *stages.QueueFullError
	if errors.As(err, &full) {
		return &apiError{http.StatusServiceUnavailable, "Service Unavailable", full.Error(), ""}
	}
	if errors.Is(err, stages.ErrDead) || errors.Is(err, stages.ErrStalled) || errors.Is(err, stages.ErrClosed) {
		return &apiError{http.StatusServiceUnavailable, "Service Unavailable", err.Error(), ""}
	}
	return nil
}

// each calls f with every update of every source, in the order of arrival, until all are done, f fails or ctx ends.
// A single source is read on the caller's goroutine.
func each(ctx context.Context, sources []*source, f func(*part) error) error {
	err := readAll(ctx, sources, f)
	if errors.Is(err, context.Canceled) {
		return cancelled(ctx)
	}
	return err
}

// ErrShutdown is the cause with which the server ends the requests that outlive the drain.
var ErrShutdown = errors.New("the server is shutting down")

// statusClientGone is nginx's: nobody reads the answer, but the access log and the metrics must not show a fault of the server.
const statusClientGone = 499

// cancelled is the answer of a request whose context ended: by the server (503, try another), or because its client has gone.
func cancelled(ctx context.Context) *apiError {
	if errors.Is(context.Cause(ctx), ErrShutdown) {
		return &apiError{http.StatusServiceUnavailable, "Service Unavailable", ErrShutdown.Error(), ""}
	}
	return &apiError{statusClientGone, "Client Closed Request", "the client closed the request", ""}
}

func readAll(ctx context.Context, sources []*source, f func(*part) error) error {
	if len(sources) == 1 {
		return sources[0].drain(ctx, f)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // f is called by one at a time
	g, ctx := errgroup.WithContext(ctx)
	for _, src := range sources {
		g.Go(func() error {
			return src.drain(ctx, func(p *part) error {
				mu.Lock()
				defer mu.Unlock()
				return f(p)
			})
		})
	}
	return g.Wait()
}

func (src *source) drain(ctx context.Context, f func(*part) error) error {
	for open := len(src.jobs); open > 0; {
		i, u, err := src.next(ctx)
		if err != nil {
			return err
		}
		j := src.jobs[i]
		j.tokens += len(u.Output.NewTokens)
		j.cached = max(j.cached, u.Output.NumCached)
		if u.Output.Prefill != nil {
			j.added = u.Output.Prefill.Created
		}
		if u.Output.Finish == request.FinishError {
			why := u.Output.Err
			if why == "" {
				why = "Internal server error"
			}
			return &apiError{http.StatusInternalServerError, "InternalServerError", why, ""}
		}
		p := &part{job: j, Update: u}
		if src.seen != nil {
			src.seen(p)
		}
		if err := f(p); err != nil {
			return err
		}
		if u.Done() {
			open--
		}
	}
	return nil
}

// finishReason is the API's word: null while running.
func (p *part) finishReason() *string {
	if p.Output.Finish == request.NotFinished {
		return nil
	}
	s := p.Output.Finish.String()
	return &s
}

// stopReason is the stop string, the stop token's id, or null.
func (p *part) stopReason() any {
	switch {
	case p.StopText != "":
		return p.StopText
	case p.Output.Finish == request.FinishStop && p.Output.StopToken >= 0:
		return p.Output.StopToken
	case p.Output.Finish == request.FinishRepetition:
		return "repetition_detected"
	}
	return nil
}

// usage is the token count of an answer. Its details appear only when the server is told to give them.
type usage struct {
	PromptTokens            int             `json:"prompt_tokens"`
	TotalTokens             int             `json:"total_tokens"`
	CompletionTokens        int             `json:"completion_tokens"`
	PromptTokensDetails     *promptDetails  `json:"prompt_tokens_details"`
	CompletionTokensDetails *map[string]int `json:"completion_tokens_details"`
}

type promptDetails struct {
	CachedTokens       int  `json:"cached_tokens"`
	CreatedCacheTokens *int `json:"created_cache_tokens"`
	MultimodalTokens   *int `json:"multimodal_tokens"`
}

// streamUsage is usage in a stream: absent details are left out.
type streamUsage struct {
	PromptTokens        int                  `json:"prompt_tokens"`
	TotalTokens         int                  `json:"total_tokens"`
	CompletionTokens    int                  `json:"completion_tokens"`
	PromptTokensDetails *streamPromptDetails `json:"prompt_tokens_details,omitempty"`
}

type streamPromptDetails struct {
	CachedTokens       int  `json:"cached_tokens"`
	CreatedCacheTokens *int `json:"created_cache_tokens,omitempty"`
}

// chatRunningUsage is the usage so far in a chat chunk: there, and only there, vLLM keeps the null.
type chatRunningUsage struct {
	streamUsage
	CompletionTokensDetails *map[string]int `json:"completion_tokens_details"`
}

func (s *Server) usage(jobs []*job, prompts []prompt) usage {
	var u usage
	for i := range prompts {
		u.PromptTokens += len(prompts[i].ids)
	}
	for _, j := range jobs {
		u.CompletionTokens += j.tokens
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	if s.opt.PromptTokensDetails {
		u.PromptTokensDetails = &promptDetails{CachedTokens: jobs[len(jobs)-1].cached}
	}
	return u
}

func (u usage) stream() *streamUsage {
	out := &streamUsage{PromptTokens: u.PromptTokens, TotalTokens: u.TotalTokens, CompletionTokens: u.CompletionTokens}
	if u.PromptTokensDetails != nil {
		out.PromptTokensDetails = &streamPromptDetails{u.PromptTokensDetails.CachedTokens, u.PromptTokensDetails.CreatedCacheTokens}
	}
	return out
}
