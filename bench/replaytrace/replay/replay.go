package replay

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/scheduler"
)

// Result is the outcome of one replay.
type Result struct {
	Steps      int
	Mismatches int    // steps that differ; a replay ends at the first
	First      string // the first difference, "" when there is none
}

// replay is a run in progress.
type replay struct {
	t       *Trace
	s       *scheduler.Scheduler
	clock   *clock.Manual
	flights map[int]*scheduler.Decision
	prev    map[request.ID]bool // scheduled in the previous step
	clients map[request.ID]int
	ended   map[int][]string // by client, since the last update
	order   []int            // clients in the order of ends
}

// Run replays a trace and compares all that it records.
func Run(t *Trace) (res Result) {
	at := "start"
	defer func() {
		if p := recover(); p != nil {
			res.Mismatches++
			res.First = fmt.Sprintf("%s: the scheduler panicked: %v", at, p)
		}
	}()
	s, err := scheduler.New(t.Config.Scheduler())
	if err != nil {
		return Result{Mismatches: 1, First: err.Error()}
	}
	r := &replay{t: t, s: s, clock: clock.NewManual(time.Second), flights: map[int]*scheduler.Decision{}, prev: map[request.ID]bool{},
		clients: map[request.ID]int{}, ended: map[int][]string{}}
	for i := range t.Steps {
		at = fmt.Sprintf("step %d", t.Steps[i].I)
		r.clock.Advance(time.Millisecond)
		if t.Steps[i].Sched != nil || t.Steps[i].Upd != nil {
			res.Steps++
		}
		if d := r.step(&t.Steps[i]); d != "" {
			res.Mismatches++
			res.First = at + ": " + d
			return res
		}
	}
	return res
}

func (r *replay) step(st *Step) string {
	for i := range st.Pre {
		if d := r.act(&st.Pre[i]); d != "" {
			return "pre: " + d
		}
	}
	if st.Sched != nil {
		if d := r.schedule(st); d != "" {
			return d
		}
	}
	for i := range st.Mid {
		if d := r.act(&st.Mid[i]); d != "" {
			return "mid: " + d
		}
	}
	if st.Upd != nil {
		if d := r.update(st); d != "" {
			return d
		}
	}
	if len(st.Drafts) > 0 {
		ids, drafts := make([]request.ID, len(st.Drafts)), make([][]int32, len(st.Drafts))
		for i, d := range st.Drafts {
			ids[i], drafts[i] = request.ID(d.ID), d.Tokens
		}
		r.s.UpdateDrafts(ids, drafts)
	}
	return r.state(st)
}

func (r *replay) act(a *Action) string {
	now := r.clock.Now()
	switch a.Op {
	case "add":
		return r.add(now, &r.t.Requests[a.R])
	case "abort":
		return r.abort(now, a)
	case "pause":
		states := map[string]scheduler.PauseState{"UNPAUSED": scheduler.Unpaused, "PAUSED_NEW": scheduler.PausedNew, "PAUSED_ALL": scheduler.PausedAll}
		p, ok := states[a.State]
		if !ok {
			return fmt.Sprintf("unknown pause state %q", a.State)
		}
		r.s.SetPause(now, p)
	case "reset_prefix_cache":
		ok, err := r.s.ResetPrefixCache(now, a.Running)
		var got any = ok
		if err != nil {
			got = "error"
		}
		if a.Running {
			clear(r.prev)
		}
		var want any
		if err := json.Unmarshal(a.Result, &want); err != nil {
			return err.Error()
		}
		return diff("reset_prefix_cache", want, got)
	default:
		return fmt.Sprintf("unknown action %q", a.Op)
	}
	return ""
}

func (r *replay) add(now clock.Time, a *Arrival) string {
	id := request.ID(a.ID)
	if !r.s.Has(id) {
		r.clients[id] = a.Client
		if err := r.s.Add(now, a.Request(r.t.EOS)); err != nil {
			return err.Error()
		}
		return ""
	}
	if err := r.s.Extend(now, id, a.Segment()); err != nil {
		return err.Error()
	}
	if !r.s.Has(id) {
		r.noteEnd(id)
	}
	return ""
}

func (r *replay) abort(now clock.Time, a *Action) string {
	ids := make([]request.ID, 0, len(a.Aborted)+len(a.IDs))
	for _, id := range a.Aborted {
		ids = append(ids, request.ID(id))
	}
	for _, id := range a.IDs { // unknown and ended ones must be ignored
		if !slices.Contains(a.Aborted, id) {
			ids = append(ids, request.ID(id))
		}
	}
	aborted := []string{}
	for _, o := range r.s.Abort(now, request.FinishAbort, ids...) {
		aborted = append(aborted, string(o.ID))
		r.noteEnd(o.ID)
	}
	if !slices.Equal(aborted, a.Aborted) {
		return differs("aborted", a.Aborted, aborted)
	}
	return ""
}

func (r *replay) noteEnd(id request.ID) {
	c := r.clients[id]
	if !slices.Contains(r.order, c) {
		r.order = append(r.order, c)
	}
	if !slices.Contains(r.ended[c], string(id)) {
		r.ended[c] = append(r.ended[c], string(id))
	}
}

func (r *replay) schedule(st *Step) string {
	var in struct {
		Throttle bool `json:"throttle"`
	}
	if err := json.Unmarshal(st.Sched, &in); err != nil {
		return err.Error()
	}
	d := r.s.ScheduleThrottled(r.clock.Now(), in.Throttle)
	r.flights[st.I] = d
	return compare("sched", st.Sched, r.sched(d, in.Throttle))
}

func compare(path string, want json.RawMessage, got any) string {
	w, err := plain(want)
	if err != nil {
		return err.Error()
	}
	g, err := plain(got)
	if err != nil {
		return err.Error()
	}
	return diff(path, w, g)
}

func (r *replay) update(st *Step) string {
	d := r.flights[st.Upd.Of]
	if d == nil {
		return fmt.Sprintf("upd: no schedule of step %d in flight", st.Upd.Of)
	}
	delete(r.flights, st.Upd.Of)
	res := &scheduler.StepResult{Rows: make([]scheduler.RowResult, len(d.Rows))}
	for _, s := range st.Upd.Sampled {
		i := slices.IndexFunc(d.Rows, func(row scheduler.Row) bool { return string(row.ID) == s.ID })
		if i < 0 {
			return fmt.Sprintf("upd: %s sampled without being scheduled", s.ID)
		}
		if !d.Rows[i].Samples {
			return fmt.Sprintf("upd: %s sampled, our decision says that it does not", s.ID)
		}
		res.Rows[i].Tokens = s.Tokens
	}
	out := r.s.Update(r.clock.Now(), d, res)
	return compare("upd.clients", st.Upd.Clients, r.clientOutputs(out))
}

func (r *replay) state(st *Step) string {
	if st.State == nil {
		return ""
	}
	w, err := plain(st.State)
	if err != nil {
		return err.Error()
	}
	g, err := plain(stateOf(r.s.Inspect(), r.t.Config.Mode == "async"))
	if err != nil {
		return err.Error()
	}
	sortRows(w)
	sortRows(g)
	return diff("state", w, g)
}
