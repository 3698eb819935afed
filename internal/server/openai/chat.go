package openai

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"omni-engine/engine/request"
	"omni-engine/internal/server/schema"
	"omni-engine/metrics/record"
)

// chatCall is one POST /v1/chat/completions.
type chatCall struct {
	*Server
	call
	prompts  []prompt // one
	role     string
	logprobs bool
	top      int
	ids      bool
	labels   labels
	echoed   string  // the last message's content, when echo asks for it
	prompt   *string // return_prompt_text
}

func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	d, err := readBody(r, beforeChat, s.schemas.chat)
	if err != nil {
		writeError(w, err)
		return
	}
	c, err := s.newChat(r, d)
	if err != nil {
		writeError(w, err)
		return
	}
	s.generate(w, r, &c.call, c.prompts, c)
}

func (s *Server) newChat(r *http.Request, d *schema.Dict) (*chatCall, error) {
	if err := first(func() error { return s.model.check(d) }, func() error { return refused(d) }, func() error { return refusedTools(d) }); err != nil {
		return nil, err
	}
	c := &chatCall{Server: s, ids: d.Bool("return_token_ids", false), logprobs: d.Bool("logprobs", false), top: int(d.Int("top_logprobs", 0))}
	c.labels = labels{s.model.Tokenizer, d.Bool("return_tokens_as_token_ids", s.opt.TokensAsIDs)}
	param := "max_tokens"
	if d.Has("max_completion_tokens") {
		param = "max_completion_tokens"
	}
	if d.Has(param) {
		asked := d.Int(param, 0)
		c.asked = &asked
		if err := s.model.checkBudget(param, asked); err != nil {
			return nil, err
		}
	}
	text, err := s.render(d)
	if err != nil {
		return nil, err
	}
	p, err := s.model.tokenise(d, text, d.Bool("add_special_tokens", false))
	if err != nil {
		return nil, err
	}
	c.prompts = []prompt{p}
	if err := s.prepare(r, d, &c.call, "chatcmpl-", c.maxTokens(&s.model.Limits, len(p.ids))); err != nil {
		return nil, err
	}
	if c.logprobs {
		n := c.top
		c.base.Sampling.Logprobs = &n
	}
	if err := s.model.Limits.checkLogprobs(&c.base.Sampling); err != nil {
		return nil, err
	}
	c.base.SkipReadingPrefixCache = c.base.Sampling.PromptLogprobs != nil
	c.answerRole(d, text)
	return c, s.admit(c.base, c.prompts, c.n)
}

func (c *chatCall) answerRole(d *schema.Dict, text string) {
	last, _ := d.List("messages")[len(d.List("messages"))-1].(*schema.Dict)
	c.role = c.opt.ResponseRole
	if !d.Bool("add_generation_prompt", true) {
		c.role = last.Str("role", c.role)
	}
	if d.Bool("echo", false) && last.Str("role", "") == c.role {
		c.echoed = contentText(last)
	}
	if d.Bool("return_prompt_text", false) {
		c.prompt = &text
	}
}

// contentText is a message's text: the content itself or its text parts, joined as the template sees them.
func contentText(m *schema.Dict) string {
	if parts := m.List("content"); parts != nil {
		var texts []string
		for _, p := range parts {
			if d, ok := p.(*schema.Dict); ok {
				texts = append(texts, d.Str("text", ""))
			}
		}
		return strings.Join(texts, "\n")
	}
	return m.Str("content", "")
}

// refusedTools answers as vLLM does when it was started without a tool parser; none is built in yet.
func refusedTools(d *schema.Dict) error {
	if !is(d, "tools") {
		return nil
	}
	switch v, _ := d.Get("tool_choice"); c := v.(type) {
	case string:
		if c == "auto" {
			return badRequest("\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set")
		}
		if c == "required" {
			return badRequest("tool_choice=\"required\" requires --tool-call-parser to be set")
		}
	case *schema.Dict:
		return badRequest("tool_choice=function \"%s\" requires --tool-call-parser to be set", c.Dict("function").Str("name", ""))
	}
	return nil
}

