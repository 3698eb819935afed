package record

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// sequence is one recorded case: timed events and outputs, and what vLLM's own code made of them.
type sequence struct {
	ID      int
	Outputs []struct {
		TS     float64
		Tokens int
		Events [][2]any
	}
	VLLM struct {
		QueuedTS    float64   `json:"queued_ts"`
		ScheduledTS float64   `json:"scheduled_ts"`
		FirstTS     float64   `json:"first_token_ts"`
		LastTS      float64   `json:"last_token_ts"`
		Queued      float64   `json:"queued_time"`
		Prefill     float64   `json:"prefill_time"`
		Decode      float64   `json:"decode_time"`
		Inference   float64   `json:"inference_time"`
		Preemptions int       `json:"num_preemptions"`
		Tokens      int       `json:"num_generation_tokens"`
		Mean        float64   `json:"mean_time_per_output_token"`
		ITL         []float64 `json:"inter_token_latencies"`
		Preempted   int       `json:"preempted_counted"`
	}
}

func sequences(t *testing.T) []sequence {
	t.Helper()
	f, err := os.Open("testdata/phase_split.jsonl")
	require.NoError(t, err)
	defer f.Close()
	var all []sequence
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var s sequence
		require.NoError(t, json.Unmarshal(in.Bytes(), &s))
		all = append(all, s)
	}
	require.NoError(t, in.Err())
	return all
}

// replay feeds a sequence to a fresh record; the last output is the terminal one.
func replay(s sequence) (*Stage, *Iteration) {
	c := clock.NewManual(0)
	at := func(sec float64) clock.Time { return c.At(time.Duration(sec * 1e9)) }
	st, it := Begin(Identity{}, clock.WallAt(time.Unix(1, 0))), &Iteration{}
	types := map[string]request.EventType{"QUEUED": request.Queued, "SCHEDULED": request.Scheduled, "PREEMPTED": request.Preempted}
	for i, o := range s.Outputs {
		out := request.Output{NewTokens: make([]int32, o.Tokens)}
		for _, e := range o.Events {
			out.Events = append(out.Events, request.Event{Type: types[e[0].(string)], At: at(e[1].(float64))})
		}
		if i == len(s.Outputs)-1 {
			out.Finish = request.FinishStop
		}
		st.ApplyOutput(at(o.TS), clock.WallAt(time.Unix(2, 0)), &out, it)
	}
	return st, it
}

// TestSplitEqualsVLLMWhereObservedPS10PS11PS12PS14 replays the recorded sequences: equal to vLLM's own results where both
// ends of an interval were observed and it is not negative, absent everywhere else.
func TestSplitEqualsVLLMWhereObservedPS10PS11PS12PS14(t *testing.T) {
	equal, absent := 0, 0
	check := func(id int, what string, got clock.Span, want float64, seen ...float64) {
		for _, ts := range seen {
			if ts == 0 || want < 0 {
				require.False(t, got.IsSet(), "case %d: %s was not observed", id, what)
				absent++
				return
			}
		}
		sec, ok := got.Seconds()
		require.True(t, ok, "case %d: %s is missing", id, what)
		require.InDelta(t, want, sec, 1e-8, "case %d: %s", id, what)
		equal++
	}
	all := sequences(t)
	for _, s := range all {
		st, it := replay(s)
		v := s.VLLM
		check(s.ID, "queued", st.QueuedTime(), v.Queued, v.QueuedTS, v.ScheduledTS)
		check(s.ID, "prefill", st.PrefillTime(), v.Prefill, v.ScheduledTS, v.FirstTS)
		check(s.ID, "decode", st.DecodeTime(), v.Decode, v.FirstTS, v.LastTS)
		check(s.ID, "inference", st.InferenceTime(), v.Inference, v.ScheduledTS, v.LastTS)
		n, ok := st.Preemptions()
		require.Equal(t, v.ScheduledTS != 0, ok, "case %d: preemptions are known with a SCHEDULED", s.ID)
		if ok {
			require.Equal(t, v.Preemptions, n, "case %d", s.ID)
		}
		require.Equal(t, v.Tokens, st.NumGenerationTokens, "case %d", s.ID)
		require.Equal(t, v.Preempted, it.Preemptions, "case %d", s.ID)
		require.Len(t, it.ITL, len(v.ITL), "case %d", s.ID)
		for i, d := range it.ITL {
			sec, _ := d.Seconds()
			require.InDelta(t, v.ITL[i], sec, 1e-8, "case %d", s.ID)
		}
		if v.Tokens > 1 {
			check(s.ID, "mean time per token", st.MeanTimePerOutputToken(), v.Mean, v.FirstTS, v.LastTS)
		} else {
			require.False(t, st.MeanTimePerOutputToken().IsSet(), "case %d", s.ID)
		}
	}
	require.Len(t, all, 300)
	require.Greater(t, equal, 500)
	require.Greater(t, absent, 50)
}
