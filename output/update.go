// Package output turns a core's step outputs into what a client reads: text deltas, stop strings, logprobs with their
// texts, finish reasons, and the request's record. It is the consumer of one engine core; it never blocks on a reader.
package output

import (
	"omni-engine/engine/request"
	"omni-engine/metrics/record"
)

// Update is what happened to a request since the reader's last look. A slow reader gets several steps in one.
type Update struct {
	Text string // text delta: never half a character; text that may begin a stop string is held back
	// Output holds the new tokens (those of a stop string too), Finish, Segment, StopToken, NumCached, Prefill and Err. Its events
	// and raw logprobs are nil: the first are in Record, the others below.
	Output request.Output
	// StopText is the stop string that ended the request, empty when none did: then stop_reason is Output.StopToken, or null
	// when that is negative.
	StopText string

	Logprobs       []TokenLogprobs // one a new token, when asked for
	PromptLogprobs []TokenLogprobs // one a prompt position, all at once; the first is nil
	Record         *record.Stage   // once, with the last update
	// Segment is the record of a streaming session's segment that ended while the request lives on. It carries no split (PS-51).
	Segment *record.Stage
}

// Done reports whether this is the request's last update.
func (u *Update) Done() bool { return u.Output.Finish != request.NotFinished && !u.Output.Segment }

// TokenLogprob is one candidate at a position.
type TokenLogprob struct {
	ID      int32
	Logprob float32
	Rank    int32
	// Text is the token's own text. A token that ends inside a character has "", the one that completes it carries it all.
	Text string
}

// TokenLogprobs are a position's candidates: the chosen (or prompt) token first, then the n best. nil: no value (the first
// position of a prompt).
type TokenLogprobs []TokenLogprob

// Tokenizer is what the Processor needs of a tokenizer; it must be safe for concurrent use.
type Tokenizer interface {
	// NewStream returns an incremental decoder that continues after the prompt.
	NewStream(prompt []int32, skipSpecial, spacesBetween bool) Detokenizer
	// Decode returns the text of ids, special tokens included, incomplete bytes as U+FFFD.
	Decode(ids []int32) string
}

// Detokenizer decodes one request's tokens in order. Push returns the text that token id completes, "" when it ends inside
// a character.
type Detokenizer interface {
	Push(id int32) string
}
