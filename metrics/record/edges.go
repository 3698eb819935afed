package record

import (
	"encoding/json"
	"strconv"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// Instant is when something was seen, on the clock of whoever saw it: an engine core's, or the server's. The zero value is absent.
type Instant struct {
	core           clock.Time
	wall           clock.Wall
	stage, replica int
}

// CoreInstant is a reading of the clock of a stage's replica.
func CoreInstant(stage, replica int, at clock.Time) Instant {
	if !at.IsSet() {
		return Instant{}
	}
	return Instant{core: at, stage: stage, replica: replica}
}

// ServerInstant is a reading of the server's clock.
func ServerInstant(at clock.Wall) Instant { return Instant{wall: at} }

// IsSet reports whether it was seen.
func (i Instant) IsSet() bool { return i.core.IsSet() || i.wall.IsSet() }

// Clock names the clock: "core STAGE/REPLICA", "server", or nothing when absent.
func (i Instant) Clock() string {
	switch {
	case i.core.IsSet():
		return "core " + strconv.Itoa(i.stage) + "/" + strconv.Itoa(i.replica)
	case i.wall.IsSet():
		return "server"
	}
	return ""
}

// Sub returns i−j, absent when either is, when they are of different clocks, or when it would be negative (PS-11).
func (i Instant) Sub(j Instant) clock.Span {
	if s := i.core.Sub(j.core); s.IsSet() {
		return s.NonNegative()
	}
	return i.wall.Sub(j.wall).NonNegative()
}

// Wall returns the instant as wall time, for drawing only: a core's is mapped by core, which knows that core's (core, wall) pair.
func (i Instant) Wall(core func(stage, replica int, at clock.Time) clock.Wall) clock.Wall {
	if i.core.IsSet() {
		return core(i.stage, i.replica, i.core)
	}
	return i.wall
}

// Client is the To of the edge from the last stage.
const Client = -1

// StreamEdge says when the stream of one request began and ended between two stages, or between the last stage and the client. What
// nobody saw is absent. Durations exist within one clock alone.
type StreamEdge struct {
	From, FromReplica int
	To, ToReplica     int // Client: no stage

	FirstInput  Instant // the receiver had its first input: its core's clock; a client's is never known here
	FirstOutput Instant // the sender's core gave its first output: its clock
	FirstByte   Instant // the first byte was sent: the clock of who sends, for a client the server's
	LastByte    Instant
}

// EdgeEvent is what can be marked on an edge.
type EdgeEvent uint8

// The events of an edge.
const (
	InputChunk  EdgeEvent = iota // the receiver has a chunk
	OutputChunk                  // the sender gave a chunk
	BytesSent                    // bytes are on their way
)

// Mark notes an event: of chunks the first counts, of bytes the first and the last.
func (e *StreamEdge) Mark(what EdgeEvent, at Instant) {
	keep := func(i *Instant) {
		if !i.IsSet() {
			*i = at
		}
	}
	switch what {
	case InputChunk:
		keep(&e.FirstInput)
	case OutputChunk:
		keep(&e.FirstOutput)
	case BytesSent:
		if at.IsSet() {
			keep(&e.FirstByte)
			e.LastByte = at
		}
	}
}

// SendTime is first byte → last byte.
func (e *StreamEdge) SendTime() clock.Span { return e.LastByte.Sub(e.FirstByte) }

// OutputLag is first output → first byte. It is absent where the sender of bytes reads another clock than the stage's core.
func (e *StreamEdge) OutputLag() clock.Span { return e.FirstByte.Sub(e.FirstOutput) }

// Observe fills in what the records of the edge's two stages know: the sender's first output, and the end of the receiver's wait
// for its first input. What was marked stays.
func (e *StreamEdge) Observe(s *Stage) {
	switch {
	case !s.Recorded():
	case s.StageID == e.From && s.Replica == e.FromReplica:
		e.Mark(OutputChunk, CoreInstant(s.StageID, s.Replica, s.FirstTokenTS))
	case s.StageID == e.To && s.Replica == e.ToReplica:
		e.Mark(InputChunk, CoreInstant(s.StageID, s.Replica, s.firstInput()))
	}
}

// firstInput is the end of the first wait for input; absent when the stage did not wait so.
func (s *Stage) firstInput() clock.Time {
	stays, _ := s.Ledger.Stays()
	for _, st := range stays {
		if st.State == request.StateWaitingInput || st.State == request.StateWaitingChunk {
			return st.To
		}
	}
	return clock.Time{}
}

// ClientEdge is the edge from a last stage to its client; first and last say when the server sent its bytes.
func ClientEdge(s *Stage, first, last clock.Wall) StreamEdge {
	e := StreamEdge{From: s.StageID, FromReplica: s.Replica, To: Client, FirstByte: ServerInstant(first), LastByte: ServerInstant(last)}
	e.Observe(s)
	return e
}

// FirstChunkTime is first input → first output of the stage between two edges, on its core's clock.
func FirstChunkTime(in, out *StreamEdge) clock.Span { return out.FirstOutput.Sub(in.FirstInput) }

// Origins are what an edge's JSON counts from, clock by clock: the server's from the request's arrival, a core's from its first
// QUEUED.
func Origins(arrival clock.Wall, records ...*Stage) []Instant {
	origins := []Instant{ServerInstant(arrival)}
	for _, s := range records {
		origins = append(origins, CoreInstant(s.StageID, s.Replica, s.Ledger.first))
	}
	return origins
}

type instantJSON struct {
	Clock string     `json:"clock"`
	MS    clock.Span `json:"ms"` // since the clock's origin
}

type edgeJSON struct {
	From        int          `json:"from_stage"`
	FromReplica int          `json:"from_replica"`
	To          *int         `json:"to_stage"` // null: the client
	ToReplica   *int         `json:"to_replica"`
	FirstInput  *instantJSON `json:"first_input_chunk"`
	FirstOutput *instantJSON `json:"first_output_chunk"`
	FirstByte   *instantJSON `json:"first_byte_sent"`
	LastByte    *instantJSON `json:"last_byte_sent"`
	OutputLag   clock.Span   `json:"output_lag_ms"`
	SendTime    clock.Span   `json:"send_ms"`
}

// JSON encodes the edge: each event with its clock and its time since that clock's origin, null when absent.
func (e *StreamEdge) JSON(origins []Instant) json.RawMessage {
	at := func(i Instant) *instantJSON {
		if !i.IsSet() {
			return nil
		}
		out := &instantJSON{Clock: i.Clock()}
		for _, o := range origins {
			if out.MS = i.Sub(o); out.MS.IsSet() {
				break
			}
		}
		return out
	}
	v := edgeJSON{From: e.From, FromReplica: e.FromReplica, FirstInput: at(e.FirstInput), FirstOutput: at(e.FirstOutput), FirstByte: at(e.FirstByte),
		LastByte: at(e.LastByte), OutputLag: e.OutputLag(), SendTime: e.SendTime()}
	if e.To != Client {
		v.To, v.ToReplica = &e.To, &e.ToReplica
	}
	b, err := json.Marshal(v)
	if err != nil { // numbers and names always encode
		return json.RawMessage("null")
	}
	return b
}
