package record

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The figures are those of vLLM-Omni's definition: the player begins with the first chunk, and a chunk's own audio does not help it.
func TestPlayoutFindsTheLongestUnderrun(t *testing.T) {
	var p Playout
	require.False(t, p.WorstUnderrun().IsSet(), "no chunk came: not measured")
	for _, c := range []struct{ at, samples int }{{1000, 2400}, {1050, 2400}, {1300, 2400}, {1350, 0}, {1400, 2400}} {
		p.Chunk(wall(c.at), c.samples, 24000)
	}
	wantMS(t, 100, p.WorstUnderrun(), "200 ms of audio were there after 300")
	require.Equal(t, 2, p.Gaps, "and 300 ms after 400")
	var smooth Playout
	for i := range 9 {
		smooth.Chunk(wall(100*i), 2400, 24000)
	}
	d, ok := smooth.WorstUnderrun().Get()
	require.True(t, ok)
	require.Equal(t, time.Duration(0), d, "a measured 0")
}
