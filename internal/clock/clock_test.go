package clock

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSubtractingAcrossClocksIsAbsent(t *testing.T) {
	a, b := NewManual(time.Second), NewManual(time.Second)
	require.False(t, a.Now().Sub(b.Now()).IsSet())
	require.False(t, a.Now().Sub(Time{}).IsSet())
	require.False(t, Time{}.Sub(Time{}).IsSet())
	d, ok := a.At(3 * time.Second).Sub(a.Now()).Get()
	require.True(t, ok)
	require.Equal(t, 2*time.Second, d)
}

func TestAbsentSpanIsNullAndMeasuredZeroIsZero(t *testing.T) {
	j, err := json.Marshal([]Span{{}, SpanOf(0), SpanOf(1500 * time.Microsecond)})
	require.NoError(t, err)
	require.Equal(t, `[null,0,1.5]`, string(j))
	require.False(t, SpanOf(-1).NonNegative().IsSet())
	require.True(t, SpanOf(0).NonNegative().IsSet())
}

func TestPairMapsOnlyItsOwnClock(t *testing.T) {
	m := NewMonotonic()
	p := m.Pair()
	require.Equal(t, p.Wall.Add(time.Second), p.Map(p.Core.Add(time.Second)))
	require.False(t, p.Map(NewMonotonic().Now()).IsSet())
	require.True(t, m.Now().Sub(p.Core).NonNegative().IsSet())
}
