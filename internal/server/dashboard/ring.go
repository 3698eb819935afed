package dashboard

import (
	"sync"
	"time"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// measure is a quantity that the page gives percentiles of, one value a finished request.
type measure uint8

const (
	queued measure = iota
	prefill
	decode
	ttft
	e2e
	numMeasures
)

// entry is what is kept of one finished record: a request in one stage. Nobody changes it.
type entry struct {
	seq    uint64
	r      *Replica
	id     record.Identity
	finish request.FinishReason
	stop   string

	arrival, start, end clock.Wall
	prompt, cached, out int
	preempted           int

	values [numMeasures]clock.Span
	inbox  clock.Span
	parts  [request.NumStates]clock.Span
	total  clock.Span
	marks  [4]clock.Span // first SCHEDULED, first output, last output, end: since the first QUEUED
	split  []record.Value
	itls   []time.Duration // the record's own
	stays  []record.Stay   // the ledger's own
	more   int             // stays beyond those
}

// entry copies what the page shows. Every interval comes from the record's methods: no time is subtracted here (PS-24).
func (r *Replica) entry(s *record.Stage) *entry {
	e := &entry{seq: r.d.seq.Add(1), r: r, id: s.Identity, finish: s.Finish, stop: s.StopReason,
		arrival: s.Arrival, start: s.RequestStart, end: s.FinishedAt, prompt: s.PromptTokens, cached: s.CachedTokens, out: s.NumGenerationTokens,
		values: [numMeasures]clock.Span{queued: s.QueuedTime(), prefill: s.PrefillTime(), decode: s.DecodeTime(), ttft: s.TTFT(), e2e: s.E2E()},
		inbox:  s.InboxWait(), total: s.Ledger.Total(), itls: s.ITLs()}
	e.preempted, _ = s.Preemptions()
	for st := range e.parts {
		e.parts[st] = s.Ledger.Part(request.State(st))
	}
	for i, at := range [4]clock.Time{s.ScheduledTS, s.FirstTokenTS, s.LastTokenTS, s.EndTS} {
		e.marks[i] = s.Ledger.Since(at)
	}
	e.split = make([]record.Value, len(r.fields))
	for i := range r.fields {
		e.split[i] = r.fields[i].Value(s)
	}
	e.stays, e.more = s.Ledger.Stays()
	return e
}

// bytes is the part of an entry's size that differs from request to request.
func (e *entry) bytes() int {
	return 8*cap(e.itls) + 40*cap(e.stays) + len(e.id.RequestID) + len(e.id.CoreID)
}

// ring keeps the newest entries within two bounds.
type ring struct {
	keep Keep

	mu      sync.Mutex
	entries []*entry // oldest at first; the front part before it was dropped
	first   int
	bytes   int
	dropped clock.Wall // the end of the newest entry that was dropped
}

func (g *ring) add(e *entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.entries = append(g.entries, e)
	g.bytes += e.bytes()
	for len(g.entries)-g.first > g.keep.Requests || (g.bytes > g.keep.Bytes && len(g.entries)-g.first > 1) {
		old := g.entries[g.first]
		g.entries[g.first] = nil
		g.first++
		g.bytes -= old.bytes()
		g.dropped = old.end
	}
	if g.first > 64 && 2*g.first > len(g.entries) { // moved at most once an add, on average
		n := copy(g.entries, g.entries[g.first:])
		clear(g.entries[n:])
		g.entries, g.first = g.entries[:n], 0
	}
}

// since returns the entries that ended after from, oldest first, and whether some of that time were dropped; covered is then where
// what is left begins.
func (g *ring) since(from time.Time) (list []*entry, covered time.Time, dropped bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := len(g.entries)
	for at > g.first && g.entries[at-1].end.Time().After(from) {
		at--
	}
	list = append(list, g.entries[at:]...)
	if last := g.dropped.Time(); last.After(from) {
		return list, last, true
	}
	return list, from, false
}

// all returns every entry, oldest first.
func (g *ring) all() []*entry {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]*entry(nil), g.entries[g.first:]...)
}
