package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

func says(at clock.Time, outs ...request.Output) *request.StepOutputs {
	return &request.StepOutputs{At: at, Outputs: outs}
}

func one(id request.ID, why request.FinishReason) request.Output {
	return request.Output{ID: id, NewTokens: []int32{7}, Finish: why}
}

// Two sequences: the second starts a step after the first, whose early token therefore counts for neither rate.
func TestBenchEngineRatesCoverOnlyTheSteadyPart(t *testing.T) {
	c := clock.NewManual(time.Second)
	w := newBenchWatch()
	w.expect(2, 4)
	at := func(ms int) clock.Time { return c.At(time.Duration(ms) * time.Millisecond) }
	w.Step(says(at(100), one("a", request.NotFinished)))
	w.Step(says(at(200), one("a", request.NotFinished), one("b", request.NotFinished)))
	w.Step(says(at(210), one("a", request.NotFinished), one("b", request.NotFinished)))
	w.Step(says(at(220), one("a", request.FinishLength), one("b", request.NotFinished)))
	require.Empty(t, w.done)
	w.Step(says(at(900), one("b", request.FinishLength)))
	require.NoError(t, <-w.done)
	prefill, decode, err := w.rates(at(0), 50)
	require.NoError(t, err)
	require.InDelta(t, 100/0.2, prefill, 1e-6)
	require.InDelta(t, 4/0.02, decode, 1e-6)
}

func TestBenchEngineRefusesRoundsWithoutASteadyPart(t *testing.T) {
	c := clock.NewManual(time.Second)
	w := newBenchWatch()
	w.expect(2, 2)
	w.Step(says(c.Advance(time.Millisecond), one("a", request.NotFinished)))
	w.Step(says(c.Advance(time.Millisecond), one("a", request.FinishLength)))
	w.Step(says(c.Advance(time.Millisecond), one("b", request.NotFinished)))
	w.Step(says(c.Advance(time.Millisecond), one("b", request.FinishLength)))
	require.NoError(t, <-w.done)
	_, _, err := w.rates(c.At(0), 8)
	require.ErrorContains(t, err, "--gen")
}

func TestBenchEngineTellsOfRequestsThatEndOtherwise(t *testing.T) {
	c := clock.NewManual(time.Second)
	for name, end := range map[string]func(*benchWatch){
		"stopped early": func(w *benchWatch) { w.Step(says(c.Now(), one("a", request.FinishStop))) },
		"too short":     func(w *benchWatch) { w.Step(says(c.Now(), one("a", request.FinishLength))) },
		"failed": func(w *benchWatch) {
			w.Terminal(c.Now(), []request.Output{{ID: "a", Finish: request.FinishError, Err: "NaN"}})
		},
		"core lost": func(w *benchWatch) { w.Lost(errors.New("gone")) },
	} {
		w := newBenchWatch()
		w.expect(1, 5)
		end(w)
		require.Error(t, <-w.done, name)
	}
}