// render turns the conversation into the prompt's text.
func (s *Server) render(d *schema.Dict) (string, error) {
	if len(d.List("messages")) == 0 {
		return "", badRequest("Cannot apply chat template to an empty conversation. Provide at least one message.")
	}
	kwargs := schema.NewDict()
	for _, src := range []*schema.Dict{s.opt.TemplateKwargs, d.Dict("chat_template_kwargs")} {
		if src == nil {
			continue
		}
		for _, k := range src.Keys() {
			v, _ := src.Get(k)
			kwargs.Set(k, v)
		}
	}
	if !s.opt.TrustTemplate && (is(d, "chat_template") || kwargs.Has("chat_template")) {
		return "", badRequest("Chat template is passed with request, but --trust-request-chat-template is not set. Refused request with untrusted chat template.")
	}
	if effort, ok := d.Get("reasoning_effort"); ok && effort != nil {
		kwargs.Set("reasoning_effort", effort)
		if _, set := kwargs.Get("enable_thinking"); !set {
			kwargs.Set("enable_thinking", effort != "none")
		}
	}
	if s.model.Chat == nil {
		return "", badRequest("As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the tokenizer does not define one.")
	}
	if err := textOnly(d.List("messages")); err != nil {
		return "", err
	}
	return s.model.Chat.Render(ChatInput{Messages: d.List("messages"), Tools: d.List("tools"), Documents: d.List("documents"),
		Template: d.Str("chat_template", ""), AddGenerationPrompt: d.Bool("add_generation_prompt", true),
		ContinueFinalMessage: d.Bool("continue_final_message", false), Kwargs: kwargs})
}

// textOnly refuses parts that this model cannot read.
func textOnly(messages []any) error {
	for _, m := range messages {
		d, _ := m.(*schema.Dict)
		if d == nil {
			continue
		}
		for _, part := range d.List("content") {
			p, ok := part.(*schema.Dict)
			if !ok {
				if _, text := part.(string); text {
					continue
				}
				return badRequest("a message's content part must be an object with a type")
			}
			switch kind := p.Str("type", "text"); kind {
			case "text", "refusal", "thinking":
			default:
				return badRequest("content part of type '%s' is not supported: this model reads text", kind)
			}
		}
	}
	return nil
}

type chatMessage struct {
	Role         string    `json:"role"`
	Content      *string   `json:"content"`
	Refusal      *string   `json:"refusal"`
	Annotations  *struct{} `json:"annotations"`
	Audio        *struct{} `json:"audio"`
	FunctionCall *struct{} `json:"function_call"`
	Reasoning    *string   `json:"reasoning"`
}

type chatChoice struct {
	Index         int           `json:"index"`
	Message       chatMessage   `json:"message"`
	Logprobs      *chatLogprobs `json:"logprobs"`
	FinishReason  *string       `json:"finish_reason"`
	StopReason    any           `json:"stop_reason"`
	TokenIDs      []int32       `json:"token_ids"`
	RoutedExperts *string       `json:"routed_experts"`
}

type chatResponse struct {
	ID                string          `json:"id"`
	Object            string          `json:"object"`
	Created           int64           `json:"created"`
	Model             string          `json:"model"`
	Choices           []chatChoice    `json:"choices"`
	ServiceTier       *string         `json:"service_tier"`
	SystemFingerprint *string         `json:"system_fingerprint"`
	Usage             usage           `json:"usage"`
	PromptLogprobs    json.RawMessage `json:"prompt_logprobs"`
	PromptTokenIDs    []int32         `json:"prompt_token_ids"`
	PromptText        *string         `json:"prompt_text"`
	KVTransferParams  *struct{}       `json:"kv_transfer_params"`
	ECTransferParams  *struct{}       `json:"ec_transfer_params"`
	Metrics           any             `json:"metrics"`
}

