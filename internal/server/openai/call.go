package openai

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/internal/server/schema"
)

// call is what both generating endpoints keep of a request.
type call struct {
	body            *schema.Dict
	base            request.Request // with External, Sampling, Arrival; Prompt and ID come with each job
	n               int
	created         int64
	includeUsage    bool
	continuousUsage bool
	interval        int    // tokens a streamed chunk
	asked           *int64 // max_tokens of the request; nil: the default
	operation       string // the span's name for the endpoint
	front           front
	noNew           bool // echo with max_tokens 0: only the prompt is returned, one token is still generated
}

// maxTokens is the budget of a prompt.
func (c *call) maxTokens(l *Limits, promptLen int) int {
	if c.noNew {
		return 1
	}
	return l.budget(c.asked, promptLen)
}

// prepare reads what both endpoints share. budget is the clamped max_tokens.
func (s *Server) prepare(r *http.Request, d *schema.Dict, c *call, prefix string, budget int) error {
	p, n, err := s.model.Limits.sampling(d, budget, s.model.Tokenizer)
	if err != nil {
		return err
	}
	rep, err := repetition(d)
	if err != nil {
		return err
	}
	now := clock.WallNow()
	c.body, c.n, c.created = d, n, now.Time().Unix()
	c.base = request.Request{Sampling: p, Arrival: now, ArrivalOrder: float64(now.Time().UnixNano()) / 1e9,
		Priority: int(d.Int("priority", 0)), CacheSalt: d.Str("cache_salt", ""), Repetition: rep,
		External: prefix + requestID(r, d)}
	c.operation = map[string]string{"cmpl-": "text_completion", "chatcmpl-": "chat"}[prefix]
	if !p.IgnoreEOS {
		c.base.EOS = s.model.EOS
	}
	if c.base.Priority != 0 && !s.opt.PriorityPolicy {
		s.warnPriority.Do(func() {
			s.log.Warn("a request names a priority, which the fcfs policy does not use; start with --scheduling-policy priority")
		})
	}
	c.usageOptions(d.Dict("stream_options"), s.opt.ForceUsage)
	c.interval = int(d.Int("stream_interval", 0)) // the server's own interval is kept by the engine
	return nil
}

// usageOptions reads stream_options. A server that is told to force usage gives it in every chunk where the client said nothing.
func (c *call) usageOptions(o *schema.Dict, force bool) {
	if o == nil {
		c.includeUsage, c.continuousUsage = force, force
		return
	}
	c.includeUsage = force || o.Bool("include_usage", false)
	c.continuousUsage = c.includeUsage && o.Bool("continuous_usage_stats", false)
}

func seedText(s *int64) any {
	if s == nil {
		return "none"
	}
	return *s
}

// requestID is the client's X-Request-Id or request_id, or a new one.
func requestID(r *http.Request, d *schema.Dict) string {
	if id := r.Header.Get("X-Request-Id"); id != "" {
		return clean(id)
	}
	if id := d.Str("request_id", ""); id != "" {
		return clean(id)
	}
	return randomHex(8)
}

// clean bounds an id that a client chose: it goes to logs and traces.
func clean(id string) string {
	id = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return -1
		}
		return r
	}, id)
	return id[:min(len(id), 256)]
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return hex.EncodeToString(b)
}

// paced is each, holding updates back until interval tokens came (the first token and the end are never held).
func (c *call) paced(ctx context.Context, sources []*source, jobs []*job, f func(*part) error) error {
	if c.interval <= 1 {
		return each(ctx, sources, f)
	}
	held := make([]*part, len(jobs))
	return each(ctx, sources, func(p *part) error {
		i := p.job.index
		first := held[i] == nil && p.job.tokens == len(p.Output.NewTokens)
		if held[i] != nil {
			p = merge(held[i], p)
		}
		if held[i] = p; !first && !p.Done() && len(p.Output.NewTokens) < c.interval {
			return nil
		}
		held[i] = nil
		return f(p)
	})
}

// merge appends b to a.
func merge(a, b *part) *part {
	out := *b
	out.Text = a.Text + b.Text
	out.Output.NewTokens = append(append([]int32{}, a.Output.NewTokens...), b.Output.NewTokens...)
	out.Logprobs = append(append(out.Logprobs[:0:0], a.Logprobs...), b.Logprobs...)
	if out.PromptLogprobs == nil {
		out.PromptLogprobs = a.PromptLogprobs
	}
	return &out
}
