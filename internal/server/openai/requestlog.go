package openai

import (
	"strings"
	"unicode/utf8"

	"omni-engine/engine/request"
	"omni-engine/metrics/record"
)

// logRequest writes what a client asked for: its parameters, and the prompts themselves at DEBUG, as vLLM does.
func (s *Server) logRequest(c *call, prompts []prompt, stream bool) {
	p := &c.base.Sampling
	s.log.Info("received request", "id", c.base.External, "max_tokens", p.MaxTokens, "temperature", p.Temperature, "top_p", p.TopP,
		"top_k", p.TopK, "seed", seedText(p.Seed), "n", c.n, "stream", stream, "trace_id", traceText(c.front.trace))
	for i := range prompts {
		ids := prompts[i].ids
		if s.opt.MaxLogLen >= 0 {
			ids = ids[:min(len(ids), s.opt.MaxLogLen)]
		}
		s.log.Debug("request details", "id", c.base.External, "prompt", i, "text", s.logged(prompts[i].text), "token_ids", ids)
	}
}

func traceText(t record.TraceContext) string {
	if id := t.ID(); id != "" {
		return id
	}
	return "none"
}

// logOutput collects an answer's text and writes it when the answer ends.
func (s *Server) logOutput(c *call, p *part) {
	j := p.job
	j.text.WriteString(p.Text)
	if p.Output.Finish == request.NotFinished {
		return
	}
	s.log.Info("generated response", "id", c.base.External, "index", j.index, "output", s.logged(j.text.String()), "tokens", j.tokens,
		"finish_reason", p.Output.Finish.String(), "trace_id", traceText(c.front.trace))
	j.text = strings.Builder{}
}

// logged bounds a text to --max-log-len characters.
func (s *Server) logged(text string) string {
	most := s.opt.MaxLogLen
	if most < 0 || len(text) <= most {
		return text
	}
	end := 0
	for ; most > 0 && end < len(text); most-- {
		_, n := utf8.DecodeRuneInString(text[end:])
		end += n
	}
	return text[:end]
}
