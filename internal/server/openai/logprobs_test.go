package openai

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRepeatedTextsKeepTheirFirstPlaceAndLastValue(t *testing.T) {
	for _, n := range []int{3, searchable, searchable + 1, 500} {
		var l textLogprobs
		for i := range n {
			l.set(strconv.Itoa(i), logprob(-i))
		}
		l.set(strconv.Itoa(n-1), -0.5)
		l.set("1", -0.25)
		l.set("new", -7)
		require.Len(t, l.texts, n+1)
		require.Equal(t, []string{"0", "1", "2"}, l.texts[:3])
		require.Equal(t, logprob(-0.25), l.values[1])
		require.Equal(t, logprob(-0.5), l.values[n-1])
		require.Equal(t, "new", l.texts[n])
	}
}

// A search through all texts for each would take minutes here.
func TestLogprobsOfAWholeVocabularyTakeLinearTime(t *testing.T) {
	begin := time.Now()
	var l textLogprobs
	for i := range 1 << 19 {
		l.set("token "+strconv.Itoa(i), 0)
	}
	require.Len(t, l.texts, 1<<19)
	require.Less(t, time.Since(begin), 20*time.Second)
}
