package dashboard

import (
	"slices"
	"strings"
	"time"

	"omni-engine/engine/request"
	"omni-engine/metrics/record"
)

// List is the answer of /dashboard/requests: recent requests, the last to end first.
type List struct {
	Requests []Summary `json:"requests"`
	Matched  int       `json:"matched"` // of those that are kept
	Kept     int       `json:"kept"`
}

// Summary is one request in the list, over all its stages and sequences.
type Summary struct {
	Key         uint64    `json:"key"` // opens it: /dashboard/request?key=
	ID          string    `json:"id"`  // a client may have chosen it: show it as text only
	Model       string    `json:"model"`
	TraceID     string    `json:"trace_id"`
	Finish      string    `json:"finish_reason"`
	FinishedAt  time.Time `json:"finished_at"`
	Stages      int       `json:"stages"`
	Sequences   int       `json:"sequences"` // records of the last stage: n
	Prompt      int       `json:"prompt_tokens"`
	Cached      int       `json:"cached_tokens"`
	Output      int       `json:"output_tokens"`
	Preemptions int       `json:"preemptions"`
	TTFT        *float64  `json:"ttft_ms"` // of the entry stage, front end's clock; the earliest sequence's
	E2E         *float64  `json:"e2e_ms"`  // front end's clock, arrival to the last end
	States      []InState `json:"states"`  // over its sequences; null with several stages, whose states do not add up (PS-35)
}

// Detail is the answer of /dashboard/request.
type Detail struct {
	Summary
	Arrival time.Time `json:"arrival"`
	Lanes   []Lane    `json:"lanes"`
}

// Lane is a request's course in one stage, on that engine core's clock; times count from its own first QUEUED. Times of two lanes
// must not be compared or added (PS-35).
type Lane struct {
	Stage     int        `json:"stage"`
	StageName string     `json:"stage_name"`
	Type      string     `json:"type"`
	Replica   int        `json:"replica"`
	Clock     string     `json:"clock"`
	Core      string     `json:"core_id"`
	Finish    string     `json:"finish_reason"`
	Stop      string     `json:"stop_reason"`
	Prompt    int        `json:"prompt_tokens"`
	Cached    int        `json:"cached_tokens"`
	Output    int        `json:"output_tokens"`
	Total     *float64   `json:"total_ms"` // null: the ledger was not observed
	Stays     []StayView `json:"stays"`
	LeftOut   int        `json:"left_out"` // stays that were not kept
	Scheduled *float64   `json:"scheduled_ms"`
	First     *float64   `json:"first_output_ms"`
	Last      *float64   `json:"last_output_ms"`
	End       *float64   `json:"end_ms"`
	Inbox     *float64   `json:"inbox_ms"` // before QUEUED
	TTFT      *float64   `json:"ttft_ms"`  // front end's clock
	E2E       *float64   `json:"e2e_ms"`   // front end's clock
	Split     record.Row `json:"split"`
}

// StayView is one visit to a ledger state.
type StayView struct {
	State string  `json:"state"`
	Start float64 `json:"start_ms"`
	MS    float64 `json:"ms"`
}

// requestKey tells requests apart: a client may use one id twice.
type requestKey struct {
	id    string
	start time.Time
}

func (e *entry) key() requestKey { return requestKey{e.id.RequestID, e.start.Time().Round(0)} }

// groups gathers the kept entries by request; the last to end come first.
func (d *Dashboard) groups() [][]*entry {
	d.mu.Lock()
	replicas := slices.Clone(d.replicas)
	d.mu.Unlock()
	at := map[requestKey]int{}
	var all [][]*entry
	for _, r := range replicas {
		for _, e := range r.recent.all() {
			i, ok := at[e.key()]
			if !ok {
				i = len(all)
				at[e.key()] = i
				all = append(all, nil)
			}
			all[i] = append(all[i], e)
		}
	}
	slices.SortFunc(all, func(a, b []*entry) int { return int(newest(b)) - int(newest(a)) })
	return all
}

func newest(group []*entry) (seq uint64) {
	for _, e := range group {
		seq = max(seq, e.seq)
	}
	return seq
}

