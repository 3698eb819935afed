package output

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omni-engine/engine/request"
)

func TestStopStrings(t *testing.T) {
	cases := []struct {
		name    string
		steps   []string
		stop    []string
		include bool
		min     int
		deltas  []string // after each step; the last one is the finish when stopped
		stopped string
		kept    int // tokens of the last step that count
	}{
		{"held back across chunks and released when it is no stop", []string{"ab", "cE", "Xd"}, []string{"END"}, false, 0,
			[]string{"", "ab", "cE"}, "", 2},
		{"excluded, found across three chunks", []string{"abE", "N", "D"}, []string{"END"}, false, 0, []string{"a", "b", ""}, "END", 1},
		{"included", []string{"abE", "N", "D"}, []string{"END"}, true, 0, []string{"abE", "N", "D"}, "END", 1},
		{"tokens after the stop do not count", []string{"aENDxyz"}, []string{"END"}, false, 0, []string{"a"}, "END", 4},
		{"included: text after it is cut", []string{"aENDxyz"}, []string{"END"}, true, 0, []string{"aEND"}, "END", 4},
		{"the one completed first wins over list order", []string{"abcd"}, []string{"cd", "bc"}, false, 0, []string{"a"}, "bc", 3},
		{"on equal ends the first listed", []string{"xabc"}, []string{"bc", "abc"}, false, 0, []string{"xa"}, "bc", 4},
		{"min_tokens: a stop within the first tokens does not count", []string{"ab", "cd"}, []string{"ab"}, false, 2, []string{"a", "bc"}, "", 2},
		{"held by characters, not bytes", []string{"äö", "ü"}, []string{"üx"}, false, 0, []string{"ä", "ö"}, "", 2},
		{"half a character is no text", []string{"\xc3", "\xa4"}, nil, false, 0, []string{"", "ä"}, "", 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := request.DefaultSampling()
			p.Stop, p.IncludeStop, p.MinTokens = c.stop, c.include, c.min
			x := newText(&byteStream{}, &p)
			var stop string
			var kept int
			for i, s := range c.steps {
				stop, kept = x.push(ids(s), false)
				if i < len(c.steps)-1 {
					require.Empty(t, stop, "stopped at step %d", i)
				}
				require.Equal(t, c.deltas[i], x.next(stop != ""), "delta of step %d", i)
			}
			require.Equal(t, c.stopped, stop)
			require.Equal(t, c.kept, kept)
		})
	}
}

func TestStopTokenIsNotTextUnlessIncluded(t *testing.T) {
	p := request.DefaultSampling()
	x := newText(&byteStream{}, &p)
	x.push(ids("ab"), true)
	require.Equal(t, "a", x.next(true))
	p.IncludeStop = true
	x = newText(&byteStream{}, &p)
	x.push(ids("ab"), true)
	require.Equal(t, "ab", x.next(true))
	require.Equal(t, 2, x.tokens)
}

// The reference appends one token at a time to the whole text and looks for every stop string in all of it.
func referenceStop(tokens []int32, p *request.SamplingParams) (text, stop string, used int) {
	var s byteStream
	for i, id := range tokens {
		before := len(text)
		text += s.Push(id)
		if i+1 <= p.MinTokens || len(text) == before {
			continue
		}
		best := -1
		for _, st := range p.Stop {
			from := strings.Index(text[max(before-len(st)+1, 0):], st)
			if from < 0 {
				continue
			}
			end := max(before-len(st)+1, 0) + from + len(st)
			if best < 0 || end < best {
				best, stop = end, st
			}
		}
		if best >= 0 {
			if p.IncludeStop {
				return text[:best], stop, i + 1
			}
			return text[:best-len(stop)], stop, i + 1
		}
	}
	return text, "", len(tokens)
}

func TestTextInAnyChunksEqualsTokenByToken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alphabet := []string{"a", "b", "ab", "ä", "€", "😀", "ba"}
		draw := func(label string, lo, hi int) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom(alphabet), lo, hi).Draw(t, label), "")
		}
		p := request.DefaultSampling()
		for range rapid.IntRange(0, 3).Draw(t, "stops") {
			p.Stop = append(p.Stop, draw("stop", 1, 4))
		}
		p.IncludeStop = rapid.Bool().Draw(t, "include")
		p.MinTokens = rapid.IntRange(0, 6).Draw(t, "min")
		tokens := ids(draw("text", 0, 60))
		wantText, wantStop, wantUsed := referenceStop(tokens, &p)

		hold := 0
		if !p.IncludeStop {
			for _, s := range p.Stop {
				hold = max(hold, utf8.RuneCountInString(s)-1)
			}
		}
		x := newText(&byteStream{}, &p)
		var got, stop string
		used, rest := 0, slices.Clone(tokens)
		for len(rest) > 0 && stop == "" {
			n := rapid.IntRange(1, min(5, len(rest))).Draw(t, "chunk")
			var kept int
			stop, kept = x.push(rest[:n], false)
			used += kept
			rest = rest[n:]
			got += x.next(stop != "" || len(rest) == 0)
			if stop == "" && len(rest) > 0 {
				var s byteStream
				full := ""
				for _, id := range tokens[:used] {
					full += s.Push(id)
				}
				runes := []rune(full)
				if keep := string(runes[:max(len(runes)-hold, 0)]); keep != got {
					t.Fatalf("handed out %q, want %q of %q", got, keep, full)
				}
			}
		}
		if got != wantText || stop != wantStop || used != wantUsed {
			t.Fatalf("got %q stop %q after %d tokens, want %q %q %d", got, stop, used, wantText, wantStop, wantUsed)
		}
	})
}

func TestLongTextKeepsLittle(t *testing.T) {
	p := request.DefaultSampling()
	p.Stop = []string{"never"}
	x := newText(&byteStream{}, &p)
	total := 0
	for range 10000 {
		x.push([]int32{'a'}, false)
		total += len(x.next(false))
	}
	require.Equal(t, 10000-4, total)
	require.Less(t, cap(x.buf), 2048)
}

func TestLogprobTextsOfSplitCharacters(t *testing.T) {
	l := logprobs{tok: bytesTokenizer{}}
	one := func(chosen byte, others ...byte) request.TokenLogprobs {
		p := request.TokenLogprobs{}
		for i, b := range append([]byte{chosen}, others...) {
			p.IDs, p.Logprobs, p.Ranks = append(p.IDs, int32(b)), append(p.Logprobs, -1), append(p.Ranks, int32(i))
		}
		return p
	}
	euro := "€" // e2 82 ac
	got := l.texts([]request.TokenLogprobs{{}, one('a'), one(euro[0]), one(euro[1]), one(euro[2], 'b', 0x82), one('c')})
	text := func(i, j int) string { return got[i][j].Text }
	require.Nil(t, got[0])
	require.Equal(t, "a", text(1, 0))
	require.Empty(t, text(2, 0), "an incomplete token has no text")
	require.Empty(t, text(3, 0))
	require.Equal(t, "€", text(4, 0), "the completing token carries the character")
	require.Equal(t, "b", text(4, 1))
	require.Equal(t, "c", text(5, 0))
}
