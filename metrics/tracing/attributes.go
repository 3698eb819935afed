package tracing

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"

	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// requestAttributes are vLLM's, and those without which some backends pass a span over. As in vLLM a parameter that is 0 is left out;
// unlike there, so is an interval that was not observed (PS-14). Times of one sequence in one stage are the request's only when it
// had no other: several stages or sequences do not add up (PS-35), their spans tell each one's.
func requestAttributes(f *record.Front, records []*record.Stage) []attribute.KeyValue {
	out := attributes{}
	out.text("gen_ai.operation.name", f.Operation)
	out.text("gen_ai.provider.name", "vllm")
	out.text("gen_ai.request.model", f.Model)
	out.text("gen_ai.request.id", f.RequestID)
	if f.Status != 0 {
		out.add(attribute.Int("http.response.status_code", f.Status))
	}
	if len(records) == 0 {
		return out
	}
	entry := slices.MinFunc(records, func(a, b *record.Stage) int { return a.StageID - b.StageID })
	out.number("gen_ai.request.top_p", entry.Params.TopP)
	out.count("gen_ai.request.max_tokens", entry.MaxTokens)
	out.number("gen_ai.request.temperature", entry.Params.Temperature)
	out.count("gen_ai.request.n", entry.Params.N)
	generated := 0
	var reasons []string
	for _, s := range records {
		generated += s.NumGenerationTokens
		reasons = append(reasons, s.Finish.String())
	}
	out.add(attribute.Int("gen_ai.usage.prompt_tokens", f.PromptTokens), attribute.Int("gen_ai.usage.completion_tokens", generated),
		attribute.Int("gen_ai.usage.input_tokens", f.PromptTokens), attribute.Int("gen_ai.usage.output_tokens", generated),
		attribute.StringSlice("gen_ai.response.finish_reasons", reasons))
	if len(records) > 1 {
		out.seconds("gen_ai.latency.e2e", f.E2E(records))
		return out
	}
	out.seconds("gen_ai.latency.e2e", entry.E2E())
	return append(out, latencies(entry)...)
}

// latencies are the times of one sequence in one stage, in seconds.
func latencies(s *record.Stage) []attribute.KeyValue {
	out := attributes{}
	out.seconds("gen_ai.latency.time_to_first_token", s.TTFT())
	out.seconds("gen_ai.latency.time_in_queue", s.QueuedTime())
	out.seconds("gen_ai.latency.time_in_model_prefill", s.PrefillTime())
	out.seconds("gen_ai.latency.time_in_model_decode", s.DecodeTime())
	out.seconds("gen_ai.latency.time_in_model_inference", s.InferenceTime())
	return out
}

// stageAttributes are who the stage is and its record's split (PS-23), in milliseconds under the registry's names.
func stageAttributes(s *record.Stage) []attribute.KeyValue {
	out := attributes{attribute.Int("vllm_omni.stage.id", s.StageID), attribute.String("vllm_omni.stage.name", s.Name()),
		attribute.Int("vllm_omni.stage.replica_id", s.Replica), attribute.String("vllm_omni.stage.type", s.Type.String())}
	out.text("gen_ai.request.id", string(s.CoreID))
	out.text(record.FinishReasonField, s.Finish.String())
	out.add(attribute.Int(record.NumTokensOut, s.NumGenerationTokens), attribute.Int("gen_ai.usage.cached_tokens", s.CachedTokens))
	for _, f := range record.SplitFields() {
		switch v := f.Value(s); v.Kind {
		case record.Int:
			out.add(attribute.Int(f.Name, v.Int()))
		case record.Float:
			out.add(attribute.Float64(f.Name, v.Number()))
		}
	}
	if _, more := s.Ledger.Stays(); more > 0 {
		out.add(attribute.Int("omni.stays_left_out", more))
	}
	return append(out, latencies(s)...)
}

// attributes leaves out what is absent.
type attributes []attribute.KeyValue

func (a *attributes) add(kv ...attribute.KeyValue) { *a = append(*a, kv...) }

func (a *attributes) text(key, v string) {
	if v != "" {
		a.add(attribute.String(key, v))
	}
}

func (a *attributes) count(key string, v int) {
	if v != 0 {
		a.add(attribute.Int(key, v))
	}
}

func (a *attributes) number(key string, v float64) {
	if v != 0 {
		a.add(attribute.Float64(key, v))
	}
}

func (a *attributes) seconds(key string, s clock.Span) {
	if v, ok := s.Seconds(); ok {
		a.add(attribute.Float64(key, v))
	}
}
