package scheduler

import (
	"slices"

	"omni-engine/engine/request"
)

// checkStop looks at the newest token: end of sequence, stop ids, length, then, past min_tokens, repetition. min_tokens does not hold
// the first two back: the sampler masks those tokens.
func (q *seq) checkStop() request.FinishReason {
	last := q.tokens[len(q.tokens)-1]
	if last == q.eos && q.eos >= 0 {
		return request.FinishStop
	}
	if slices.Contains(q.stops, last) {
		q.stopToken, q.repeated = last, false
		return request.FinishStop
	}
	if len(q.tokens) >= q.limit {
		return request.FinishLength
	}
	if q.repeat == nil || q.numOutput() < q.minTokens || !repeats(q.tokens[q.numPrompt:], q.repeat) {
		return request.NotFinished
	}
	q.stopToken, q.repeated = -1, true
	return request.FinishRepetition
}

// repeats reports whether the tokens end in MinCount copies of one pattern.
func repeats(tokens []int32, r *request.Repetition) bool {
	least := max(r.MinPatternSize, 1)
	if r.MaxPatternSize <= 0 || r.MinCount < 2 {
		return false
	}
	for size := least; size <= r.MaxPatternSize && size*r.MinCount <= len(tokens); size++ {
		tail := tokens[len(tokens)-size*r.MinCount:]
		if slices.Equal(tail[size:], tail[:len(tail)-size]) {
			return true
		}
	}
	return false
}
