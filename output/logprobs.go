package output

import (
	"slices"
	"strings"

	"omni-engine/engine/request"
)

// context4 is how many earlier tokens can complete a character: UTF-8 has at most four bytes.
const context4 = 4

// logprobs gives the candidates of each position their texts.
type logprobs struct {
	tok     Tokenizer // nil: no texts
	context []int32   // the last chosen tokens, oldest first, at most context4
	ids     []int32   // scratch
}

// texts converts raw logprobs; positions are in order and each one's chosen token becomes context of the next.
func (l *logprobs) texts(raw []request.TokenLogprobs) []TokenLogprobs {
	if len(raw) == 0 {
		return nil
	}
	out := make([]TokenLogprobs, len(raw))
	for i := range raw {
		out[i] = l.position(&raw[i])
	}
	return out
}

func (l *logprobs) position(p *request.TokenLogprobs) TokenLogprobs {
	if len(p.IDs) == 0 {
		return nil
	}
	c := make(TokenLogprobs, len(p.IDs))
	for i, id := range p.IDs {
		c[i] = TokenLogprob{ID: id, Logprob: p.Logprobs[i], Rank: p.Ranks[i], Text: l.text(id)}
	}
	if len(l.context) == context4 {
		l.context = slices.Delete(l.context, 0, 1)
	}
	l.context = append(l.context, p.IDs[0])
	return c
}

// text returns a candidate's own text. One that ends inside a character gets "" unless, with the tokens before it, it
// completes one: then it carries the whole character, as the pieces before it had "".
func (l *logprobs) text(id int32) string {
	if l.tok == nil {
		return ""
	}
	s := l.decode(nil, id)
	if !broken(s) {
		return s
	}
	for n := 1; n <= len(l.context); n++ {
		context := l.context[len(l.context)-n:]
		full := l.decode(context, id)
		if broken(full) {
			continue
		}
		clean := len(context)
		for clean > 0 && broken(l.decode(nil, context[clean-1])) {
			clean--
		}
		if clean == 0 {
			return full
		}
		return full[commonPrefix(l.decode(context[:clean-1], context[clean-1]), full):]
	}
	return ""
}

func (l *logprobs) decode(context []int32, id int32) string {
	l.ids = append(append(l.ids[:0], context...), id)
	return l.tok.Decode(l.ids)
}

func broken(s string) bool { return strings.HasSuffix(s, "\uFFFD") }

// commonPrefix returns the length in bytes of the characters that a and b share at their start.
func commonPrefix(a, b string) int {
	for i, r := range b {
		if !strings.HasPrefix(a[min(i, len(a)):], string(r)) {
			return i
		}
	}
	return len(b)
}
