package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func pushAll(s *Stream, ids []int32) (deltas []string) {
	for _, id := range ids {
		deltas = append(deltas, s.Push(id))
	}
	return append(deltas, s.Flush())
}

func TestStreamGivesWholeCharactersAndTheTextOfDecode(t *testing.T) {
	for _, name := range own(t) {
		t.Run(name, func(t *testing.T) {
			tok := loadOwn(t, name)
			rapid.Check(t, func(t *rapid.T) {
				ids := rapid.SliceOf(rapid.Int32Range(-1, int32(tok.VocabSize()))).Draw(t, "ids")
				skip := rapid.Bool().Draw(t, "skip")
				deltas := pushAll(tok.NewStream(nil, skip, true), ids)
				for _, d := range deltas {
					require.True(t, utf8.ValidString(d), "%q", d)
				}
				require.Equal(t, tok.Decode(ids, skip), strings.Join(deltas, ""))
			})
		})
	}
}

func TestStreamHoldsATokenThatEndsInsideACharacter(t *testing.T) {
	tok := loadOwn(t, "gpt2")
	ids := make([]int32, 0, 4)
	for _, b := range []byte("😀") {
		id, ok := tok.ID(newByteAlphabet().encode(string([]byte{b})))
		require.True(t, ok)
		ids = append(ids, id)
	}
	require.Equal(t, []string{"", "", "", "😀", ""}, pushAll(tok.NewStream(nil, true, true), ids))

	x, ok := tok.ID("x")
	require.True(t, ok)
	// Three bytes of the four: one U+FFFD, and only once the next token shows that no character comes of them.
	broken := append(ids[:3:3], x)
	require.Equal(t, []string{"", "", "", "\ufffdx", ""}, pushAll(tok.NewStream(nil, true, true), broken))
	require.Equal(t, []string{"", "", "\ufffd"}, pushAll(tok.NewStream(nil, true, true), ids[:2]))
}

func TestStreamOfByteTokensCountsEachWrongByte(t *testing.T) {
	tok := loadOwn(t, "llama2")
	id := func(token string) int32 {
		got, ok := tok.ID(token)
		require.True(t, ok, token)
		return got
	}
	a := id("a")
	ids := []int32{a, id("<0xC3>"), id("<0xA9>"), id("<0xE2>"), id("<0x82>"), a}
	require.Equal(t, []string{"a", "", "é", "", "", "\ufffd\ufffda", ""}, pushAll(tok.NewStream(nil, true, true), ids))
}

func TestStreamKeepsTheLeadingSpaceAfterAPrompt(t *testing.T) {
	tok := loadOwn(t, "llama2")
	ids, err := tok.Encode("hello world", EncodeOptions{AddSpecial: true})
	require.NoError(t, err)
	require.Equal(t, "hello world", strings.Join(pushAll(tok.NewStream(nil, true, true), ids), ""))

	space, ok := tok.ID("▁")
	require.True(t, ok)
	require.Equal(t, []string{" ", ""}, pushAll(tok.NewStream(ids, true, true), []int32{space}))
	require.Equal(t, []string{"", ""}, pushAll(tok.NewStream(nil, true, true), []int32{space}))
}

func TestStreamFinishesTheCharacterThatThePromptBegan(t *testing.T) {
	tok := loadOwn(t, "gpt2")
	var ids []int32
	for _, b := range []byte("é") {
		id, ok := tok.ID(newByteAlphabet().encode(string([]byte{b})))
		require.True(t, ok)
		ids = append(ids, id)
	}
	s := tok.NewStream(ids[:1], true, true)
	require.Equal(t, "é", s.Push(ids[1]))
}

func TestSpecialTokensAreLeftOutOnlyWhenAsked(t *testing.T) {
	tok := loadOwn(t, "smollm2")
	ids, err := tok.Encode("<|im_start|>user\nhi<|im_end|>", EncodeOptions{ParseSpecial: true})
	require.NoError(t, err)
	require.Equal(t, "<|im_start|>user\nhi<|im_end|>", tok.Decode(ids, false))
	require.Equal(t, "user\nhi", tok.Decode(ids, true))
	require.True(t, tok.IsSpecial(ids[0]))

	plain, err := tok.Encode("<|im_start|>user\nhi<|im_end|>", EncodeOptions{})
	require.NoError(t, err)
	require.Greater(t, len(plain), len(ids))
	for _, id := range plain {
		require.False(t, tok.IsSpecial(id))
	}
	require.Equal(t, "<|im_start|>user\nhi<|im_end|>", tok.Decode(plain, true))
}

func TestOneTokenOfAStreamAllocatesNothing(t *testing.T) {
	tok := loadOwn(t, "smollm2")
	ids, err := tok.Encode("the quick brown fox jumps over the lazy dog", EncodeOptions{})
	require.NoError(t, err)
	s := tok.NewStream(nil, true, true)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for _, id := range ids {
			s.Push(id)
		}
	}))
}
