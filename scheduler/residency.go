package scheduler

import (
	"math/rand/v2"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// residency follows a sample of the KV blocks from allocation to eviction (--kv-cache-metrics), as vLLM's KVCacheMetricsCollector. All that
// happens in one Schedule carries its time.
type residency struct {
	rate   float64
	random *rand.Rand // of its own: what is sampled never changes what is scheduled
	now    clock.Time
	lives  map[int32]*blockLife
	events []request.KVEviction
}

// blockLife is one sampled block's. The last four uses are kept, as in vLLM.
type blockLife struct {
	birth, last clock.Time
	uses        [4]clock.Time
	n           int // uses so far
}

// newResidency returns nil for a rate of 0: nothing is followed.
func newResidency(rate float64) *residency {
	if rate <= 0 {
		return nil
	}
	return &residency{rate: rate, random: rand.New(rand.NewPCG(1, 0)), lives: make(map[int32]*blockLife)}
}

func (r *residency) allocated(b int32) {
	if r.rate >= 1 || r.random.Float64() < r.rate {
		r.lives[b] = &blockLife{birth: r.now, last: r.now}
	}
}

func (r *residency) used(b int32) {
	if l := r.lives[b]; l != nil {
		l.last = r.now
		l.uses[l.n%len(l.uses)] = r.now
		l.n++
	}
}

// evicted follows a block that is about to get other content.
func (r *residency) evicted(b int32) {
	l := r.lives[b]
	if l == nil {
		return
	}
	delete(r.lives, b)
	e := request.KVEviction{Lifetime: r.now.Sub(l.birth), Idle: r.now.Sub(l.last)}
	for i := max(l.n-len(l.uses), 0) + 1; i < l.n; i++ {
		e.ReuseGaps = append(e.ReuseGaps, l.uses[i%len(l.uses)].Sub(l.uses[(i-1)%len(l.uses)]))
	}
	r.events = append(r.events, e)
}

func (r *residency) reset() {
	clear(r.lives)
	r.events = nil
}

// drain returns the evictions since the last call; the slice is the caller's.
func (r *residency) drain() []request.KVEviction {
	e := r.events
	r.events = nil
	return e
}