// Requests returns the newest most requests that contain query in their id, engine id, trace, model or finish reason, whatever the
// case.
func (d *Dashboard) Requests(query string, most int) List {
	groups := d.groups()
	l := List{Requests: []Summary{}, Kept: len(groups)}
	query = strings.ToLower(strings.TrimSpace(query))
	for _, g := range groups {
		if !matches(g, query) {
			continue
		}
		if l.Matched++; l.Matched <= most {
			l.Requests = append(l.Requests, summary(g))
		}
	}
	return l
}

func matches(group []*entry, query string) bool {
	for _, e := range group {
		for _, text := range []string{e.id.RequestID, string(e.id.CoreID), e.id.TraceID, e.id.Model, e.finish.String()} {
			if strings.Contains(strings.ToLower(text), query) {
				return true
			}
		}
	}
	return false
}

func summary(group []*entry) Summary {
	last := group[0]
	for _, e := range group {
		if e.id.StageID > last.id.StageID || e.id.StageID == last.id.StageID && e.seq > last.seq {
			last = e
		}
	}
	s := Summary{Key: newest(group), ID: last.id.RequestID, Model: last.id.Model, Finish: last.finish.String()}
	p := record.Pipeline{Arrival: last.start}
	stages := map[int]bool{}
	for _, e := range group {
		stages[e.id.StageID] = true
		s.Preemptions += e.preempted
		if s.TraceID == "" {
			s.TraceID = e.id.TraceID
		}
		if e.id.StageID == last.id.StageID {
			s.Sequences++
			s.Output += e.out
		}
		if e.id.StageID == group[0].id.StageID { // replicas are ordered by stage
			s.Prompt, s.Cached = max(s.Prompt, e.prompt), max(s.Cached, e.cached)
			if v := millis(e.values[ttft]); v != nil && (s.TTFT == nil || *v < *s.TTFT) {
				s.TTFT = v
			}
		}
		if t := e.end.Time(); t.After(s.FinishedAt) {
			s.FinishedAt, p.FinishedAt = t, e.end
		}
		if e.finish == request.FinishError || e.finish == request.FinishAbort {
			s.Finish = e.finish.String()
		}
	}
	s.Stages, s.E2E = len(stages), millis(p.E2E())
	if len(stages) == 1 {
		s.States = groupStates(group)
	}
	return s
}

func groupStates(group []*entry) []InState {
	var parts [request.NumStates]time.Duration
	for _, e := range group {
		if !e.total.IsSet() {
			return nil
		}
		for st, part := range e.parts {
			d, _ := part.Get()
			parts[st] += d
		}
	}
	return inStates(&parts)
}

// Request returns the request whose key the list gave; false when its records were dropped meanwhile.
func (d *Dashboard) Request(key uint64) (Detail, bool) {
	for _, g := range d.groups() {
		if !slices.ContainsFunc(g, func(e *entry) bool { return e.seq == key }) {
			continue
		}
		v := Detail{Summary: summary(g), Arrival: g[0].start.Time()}
		for _, e := range g {
			v.Lanes = append(v.Lanes, e.lane())
		}
		return v, true
	}
	return Detail{}, false
}

func (e *entry) lane() Lane {
	l := Lane{Stage: e.id.StageID, StageName: e.id.Name(), Type: e.id.Type.String(), Replica: e.id.Replica, Clock: e.r.clockName(),
		Core: string(e.id.CoreID), Finish: e.finish.String(), Stop: e.stop, Prompt: e.prompt, Cached: e.cached, Output: e.out,
		Total: millis(e.total), Stays: []StayView{}, LeftOut: e.more, Scheduled: millis(e.marks[0]), First: millis(e.marks[1]),
		Last: millis(e.marks[2]), End: millis(e.marks[3]), Inbox: millis(e.inbox), TTFT: millis(e.values[ttft]), E2E: millis(e.values[e2e])}
	at := 0.0
	for _, stay := range e.stays { // they follow each other without a gap
		ms, _ := stay.Length().Milliseconds()
		l.Stays = append(l.Stays, StayView{State: stay.State.String(), Start: at, MS: ms})
		at += ms
	}
	for i, f := range e.r.fields {
		l.Split = append(l.Split, record.Cell{Name: f.Name, Value: e.split[i]})
	}
	return l
}
