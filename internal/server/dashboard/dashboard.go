// Package dashboard serves the page at /dashboard and its JSON: where requests of each stage and replica spend their time, and the
// recent ones' courses. It reads record.Snapshot and finished records; it never touches a scheduler, holds a bounded number of
// records, and does nothing between two looks: no goroutine, no timer. No text of a prompt or an answer ever reaches it.
package dashboard

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"omni-engine/metrics/record"
)

// Options of a [Dashboard].
type Options struct {
	Models    []string // names in the API
	Version   string
	Recording bool         // false: no records are kept (PS-15), and the page says so
	Health    func() error // nil: always well
	Keep      Keep         // zero: the defaults
	Now       func() time.Time
}

// Keep bounds what is kept a replica: the oldest records go first.
type Keep struct {
	Requests int // finished requests; 0 means 2048
	Bytes    int // of their courses and inter-token latencies; 0 means 8 MiB
}

// Dashboard collects what the page shows.
type Dashboard struct {
	opt     Options
	started time.Time
	seq     atomic.Uint64 // numbers finished records over all replicas

	mu       sync.Mutex // replicas, and the newest state
	replicas []*Replica
	cached   *State
	files    map[string]asset
}

// New returns a dashboard without replicas.
func New(o Options) *Dashboard {
	if o.Keep.Requests <= 0 {
		o.Keep.Requests = 2048
	}
	if o.Keep.Bytes <= 0 {
		o.Keep.Bytes = 8 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Dashboard{opt: o, started: o.Now(), files: assets()}
}

// ReplicaInfo says whose replica it is.
type ReplicaInfo struct {
	StageID   int
	StageName string // empty: stage_<id>
	Type      record.StageType
	Replica   int
}

// Replica is one engine core on the page.
type Replica struct {
	info     ReplicaInfo
	d        *Dashboard
	recent   ring
	fields   []record.Field
	snapshot atomic.Pointer[func() record.Snapshot]
	history  history // guarded by Dashboard.mu
}

// Replica adds a replica; the page orders them by stage and number.
func (d *Dashboard) Replica(info ReplicaInfo) *Replica {
	r := &Replica{info: info, d: d, fields: record.SplitFields()}
	r.recent.keep = d.opt.Keep
	d.mu.Lock()
	defer d.mu.Unlock()
	at := len(d.replicas)
	for at > 0 && before(info, d.replicas[at-1].info) {
		at--
	}
	d.replicas = append(d.replicas[:at], append([]*Replica{r}, d.replicas[at:]...)...)
	return r
}

func before(a, b ReplicaInfo) bool {
	return a.StageID < b.StageID || a.StageID == b.StageID && a.Replica < b.Replica
}

// Observe tells where the core's newest snapshot is to be read (Replica.Snapshot of stages).
func (r *Replica) Observe(snapshot func() record.Snapshot) { r.snapshot.Store(&snapshot) }

// clockName names the clock that a lane's times come from: PS-35 forbids to compare them with another stage's.
func (r *Replica) clockName() string {
	return fmt.Sprintf("engine core of stage %d, replica %d", r.info.StageID, r.info.Replica)
}

// Sink passes everything on to next and keeps the finished records.
func (r *Replica) Sink(next record.Sink) record.Sink { return &sink{Sink: next, r: r} }

type sink struct {
	record.Sink
	r *Replica
}

// Finished passes the record on and keeps what the page shows of it.
func (k *sink) Finished(s *record.Stage) {
	k.Sink.Finished(s)
	if s.Recorded() {
		k.r.recent.add(k.r.entry(s))
	}
}
