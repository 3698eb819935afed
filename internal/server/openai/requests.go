package openai

import s "omni-engine/internal/server/schema"

// The request models of vLLM 0.32's front end, field by field in its order (the order of errors follows it).
// They are built once a server, by newSchemas.
type schemas struct {
	completion, chat, tokenizeText, tokenizeChat, detokenize s.Type
}

func newSchemas() schemas {
	messages := s.List(message())
	tools := s.List(tool())
	return schemas{
		completion: s.Model(concat(completionHead(), samplingTail(), completionTail())...),
		chat:       s.Model(concat(chatHead(messages, tools), samplingTail(), chatTail())...),
		tokenizeText: s.Model(s.F("model", s.Str()), s.Req("prompt", s.Str()), s.NonNull("add_special_tokens", s.Bool()),
			s.F("return_token_strs", s.Bool())),
		tokenizeChat: s.Model(s.F("model", s.Str()), s.Req("messages", messages), s.NonNull("add_generation_prompt", s.Bool()),
			s.F("return_token_strs", s.Bool()), s.NonNull("continue_final_message", s.Bool()), s.NonNull("add_special_tokens", s.Bool()),
			s.F("chat_template", s.Str()), s.F("chat_template_kwargs", s.DictOf(s.Any())), s.F("media_io_kwargs", s.DictOf(s.Any())),
			s.F("mm_processor_kwargs", s.DictOf(s.Any())), s.F("tools", tools)),
		detokenize: s.Model(s.F("model", s.Str()), s.Req("tokens", s.List(s.IntGE(0)))),
	}
}

func concat(lists ...[]s.Field) (all []s.Field) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func streamOptions() s.Type {
	return s.Model(s.F("include_usage", s.Bool()), s.F("continuous_usage_stats", s.Bool()))
}

func stop() s.Type { return s.OneOf(s.Str(), s.ListMax(s.Str(), 4)) }

func completionHead() []s.Field {
	prompt := s.OneOf(s.List(s.IntGE(0)), s.List(s.List(s.IntGE(0))), s.Str(), s.List(s.Str()))
	return []s.Field{
		s.F("model", s.Str()), s.F("prompt", prompt), s.F("echo", s.Bool()), s.F("frequency_penalty", s.Float()),
		s.F("logit_bias", s.DictOf(s.Float())), s.F("logprobs", s.Int()), s.F("max_tokens", s.Int()), s.NonNull("n", s.Int()),
		s.F("presence_penalty", s.Float()), s.F("seed", s.Int()), s.F("stop", stop()), s.F("stream", s.Bool()),
		s.F("stream_options", streamOptions()), s.F("suffix", s.Str()), s.F("temperature", s.Float()), s.F("top_p", s.Float()),
		s.F("user", s.Str()),
	}
}

func samplingTail() []s.Field {
	return []s.Field{
		s.NonNull("use_beam_search", s.Bool()), s.F("top_k", s.Int()), s.F("min_p", s.Float()), s.F("repetition_penalty", s.Float()),
		s.F("watermarking", s.Bool()), s.NonNull("length_penalty", s.Float()), s.F("stop_token_ids", s.List(s.Int())),
		s.NonNull("include_stop_str_in_output", s.Bool()), s.NonNull("ignore_eos", s.Bool()), s.NonNull("min_tokens", s.Int()),
		s.NonNull("skip_special_tokens", s.Bool()), s.NonNull("spaces_between_special_tokens", s.Bool()),
		s.F("truncate_prompt_tokens", s.IntGE(-1)), s.F("truncation_side", s.Literal("left", "right")),
		s.F("allowed_token_ids", s.List(s.Int())), s.F("prompt_logprobs", s.Int()), s.F("logprob_token_ids", s.List(s.Int())),
		s.NonNull("bad_words", s.List(s.Str())),
	}
}

func commonTail() []s.Field {
	scalar := s.OneOf(s.Str(), s.Int(), s.Float())
	return []s.Field{
		s.F("structured_outputs", structured()), s.NonNull("priority", s.Int()), s.NonNull("request_id", s.Str()), s.F("session_id", s.Str()),
		s.F("return_tokens_as_token_ids", s.Bool()), s.F("return_token_ids", s.Bool()), s.NonNull("routed_experts_prompt_start", s.IntGE(0)),
		s.F("return_token_offsets", s.Bool()), s.F("return_prompt_text", s.Bool()), s.NonNull("mm_payload", s.Literal("tensors", "none")),
		s.F("return_mm_kwargs", s.Bool()), s.F("cache_salt", s.Str()), s.F("kv_transfer_params", s.DictOf(s.Any())),
		s.F("ec_transfer_params", s.DictOf(s.Any())), s.F("vllm_xargs", s.DictOf(s.OneOf(s.Str(), s.Int(), s.Float(), s.List(scalar)))),
		s.F("repetition_detection", s.Model(s.NonNull("max_pattern_size", s.Int()), s.NonNull("min_pattern_size", s.Int()), s.NonNull("min_count", s.Int()))),
		s.F("thinking_token_budget", s.Int()), s.F("stream_interval", s.IntGE(1)),
	}
}

func completionTail() []s.Field {
	return concat([]s.Field{
		s.F("prompt_embeds", s.OneOf(s.Str(), s.List(s.Str()))), s.NonNull("add_special_tokens", s.Bool()),
		s.F("response_format", responseFormat()),
	}, commonTail())
}

