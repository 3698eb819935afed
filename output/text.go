package output

import (
	"bytes"
	"unicode/utf8"

	"omni-engine/engine/request"
)

// text is the growing output text of one request: decoded token by token, searched for stop strings across chunk borders,
// handed out without what may still become a stop string. Lengths are counted in characters, as vLLM does.
type text struct {
	stream  Detokenizer // nil: no text
	stops   []string
	include bool // the stop string stays in the output
	min     int  // tokens before a stop string counts
	hold    int  // characters held back: the longest stop string less one
	reach   int  // bytes before the new text in which a stop string may begin

	buf     []byte // the output text's tail
	emitted int    // index into buf: handed out up to here
	tokens  int    // output tokens so far
	offsets []int  // of this update: text ends after each new token; reused
}

func newText(d Detokenizer, s *request.SamplingParams) text {
	t := text{stream: d, stops: s.Stop, include: s.IncludeStop, min: s.MinTokens}
	if d == nil {
		t.stops = nil
	}
	for _, stop := range t.stops {
		t.reach = max(t.reach, len(stop)-1)
		if !t.include {
			t.hold = max(t.hold, utf8.RuneCountInString(stop)-1)
		}
	}
	return t
}

// push decodes a step's tokens. stopped says that the last one is a stop token: its text is left out unless stop strings are
// kept. It returns the stop string that was completed, if any, and how many of the tokens count.
func (t *text) push(ids []int32, stopped bool) (stop string, kept int) {
	before := t.tokens
	t.tokens += len(ids)
	if t.stream == nil || len(ids) == 0 {
		return "", len(ids)
	}
	t.trim()
	t.offsets = append(t.offsets[:0], len(t.buf))
	for i, id := range ids {
		if !stopped || t.include || i < len(ids)-1 {
			t.buf = append(t.buf, t.stream.Push(id)...)
		}
		t.offsets = append(t.offsets, len(t.buf))
	}
	if len(t.stops) == 0 || t.tokens <= t.min {
		return "", len(ids)
	}
	stop, begin := t.find(t.offsets[max(t.min-before, 0)])
	if stop == "" {
		return "", len(ids)
	}
	end := begin + len(stop)
	kept = 1
	for t.offsets[kept] < end {
		kept++
	}
	t.tokens = before + kept
	if t.include {
		t.buf = t.buf[:end]
	} else {
		t.buf = t.buf[:begin]
	}
	return stop, kept
}

// find returns the stop string that is completed first in the text from index from on, and where it begins; on equal ends
// the one listed first. vLLM's choice: the same as if tokens had come one at a time.
func (t *text) find(from int) (stop string, begin int) {
	if from >= len(t.buf) {
		return "", 0
	}
	best := len(t.buf) + 1
	for _, s := range t.stops {
		start := max(from-len(s)+1, 0)
		if i := bytes.Index(t.buf[start:], []byte(s)); i >= 0 && start+i+len(s) < best {
			stop, begin, best = s, start+i, start+i+len(s)
		}
	}
	return stop, begin
}

// next returns the text that may be handed out now; at the end all of it.
func (t *text) next(finished bool) string {
	end := len(t.buf)
	if !finished {
		for range t.hold {
			_, n := utf8.DecodeLastRune(t.buf[:end])
			end -= n
		}
	}
	if end <= t.emitted {
		return ""
	}
	out := string(t.buf[t.emitted:end])
	t.emitted = end
	return out
}

// trimAt is how much handed-out text gathers before the tail is moved to the front.
const trimAt = 256

// trim drops text that was handed out and is out of every stop string's reach.
func (t *text) trim() {
	drop := t.emitted - t.reach
	if drop <= 0 || drop < trimAt && drop < len(t.buf) {
		return
	}
	t.buf = t.buf[:copy(t.buf, t.buf[drop:])]
	t.emitted -= drop
}
