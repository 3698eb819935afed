package probe

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What a figure is depends on the machine; that each instruction runs and is counted does not.
func TestEveryInstructionOfTheMachineHasAPeak(t *testing.T) {
	p := Measure(1)
	if p.AVX2 == 0 {
		t.Skip("no AVX2, or no cgo, here")
	}
	require.Positive(t, p.FMA)
	for _, level := range []string{"avx2", "avx-vnni", "avx512-vnni", "avx512-amx"} {
		peak, instruction := p.ForLevel(level)
		require.NotEmpty(t, instruction)
		t.Logf("%s: %s %.0f Gop/s", level, instruction, peak)
	}
	near, err := Bandwidth(1, 1<<20)
	require.NoError(t, err)
	require.Positive(t, near)
	_, instruction := p.ForLevel("scalar")
	require.Empty(t, instruction)
}
