package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"omni-engine/internal/server/schema"
	"omni-engine/internal/template"
)

// Renderer renders conversations with a model's chat template, prepared as vLLM prepares them.
type Renderer struct {
	own     *template.Template // the model's, or --chat-template
	special *template.Dict
	format  string // auto, string or openai
	limits  template.Limits
}

// NewRenderer parses a template. special holds bos_token and the like; format is --chat-template-content-format.
func NewRenderer(source string, special map[string]string, format string) (*Renderer, error) {
	t, err := parseTemplate(source)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	r := &Renderer{own: t, special: template.NewDict(), format: format, limits: template.DefaultLimits()}
	for k, v := range special {
		r.special.Set(k, template.String(v))
	}
	return r, nil
}

func parseTemplate(source string) (*template.Template, error) {
	return template.Parse(source, template.WithClock(time.Now))
}

// renderTimeout bounds a template: it is the model's text, or the client's.
const renderTimeout = 10 * time.Second

// Render returns the prompt's text. What a template raises is the client's error.
func (r *Renderer) Render(in ChatInput) (string, error) {
	t := r.own
	if in.Template != "" {
		var err error
		if t, err = parseTemplate(in.Template); err != nil {
			return "", badRequest("%v", err)
		}
	}
	parts := r.format == "openai" || (r.format == "auto" && t.ContentFormat() == template.ContentOpenAI)
	messages := make([]template.Value, 0, len(in.Messages))
	for _, m := range in.Messages {
		v, err := templateMessage(m.(*schema.Dict), parts)
		if err != nil {
			return "", err
		}
		messages = append(messages, v)
	}
	args := template.ChatInput{Messages: t.AdaptDeveloperRole(template.NewList(messages...)), AddGenerationPrompt: in.AddGenerationPrompt,
		ContinueFinal: in.ContinueFinalMessage, SpecialTokens: r.special, Tools: listOrNil(in.Tools), Documents: listOrNil(in.Documents)}
	if in.Kwargs != nil {
		args.Kwargs, _ = toTemplate(in.Kwargs).(*template.Dict)
	}
	ctx, cancel := context.WithTimeout(context.Background(), renderTimeout)
	defer cancel()
	out, err := t.RenderChat(ctx, args, r.limits)
	if err != nil {
		return "", renderError(err)
	}
	return out, nil
}

func renderError(err error) error {
	var raised *template.RaisedError
	if errors.As(err, &raised) {
		return badRequest("%s", raised.Message)
	}
	return badRequest("%v", err)
}

func listOrNil(l []any) template.Value {
	if l == nil {
		return nil
	}
	return toTemplate(l)
}

// templateMessage shapes one message: its content as one text or as parts, and what its role may carry.
func templateMessage(m *schema.Dict, parts bool) (template.Value, error) {
	role := m.Str("role", "")
	out := template.NewDict().Set("role", template.String(role)).Set("content", contentValue(m, parts && role != "tool"))
	if role == "assistant" {
		calls, err := toolCalls(m.List("tool_calls"))
		if err != nil {
			return nil, err
		}
		if calls != nil {
			out.Set("tool_calls", calls)
		}
		for _, k := range []string{"reasoning", "reasoning_content"} {
			if m.Has(k) {
				v, _ := m.Get(k)
				out.Set("reasoning", toTemplate(v)).Set("reasoning_content", toTemplate(v))
				break
			}
		}
	}
	if role == "tool" && m.Has("tool_call_id") {
		out.Set("tool_call_id", template.String(m.Str("tool_call_id", "")))
	}
	if role == "developer" && m.Has("tools") {
		v, _ := m.Get("tools")
		out.Set("tools", toTemplate(v))
	}
	if name, ok := m.Get("name"); ok {
		if s, text := name.(string); text {
			out.Set("name", template.String(s))
		}
	}
	return out, nil
}

func contentValue(m *schema.Dict, parts bool) template.Value {
	list := m.List("content")
	if list == nil {
		text := m.Str("content", "")
		if !parts {
			return template.String(text)
		}
		list = []any{text}
		if !m.Has("content") {
			list = nil
		}
	}
	var texts []string
	var values []template.Value
	for _, p := range list {
		text, _ := p.(string)
		if d, ok := p.(*schema.Dict); ok {
			kind := d.Str("type", "text")
			if text = d.Str(kind, ""); text == "" {
				text = d.Str("text", "")
			}
		}
		texts = append(texts, text)
		values = append(values, template.NewDict().Set("type", template.String("text")).Set("text", template.String(text)))
	}
	if parts {
		return template.NewList(values...)
	}
	return template.String(strings.Join(texts, "\n"))
}

// toolCalls turns the arguments' JSON text into objects, which is what templates expect.
func toolCalls(list []any) (template.Value, error) {
	if list == nil {
		return nil, nil
	}
	var out []template.Value
	for _, c := range list {
		v := toTemplate(c)
		if d, ok := c.(*schema.Dict); ok && d.Dict("function") != nil {
			f, _ := toTemplate(d.Dict("function")).(*template.Dict)
			if args, text := d.Dict("function").Get("arguments"); text {
				s, isText := args.(string)
				if isText && s == "" {
					s = "{}"
				}
				if isText {
					parsed, err := template.FromJSON([]byte(s))
					if err != nil {
						return nil, badRequest("the arguments of a tool call are not valid JSON: %v", err)
					}
					f.Set("arguments", parsed)
				}
			}
			v.(*template.Dict).Set("function", f)
		}
		out = append(out, v)
	}
	return template.NewList(out...), nil
}

// toTemplate converts a checked JSON value.
func toTemplate(v any) template.Value {
	switch x := v.(type) {
	case nil:
		return template.None{}
	case bool:
		return template.Bool(x)
	case int64:
		return template.Int(x)
	case float64:
		return template.Float(x)
	case string:
		return template.String(x)
	case []any:
		items := make([]template.Value, len(x))
		for i, e := range x {
			items[i] = toTemplate(e)
		}
		return template.NewList(items...)
	case *schema.Dict:
		d := template.NewDict()
		for _, k := range x.Keys() {
			e, _ := x.Get(k)
			d.Set(k, toTemplate(e))
		}
		return d
	}
	// An integer beyond 64 bits: through JSON, which keeps it exactly.
	if b, err := json.Marshal(v); err == nil {
		if big, err := template.FromJSON(b); err == nil {
			return big
		}
	}
	return template.None{}
}
