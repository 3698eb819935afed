package openai

import (
	"context"
	"encoding/json"
	"net/http"

	"omni-engine/engine/request"
	"omni-engine/internal/server/schema"
	"omni-engine/metrics/record"
	"omni-engine/stages"
)

// completionCall is one POST /v1/completions.
type completionCall struct {
	*Server
	call
	prompts []prompt
	echo    bool
	top     int  // logprobs asked for; -2: none
	ids     bool // return_token_ids
	labels  labels
}

const noLogprobs = -2

func (s *Server) completions(w http.ResponseWriter, r *http.Request) {
	d, err := readBody(r, beforeCompletion, s.schemas.completion)
	if err != nil {
		writeError(w, err)
		return
	}
	c, err := s.newCompletion(r, d)
	if err != nil {
		writeError(w, err)
		return
	}
	s.generate(w, r, &c.call, c.prompts, c)
}

func (s *Server) newCompletion(r *http.Request, d *schema.Dict) (*completionCall, error) {
	if err := first(func() error { return s.model.check(d) }, func() error { return refused(d) }); err != nil {
		return nil, err
	}
	if is(d, "suffix") {
		e := badRequest("suffix is only supported for models with FIM completion rendering")
		e.Param = "suffix"
		return nil, e
	}
	c := &completionCall{Server: s, top: noLogprobs, ids: d.Bool("return_token_ids", false), echo: d.Bool("echo", false)}
	c.labels = labels{s.model.Tokenizer, d.Bool("return_tokens_as_token_ids", s.opt.TokensAsIDs)}
	asked := d.Int("max_tokens", 16)
	c.asked, c.noNew = &asked, c.echo && asked == 0
	if err := s.model.checkBudget("max_tokens", asked); err != nil {
		return nil, err
	}
	var err error
	if c.prompts, err = s.model.completionPrompts(d); err != nil {
		return nil, err
	}
	budget := c.maxTokens(&s.model.Limits, 0)
	for i := range c.prompts {
		budget = min(budget, c.maxTokens(&s.model.Limits, len(c.prompts[i].ids)))
	}
	if err := s.prepare(r, d, &c.call, "cmpl-", budget); err != nil {
		return nil, err
	}
	if d.Has("logprobs") {
		c.top = int(d.Int("logprobs", 0))
		n := c.top
		c.base.Sampling.Logprobs = &n
		if c.echo && c.base.Sampling.PromptLogprobs == nil {
			c.base.Sampling.PromptLogprobs = &n
		}
	}
	if err := s.model.Limits.checkLogprobs(&c.base.Sampling); err != nil {
		return nil, err
	}
	c.base.SkipReadingPrefixCache = c.base.Sampling.PromptLogprobs != nil
	return c, s.admit(c.base, c.prompts, c.n)
}

type completionChoice struct {
	Index          int                 `json:"index"`
	Text           string              `json:"text"`
	Logprobs       *completionLogprobs `json:"logprobs"`
	FinishReason   *string             `json:"finish_reason"`
	StopReason     any                 `json:"stop_reason"`
	TokenIDs       []int32             `json:"token_ids"`
	PromptLogprobs json.RawMessage     `json:"prompt_logprobs"`
	PromptTokenIDs []int32             `json:"prompt_token_ids"`
	RoutedExperts  *string             `json:"routed_experts"`
}

type completionResponse struct {
	ID                string             `json:"id"`
	Object            string             `json:"object"`
	Created           int64              `json:"created"`
	Model             string             `json:"model"`
	Choices           []completionChoice `json:"choices"`
	ServiceTier       *string            `json:"service_tier"`
	SystemFingerprint *string            `json:"system_fingerprint"`
	Usage             usage              `json:"usage"`
	KVTransferParams  *struct{}          `json:"kv_transfer_params"`
	ECTransferParams  *struct{}          `json:"ec_transfer_params"`
	Metrics           any                `json:"metrics"`
}

// text is the prompt as echo shows it.
func (c *completionCall) promptText(p *prompt) string {
	switch {
	case c.ids:
		return ""
	case p.text == "":
		return c.model.Tokenizer.Decode(p.ids, false)
	}
	return p.text
}

func (c *completionCall) answer(ctx context.Context, w http.ResponseWriter, sources []*source, jobs []*job) {
	choices := make([]completionChoice, len(jobs))
	lists := make([]collected, len(jobs))
	var records []*record.Stage
	err := each(ctx, sources, func(p *part) error {
		ch, l := &choices[p.job.index], &lists[p.job.index]
		ch.Text += p.Text
		l.add(p)
		if p.Done() {
			ch.FinishReason, ch.StopReason = p.finishReason(), p.stopReason()
			if p.Record != nil {
				records = append(records, p.Record)
			}
		}
		return nil
	})
	if err != nil {
		writeError(w, err)
		return
	}
	for i, j := range jobs {
		c.complete(&choices[i], j, &lists[i])
	}
	writeJSON(w, completionResponse{ID: c.base.External, Object: "text_completion", Created: c.created, Model: c.model.Names[0],
		Choices: choices, SystemFingerprint: c.fingerprint, Usage: c.usage(jobs, c.prompts), Metrics: c.metricsOf(&c.call, jobs, records)})
}

// collected are a choice's tokens and logprobs.
type collected struct {
	tokens []int32
	lps    []stages.TokenLogprobs
	prompt []stages.TokenLogprobs
}

