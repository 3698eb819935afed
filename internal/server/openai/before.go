package openai

import (
	"math/big"

	"omni-engine/internal/server/schema"
)

// The checks that vLLM makes on the raw body, before types; pydantic runs them last to first, and so do we.

func beforeCompletion(d *schema.Dict) error {
	return first(
		func() error { return checkSalt(d) },
		func() error { return checkPrompt(d) },
		func() error { return checkStreamOptions(d) },
		func() error { return checkCompletionLogprobs(d) },
		func() error { return checkStructured(d, false) },
		func() error { return checkResponseFormat(d) },
	)
}

func beforeChat(d *schema.Dict) error {
	return first(
		func() error { return checkSalt(d) },
		func() error { return checkGenerationPrompt(d) },
		func() error { return checkTools(d) },
		func() error { return checkStructured(d, true) },
		func() error { return checkChatLogprobs(d) },
		func() error { return checkStreamOptions(d) },
		func() error { return checkResponseFormat(d) },
	)
}

func first(checks ...func() error) error {
	for _, c := range checks {
		if err := c(); err != nil {
			return err
		}
	}
	return nil
}

// truthy is Python's truth of a JSON value.
func truthy(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case *big.Int:
		return v.Sign() != 0
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case *schema.Dict:
		return v.Len() > 0
	}
	return true
}

func is(d *schema.Dict, key string) bool { v, _ := d.Get(key); return truthy(v) }

func checkSalt(d *schema.Dict) error {
	v, ok := d.Get("cache_salt")
	if s, str := v.(string); ok && v != nil && (!str || s == "") {
		return badParam("cache_salt", nil, "Parameter 'cache_salt' must be a non-empty string if provided.")
	}
	return nil
}

func checkPrompt(d *schema.Dict) error {
	prompt, _ := d.Get("prompt")
	embeds, _ := d.Get("prompt_embeds")
	if l, ok := embeds.([]any); (embeds == nil || (ok && len(l) == 0)) && (prompt == nil || prompt == "") {
		return badParam("prompt", nil, "Either prompt or prompt_embeds must be provided and non-empty.")
	}
	return nil
}

func checkStreamOptions(d *schema.Dict) error {
	if is(d, "stream_options") && !is(d, "stream") {
		return badParam("stream_options", nil, "Stream options can only be defined when `stream=True`.")
	}
	return nil
}

// rawNumber reads a field that must be a number already; ok is false when it is absent.
func rawNumber(d *schema.Dict, key string) (n float64, raw any, ok bool, err error) {
	v, _ := d.Get(key)
	switch x := v.(type) {
	case nil:
		return 0, nil, false, nil
	case int64:
		return float64(x), v, true, nil
	case float64:
		return x, v, true, nil
	case *big.Int:
		f, _ := new(big.Float).SetInt(x).Float64()
		return f, v, true, nil
	case bool:
		return map[bool]float64{true: 1}[x], v, true, nil
	}
	return 0, nil, false, badParam(key, v, "`%s` must be an integer.", key)
}

func checkCount(d *schema.Dict, key string) (float64, bool, error) {
	n, raw, ok, err := rawNumber(d, key)
	if err != nil || !ok {
		return 0, false, err
	}
	if n < 0 && n != -1 {
		return n, true, badParam(key, raw, "`%s` must be a positive value or -1.", key)
	}
	return n, true, nil
}

func checkPromptLogprobs(d *schema.Dict) error {
	n, _, ok, err := rawNumber(d, "prompt_logprobs")
	if err != nil {
		return err
	}
	if ok && is(d, "stream") && (n > 0 || n == -1) {
		return badParam("prompt_logprobs", nil, "`prompt_logprobs` are not available when `stream=True`.")
	}
	_, _, err = checkCount(d, "prompt_logprobs")
	return err
}

