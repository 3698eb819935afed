package record

import (
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// Snapshot is the immutable state of one engine core, published through an atomic pointer after every step, add, abort and
// park. Gauges, loads, health and replica choice read the newest; nobody waits for a step (PS-74).
type Snapshot struct {
	Stats request.SchedulerStats // the gauges; its counters are those of the last step
	At    clock.Time
	Wall  clock.Wall

	Progress uint64 // grows with every completed step and every added request: standing still with work means wedged
	Step     uint64 // completed steps
	InCore   int    // requests in the core: running + waiting + parked (PS-37)
	Inbox    int    // requests that wait to be added
	HeldKV   int    // blocks of ended requests under an unacknowledged extraction or an in-flight step (PS-73)

	// KVFetch are the requests that load KV from elsewhere: not started, in progress, loaded and waiting to be scheduled.
	KVFetch [NumKVFetch]int

	SleepLevel int // 0 awake, 1 weights offloaded, 2 all discarded
	Paused     bool
	Totals     Totals
	// RecentPrefix are the prefix cache's lookups of the last 1,000 requests.
	RecentPrefix CacheLookups
	Cache        *CacheConfig // never changes; nil for a core without a paged KV cache
}

// The indices of Snapshot.KVFetch.
const (
	KVFetchWaitingToStart = iota
	KVFetchInProgress
	KVFetchCompleted
	NumKVFetch
)

// Totals are the core's running sums, for rates over any two snapshots.
type Totals struct {
	PromptTokens     uint64 // prefilled here: without those from a cache
	GenerationTokens uint64
	PrefixQueries    uint64 // tokens
	PrefixHits       uint64
	Preemptions      uint64
	DraftTokens      uint64
	AcceptedTokens   uint64
	Drafts           uint64
	AcceptedPerPos   []uint64 // never written after it was published
}

// Waiting returns the waiting requests as vLLM's gauge counts them: the capacity-blocked and the deferred ones.
func (s *Snapshot) Waiting() int { return s.Stats.Waiting + s.Stats.Skipped }

// Parked returns the requests parked for a reason, which are outside running and waiting (PS-37).
func (s *Snapshot) Parked(w request.Wait) int {
	if int(w) < len(s.Stats.Parked) {
		return s.Stats.Parked[w]
	}
	return 0
}

// Busy reports whether the core has work that a step could move.
func (s *Snapshot) Busy() bool { return s.Stats.Running+s.Waiting()+s.Inbox > 0 }

// CacheConfig is what the cache-config info family tells; routers read BlockSize and NumBlocks.
type CacheConfig struct {
	BlockSize           int // tokens
	NumBlocks           int // usable blocks
	DType               string
	MemoryBytes         int64
	SizeTokens          int     // tokens that fit
	MaxConcurrency      float64 // requests of max_model_len that fit
	PrefixCaching       bool
	HashAlgo            string
	UserBlockSize       bool // the user set the block size
	MemoryUtilization   float64
	NumBlocksOverridden int // 0: not overridden
	SlidingWindow       int // 0: none
}
