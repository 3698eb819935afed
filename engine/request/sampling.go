package request

// SamplingParams are vLLM's, checked by the front end; the zero value is not useful, start from [DefaultSampling].
type SamplingParams struct {
	Temperature       float32 // 0: greedy
	TopK              int     // 0: off
	TopP              float32 // 1: off
	MinP              float32 // 0: off
	Seed              *int64  // nil: drawn by the engine
	PresencePenalty   float32
	FrequencyPenalty  float32
	RepetitionPenalty float32 // 1: off

	MaxTokens    int // always set by the front end (clamped to the remaining context)
	MinTokens    int
	Stop         []string // applied by output.Processor
	IncludeStop  bool     // include_stop_str_in_output
	StopTokenIDs []int32
	IgnoreEOS    bool
	BadWords     [][]int32
	LogitBias    map[int32]float32
	Allowed      []int32 // allowed_token_ids; nil: all

	Logprobs       *int // nil: none; n: the sampled token and the n best; -1: all
	PromptLogprobs *int
	SkipSpecial    bool // skip_special_tokens
	SpacesBetween  bool // spaces_between_special_tokens
	Detokenize     bool
	Structured     *Structured
}

// Structured asks for a constrained output; at most one field is set.
type Structured struct {
	JSONSchema, Regex, Grammar, StructuralTag string
	Choice                                    []string
	JSONObject                                bool
}

// DefaultSampling returns vLLM's defaults.
func DefaultSampling() SamplingParams {
	return SamplingParams{
		Temperature: 1, TopP: 1, RepetitionPenalty: 1, MaxTokens: 16,
		SkipSpecial: true, SpacesBetween: true, Detokenize: true,
	}
}

// Greedy reports whether the choice is the arg-max.
func (s *SamplingParams) Greedy() bool { return s.Temperature < 1e-5 }

// Penalised reports whether earlier tokens change the logits.
func (s *SamplingParams) Penalised() bool {
	return s.PresencePenalty != 0 || s.FrequencyPenalty != 0 || s.RepetitionPenalty != 1
}
