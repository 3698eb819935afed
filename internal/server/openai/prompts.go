package openai

import (
	"fmt"
	"unicode/utf8"

	"omni-engine/internal/server/schema"
)

// prompt is one tokenised prompt.
type prompt struct {
	text string // empty when the client sent token ids
	ids  []int32
}

// maxPrompts is vLLM's VLLM_MAX_COMPLETION_PROMPTS.
const maxPrompts = 1024

// completionPrompts reads the prompt field: a text, ids, or a list of either.
func (m *Model) completionPrompts(d *schema.Dict) ([]prompt, error) {
	v, _ := d.Get("prompt")
	var list []any
	switch x := v.(type) {
	case string:
		list = []any{x}
	case []any:
		if len(x) == 0 {
			return nil, badRequest("You must pass at least one prompt")
		}
		if _, ids := x[0].(int64); ids {
			list = []any{x}
		} else {
			list = x
		}
	}
	if len(list) > maxPrompts {
		return nil, badParam("prompt", nil, "prompt list length %d exceeds the maximum allowed count of %d. To increase this limit, set the VLLM_MAX_COMPLETION_PROMPTS environment variable.", len(list), maxPrompts)
	}
	out := make([]prompt, 0, len(list))
	for _, e := range list {
		p, err := m.onePrompt(d, e)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func (m *Model) onePrompt(d *schema.Dict, v any) (prompt, error) {
	if text, ok := v.(string); ok {
		return m.tokenise(d, text, d.Bool("add_special_tokens", true))
	}
	ids, err := tokenIDs(v.([]any))
	if err != nil {
		return prompt{}, err
	}
	for _, id := range ids {
		if id < 0 || int(id) >= m.Limits.VocabSize {
			return prompt{}, badRequest("Token id %d is out of vocabulary", id)
		}
	}
	ids, err = m.fit(d, ids, false)
	return prompt{ids: ids}, err
}

// tokenise turns text into ids and applies the length rules. A text that cannot fit is refused before it is tokenised.
func (m *Model) tokenise(d *schema.Dict, text string, addSpecial bool) (prompt, error) {
	most := m.Limits.MaxModelLen * max(1, m.Tokenizer.MaxTokenChars())
	if n := utf8.RuneCountInString(text); n > most && !d.Has("truncate_prompt_tokens") {
		return prompt{}, badParam("input_text", int64(n), "This model's maximum context length is %d tokens. However, your prompt contains %d characters (more than %d characters, which is the upper bound for %d input tokens). Please reduce the length of the input prompt.",
			m.Limits.MaxModelLen, n, most, m.Limits.MaxModelLen)
	}
	ids, err := m.Tokenizer.Encode(text, addSpecial)
	if err != nil {
		return prompt{}, fmt.Errorf("tokenising the prompt: %w", err)
	}
	ids, err = m.fit(d, ids, true)
	return prompt{text: text, ids: ids}, err
}

// fit truncates when asked to, and refuses what is longer than the context. A text's length is reported as vLLM does: it stops
// counting one token beyond the context.
func (m *Model) fit(d *schema.Dict, ids []int32, text bool) ([]int32, error) {
	most := m.Limits.MaxModelLen
	if d.Has("truncate_prompt_tokens") {
		n := int(d.Int("truncate_prompt_tokens", 0))
		if n > most {
			return nil, badParam("truncate_prompt_tokens", int64(n), "truncate_prompt_tokens=%d cannot be greater than max_model_len = %d. Please request a smaller truncation size.", n, most)
		}
		if n < 0 {
			n = most - 1
		}
		if n < len(ids) {
			if d.Str("truncation_side", "left") == "right" {
				ids = ids[:n]
			} else {
				ids = ids[len(ids)-n:]
			}
		}
	}
	if len(ids) <= most {
		return ids, nil
	}
	count, atLeast := len(ids), ""
	if text {
		count = most + 1
	}
	if count == most+1 {
		atLeast = "at least "
	}
	return nil, badParam("input_tokens", int64(count), "This model's maximum context length is %d tokens. However, your prompt contains %s%d input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt.", most, atLeast, count)
}

// checkBudget refuses an explicit max_tokens above the context.
func (m *Model) checkBudget(param string, asked int64) error {
	if asked > int64(m.Limits.MaxModelLen) {
		return badParam(param, asked, "%s=%d cannot be greater than max_model_len=%d. Please request fewer output tokens.", param, asked, m.Limits.MaxModelLen)
	}
	return nil
}
