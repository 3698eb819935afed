package metrics

// ToolParser counts the tool-call parser's invocations; all series exist from the start.
type ToolParser struct {
	family family
	series [2][2][3]*series // streaming, outcome, request type
	list   []*series
}

func newToolParser(model string) *ToolParser {
	t := &ToolParser{family: family{name: "vllm:tool_call_parser_invocations_total",
		help: "Invocations of the tool-call parser: one a choice, or one a streamed delta."}}
	for i, mode := range []string{"streaming", "non_streaming"} {
		for j, outcome := range []string{"tool_call", "no_tool_call"} {
			for k, kind := range toolRequestTypes() {
				s := newSeries(&t.family, []label{{"model_name", model}, {"mode", mode}, {"outcome", outcome}, {"request_type", kind}})
				t.series[i][j][k] = s
				t.list = append(t.list, s)
			}
		}
	}
	return t
}

func toolRequestTypes() [3]string { return [3]string{"chat_completions", "responses", "other"} }

// ToolCallParsed counts one invocation; requestType is chat_completions, responses or other. It counts nothing when no
// parser is configured.
func (m *Metrics) ToolCallParsed(streaming, found bool, requestType string) {
	if m.tools == nil {
		return
	}
	mode, outcome, kind := 1, 1, 2
	if streaming {
		mode = 0
	}
	if found {
		outcome = 0
	}
	for i, t := range toolRequestTypes() {
		if t == requestType {
			kind = i
		}
	}
	m.tools.series[mode][outcome][kind].add(1)
}
