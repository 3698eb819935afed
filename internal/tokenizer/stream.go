package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Stream decodes one sequence of tokens as it grows. It never gives half a character: a token that ends inside one gives
// "", the one that completes it gives it whole, and bytes that cannot become a character give U+FFFD as soon as a character
// follows them. The texts of Push and Flush together are Decode of the ids. Not for concurrent use.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	bare        bool // special tokens that follow one another are not joined by spaces
	pending     []byte
	started     bool // a token has been decoded
	wasAdded    bool
	strip       int // leading characters still to take off
}

// primeTokens bounds how much of the prompt a stream looks at.
const primeTokens = 24

// NewStream returns a decoder that continues after prompt, which may be empty. The prompt's last tokens matter where a text
// begins differently from how it goes on (a leading space that is dropped, a character begun in the prompt), as in vLLM.
// spacesBetween only matters for vocabularies whose tokens are joined by spaces and when special tokens are kept.
func (t *Tokenizer) NewStream(prompt []int32, skipSpecial, spacesBetween bool) *Stream {
	s := t.newStream(skipSpecial)
	s.bare = !skipSpecial && !spacesBetween
	for _, id := range t.primer(prompt) {
		s.Push(id)
	}
	return s
}

func (t *Tokenizer) newStream(skipSpecial bool) *Stream {
	return &Stream{t: t, skipSpecial: skipSpecial, strip: t.decoder.stripMax}
}

// primer is the shortest end of the prompt, of four tokens at least, that is whole characters; all of it where none is.
func (t *Tokenizer) primer(prompt []int32) []int32 {
	for n := 4; n <= min(len(prompt), primeTokens); n++ {
		tail := prompt[len(prompt)-n:]
		if !strings.ContainsRune(t.Decode(tail, false), utf8.RuneError) {
			return tail
		}
	}
	return prompt[max(len(prompt)-primeTokens, 0):]
}

// Push decodes the next token. An id outside the vocabulary has no text.
func (s *Stream) Push(id int32) string {
	t := s.t
	if !t.has(id) || s.skipSpecial && t.IsSpecial(id) {
		return ""
	}
	added := t.added[id]
	text := t.pieces.of(id)
	isByte := t.pieces.isByte[id]
	if !s.started && t.decoder.first != nil {
		text, _ = t.decoder.piece(t.tokens[id], true)
	} else if s.bare && added && s.wasAdded && t.decoder.joined {
		text = t.tokens[id]
	}
	s.started, s.wasAdded = true, added

	if t.decoder.fallback {
		return s.stripped(s.pushSpelled(text, isByte))
	}
	if len(s.pending) == 0 && t.pieces.whole[id] {
		return s.stripped(text)
	}
	s.pending = append(s.pending, text...)
	return s.stripped(s.takeWhole(false))
}

// pushSpelled handles vocabularies where <0xHH> tokens spell bytes and all others are text.
func (s *Stream) pushSpelled(text string, isByte bool) string {
	if isByte {
		s.pending = append(s.pending, text...)
		return s.takeWhole(false)
	}
	if len(s.pending) == 0 {
		return text
	}
	return s.takeWhole(true) + text
}

// takeWhole takes what is certain off pending: whole characters, and U+FFFD for what can become none. Like the tokenizers
// library's decode stream it waits while the text ends in bytes that are no character: a text that ends so shows nothing of them.
func (s *Stream) takeWhole(final bool) string {
	if r, n := utf8.DecodeLastRune(s.pending); !final && r == utf8.RuneError && n <= 1 {
		return ""
	}
	out := make([]byte, 0, len(s.pending)+utf8.UTFMax)
	p := s.pending
	for len(p) > 0 {
		r, n := utf8.DecodeRune(p)
		if r == utf8.RuneError && n <= 1 && !s.t.decoder.fallback {
			n = invalidPrefix(p) // in a run of <0xHH> each wrong byte counts by itself
		}
		out = utf8.AppendRune(out, r)
		p = p[n:]
	}
	s.pending = s.pending[:copy(s.pending, p)]
	return string(out)
}

// invalidPrefix is the length of the maximal subpart of a character that p begins with and does not complete (Unicode
// 3.9): such bytes count as one U+FFFD.
func invalidPrefix(p []byte) int {
	for n := min(3, len(p)); n > 1; n-- {
		if !utf8.FullRune(p[:n]) {
			return n
		}
	}
	return 1
}

// stripped takes the leading characters off that the decoder drops from the whole text.
func (s *Stream) stripped(text string) string {
	for s.strip > 0 && text != "" {
		cut, ok := strings.CutPrefix(text, s.t.decoder.stripLeft)
		if !ok {
			s.strip = 0
			break
		}
		text = cut
		s.strip--
	}
	return text
}

// Flush ends the sequence: bytes of an incomplete character become U+FFFD.
func (s *Stream) Flush() string {
	return s.stripped(s.takeWhole(true))
}
