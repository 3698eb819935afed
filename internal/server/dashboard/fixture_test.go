package dashboard

import (
	"time"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// bench is a dashboard on a synthetic wall clock, with as many replicas as it is asked for.
type bench struct {
	*Dashboard
	now time.Time
}

func newBench(o Options) *bench {
	b := &bench{now: time.Unix(1_000_000, 0)}
	o.Now, o.Recording = func() time.Time { return b.now }, true
	b.Dashboard = New(o)
	b.now = b.now.Add(time.Hour) // the server is old
	return b
}

func (b *bench) pass(d time.Duration) { b.now = b.now.Add(d) }

func (b *bench) replica(stage, number int) (*Replica, record.Sink) {
	r := b.Replica(ReplicaInfo{StageID: stage, Replica: number})
	return r, r.Sink(record.Discard{})
}

// course is one request's life in a stage, in milliseconds of that core's clock; arrival on the wall is start.
type course struct {
	id, trace              string
	stage, replica         int
	start                  time.Time
	queued, scheduled      int
	first, last            int
	preempted, resumed     int // 0: never
	never, aborted, silent bool
}

// record plays the course into a record, as the output side does.
func (c course) record() *record.Stage {
	m := clock.NewManual(time.Duration(1+c.stage) * time.Hour) // every core has its own origin
	at := func(ms int) clock.Time { return m.Now().Add(time.Duration(ms) * time.Millisecond) }
	wall := func(ms int) clock.Wall { return clock.WallAt(c.start.Add(time.Duration(ms) * time.Millisecond)) }
	s := record.Begin(record.Identity{RequestID: c.id, CoreID: request.ID(c.id + "-0-1"), Model: "m", TraceID: c.trace, StageID: c.stage,
		Replica: c.replica}, clock.WallAt(c.start))
	s.PromptTokens = 7
	s.SetRecording(!c.silent)
	to := func(st request.State, ms int) request.StateChange { return request.StateChange{To: st, At: at(ms)} }
	if c.never {
		s.ApplyOutput(at(c.last), wall(c.last), &request.Output{Terminal: true, Finish: request.FinishAbort,
			Events: []request.Event{{Type: request.Queued, At: at(c.queued)}}, Changes: []request.StateChange{to(request.StateQueued, c.queued)}}, nil)
		return s
	}
	s.ApplyOutput(at(c.first), wall(c.first), &request.Output{NewTokens: []int32{1},
		Events:  []request.Event{{Type: request.Queued, At: at(c.queued)}, {Type: request.Scheduled, At: at(c.scheduled)}},
		Changes: []request.StateChange{to(request.StateQueued, c.queued), to(request.StatePrefill, c.scheduled), to(request.StateDecode, c.first)}}, nil)
	end := request.Output{NewTokens: []int32{2}, Finish: request.FinishLength, Changes: []request.StateChange{to(request.StateNone, c.last)}}
	if c.preempted > 0 {
		end.Events = []request.Event{{Type: request.Preempted, At: at(c.preempted)}, {Type: request.Scheduled, At: at(c.resumed)}}
		end.Changes = []request.StateChange{to(request.StatePreempted, c.preempted), to(request.StateRecompute, c.resumed), to(request.StateNone, c.last)}
	}
	if c.aborted {
		end.Finish = request.FinishAbort
	}
	s.ApplyOutput(at(c.last), wall(c.last), &end, nil)
	return s
}
