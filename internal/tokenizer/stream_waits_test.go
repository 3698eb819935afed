package tokenizer

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// A text shows nothing of bytes that are no character until one follows, as in vLLM (recorded: utf8_first_half_only).
func TestRepeatedHalfCharactersShowNothingUntilACharacterFollows(t *testing.T) {
	tok := loadOwn(t, "gpt2")
	half, letter := int32(-1), int32(-1)
	for id := range int32(tok.VocabSize()) {
		switch b := tok.TokenBytes(id); {
		case len(b) > 0 && b[0] >= 0xc2 && b[0] <= 0xf4 && !utf8.FullRune(b):
			half = id
		case string(b) == "a":
			letter = id
		}
	}
	require.NotEqual(t, int32(-1), half)
	require.NotEqual(t, int32(-1), letter)
	s := tok.NewStream([]int32{letter}, true, true)
	for range 3 {
		require.Empty(t, s.Push(half))
	}
	require.Equal(t, "\ufffd\ufffd\ufffda", s.Push(letter))
	require.Empty(t, s.Flush())
}