func checkCompletionLogprobs(d *schema.Dict) error {
	if is(d, "logprob_token_ids") && !d.Has("logprobs") {
		return badParam("logprob_token_ids", nil, "when using `logprob_token_ids`, `logprobs` must be set.")
	}
	if _, _, _, err := rawNumber(d, "prompt_logprobs"); err != nil {
		return err
	}
	if _, _, _, err := rawNumber(d, "logprobs"); err != nil {
		return err
	}
	if err := checkPromptLogprobs(d); err != nil {
		return err
	}
	_, _, err := checkCount(d, "logprobs")
	return err
}

func checkChatLogprobs(d *schema.Dict) error {
	if is(d, "logprob_token_ids") && !is(d, "logprobs") {
		return badParam("logprob_token_ids", nil, "when using `logprob_token_ids`, `logprobs` must be set to true.")
	}
	if err := checkPromptLogprobs(d); err != nil {
		return err
	}
	n, ok, err := checkCount(d, "top_logprobs")
	if err != nil {
		return err
	}
	if ok && (n == -1 || n > 0) && !is(d, "logprobs") {
		return badParam("top_logprobs", nil, "when using `top_logprobs`, `logprobs` must be set to true.")
	}
	return nil
}

func checkStructured(d *schema.Dict, chat bool) error {
	so := d.Dict("structured_outputs")
	if so == nil {
		return nil
	}
	count := 0
	for _, k := range []string{"json", "regex", "choice"} {
		if so.Has(k) {
			count++
		}
	}
	if count > 1 {
		const msg = "You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice')."
		if chat {
			return badRequest(msg)
		}
		return badParam("structured_outputs", nil, msg)
	}
	return nil
}

func checkResponseFormat(d *schema.Dict) error {
	rf := d.Dict("response_format")
	if rf != nil && rf.Str("type", "") == "json_schema" && !rf.Has("json_schema") {
		return badParam("response_format", nil, "When response_format type is 'json_schema', the 'json_schema' field must be provided.")
	}
	return nil
}

func checkGenerationPrompt(d *schema.Dict) error {
	if is(d, "continue_final_message") && is(d, "add_generation_prompt") {
		return badRequest("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
	}
	return nil
}

func checkTools(d *schema.Dict) error {
	if l, ok := d.Get("tools"); ok {
		if list, isList := l.([]any); isList && len(list) == 0 {
			return badParam("tools", nil, "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.")
		}
	}
	choice, given := d.Get("tool_choice")
	if !given && is(d, "tools") {
		d.Set("tool_choice", "auto")
		return nil
	}
	if choice == nil || choice == "none" {
		return nil
	}
	if !d.Has("tools") {
		return badParam("tool_choice", nil, "When using `tool_choice`, `tools` must be set.")
	}
	named, isDict := choice.(*schema.Dict)
	if !isDict {
		if choice != "auto" && choice != "required" {
			return badParam("tool_choice", nil, "Invalid value for `tool_choice`: %s! Only named tools, \"none\", \"auto\" or \"required\" are supported.", schema.Text(choice))
		}
		return nil
	}
	return checkNamedTool(d, named)
}

func checkNamedTool(d, choice *schema.Dict) error {
	const usage = "Correct usage: `{\"type\": \"function\", \"function\": {\"name\": \"my_function\"}}`"
	f := choice.Dict("function")
	if f == nil {
		v, _ := choice.Get("function")
		return badParam("tool_choice.function", nil, "Invalid value for `function`: `%s` in `tool_choice`! %s", schema.Text(v), usage)
	}
	v, ok := f.Get("name")
	if !ok {
		return badParam("tool_choice.function.name", nil, "Expected field `name` in `function` in `tool_choice`! %s", usage)
	}
	name, ok := v.(string)
	if !ok || name == "" {
		return badParam("tool_choice.function.name", nil, "Invalid `name` in `function`: `%s` in `tool_choice`! %s", schema.Text(v), usage)
	}
	for _, t := range d.List("tools") {
		if td, ok := t.(*schema.Dict); ok && td.Dict("function") != nil && td.Dict("function").Str("name", "") == name {
			return nil
		}
	}
	return badParam("tool_choice", nil, "The tool specified in `tool_choice` does not match any of the specified `tools`")
}
