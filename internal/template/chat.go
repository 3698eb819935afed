package template

import (
	"context"
	"fmt"
	"strings"
)

// ChatInput is what a chat template renders: the arguments of transformers' apply_chat_template.
type ChatInput struct {
	Messages            *List // of *Dict
	Tools               Value // *List of *Dict; nil for none
	Documents           Value // *List of *Dict; nil for none
	AddGenerationPrompt bool
	// ContinueFinal ends the prompt inside the final message, so that the model goes on with it. ContinueField names the part of the
	// message to go on with; empty means "content".
	ContinueFinal bool
	ContinueField string
	Kwargs        *Dict // chat_template_kwargs; may be nil
	SpecialTokens *Dict // bos_token, eos_token, ...; may be nil. Kwargs of the same name win
}

// reasoningFields are the names under which a message carries its reasoning, the preferred one first.
func reasoningFields() [3]string { return [3]string{"reasoning_content", "thinking", "reasoning"} }

// continueTag marks where the final message ends in the rendered text. Its trailing space tells whether the template trims.
const continueTag = "CONTINUE_FINAL_MESSAGE_TAG "

// RenderChat renders a conversation as transformers 5.24's apply_chat_template does: keys of messages whose value is None are dropped;
// reasoning is given under reasoning_content and thinking whatever name it came under; a final message to be continued ends the text.
// Errors are those of Render, and *ContinueFinalError.
func (t *Template) RenderChat(ctx context.Context, in ChatInput, limits Limits) (string, error) {
	messages, err := normalMessages(in.Messages)
	if err != nil {
		return "", err
	}
	final := ""
	if in.ContinueFinal {
		if in.AddGenerationPrompt {
			return "", &ContinueFinalError{"continue_final_message and add_generation_prompt are not compatible. Use " +
				"continue_final_message when you want the model to continue the final message, and add_generation_prompt when you " +
				"want to add a header that will prompt it to start a new assistant message instead."}
		}
		if final, err = t.tagFinal(messages, in.ContinueField); err != nil {
			return "", err
		}
	}
	vars := NewDict()
	for _, d := range []*Dict{in.SpecialTokens, in.Kwargs} {
		if d != nil {
			for k, v := range d.All() {
				vars.Set(k, v)
			}
		}
	}
	vars.Set("messages", &List{messages}).Set("tools", orNone(in.Tools)).Set("documents", orNone(in.Documents))
	vars.Set("add_generation_prompt", Bool(in.AddGenerationPrompt))
	out, err := t.Render(ctx, vars, limits)
	if err != nil || !in.ContinueFinal {
		return out, err
	}
	return cutFinal(out, final)
}

func normalMessages(l *List) ([]Value, error) {
	if l == nil || len(l.items) == 0 {
		return nil, errorf(ValueError, "Cannot apply chat template to an empty conversation. Provide at least one message.")
	}
	out := make([]Value, len(l.items))
	for i, m := range l.items {
		d, ok := m.(*Dict)
		if !ok {
			return nil, typeErrorf("Chat messages should be dicts, dataclasses or pydantic models, but got a value of type %s.", m.typeName())
		}
		out[i] = aliasReasoning(d.without(func(_ string, v Value) bool { return v == (None{}) }))
	}
	return out, nil
}

func aliasReasoning(m *Dict) *Dict {
	for _, name := range reasoningFields() {
		r, ok := m.Get(name)
		if !ok {
			continue
		}
		out := NewDict().Set("thinking", r)
		for k, v := range m.All() {
			out.Set(k, v)
		}
		return out.Set("reasoning_content", r)
	}
	return m
}

// tagFinal puts the tag after the text of the final message, and gives that text.
func (t *Template) tagFinal(messages []Value, field string) (string, error) {
	if field == "" {
		field = "content"
	}
	last := messages[len(messages)-1].(*Dict)
	v, ok := last.Get(field)
	if !ok || v == (None{}) {
		return "", &ContinueFinalError{fmt.Sprintf(
			"continue_final_message is set but the final message has no \"%s\" to continue!", field)}
	}
	fields := []string{field}
	for _, name := range reasoningFields() {
		if name != field {
			continue
		}
		fields = fields[:0]
		for _, name := range reasoningFields() {
			if have, ok := last.Get(name); ok && sameObject(have, v) {
				fields = append(fields, name)
			}
		}
	}
	read := false
	for _, f := range fields {
		read = read || strings.Contains(t.source, f)
	}
	if !read {
		return "", &ContinueFinalError{fmt.Sprintf(
			"continue_final_message is set to \"%s\" but this is not an accepted field in the chat_template", field)}
	}
	tagged, final, err := tagText(v)
	if err != nil {
		return "", err
	}
	last = last.clone()
	for _, f := range fields {
		last.Set(f, tagged)
	}
	messages[len(messages)-1] = last
	return final, nil
}

// tagText gives a copy of content with the tag after its last text, and that text.
func tagText(v Value) (Value, string, error) {
	if s, ok := text(v); ok {
		return String(s + continueTag), s, nil
	}
	parts, ok := v.(*List)
	if !ok {
		return nil, "", typeErrorf("unsupported operand type(s) for +: '%s' and 'str'", v.typeName())
	}
	for i := len(parts.items) - 1; i >= 0; i-- {
		part, ok := parts.items[i].(*Dict)
		if !ok {
			continue
		}
		v, ok := part.Get("text")
		if !ok {
			continue
		}
		s, ok := text(v)
		if !ok {
			return nil, "", typeErrorf("unsupported operand type(s) for +: '%s' and 'str'", v.typeName())
		}
		items := append([]Value(nil), parts.items...)
		items[i] = part.clone().Set("text", String(s+continueTag))
		return &List{items}, s, nil
	}
	return nil, "", &ContinueFinalError{
		"continue_final_message is set but we could not find any text to continue in the final message!"}
}

// cutFinal ends out where the tag stands.
func cutFinal(out, final string) (string, error) {
	tag := strings.TrimSpace(continueTag)
	final = strings.TrimFunc(final, isSpace)
	at := strings.LastIndex(out, tag)
	if at < 0 || !strings.Contains(out, final) {
		return "", &ContinueFinalError{"continue_final_message is set but the final message does not appear in the chat after " +
			"applying the chat template! This can happen if the chat template deletes portions of the final message. Please verify " +
			"the chat template and final message in your chat to ensure they are compatible." +
			"Final message to continue: " + final + "\nRendered chat:\n" + out}
	}
	if strings.HasPrefix(out[at:], continueTag) {
		return out[:at], nil
	}
	return strings.TrimRightFunc(out[:at], isSpace), nil // the template trimmed the message
}
