// Package sampling turns a request's sampling parameters into what a device needs for one row of logits.
package sampling

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	"omni-engine/engine/request"
	"omni-engine/kernels"
)

// Prepared holds what of a request's sampling does not change from step to step. One lives in each slot of a runner.
type Prepared struct {
	owner *request.Request
	base  kernels.RowSampling
	stops []int32   // may not be sampled before min_tokens
	bad   [][]int32 // bad_words
}

// Scratch holds what the rows of one step point to, until the step is done. Reset it before the next.
type Scratch struct{ ids []int32 }

// Reset empties it and keeps its memory.
func (s *Scratch) Reset() { s.ids = s.ids[:0] }

// Check refuses parameters that no runner serves.
func Check(s *request.SamplingParams) error {
	if s.Structured != nil {
		return fmt.Errorf("structured outputs are not supported")
	}
	return nil
}

// Reset makes the next For prepare anew, also for the same request: a session's segment may change its parameters.
func (p *Prepared) Reset() { p.owner = nil }

// For makes p the preparation of r; it does nothing when it is already. engineSeed stands in for a missing seed: mixed with the
// request's id it gives a stream of its own, the same after a preemption. vocab is the width of the logits.
func (p *Prepared) For(r *request.Request, engineSeed uint64, vocab int) {
	if p.owner == r {
		return
	}
	s := &r.Sampling
	*p = Prepared{owner: r, bad: s.BadWords}
	p.base = kernels.RowSampling{
		Temperature: s.Temperature, TopK: int32(max(s.TopK, 0)), TopP: s.TopP, MinP: s.MinP,
		Presence: s.PresencePenalty, Frequency: s.FrequencyPenalty, Repetition: s.RepetitionPenalty,
		Allowed: s.Allowed, Logprobs: -1, Seed: seedOf(r, engineSeed),
	}
	if s.Greedy() {
		p.base.Temperature = 0
	}
	if s.Logprobs != nil {
		p.base.Logprobs = Best(*s.Logprobs, vocab)
	}
	for id := range s.LogitBias {
		p.base.BiasIDs = append(p.base.BiasIDs, id)
	}
	slices.SortFunc(p.base.BiasIDs, cmp.Compare[int32])
	for _, id := range p.base.BiasIDs {
		p.base.Bias = append(p.base.Bias, s.LogitBias[id])
	}
	if s.MinTokens > 0 {
		p.stops = append(append(p.stops, r.EOS...), s.StopTokenIDs...)
	}
}

// Best is the number of best tokens to report: n, or all for -1.
func Best(n, vocab int) int32 {
	if n < 0 || n > vocab {
		n = vocab
	}
	return int32(n)
}

func seedOf(r *request.Request, engineSeed uint64) uint64 {
	if r.Sampling.Seed != nil {
		return uint64(*r.Sampling.Seed)
	}
	h := fnv.New64a()
	var b [8]byte
	for i := range b {
		b[i] = byte(engineSeed >> (8 * i))
	}
	h.Write(b[:])
	h.Write([]byte(r.ID))
	return h.Sum64()
}

// NeedsHistory reports whether a row's sampling reads the tokens sampled before it.
func NeedsHistory(s *request.SamplingParams) bool { return s.Penalised() || len(s.BadWords) > 0 }

// Row fills dst for the token after tokens and late, the samples that are not in tokens yet; position is that token's place in the
// sequence, promptLen the number of prompt tokens. The random draw is keyed by the position, so it is the same in whichever step,
// chunk or batch it falls. What does not lie in tokens is put into mem; a steady step allocates nothing.
func (p *Prepared) Row(dst *kernels.RowSampling, mem *Scratch, tokens, late []int32, promptLen, position int) {
	*dst = p.base
	dst.Position = uint64(position)
	s := &p.owner.Sampling
	var output []int32
	if NeedsHistory(s) {
		output = tokens[promptLen:]
		if len(late) > 0 {
			from := len(mem.ids)
			mem.ids = append(append(mem.ids, output...), late...)
			output = mem.ids[from:]
		}
		if s.Penalised() {
			dst.Prompt, dst.Output = tokens[:promptLen], output
		}
	}
	from := len(mem.ids)
	if position-promptLen < s.MinTokens {
		mem.ids = append(mem.ids, p.stops...)
	}
	p.banBadWords(mem, output)
	dst.Banned = mem.ids[from:len(mem.ids):len(mem.ids)]
}

// banBadWords bans the last token of each bad word whose other tokens end the output.
func (p *Prepared) banBadWords(mem *Scratch, output []int32) {
	for _, w := range p.bad {
		n := len(w) - 1
		if n >= 0 && n <= len(output) && slices.Equal(w[:n], output[len(output)-n:]) {
			mem.ids = append(mem.ids, w[n])
		}
	}
}

// PromptRow fills dst to report the logprob of the prompt's next token and the n best, sampling nothing.
func PromptRow(dst *kernels.RowSampling, target int32, n int32) {
	*dst = kernels.RowSampling{Skip: true, Target: target, Logprobs: n}
}
