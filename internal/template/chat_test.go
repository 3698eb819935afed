package template

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const plainChat = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"

func renderChat(t *testing.T, src, messages string, change func(*ChatInput)) (string, error) {
	tmpl, err := Parse(src, WithClock(corpusClock))
	require.NoError(t, err)
	in := ChatInput{Messages: mustJSON(t, []byte(messages)).(*List)}
	if change != nil {
		change(&in)
	}
	return tmpl.RenderChat(context.Background(), in, Limits{})
}

func TestChatVariablesReachTheTemplate(t *testing.T) {
	out, err := renderChat(t, "{{ bos_token }}{{ eos_token }}{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ enable_thinking }}{{ other is defined }}",
		`[{"role":"user","content":"x"}]`, func(in *ChatInput) {
			in.SpecialTokens = NewDict().Set("bos_token", String("<s>")).Set("eos_token", String("</s>"))
			in.Kwargs = NewDict().Set("enable_thinking", Bool(false)).Set("eos_token", String("<eos>"))
			in.AddGenerationPrompt = true
		})
	require.NoError(t, err)
	assert.Equal(t, "<s><eos>TrueTrueTrueFalseFalse", out)
}

func TestNoneIsDroppedFromMessagesOnly(t *testing.T) {
	out, err := renderChat(t, "{{ messages[0] }}", `[{"role":"user","content":null,"tool_calls":[{"id":null}],"name":null}]`, nil)
	require.NoError(t, err)
	assert.Equal(t, "{'role': 'user', 'tool_calls': [{'id': None}]}", out)
}

func TestReasoningIsGivenUnderBothNames(t *testing.T) {
	for message, want := range map[string]string{
		`{"role":"assistant","reasoning_content":"r"}`:                `{'thinking': 'r', 'role': 'assistant', 'reasoning_content': 'r'}`,
		`{"role":"assistant","reasoning":"r"}`:                        `{'thinking': 'r', 'role': 'assistant', 'reasoning': 'r', 'reasoning_content': 'r'}`,
		`{"role":"assistant","thinking":"t"}`:                         `{'thinking': 't', 'role': 'assistant', 'reasoning_content': 't'}`,
		`{"role":"assistant","thinking":"t","reasoning_content":"r"}`: `{'thinking': 't', 'role': 'assistant', 'reasoning_content': 'r'}`,
		`{"role":"assistant","reasoning_content":null}`:               `{'role': 'assistant'}`,
	} {
		out, err := renderChat(t, "{{ messages[0] }}", "["+message+"]", nil)
		require.NoError(t, err)
		assert.Equal(t, want, out, message)
	}
}

func TestContinueFinalEndsInsideTheFinalMessage(t *testing.T) {
	trimmed := "{% for m in messages %}<{{ m.role }}>{{ m.content|trim }}</{{ m.role }}>{% endfor %}"
	parts := "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}"
	reasoning := "{% for m in messages %}({{ m.thinking }}){{ m.content }}{% endfor %}"
	for name, c := range map[string]struct{ src, messages, field, want string }{
		"text":       {plainChat, `[{"role":"user","content":"a"},{"role":"assistant","content":"The sky is "}]`, "", "<user>a</user><assistant>The sky is "},
		"trimmed":    {trimmed, `[{"role":"user","content":"a"},{"role":"assistant","content":"The sky is "}]`, "", "<user>a</user><assistant>The sky is"},
		"parts":      {parts, `[{"role":"user","content":[{"text":"a"},{"text":"b"},{"type":"image"}]}]`, "", "[a][b"},
		"repeated":   {plainChat, `[{"role":"user","content":"x"},{"role":"assistant","content":"x"}]`, "", "<user>x</user><assistant>x"},
		"reasoning":  {reasoning, `[{"role":"assistant","content":"c","reasoning":"so "}]`, "reasoning_content", "(so "},
		"empty text": {plainChat, `[{"role":"assistant","content":""}]`, "", "<assistant>"},
	} {
		out, err := renderChat(t, c.src, c.messages, func(in *ChatInput) { in.ContinueFinal, in.ContinueField = true, c.field })
		require.NoError(t, err, name)
		assert.Equal(t, c.want, out, name)
	}
}

func TestContinueFinalIsRefusedWhereItCannotBe(t *testing.T) {
	for name, c := range map[string]struct{ src, messages, want string }{
		"dropped by the template": {"{{ messages[0].content }}", `[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`, "does not appear in the chat"},
		"nothing to continue":     {plainChat, `[{"role":"assistant","tool_calls":[]}]`, `has no "content" to continue`},
		"no text among the parts": {plainChat, `[{"role":"assistant","content":[{"type":"image"}]}]`, "could not find any text"},
		"a field it never reads":  {"{{ messages[0].role }}", `[{"role":"assistant","content":"b"}]`, "not an accepted field"},
	} {
		_, err := renderChat(t, c.src, c.messages, func(in *ChatInput) { in.ContinueFinal = true })
		var refused *ContinueFinalError
		if assert.ErrorAs(t, err, &refused, name) {
			assert.Contains(t, refused.Message, c.want, name)
		}
	}
	_, err := renderChat(t, plainChat, `[{"role":"user","content":"a"}]`, func(in *ChatInput) { in.ContinueFinal, in.AddGenerationPrompt = true, true })
	assert.ErrorContains(t, err, "not compatible")
}

func TestContinueFinalLeavesTheInputAlone(t *testing.T) {
	tmpl, err := Parse(plainChat)
	require.NoError(t, err)
	in := ChatInput{Messages: mustJSON(t, []byte(`[{"role":"assistant","content":"b"}]`)).(*List), ContinueFinal: true}
	for range 2 {
		out, err := tmpl.RenderChat(context.Background(), in, Limits{})
		require.NoError(t, err)
		assert.Equal(t, "<assistant>b", out)
	}
}

func TestConversationsThatAreNoneAreRefused(t *testing.T) {
	for _, messages := range []string{`[]`, `["text"]`, `[[]]`} {
		_, err := renderChat(t, plainChat, messages, nil)
		assert.Error(t, err, messages)
	}
}

func TestOneTemplateServesManyRenderingsAtOnce(t *testing.T) {
	tmpl, err := Parse("{% macro show(x) %}{{ x }}{% endmacro %}{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}" +
		"{{ show(m.content) }}{{ loop.index }}{% endfor %}{{ ns.n }}")
	require.NoError(t, err)
	in := ChatInput{Messages: mustJSON(t, []byte(`[{"role":"user","content":"a"},{"role":"user","content":"b"}]`)).(*List)}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				out, err := tmpl.RenderChat(context.Background(), in, Limits{})
				assert.NoError(t, err)
				assert.Equal(t, "a1b22", out)
			}
		})
	}
	wg.Wait()
}
