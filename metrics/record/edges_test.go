package record

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// PS-11 for edges: durations exist within one clock alone, and what nobody saw is null.
func TestEdgeDurationsStayWithinOneClockPS11(t *testing.T) {
	a, b := clock.NewManual(time.Second), clock.NewManual(time.Second)
	wall := clock.WallAt(time.Unix(1000, 0))
	core := func(m *clock.Manual, stage int, ms int) Instant {
		return CoreInstant(stage, 0, m.At(time.Second+time.Duration(ms)*time.Millisecond))
	}
	server := func(ms int) Instant { return ServerInstant(wall.Add(time.Duration(ms) * time.Millisecond)) }
	for name, c := range map[string]struct {
		edge      StreamEdge
		lag, send any
	}{
		"all by one core":           {StreamEdge{FirstOutput: core(a, 0, 1), FirstByte: core(a, 0, 3), LastByte: core(a, 0, 8)}, 2.0, 5.0},
		"bytes by the server":       {StreamEdge{FirstOutput: core(a, 0, 1), FirstByte: server(3), LastByte: server(8)}, nil, 5.0},
		"bytes by another core":     {StreamEdge{FirstOutput: core(a, 0, 1), FirstByte: core(b, 1, 3), LastByte: core(b, 1, 8)}, nil, 5.0},
		"two senders":               {StreamEdge{FirstOutput: core(a, 0, 1), FirstByte: core(a, 0, 3), LastByte: server(8)}, 2.0, nil},
		"a measured zero":           {StreamEdge{FirstOutput: core(a, 0, 1), FirstByte: core(a, 0, 1), LastByte: core(a, 0, 1)}, 0.0, 0.0},
		"nothing was sent":          {StreamEdge{FirstOutput: core(a, 0, 1)}, nil, nil},
		"nothing was seen":          {StreamEdge{}, nil, nil},
		"bytes before any output":   {StreamEdge{FirstOutput: core(a, 0, 4), FirstByte: core(a, 0, 1), LastByte: core(a, 0, 8)}, nil, 7.0},
		"an unread clock is absent": {StreamEdge{FirstByte: CoreInstant(0, 0, clock.Time{}), LastByte: core(a, 0, 1)}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.lag, spanMS(c.edge.OutputLag()))
			require.Equal(t, c.send, spanMS(c.edge.SendTime()))
		})
	}
}

func spanMS(s clock.Span) any {
	if v, ok := s.Milliseconds(); ok {
		return v
	}
	return nil
}

func TestEdgeKeepsFirstChunksAndFirstAndLastBytes(t *testing.T) {
	w := clock.WallAt(time.Unix(1000, 0))
	at := func(s int) Instant { return ServerInstant(w.Add(time.Duration(s) * time.Second)) }
	var e StreamEdge
	for s := 1; s <= 3; s++ {
		for what := InputChunk; what <= BytesSent; what++ {
			e.Mark(what, at(s))
		}
	}
	e.Mark(BytesSent, Instant{})
	require.Equal(t, StreamEdge{FirstInput: at(1), FirstOutput: at(1), FirstByte: at(1), LastByte: at(3)}, e)
}

// The JSON names each event's clock and counts from that clock's origin; no number of one clock can be read beside another's.
func TestEdgeJSONNamesClocksAndHasNulls(t *testing.T) {
	m := clock.NewManual(time.Hour)
	s := Begin(Identity{StageID: 0}, clock.WallAt(time.Unix(1000, 0)))
	at := func(ms int) clock.Time { return m.At(time.Hour + time.Duration(ms)*time.Millisecond) }
	s.ApplyOutput(at(12), s.Arrival.Add(13*time.Millisecond), &request.Output{NewTokens: []int32{1}, Finish: request.FinishStop,
		Events:  []request.Event{{Type: request.Queued, At: at(0)}, {Type: request.Scheduled, At: at(2)}},
		Changes: []request.StateChange{{To: request.StateQueued, At: at(0)}, {To: request.StatePrefill, At: at(2)}}}, nil)
	e := ClientEdge(s, s.Arrival.Add(20*time.Millisecond), clock.Wall{})
	require.Equal(t, `{"from_stage":0,"from_replica":0,"to_stage":null,"to_replica":null,"first_input_chunk":null,`+
		`"first_output_chunk":{"clock":"core 0/0","ms":12},"first_byte_sent":{"clock":"server","ms":20},"last_byte_sent":null,`+
		`"output_lag_ms":null,"send_ms":null}`, string(e.JSON(Origins(s.Arrival, s))))
	require.Contains(t, string(e.JSON(nil)), `"first_output_chunk":{"clock":"core 0/0","ms":null}`, "without an origin only the clock is told")
}

// A record that was not kept tells an edge nothing (PS-15), and a stage that did not wait has no first input.
func TestEdgeOfUnrecordedRequestIsAbsentPS15(t *testing.T) {
	m := clock.NewManual(time.Hour)
	s := Begin(Identity{}, clock.WallAt(time.Unix(1000, 0)))
	s.SetRecording(false)
	s.ApplyOutput(m.Now(), s.Arrival, &request.Output{NewTokens: []int32{1}, Finish: request.FinishStop}, nil)
	require.Equal(t, StreamEdge{To: Client}, ClientEdge(s, clock.Wall{}, clock.Wall{}))
}

func TestTraceParentReadsWhatTheRecommendationSays(t *testing.T) {
	const id, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for header, want := range map[string]string{ // the traceparent that goes on; empty: none
		"00-" + id + "-" + span + "-01":                      "00-" + id + "-" + span + "-01",
		"00-" + id + "-" + span + "-00":                      "00-" + id + "-" + span + "-00",
		" 00-" + id + "-" + span + "-01 ":                    "00-" + id + "-" + span + "-01",
		"00-" + id + "-" + span + "-03":                      "00-" + id + "-" + span + "-01", // unknown flags do not go on
		"cc-" + id + "-" + span + "-01-later":                "00-" + id + "-" + span + "-01",
		"cc-" + id + "-" + span + "-01":                      "00-" + id + "-" + span + "-01",
		"cc-" + id + "-" + span + "-01.later":                "",
		"00-" + id + "-" + span + "-01-later":                "",
		"ff-" + id + "-" + span + "-01":                      "",
		"00-" + strings.ToUpper(id) + "-" + span + "-01":     "",
		"00-" + strings.Repeat("0", 32) + "-" + span + "-01": "",
		"00-" + id + "-" + strings.Repeat("0", 16) + "-01":   "",
		"00-" + id + "-" + span:                              "",
		"00-" + id + "-" + span + "-0":                       "",
		"00-" + strings.Repeat("x", 32) + "-" + span + "-01": "",
		"":    "",
		"---": "",
	} {
		require.Equal(t, want, ParseTraceParent(header).TraceParent(), header)
	}
	two := []string{"00-" + id + "-" + span + "-01", "00-" + id + "-" + span + "-01"}
	require.False(t, TraceFrom(two, nil).IsValid(), "several traceparents are none")
	require.Empty(t, TraceFrom(nil, []string{"a=b"}).State, "a tracestate alone says nothing")
	require.Equal(t, "a=b,c=d", TraceFrom(two[:1], []string{"a=b", "c=d"}).State)
	require.Equal(t, id, TraceFrom(two[:1], nil).Exemplar())
	require.Empty(t, ParseTraceParent("00-"+id+"-"+span+"-00").Exemplar(), "nobody keeps that trace")
}
