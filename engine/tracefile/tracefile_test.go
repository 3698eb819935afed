package tracefile

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

type event struct {
	Ph   string
	Pid  int
	Tid  int
	Ts   float64
	Dur  float64
	Name string
	Args map[string]any
}

func parse(t *testing.T, b []byte) []event {
	var f struct {
		TraceEvents []event
		OtherData   map[string]string
	}
	require.NoError(t, json.Unmarshal(b, &f), string(b))
	return f.TraceEvents
}

func at(m *clock.Manual, ms int) clock.Time { return m.At(time.Duration(ms) * time.Millisecond) }

func TestARequestIsATrackOfItsLedgerStates(t *testing.T) {
	var b bytes.Buffer
	m := clock.NewManual(0)
	base := time.Unix(1000, 0)
	w := New(&b, "stage 0", clock.Pair{Core: at(m, 0), Wall: clock.WallAt(base)}, 0)
	w.Output(&request.Output{ID: `r"1`, Changes: []request.StateChange{
		{To: request.StateQueued, At: at(m, 1)}, {To: request.StatePrefill, At: at(m, 3)}, {To: request.StateDecode, At: at(m, 8)}},
		Events: []request.Event{{Type: request.Preempted, At: at(m, 9)}}})
	w.Output(&request.Output{ID: `r"1`, Finish: request.FinishStop, Changes: []request.StateChange{{To: request.StateNone, At: at(m, 10)}}})
	w.Output(&request.Output{ID: "open", Changes: []request.StateChange{{To: request.StateQueued, At: at(m, 4)}}})
	w.Step(&Step{Seq: 7, Start: at(m, 3), End: at(m, 8), Rows: 1, Tokens: 12, MaxTokens: 16, Running: 1, KVUsage: 0.25, Explain: "step=7"})
	require.NoError(t, w.Close(at(m, 20)))

	slices, names, counters, instants := map[string][2]float64{}, map[int]string{}, map[string]map[string]any{}, 0
	for _, e := range parse(t, b.Bytes()) {
		switch e.Ph {
		case "X":
			slices[e.Name] = [2]float64{e.Ts - 1e9, e.Dur}
			if e.Name == "step 7" {
				require.Equal(t, "step=7", e.Args["decision"])
			}
		case "M":
			if e.Name == "thread_name" && e.Pid == pidRequests {
				names[e.Tid] = e.Args["name"].(string)
			}
		case "C":
			counters[e.Name] = e.Args
		case "i":
			instants++
		}
	}
	require.Equal(t, map[int]string{1: `r"1`, 2: "open"}, names)
	require.Equal(t, [2]float64{3000, 5000}, slices["prefill"])
	require.Equal(t, [2]float64{8000, 2000}, slices["decode"])
	require.Equal(t, [2]float64{4000, 16000}, slices["queued"], "the open slice of the other request ends at Close")
	require.Equal(t, [2]float64{3000, 5000}, slices["step 7"])
	require.Equal(t, map[string]any{"used": 12.0, "left": 4.0}, counters["scheduled tokens"])
	require.Equal(t, 25.0, counters["KV cache usage %"]["used"])
	require.Equal(t, 1, instants)
}

func TestAFullFileStaysValidAndCountsWhatItDropped(t *testing.T) {
	var b bytes.Buffer
	m := clock.NewManual(0)
	w := New(&b, "s", m0(m), 2000)
	for i := range 1000 {
		w.Step(&Step{Seq: uint64(i), Start: at(m, i), End: at(m, i+1)})
	}
	require.NoError(t, w.Close(at(m, 2000)))
	require.Less(t, b.Len(), 2200)
	require.Positive(t, w.Dropped())
	require.NotEmpty(t, parse(t, b.Bytes()))
}

func m0(m *clock.Manual) clock.Pair {
	return clock.Pair{Core: m.At(1), Wall: clock.WallAt(time.Unix(1, 0))}
}

func TestWritingAStepAllocatesLittle(t *testing.T) {
	var b bytes.Buffer
	b.Grow(1 << 24)
	m := clock.NewManual(0)
	w := New(&b, "s", m0(m), 0)
	s := &Step{Start: at(m, 1), End: at(m, 2), Tokens: 3}
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { w.Step(s) }), 6.0)
}

func FuzzAnyIDIsValidJSON(f *testing.F) {
	for _, s := range []string{"", "r1", "\"\\\n\x00\xff", "é😀\u2028", "</script>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		require.NoError(t, json.Unmarshal(appendString(nil, s), &got))
		require.Equal(t, string([]rune(s)), got)
	})
}
