package openai

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"omni-engine/engine/request"
	"omni-engine/internal/server/schema"
)

// Limits are what a model allows.
type Limits struct {
	MaxModelLen int
	VocabSize   int
	MaxLogprobs int // -1: the vocabulary
	// Defaults come from the model's generation config: temperature, top_p, top_k, min_p, repetition_penalty, max_tokens.
	Defaults map[string]float64
	// OverrideMaxTokens caps max_tokens (max_new_tokens of an explicit generation config); 0: none.
	OverrideMaxTokens int
}

// maxN is vLLM's VLLM_MAX_N_SEQUENCES.
const maxN = 16384

// minTemperature is vLLM's: smaller ones above zero are raised to it.
const minTemperature = 0.01

// sampling reads the sampling fields that both endpoints share. maxTokens is the budget after clamping.
func (l *Limits) sampling(d *schema.Dict, maxTokens int, tok Tokenizer) (request.SamplingParams, int, error) {
	p := request.DefaultSampling()
	def := func(key string, fallback float64) float64 {
		if v, ok := l.Defaults[key]; ok {
			fallback = v
		}
		return d.Float(key, fallback)
	}
	n := int(d.Int("n", 1))
	presence, frequency := d.Float("presence_penalty", 0), d.Float("frequency_penalty", 0)
	repetition, temperature := def("repetition_penalty", 1), def("temperature", 1)
	topP, topK, minP := def("top_p", 1), int64(def("top_k", 0)), def("min_p", 0)
	if d.Has("top_k") {
		topK = d.Int("top_k", 0)
	}
	minTokens := int(d.Int("min_tokens", 0))
	if err := checkRanges(n, presence, frequency, repetition, temperature, topP, topK, minP, maxTokens, minTokens); err != nil {
		return p, 0, err
	}
	if temperature > 0 && temperature < minTemperature {
		temperature = minTemperature
	}
	p.Temperature, p.TopP, p.TopK, p.MinP = float32(temperature), float32(topP), int(max(topK, 0)), float32(minP)
	p.PresencePenalty, p.FrequencyPenalty, p.RepetitionPenalty = float32(presence), float32(frequency), float32(repetition)
	p.MaxTokens, p.MinTokens = maxTokens, minTokens
	if d.Has("seed") {
		s := d.Int("seed", 0)
		p.Seed = &s
	}
	p.IgnoreEOS, p.IncludeStop = d.Bool("ignore_eos", false), d.Bool("include_stop_str_in_output", false)
	p.SkipSpecial, p.SpacesBetween = d.Bool("skip_special_tokens", true), d.Bool("spaces_between_special_tokens", true)
	if p.Greedy() {
		p.TopP, p.TopK, p.MinP = 1, 0, 0
		if n > 1 {
			return p, 0, badRequest("n must be 1 when using greedy sampling, got %d.", n)
		}
	}
	if err := l.words(d, &p, tok); err != nil {
		return p, 0, err
	}
	return p, n, l.ids(d, &p)
}

func checkRanges(n int, presence, frequency, repetition, temperature, topP float64, topK int64, minP float64, maxTokens, minTokens int) error {
	f := schema.FloatText
	inside := func(v, lo, hi float64) bool { return v >= lo && v <= hi }
	switch {
	case n < 1:
		return badRequest("n must be at least 1, got %d.", n)
	case n > maxN:
		return badRequest("n must be at most %d, got %d. To increase this limit, set the VLLM_MAX_N_SEQUENCES environment variable.", maxN, n)
	case !inside(presence, -2, 2):
		return badRequest("presence_penalty must be in [-2, 2], got %s.", f(presence))
	case !inside(frequency, -2, 2):
		return badRequest("frequency_penalty must be in [-2, 2], got %s.", f(frequency))
	case math.IsNaN(repetition) || math.IsInf(repetition, 0):
		return badRequest("repetition_penalty must be a finite number, got %s.", f(repetition))
	case repetition <= 0:
		return badRequest("repetition_penalty must be greater than zero, got %s.", f(repetition))
	case math.IsNaN(temperature) || math.IsInf(temperature, 0):
		return badParam("temperature", temperature, "temperature must be a finite number, got %s.", f(temperature))
	case temperature < 0:
		return badParam("temperature", temperature, "temperature must be non-negative, got %s.", f(temperature))
	case temperature > 2:
		return badParam("temperature", temperature, "temperature must be in [0, 2], got %s.", f(temperature))
	case !(topP > 0 && topP <= 1):
		return badParam("top_p", topP, "top_p must be in (0, 1], got %s.", f(topP))
	case topK < -1:
		return badRequest("top_k must be 0 (disable), or at least 1, got %d.", topK)
	case !inside(minP, 0, 1):
		return badRequest("min_p must be in [0, 1], got %s.", f(minP))
	case maxTokens < 1:
		return badParam("max_tokens", int64(maxTokens), "max_tokens must be at least 1, got %d.", maxTokens)
	case minTokens < 0:
		return badRequest("min_tokens must be greater than or equal to 0, got %d.", minTokens)
	case minTokens > maxTokens:
		return badRequest("min_tokens must be less than or equal to max_tokens=%d, got %d.", maxTokens, minTokens)
	}
	return nil
}

