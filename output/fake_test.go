package output

import (
	"strings"
	"unicode/utf8"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// bytesTokenizer has one token a byte: every multi-byte character is split.
type bytesTokenizer struct{}

func (bytesTokenizer) NewStream([]int32, bool, bool) Detokenizer { return &byteStream{} }

func (bytesTokenizer) Decode(ids []int32) string {
	b := make([]byte, len(ids))
	for i, id := range ids {
		b[i] = byte(id)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

type byteStream struct{ held []byte }

func (s *byteStream) Push(id int32) string {
	s.held = append(s.held, byte(id))
	if !utf8.FullRune(s.held) {
		return ""
	}
	out := strings.ToValidUTF8(string(s.held), "\uFFFD")
	s.held = s.held[:0]
	return out
}

func ids(s string) []int32 {
	var out []int32
	for i := range len(s) {
		out = append(out, int32(s[i]))
	}
	return out
}

func newRequest(id request.ID, stop ...string) *request.Request {
	s := request.DefaultSampling()
	s.Stop, s.MaxTokens = stop, 100
	return &request.Request{ID: id, External: "cmpl-" + string(id), Prompt: []int32{1, 2}, Sampling: s, Arrival: clock.WallNow()}
}

// sink remembers what it was told.
type sink struct {
	record.Discard
	finished []*record.Stage
	parents  [][2]int
	steps    int
	prompt   int
	tokens   int
}

func (s *sink) Step(_ *request.SchedulerStats, it *record.Iteration) {
	s.steps++
	if it != nil {
		s.prompt += it.PromptTokens
		s.tokens += it.GenerationTokens
	}
}

func (s *sink) Finished(r *record.Stage)      { s.finished = append(s.finished, r) }
func (s *sink) ParentFinished(n, longest int) { s.parents = append(s.parents, [2]int{n, longest}) }