func (c *chatCall) answer(ctx context.Context, w http.ResponseWriter, sources []*source, jobs []*job) {
	choices, texts, lists := make([]chatChoice, len(jobs)), make([]strings.Builder, len(jobs)), make([]collected, len(jobs))
	var records []*record.Stage
	err := each(ctx, sources, func(p *part) error {
		i := p.job.index
		texts[i].WriteString(p.Text)
		lists[i].add(p)
		if p.Done() {
			choices[i].FinishReason, choices[i].StopReason = p.finishReason(), p.stopReason()
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
	out := chatResponse{ID: c.base.External, Object: "chat.completion", Created: c.created, Model: c.model.Names[0], Choices: choices,
		SystemFingerprint: c.fingerprint, Usage: c.usage(jobs), PromptLogprobs: promptLogprobs(lists[0].prompt), PromptText: c.prompt,
		Metrics: c.metricsOf(&c.call, jobs, records)}
	if c.ids {
		out.PromptTokenIDs = c.prompts[0].ids
	}
	for i := range choices {
		content := c.echoed + texts[i].String()
		choices[i].Index, choices[i].Message = i, chatMessage{Role: c.role, Content: &content}
		choices[i].Logprobs = c.choiceLogprobs(&lists[i])
		if c.ids {
			choices[i].TokenIDs = lists[i].tokens
		}
	}
	writeJSON(w, out)
}

// usage is the common one and what was added to the prefix cache, which vLLM tells in chats only.
func (c *chatCall) usage(jobs []*job) usage {
	u := c.Server.usage(jobs, c.prompts)
	if u.PromptTokensDetails != nil {
		u.PromptTokensDetails.CreatedCacheTokens = &jobs[len(jobs)-1].added
	}
	return u
}

func (c *chatCall) choiceLogprobs(l *collected) *chatLogprobs {
	if !c.logprobs {
		return nil
	}
	out := &chatLogprobs{Content: []chatLogprob{}}
	for i, id := range l.tokens {
		if i < len(l.lps) {
			out.add(c.labels, id, l.lps[i], c.top)
		} else {
			out.add(c.labels, id, nil, c.top)
		}
	}
	return out
}

// chatChunk is one streamed piece. The first carries the role and the prompt's fields, later ones do not have those keys.
type chatChunk struct {
	ID                string  `json:"id"`
	Object            string  `json:"object"`
	Created           int64   `json:"created"`
	Model             string  `json:"model"`
	Choices           []any   `json:"choices"`
	Usage             any     `json:"usage,omitempty"`
	SystemFingerprint *string `json:"system_fingerprint,omitempty"`
	Metrics           any     `json:"metrics,omitempty"`
}

type chatFirst struct {
	chatChunk
	PromptTokenIDs []int32 `json:"prompt_token_ids"`
	PromptText     *string `json:"prompt_text"`
}

type chatDelta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

// bare is a part without tokens, running one with them, last one with the stop reason: vLLM's key sets.
type barePart struct {
	Index        int           `json:"index"`
	Delta        chatDelta     `json:"delta"`
	Logprobs     *chatLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
}

type runningPart struct {
	barePart
	TokenIDs []int32 `json:"token_ids"`
}

type lastPart struct {
	barePart
	StopReason any     `json:"stop_reason"`
	TokenIDs   []int32 `json:"token_ids"`
}

func (c *chatCall) chunk(parts ...any) chatChunk {
	return chatChunk{ID: c.base.External, Object: "chat.completion.chunk", Created: c.created, Model: c.model.Names[0], Choices: parts}
}

func (c *chatCall) stream(ctx context.Context, w http.ResponseWriter, sources []*source, jobs []*job) {
	ev := newEvents(w, c.opt.KeepAlive)
	var records []*record.Stage
	opened := false
	err := c.paced(ctx, sources, jobs, func(p *part) error {
		if !opened {
			opened = true
			if err := c.open(ev, len(jobs)); err != nil {
				return err
			}
		}
		if p.Record != nil {
			records = append(records, p.Record)
		}
		return c.streamPart(ev, p)
	})
	if err == nil && c.includeUsage {
		last := c.chunk()
		last.Choices, last.Usage, last.SystemFingerprint = []any{}, c.usage(jobs).stream(), c.fingerprint
		last.Metrics = c.metricsOf(&c.call, jobs, records)
		err = ev.send(last)
	}
	ev.end(err)
}

// open sends the role chunk of every choice, and the echo.
func (c *chatCall) open(ev *events, choices int) error {
	n := len(c.prompts[0].ids)
	for _, content := range []string{"", c.echoed} {
		for i := range choices {
			delta := chatDelta{Content: &content}
			if content == "" {
				delta.Role = c.role
			}
			chunk := c.chunk(barePart{Index: i, Delta: delta})
			if c.continuousUsage {
				chunk.Usage = chatRunningUsage{streamUsage: streamUsage{PromptTokens: n, TotalTokens: n}}
			}
			var err error
			if content == "" {
				out := chatFirst{chatChunk: chunk, PromptText: c.prompt}
				if c.ids {
					out.PromptTokenIDs = c.prompts[0].ids
				}
				err = ev.send(out)
			} else {
				err = ev.send(chunk)
			}
			if err != nil {
				return err
			}
		}
		if c.echoed == "" {
			break
		}
	}
	return nil
}

func (c *chatCall) streamPart(ev *events, p *part) error {
	if p.Text == "" && len(p.Output.NewTokens) == 0 && p.Output.Finish == request.NotFinished {
		return nil
	}
	text := p.Text
	bare := barePart{Index: p.job.index, Delta: chatDelta{Content: &text}, FinishReason: p.finishReason(),
		Logprobs: c.choiceLogprobs(&collected{tokens: p.Output.NewTokens, lps: p.Logprobs})}
	var tokens []int32
	if c.ids {
		tokens = p.Output.NewTokens
	}
	var chunk chatChunk
	if p.Done() {
		chunk = c.chunk(lastPart{bare, p.stopReason(), tokens})
		if !c.includeUsage {
			chunk.SystemFingerprint = c.fingerprint
		}
	} else {
		chunk = c.chunk(runningPart{bare, tokens})
	}
	if c.continuousUsage {
		n := len(c.prompts[0].ids)
		chunk.Usage = chatRunningUsage{streamUsage: streamUsage{PromptTokens: n, CompletionTokens: p.job.tokens, TotalTokens: n + p.job.tokens}}
	}
	return ev.send(chunk)
}