// words reads stop strings and bad words.
func (l *Limits) words(d *schema.Dict, p *request.SamplingParams, tok Tokenizer) error {
	switch v, _ := d.Get("stop"); s := v.(type) {
	case string:
		p.Stop = []string{s}
	case []any:
		p.Stop = strs(s)
	}
	if slices.Contains(p.Stop, "") {
		return badRequest("stop cannot contain an empty string.")
	}
	bad := strs(d.List("bad_words"))
	if slices.Contains(bad, "") {
		return badRequest("bad_words cannot contain an empty string. Got bad_words=%s", schema.Repr(d.List("bad_words")))
	}
	for _, w := range bad {
		plain, err := tok.Encode(strings.TrimLeft(w, " \t\n\r\v\f"), false)
		if err != nil {
			return fmt.Errorf("tokenising bad_words: %w", err)
		}
		if len(plain) == 0 {
			return badParam("bad_words", d.List("bad_words"), "bad_words entries must tokenize to at least one token.")
		}
		p.BadWords = append(p.BadWords, plain)
		spaced, err := tok.Encode(" "+strings.TrimLeft(w, " \t\n\r\v\f"), false)
		if err == nil && len(spaced) == len(plain) && spaced[0] != plain[0] {
			p.BadWords = append(p.BadWords, spaced)
		}
	}
	return nil
}

// ids reads the fields that hold token ids and checks them against the vocabulary.
func (l *Limits) ids(d *schema.Dict, p *request.SamplingParams) error {
	if d.Has("prompt_logprobs") {
		n := int(d.Int("prompt_logprobs", 0))
		p.PromptLogprobs = &n
	}
	if err := l.bias(d, p); err != nil {
		return err
	}
	outside := func(ids []int32) (bad []any) {
		for _, id := range ids {
			if id < 0 || int(id) >= l.VocabSize {
				bad = append(bad, int64(id))
			}
		}
		return bad
	}
	var err error
	if p.StopTokenIDs, err = tokenIDs(d.List("stop_token_ids")); err != nil {
		return err
	}
	if bad := outside(p.StopTokenIDs); bad != nil {
		return badParam("stop_token_ids", bad, "token_id(s) %s in stop_token_ids contain out-of-vocab token ids. Vocabulary size: %d", schema.Repr(bad), l.VocabSize)
	}
	if !d.Has("allowed_token_ids") {
		return nil
	}
	list := d.List("allowed_token_ids")
	if len(list) == 0 {
		return badParam("allowed_token_ids", list, "allowed_token_ids is not None and empty!")
	}
	if p.Allowed, err = tokenIDs(list); err != nil {
		return err
	}
	if bad := outside(p.Allowed); bad != nil {
		return badParam("allowed_token_ids", bad, "allowed_token_ids contains out-of-vocab token id!")
	}
	return nil
}

func (l *Limits) bias(d *schema.Dict, p *request.SamplingParams) error {
	b := d.Dict("logit_bias")
	if b == nil || b.Len() == 0 {
		return nil
	}
	var notInt, outside []any
	p.LogitBias = map[int32]float32{}
	for _, k := range b.Keys() {
		id, err := strconv.ParseInt(strings.TrimSpace(k), 10, 64)
		if err != nil {
			notInt = append(notInt, k)
			continue
		}
		if id < 0 || id >= int64(l.VocabSize) {
			outside = append(outside, id)
			continue
		}
		p.LogitBias[int32(id)] = float32(min(100, max(-100, b.Float(k, 0))))
	}
	if notInt != nil {
		return badParam("logit_bias", notInt, "logit_bias contains key(s) that cannot be converted to integer token IDs: %s", schema.Repr(notInt))
	}
	if outside != nil {
		return badParam("logit_bias", outside, "token_id(s) %s in logit_bias contain out-of-vocab token ids. Vocabulary size: %d", schema.Repr(outside), l.VocabSize)
	}
	return nil
}