func (l *collected) add(p *part) {
	l.tokens = append(l.tokens, p.Output.NewTokens...)
	l.lps = append(l.lps, p.Logprobs...)
	if p.PromptLogprobs != nil {
		l.prompt = p.PromptLogprobs
	}
}

func (c *completionCall) complete(ch *completionChoice, j *job, l *collected) {
	ch.Index = j.index
	if c.echo {
		if ch.Text = c.promptText(j.prompt) + ch.Text; c.noNew {
			ch.Text = c.promptText(j.prompt)
		}
	}
	if c.top != noLogprobs {
		ch.Logprobs = newCompletionLogprobs(0)
		c.logprobs(ch.Logprobs, c.echo, j.prompt.ids, l.prompt, l.tokens, l.lps)
	}
	ch.PromptLogprobs = promptLogprobs(l.prompt)
	if c.ids {
		ch.TokenIDs, ch.PromptTokenIDs = l.tokens, j.prompt.ids
	}
}

// logprobs appends the prompt's positions when they are echoed, then the generated ones.
func (c *completionCall) logprobs(out *completionLogprobs, echo bool, prompt []int32, plps []stages.TokenLogprobs, tokens []int32, lps []stages.TokenLogprobs) {
	if echo {
		for i, id := range prompt {
			var lp stages.TokenLogprobs
			if i < len(plps) {
				lp = plps[i]
			}
			out.add(c.labels, id, lp, c.top)
		}
		if c.noNew {
			return
		}
	}
	for i, id := range tokens {
		var lp stages.TokenLogprobs
		if i < len(lps) {
			lp = lps[i]
		}
		out.add(c.labels, id, lp, c.top)
	}
}

// chunk is one streamed piece; the keys that vLLM leaves out are left out.
type completionChunk struct {
	ID                string           `json:"id"`
	Object            string           `json:"object"`
	Created           int64            `json:"created"`
	Model             string           `json:"model"`
	Choices           []completionPart `json:"choices"`
	Usage             *streamUsage     `json:"usage,omitempty"`
	SystemFingerprint *string          `json:"system_fingerprint,omitempty"`
	Metrics           any              `json:"metrics,omitempty"`
}

type completionPart struct {
	Index          int                 `json:"index"`
	Text           string              `json:"text"`
	Logprobs       *completionLogprobs `json:"logprobs"`
	FinishReason   *string             `json:"finish_reason"`
	StopReason     any                 `json:"stop_reason"`
	PromptTokenIDs []int32             `json:"prompt_token_ids"`
	TokenIDs       []int32             `json:"token_ids"`
}

// streamed is what a stream remembers of a choice.
type streamed struct {
	begun  bool // the prompt was echoed or its ids given
	offset int  // of the next token's text
}

func (c *completionCall) stream(ctx context.Context, w http.ResponseWriter, sources []*source, jobs []*job) {
	ev := newEvents(w, c.opt.KeepAlive)
	state := make([]streamed, len(jobs))
	var records []*record.Stage
	err := c.paced(ctx, sources, jobs, func(p *part) error {
		if p.Record != nil {
			records = append(records, p.Record)
		}
		return c.streamPart(ev, p, &state[p.job.index])
	})
	if err == nil && c.includeUsage {
		err = ev.send(completionChunk{ID: c.base.External, Object: "text_completion", Created: c.created, Model: c.model.Names[0],
			Choices: []completionPart{}, Usage: c.usage(jobs, c.prompts).stream(), SystemFingerprint: c.fingerprint, Metrics: c.metricsOf(&c.call, jobs, records)})
	}
	ev.end(err)
}

func (c *completionCall) streamPart(ev *events, p *part, st *streamed) error {
	out := completionPart{Index: p.job.index, Text: p.Text, FinishReason: p.finishReason(), StopReason: p.stopReason()}
	echo := c.echo && !st.begun
	if echo {
		if out.Text = c.promptText(p.job.prompt) + out.Text; c.noNew {
			out.Text = c.promptText(p.job.prompt)
		}
		out.PromptTokenIDs = p.job.prompt.ids
		st.begun = true
	} else {
		if c.ids && !st.begun {
			out.PromptTokenIDs, st.begun = p.job.prompt.ids, true
		}
		if p.Text == "" && len(p.Output.NewTokens) == 0 && p.Output.Finish == request.NotFinished {
			return nil
		}
	}
	if c.top != noLogprobs {
		out.Logprobs = newCompletionLogprobs(st.offset)
		c.logprobs(out.Logprobs, echo, p.job.prompt.ids, p.PromptLogprobs, p.Output.NewTokens, p.Logprobs)
		st.offset = out.Logprobs.next
	}
	if c.ids {
		out.TokenIDs = p.Output.NewTokens
	}
	chunk := completionChunk{ID: c.base.External, Object: "text_completion", Created: c.created, Model: c.model.Names[0], Choices: []completionPart{out}}
	if p.Done() && !c.includeUsage {
		chunk.SystemFingerprint = c.fingerprint
	}
	if c.continuousUsage {
		n := len(p.job.prompt.ids)
		chunk.Usage = &streamUsage{PromptTokens: n, CompletionTokens: p.job.tokens, TotalTokens: n + p.job.tokens}
	}
	return ev.send(chunk)
}