func chatHead(messages, tools s.Type) []s.Field {
	choice := s.OneOf(s.Literal("none"), s.Literal("auto"), s.Literal("required"),
		s.Model(s.Req("function", s.Model(s.Req("name", s.Str()))), s.NonNull("type", s.Literal("function"))))
	return []s.Field{
		s.Req("messages", messages), s.F("model", s.Str()), s.F("frequency_penalty", s.Float()), s.F("logit_bias", s.DictOf(s.Float())),
		s.F("logprobs", s.Bool()), s.F("top_logprobs", s.Int()), s.F("max_tokens", s.Int()), s.F("max_completion_tokens", s.Int()),
		s.F("n", s.Int()), s.F("presence_penalty", s.Float()), s.F("response_format", responseFormat()), s.F("seed", s.Int()),
		s.F("stop", stop()), s.F("stream", s.Bool()), s.F("stream_options", streamOptions()), s.F("temperature", s.Float()),
		s.F("top_p", s.Float()), s.F("tools", tools), s.F("tool_choice", choice),
		s.F("reasoning_effort", s.Literal("none", "minimal", "low", "medium", "high", "xhigh", "max")),
		s.NonNull("include_reasoning", s.Bool()), s.F("parallel_tool_calls", s.Bool()), s.F("user", s.Str()),
	}
}

func chatTail() []s.Field {
	return concat([]s.Field{
		s.NonNull("echo", s.Bool()), s.NonNull("add_generation_prompt", s.Bool()), s.NonNull("continue_final_message", s.Bool()),
		s.NonNull("add_special_tokens", s.Bool()), s.F("documents", s.List(s.DictOf(s.Str()))), s.F("chat_template", s.Str()),
		s.F("chat_template_kwargs", s.DictOf(s.Any())), s.F("media_io_kwargs", s.DictOf(s.DictOf(s.Any()))),
		s.F("mm_processor_kwargs", s.DictOf(s.Any())),
	}, commonTail())
}

func responseFormat() s.Type {
	tag := s.Literal("structural_tag")
	named := s.Model(s.Req("name", s.Str()), s.F("description", s.Str()), s.F("schema", s.DictOf(s.Any())), s.F("strict", s.Bool()))
	return s.OneOf(
		s.Model(s.Req("type", s.Literal("text", "json_object", "json_schema")), s.F("json_schema", named)),
		s.Model(s.Req("type", tag), s.Req("format", s.Any())),
		s.Model(s.Req("type", tag), s.Req("structures", s.List(s.Any())), s.Req("triggers", s.List(s.Str()))))
}

func structured() s.Type {
	return s.Model(s.F("json", s.OneOf(s.Str(), s.DictOf(s.Any()))), s.F("regex", s.Str()), s.F("choice", s.List(s.Str())), s.F("grammar", s.Str()),
		s.F("json_object", s.Bool()), s.NonNull("disable_any_whitespace", s.Bool()), s.NonNull("disable_additional_properties", s.Bool()),
		s.F("whitespace_pattern", s.Str()), s.F("structural_tag", s.Str()))
}

func tool() s.Type {
	return s.Model(s.NonNull("type", s.Literal("function")),
		s.Req("function", s.Model(s.Req("name", s.Str()), s.F("description", s.Str()), s.F("parameters", s.DictOf(s.Any())), s.F("strict", s.Bool()))))
}

// message is vLLM's union of message shapes: the tags show in the locations of errors.
func message() s.Type {
	content := s.OneOf(s.Str(), s.Iterable())
	role := func(name string) s.Field { return s.Req("role", s.Literal(name)) }
	plain := func(r string) s.Type {
		return s.TypedDict(s.Req("content", content), role(r), s.NonNull("name", s.Str()))
	}
	return s.Union(
		s.Choice{Tag: "ChatCompletionDeveloperMessageParam", Type: plain("developer")},
		s.Choice{Tag: "ChatCompletionSystemMessageParam", Type: plain("system")},
		s.Choice{Tag: "ChatCompletionUserMessageParam", Type: plain("user")},
		s.Choice{Tag: "ChatCompletionAssistantMessageParam", Type: s.TypedDict(role("assistant"), s.F("audio", s.Any()), s.F("content", content),
			s.F("function_call", s.Any()), s.NonNull("name", s.Str()), s.F("refusal", s.Str()), s.NonNull("tool_calls", s.Iterable()))},
		s.Choice{Tag: "ChatCompletionToolMessageParam", Type: s.TypedDict(s.Req("content", content), role("tool"), s.Req("tool_call_id", s.Str()))},
		s.Choice{Tag: "ChatCompletionFunctionMessageParam", Type: s.TypedDict(s.Req("content", s.Nullable(s.Str())), s.Req("name", s.Str()), role("function"))},
		s.Choice{Tag: "CustomChatCompletionMessageParam", Type: s.TypedDict(s.Req("role", s.Str()), s.NonNull("content", s.OneOf(s.Str(), s.List(s.Any()))),
			s.NonNull("name", s.Str()), s.F("tool_call_id", s.Str()), s.F("tool_calls", s.Iterable()), s.F("reasoning", s.Str()),
			s.F("tools", s.Iterable()), s.F("task", s.Str()))},
		s.Choice{Tag: "Message", Type: s.Model(s.Req("author", s.Model(s.Req("role", s.Str()))), s.Req("content", s.List(s.Any())))},
	)
}