func strs(l []any) []string {
	out := make([]string, 0, len(l))
	for _, v := range l {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// tokenIDs narrows checked integers; one that does not fit 32 bits is out of every vocabulary.
func tokenIDs(l []any) ([]int32, error) {
	out := make([]int32, 0, len(l))
	for _, v := range l {
		n, _ := v.(int64)
		if n > math.MaxInt32 || n < math.MinInt32 {
			return nil, badRequest("Token id %d is out of vocabulary", n)
		}
		out = append(out, int32(n))
	}
	return out, nil
}

// budget is vLLM's max_tokens: what is asked for, or the default, clamped to the rest of the context.
func (l *Limits) budget(asked *int64, promptLen int) int {
	budget := l.MaxModelLen - promptLen
	if asked != nil {
		budget = int(min(int64(budget), *asked))
	} else if v, ok := l.Defaults["max_tokens"]; ok {
		budget = min(budget, int(v))
	}
	if l.OverrideMaxTokens > 0 {
		budget = min(budget, l.OverrideMaxTokens)
	}
	return budget
}

// refused answers fields of vLLM's that this server does not serve; none is ignored.
func refused(d *schema.Dict) error {
	for _, f := range []struct{ name, why string }{
		{"use_beam_search", ""}, {"prompt_embeds", ""}, {"logprob_token_ids", ""}, {"thinking_token_budget", ""}, {"kv_transfer_params", ""},
		{"ec_transfer_params", ""}, {"vllm_xargs", ""}, {"watermarking", ""}, {"return_token_offsets", ""}, {"return_mm_kwargs", ""},
		{"mm_processor_kwargs", ""}, {"media_io_kwargs", ""},
	} {
		if is(d, f.name) {
			return unsupported(f.name, f.why)
		}
	}
	if so := d.Dict("structured_outputs"); so != nil {
		return refusedStructured(so)
	}
	if rf := d.Dict("response_format"); rf != nil && rf.Str("type", "text") != "text" {
		return badParam("response_format", nil, "response_format of type '%s' is not supported by omni-engine yet.", rf.Str("type", ""))
	}
	return nil
}

// refusedStructured answers constraints: those that vLLM refuses too with its words.
func refusedStructured(so *schema.Dict) error {
	given := false
	shown := schema.NewDict()
	for _, k := range []string{"json", "regex", "choice", "grammar", "json_object", "disable_any_whitespace", "disable_additional_properties",
		"whitespace_pattern", "structural_tag", "_backend"} {
		v, _ := so.Get(k)
		if strings.HasPrefix(k, "disable_") {
			v = so.Bool(k, false)
		} else {
			given = given || v != nil && k != "whitespace_pattern" && k != "_backend"
		}
		shown.Set(k, v)
	}
	shown.Set("_backend_was_auto", false)
	if !given {
		return badRequest("You must use one kind of structured outputs constraint but none are specified: %s", schema.Repr(shown))
	}
	if l, _ := so.Get("choice"); l != nil && len(so.List("choice")) == 0 {
		return badRequest("Choice '[]' cannot be an empty list")
	}
	return unsupported("structured_outputs", " yet")
}

func repetition(d *schema.Dict) (*request.Repetition, error) {
	r := d.Dict("repetition_detection")
	if r == nil {
		return nil, nil
	}
	out := request.Repetition{MaxPatternSize: int(r.Int("max_pattern_size", 0)), MinPatternSize: int(r.Int("min_pattern_size", 0)), MinCount: int(r.Int("min_count", 0))}
	switch {
	case out.MaxPatternSize < 0 || out.MinPatternSize < 0 || out.MinPatternSize > out.MaxPatternSize:
		return nil, badRequest("max_pattern_size, min_pattern_size must be >=0, with min_pattern_size <= max_pattern_size. Set both to 0 to disable repetitive pattern detection.")
	case out.MaxPatternSize > 0 && out.MinCount < 2:
		return nil, badRequest("min_count must be >= 2 to detect repetitive patterns in engine output. If you do not wish to detect repetitive patterns, set max_pattern_size to 0.")
	}
	return &out, nil
}

// checkLogprobs refuses more logprobs than --max-logprobs allows; -1 asks for the whole vocabulary.
func (l *Limits) checkLogprobs(p *request.SamplingParams) error {
	most := l.MaxLogprobs
	if most < 0 {
		most = l.VocabSize
	}
	for _, c := range []struct {
		n           *int
		param, what string
	}{{p.Logprobs, "logprobs", "sample"}, {p.PromptLogprobs, "prompt_logprobs", "prompt"}} {
		if c.n == nil {
			continue
		}
		n := *c.n
		if n == -1 {
			n = l.VocabSize
		}
		if n > most {
			return badParam(c.param, int64(n), "Requested %s logprobs of %d, which is greater than max allowed: %d", c.what, n, most)
		}
	}
	return nil
}
