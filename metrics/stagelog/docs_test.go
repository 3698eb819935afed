package stagelog

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// documented is the pipeline of docs/metrics.md: a language model and a vocoder that waits for its chunks.
func documented() *Aggregator {
	c := clock.NewManual(0)
	span := func(v float64) clock.Time { d, _ := ms(v).Get(); return c.At(d) }
	event := func(k request.EventType, at float64) request.Event { return request.Event{Type: k, At: span(at)} }
	change := func(s request.State, at float64) request.StateChange { return request.StateChange{To: s, At: span(at)} }
	apply := func(s *record.Stage, at float64, o request.Output) { s.ApplyOutput(span(at), wall(at), &o, nil) }

	llm := record.Begin(record.Identity{RequestID: "chatcmpl-1", BatchID: 1}, wall(0))
	llm.PromptTokens, llm.FinalOutputType = 37, "text"
	apply(llm, 105, request.Output{NewTokens: []int32{1}, Events: []request.Event{event(request.Queued, 0.4), event(request.Scheduled, 12.4)}})
	apply(llm, 145, request.Output{NewTokens: []int32{1}})
	apply(llm, 265, request.Output{NewTokens: []int32{1}, Finish: request.FinishStop,
		Events: []request.Event{event(request.Preempted, 150), event(request.Scheduled, 210)}})

	vocoder := record.Begin(record.Identity{StageID: 1, Type: record.LLMGeneration, Waits: record.CanWaitInput | record.CanWaitChunk, BatchID: 1}, wall(0))
	vocoder.FinalOutputType, vocoder.AudioFrames, vocoder.AudioSampleRate, vocoder.Units = "audio", 48000, 24000, 48000
	apply(vocoder, 420, request.Output{Payload: &request.Payload{}, Finish: request.FinishStop,
		Events: []request.Event{event(request.Queued, 0.6), event(request.Scheduled, 110.6)},
		Changes: []request.StateChange{change(request.StateWaitingInput, 0.6), change(request.StateQueued, 108.6),
			change(request.StatePrefill, 110.6), change(request.StateWaitingChunk, 150), change(request.StatePrefill, 268)}})

	a := NewAggregator("chatcmpl-1", wall(0), 1)
	a.OnStage(llm, llm.FinishedAt)
	a.OnStage(vocoder, vocoder.FinishedAt)
	a.OnFinalize(wall(421))
	return a
}

// TestDocumentationShowsRealRows renders the table that docs/metrics.md prints, and checks every row that its text quotes.
func TestDocumentationShowsRealRows(t *testing.T) {
	data, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	text := string(data)
	a := documented()
	require.Contains(t, text, "```"+a.stageTable()+"\n"+a.timing()+"\n```")
	quoted := regexp.MustCompile("`(vllm_[a-z_]+_ms \\| [^`]*)`").FindAllStringSubmatch(text, -1)
	require.Greater(t, len(quoted), 6)
	for _, q := range quoted {
		name, _, _ := strings.Cut(q[1], " ")
		require.Equal(t, q[1], line(a.stageTable(), name))
	}
}

// TestDocumentationNamesWhatTheRegistryHasPS13 compares the documentation, which may spell the names, with the registry.
func TestDocumentationNamesWhatTheRegistryHasPS13(t *testing.T) {
	data, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	known := map[string]bool{record.VLLMTTFTMS: true, record.VLLMTPOTMS: true, record.VLLMITLMS: true, record.VLLMITLsMS: true}
	for _, f := range record.SplitFields() {
		known[f.Name] = true
		require.Contains(t, string(data), "`"+f.Name, "documented")
	}
	for _, name := range regexp.MustCompile(`vllm_[a-z_]+(_ms|_preemptions)\b`).FindAllString(string(data), -1) {
		require.True(t, known[name], "%s is in the documentation, not in the registry", name)
	}
}
