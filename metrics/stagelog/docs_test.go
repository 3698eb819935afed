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
	tables := map[string]string{"pipeline": a.stageTable()}
	for name, records := range situations() {
		b := NewAggregator("r", wall(0), 0)
		if name == "duplex" {
			b = NewDuplexAggregator("r", wall(0), 0)
		}
		for _, s := range records {
			b.OnStage(s, s.FinishedAt)
		}
		tables[name] = b.stageTable()
	}
	// A row is quoted with the situation that shows it, "(requeued)"; without one it is the table's above.
	quoted := regexp.MustCompile("`([a-z_]+ \\| [^`]*)`(?: \\(([a-z-]+)\\))?").FindAllStringSubmatch(text, -1)
	shown := map[string]int{}
	for _, q := range quoted {
		from := q[2]
		if from == "" {
			from = "pipeline"
		}
		require.Contains(t, tables, from, q[0])
		name, _, _ := strings.Cut(q[1], " ")
		require.Equal(t, q[1], line(tables[from], name), q[0])
		shown[from]++
	}
	for name := range tables {
		require.Positive(t, shown[name], "a row of %s is quoted", name)
	}
	require.Empty(t, line(tables["ended-preempted"], record.VLLMPreemptedMS), "that interval has no end")
	require.Empty(t, line(tables["session"], record.VLLMQueuedMS), "absent in both columns")
	require.Empty(t, line(tables["duplex"], record.VLLMDecodeMS))
}

// situations are the records behind the rows that the documentation quotes.
func situations() map[string][]*record.Stage {
	c := clock.NewManual(0)
	at := func(v float64) clock.Time { d, _ := ms(v).Get(); return c.At(d) }
	event := func(k request.EventType, v float64) request.Event { return request.Event{Type: k, At: at(v)} }
	change := func(s request.State, v float64) request.StateChange { return request.StateChange{To: s, At: at(v)} }
	begin := func(stage int, waits record.Waits) *record.Stage {
		return record.Begin(record.Identity{RequestID: "r", StageID: stage, Waits: waits}, wall(0))
	}
	apply := func(s *record.Stage, v float64, o request.Output) *record.Stage {
		s.ApplyOutput(at(v), wall(v), &o, nil)
		return s
	}
	token := func(events ...request.Event) request.Output {
		return request.Output{NewTokens: []int32{1}, Events: events}
	}
	last := func(o request.Output) request.Output { o.Finish = request.FinishStop; return o }
	start := []request.Event{event(request.Queued, 10), event(request.Scheduled, 20)}

	requeued := last(token(event(request.Queued, 0), event(request.Scheduled, 10), event(request.Scheduled, 60)))
	requeued.Changes = []request.StateChange{change(request.StateQueued, 0), change(request.StatePrefill, 10), change(request.StateRequeued, 40), change(request.StatePrefill, 60)}

	tokenless := apply(begin(0, 0), 30, request.Output{Events: start})
	apply(tokenless, 70, last(token()))

	aborted := request.Output{Terminal: true, Finish: request.FinishAbort, Events: append(start, event(request.Preempted, 30), event(request.Scheduled, 35), event(request.Preempted, 50))}

	timedOut := request.Output{Terminal: true, Finish: request.FinishError, Events: []request.Event{event(request.Queued, 0)}}

	session := func() []*record.Stage {
		s := apply(begin(0, 0), 20, token(event(request.Queued, 0), event(request.Scheduled, 10)))
		o := last(token(event(request.Queued, 25))) // the next segment's QUEUED comes with this one's last output
		o.Segment = true
		segment := apply(s, 30, o).SegmentRecord(wall(30), request.FinishStop)
		s.Restart(wall(30), 3)
		apply(s, 60, token(event(request.Scheduled, 40)))
		return []*record.Stage{segment, apply(s, 90, last(token(event(request.Preempted, 65), event(request.Scheduled, 70))))}
	}

	sender := apply(begin(0, record.CanSendKV), 40, token(start...))
	ack := last(request.Output{KVReady: true})
	ack.Changes = []request.StateChange{change(request.StateDecode, 40), change(request.StateWaitingKVAck, 45)}
	receiver := last(token(event(request.Queued, 10), event(request.Scheduled, 70)))
	receiver.Changes = []request.StateChange{change(request.StateWaitingKVLoad, 10), change(request.StateQueued, 50), change(request.StatePrefill, 70)}

	return map[string][]*record.Stage{
		"requeued": {apply(begin(0, 0), 100, requeued)}, "without-token": {tokenless}, "ended-preempted": {apply(begin(0, 0), 90, aborted)},
		"timed-out": {apply(begin(0, record.CanWaitInput), 600000, timedOut)}, "session": session(), "duplex": session(),
		"kv": {apply(sender, 90, ack), apply(begin(1, record.CanReceiveKV), 100, receiver)},
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
