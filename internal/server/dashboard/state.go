package dashboard

import (
	"time"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// State is the answer of /dashboard/state. Absent values are null: they were not observed.
type State struct {
	Now       time.Time    `json:"now"`
	Started   time.Time    `json:"started"`
	Version   string       `json:"version"`
	Models    []string     `json:"models"`
	Recording bool         `json:"recording"`
	Trouble   string       `json:"trouble"` // what /health would complain about
	Window    int          `json:"window_s"`
	Stages    []StageState `json:"stages"`
}

// StageState is one stage. Nothing of it may be added to another stage's: stages overlap (PS-35).
type StageState struct {
	ID       int            `json:"id"`
	Name     string         `json:"name"`
	Type     string         `json:"type"`
	Replicas []ReplicaState `json:"replicas"`
}

// ReplicaState is one engine core.
type ReplicaState struct {
	Replica int       `json:"replica"`
	Clock   string    `json:"clock"`
	Core    *Core     `json:"core"` // null before the core's first word
	Rates   Rates     `json:"rates"`
	History []Sample  `json:"history"`
	Recent  Recent    `json:"recent"`
	Latency Latencies `json:"latency"`
}

// Core is what the engine core said last.
type Core struct {
	Running    int            `json:"running"`
	Waiting    int            `json:"waiting"`
	Deferred   int            `json:"deferred"` // of waiting: could not be scheduled yet
	Inbox      int            `json:"inbox"`
	Parked     map[string]int `json:"parked"` // by what they wait for
	InCore     int            `json:"in_core"`
	KVUsage    *float64       `json:"kv_usage"` // 0 to 1; null without a paged KV cache
	KVBlocks   int            `json:"kv_blocks"`
	KVFree     int            `json:"kv_free_blocks"`
	KVTokens   int            `json:"kv_tokens"`
	HeldBlocks int            `json:"held_blocks"`
	SleepLevel int            `json:"sleep_level"`
	Paused     bool           `json:"paused"`
	Steps      uint64         `json:"steps"`

	PromptTokens     uint64 `json:"prompt_tokens_total"`
	GenerationTokens uint64 `json:"generation_tokens_total"`
	Preemptions      uint64 `json:"preemptions_total"`
}

// Rates are of the newest look, or of the window where it says so.
type Rates struct {
	Generation    *float64 `json:"generation_tokens_per_s"`
	Prompt        *float64 `json:"prompt_tokens_per_s"`
	Requests      *float64 `json:"requests_per_s"`   // finished in the window
	PrefixHits    *float64 `json:"prefix_hit_ratio"` // of prompt tokens, over the looks in the window
	PrefixHitsAll *float64 `json:"prefix_hit_ratio_total"`
}

// Recent sums the requests that finished in the window.
type Recent struct {
	Requests    int            `json:"requests"`
	Sequences   int            `json:"sequences"` // a request of n counts n: reasons, percentiles and states are of these
	Covered     float64        `json:"covered_s"` // less than the window where older records were dropped, or the server is younger
	Dropped     bool           `json:"dropped"`
	Reasons     map[string]int `json:"reasons"`
	Preemptions int            `json:"preemptions"`
	Accounted   int            `json:"accounted"` // sequences whose ledger was observed: those of States
	States      []InState      `json:"states"`    // in the order of a request's life; only states that took time
}

// InState is the time that finished requests spent in one ledger state, within one stage and replica.
type InState struct {
	State string  `json:"state"`
	MS    float64 `json:"ms"`
}

// Latencies are percentiles over the requests that finished in the window. Queued, prefill and decode are the engine core's; ttft
// and e2e the front end's; itl is one sample an output after the first, engine core.
type Latencies struct {
	Queued  Percentiles `json:"queued"`
	Prefill Percentiles `json:"prefill"`
	Decode  Percentiles `json:"decode"`
	TTFT    Percentiles `json:"ttft"`
	ITL     Percentiles `json:"itl"`
	E2E     Percentiles `json:"e2e"`
}

// mostITLs bounds the sort of a look; the newest samples count.
const mostITLs = 1 << 17

// Windows are the lengths that a look may ask for, in seconds.
func Windows() []int { return []int{60, 300, 900} }

// State returns the newest state over a window; looks of the same moment share one. since, in milliseconds, leaves out older
// samples of the history.
func (d *Dashboard) State(window int, since int64) State {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.opt.Now()
	if c := d.cached; c == nil || c.Window != window || now.Sub(c.Now) >= lookEvery || now.Before(c.Now) {
		d.cached = d.state(now, window)
	}
	s := *d.cached
	s.Stages = make([]StageState, 0, len(d.cached.Stages))
	next := 0
	for _, st := range d.cached.Stages {
		replicas := append([]ReplicaState(nil), st.Replicas...)
		for i := range replicas {
			replicas[i].History = d.replicas[next].history.after(since)
			next++
		}
		st.Replicas = replicas
		s.Stages = append(s.Stages, st)
	}
	return s
}

func (d *Dashboard) state(now time.Time, window int) *State {
	s := &State{Now: now, Started: d.started, Version: d.opt.Version, Models: d.opt.Models, Recording: d.opt.Recording, Window: window}
	if d.opt.Health != nil {
		if err := d.opt.Health(); err != nil {
			s.Trouble = err.Error()
		}
	}
	for _, r := range d.replicas {
		if n := len(s.Stages); n == 0 || s.Stages[n-1].ID != r.info.StageID {
			id := record.Identity{StageID: r.info.StageID, StageName: r.info.StageName}
			s.Stages = append(s.Stages, StageState{ID: r.info.StageID, Name: id.Name(), Type: r.info.Type.String()})
		}
		st := &s.Stages[len(s.Stages)-1]
		st.Replicas = append(st.Replicas, r.state(now, window))
	}
	return s
}

func (r *Replica) state(now time.Time, window int) ReplicaState {
	from := now.Add(-time.Duration(window) * time.Second)
	s := ReplicaState{Replica: r.info.Replica, Clock: r.clockName()}
	if read := r.snapshot.Load(); read != nil {
		snap := (*read)()
		if now.Sub(r.history.last) >= lookEvery || now.Before(r.history.last) {
			r.history.look(now, &snap)
		}
		s.Core = core(&snap)
		last := r.history.samples[len(r.history.samples)-1]
		s.Rates = Rates{Generation: last.Generation, Prompt: last.Prompt, PrefixHits: r.history.hitRate(from),
			PrefixHitsAll: ratio(float64(snap.Totals.PrefixHits), float64(snap.Totals.PrefixQueries))}
	}
	if !r.d.opt.Recording {
		s.Recent = recent(nil)
		return s
	}
	list, covered, dropped := r.recent.since(from)
	if r.d.started.After(covered) {
		covered = r.d.started
	}
	s.Recent, s.Latency = recent(list), latencies(list)
	s.Recent.Covered, s.Recent.Dropped = now.Sub(covered).Seconds(), dropped
	s.Rates.Requests = ratio(float64(s.Recent.Requests), s.Recent.Covered)
	return s
}

func core(s *record.Snapshot) *Core {
	c := &Core{Running: s.Stats.Running, Waiting: s.Waiting(), Deferred: s.Stats.Skipped, Inbox: s.Inbox, InCore: s.InCore,
		KVBlocks: s.Stats.TotalBlocks, KVFree: s.Stats.FreeBlocks, HeldBlocks: s.HeldKV, SleepLevel: s.SleepLevel, Paused: s.Paused, Steps: s.Step,
		PromptTokens: s.Totals.PromptTokens, GenerationTokens: s.Totals.GenerationTokens, Preemptions: s.Totals.Preemptions, Parked: map[string]int{}}
	if s.Cache != nil {
		c.KVUsage, c.KVTokens = finite(s.Stats.Usage), s.Cache.SizeTokens
	}
	for wait, name := range map[request.Wait]string{request.WaitInput: "input", request.WaitChunk: "chunk", request.WaitKV: "kv",
		request.WaitGrammar: "grammar", request.WaitSession: "session"} {
		if n := s.Parked(wait); n > 0 {
			c.Parked[name] = n
		}
	}
	return c
}

func recent(list []*entry) Recent {
	v := Recent{Sequences: len(list), Reasons: map[string]int{}}
	var parts [request.NumStates]time.Duration
	requests := map[requestKey]bool{}
	for _, e := range list {
		requests[e.key()] = true
		v.Reasons[e.finish.String()]++
		v.Preemptions += e.preempted
		if !e.total.IsSet() {
			continue
		}
		v.Accounted++
		for st, part := range e.parts {
			d, _ := part.Get()
			parts[st] += d
		}
	}
	v.Requests, v.States = len(requests), inStates(&parts)
	return v
}

func inStates(parts *[request.NumStates]time.Duration) []InState {
	list := []InState{}
	for _, st := range lifeOrder() {
		if parts[st] > 0 {
			list = append(list, InState{State: st.String(), MS: float64(parts[st]) / 1e6})
		}
	}
	return list
}

// lifeOrder is the order in which bars show the states.
func lifeOrder() []request.State {
	return []request.State{request.StateQueued, request.StateWaitingInput, request.StateWaitingGrammar, request.StateWaitingKVLoad,
		request.StatePrefill, request.StateDecode, request.StateWaitingChunk, request.StatePreempted, request.StateRecompute,
		request.StateRequeued, request.StateWaitingKVAck, request.StateWaitingSession, request.StatePaused, request.StateUncollected}
}

func latencies(list []*entry) Latencies {
	var values [numMeasures][]int64
	var itls []int64
	for i := len(list) - 1; i >= 0; i-- {
		e := list[i]
		for m, v := range e.values {
			values[m] = appendSet(values[m], v)
		}
		for _, d := range e.itls[:min(len(e.itls), mostITLs-len(itls))] {
			itls = append(itls, int64(d))
		}
	}
	return Latencies{Queued: percentiles(values[queued]), Prefill: percentiles(values[prefill]), Decode: percentiles(values[decode]),
		TTFT: percentiles(values[ttft]), ITL: percentiles(itls), E2E: percentiles(values[e2e])}
}

func appendSet(list []int64, s clock.Span) []int64 {
	if d, ok := s.Get(); ok {
		return append(list, int64(d))
	}
	return list
}
