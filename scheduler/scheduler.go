package scheduler

import (
	"fmt"
	"slices"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// PauseState is vLLM's pause state.
type PauseState uint8

// The pause states.
const (
	Unpaused  PauseState = iota
	PausedNew            // running requests and those that hold KV go on, nothing else is admitted
	PausedAll            // nothing is scheduled
)

func (p PauseState) String() string {
	return [...]string{"UNPAUSED", "PAUSED_NEW", "PAUSED_ALL"}[p]
}

// Scheduler decides what runs next. It is not safe for concurrent use: one goroutine owns it.
type Scheduler struct {
	cfg       Config
	groups    []group
	hashSize  int // tokens a block hash covers: the smallest block size
	alignment int // tokens: prefix hits end at multiples of it (the largest block size when groups differ)
	specs     [][]int
	pool      *pool
	watermark int // blocks

	requests map[request.ID]*seq
	running  []*seq
	waiting  queue
	holding  queue // kv_holding_waiting
	deferred int
	sessions int // paused sessions: they keep their slot
	parked   [request.WaitSession + 1]int
	held     int // parked requests that keep a slot
	slots    []int32
	orders   uint64

	pause         PauseState
	step          uint64
	capacityBound bool // prefill_capacity_bound
	committed     int

	finished  []request.ID // since the last Schedule
	preempted []request.ID // since the last Schedule
	terminal  []request.Output

	placeholders []int32 // -1 for each speculative token
	decisions    []*Decision
	flights      int    // decisions with rows that are not updated yet; one without can free nothing
	seqs         []seq  // slab of records
	colds        []cold // and of what stands behind them
	outputs      outputs
	warmed       int32 // keeps the reads of warm.go
	counters     request.SchedulerStats
	acceptedPos  []int
	draftedPos   []int

	hashBuf  []byte
	hits     [][]int32 // lookup buffer, by group
	skipped  []*seq
	skippedK []*seq
	removing []*seq
	loras    []int

	hasher     *hasher
	kvEvents   []KVEvent
	blockHash  [][]byte // by block, for KV events
	blockGroup []uint8
}

// New makes a scheduler for a configuration; one error names all that is wrong with it.
func New(cfg Config) (*Scheduler, error) {
	cfg = cfg.fill()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Scheduler{
		cfg: cfg, pool: newPool(cfg.NumBlocks, cfg.EnablePrefixCaching), requests: make(map[request.ID]*seq),
		watermark: int(cfg.Watermark * float64(cfg.NumBlocks)), placeholders: make([]int32, cfg.NumSpecTokens),
		slots: make([]int32, cfg.MaxNumSeqs), acceptedPos: make([]int, cfg.NumSpecTokens), draftedPos: make([]int, cfg.NumSpecTokens),
	}
	for i := range s.placeholders {
		s.placeholders[i] = -1
	}
	for i := range s.slots {
		s.slots[i] = int32(len(s.slots) - 1 - i)
	}
	s.waiting.priority = cfg.Policy == Priority
	s.holding.priority = s.waiting.priority
	s.pool.residency = newResidency(cfg.KVResidencySample)
	s.setGroups()
	if cfg.KVEvents {
		s.hasher, _ = newHasher(cfg.HashAlgo, cfg.HashSeed) // checked by Validate
		s.blockHash, s.blockGroup = make([][]byte, cfg.NumBlocks), make([]uint8, cfg.NumBlocks)
		s.pool.evicted = s.blockEvicted
	}
	return s, nil
}

// Config returns the configuration with its defaults filled in.
func (s *Scheduler) Config() Config { return s.cfg }

// Add takes a request in: it is queued, or parked when its Wait says so. The scheduler keeps r and does not change it. A request that can never fit would
// wait for ever: ask [Config.CheckAdmission] first.
func (s *Scheduler) Add(now clock.Time, r *request.Request) error {
	if s.requests[r.ID] != nil {
		return fmt.Errorf("adding request %s: %w", r.ID, ErrDuplicateRequest)
	}
	if len(r.Prompt) == 0 && r.Rows == nil && r.Wait == request.WaitNone {
		return fmt.Errorf("adding request %s: %w", r.ID, ErrEmptyPrompt)
	}
	q := s.newSeq(r)
	s.requests[r.ID] = q
	s.event(now, q, request.Queued)
	if r.Wait != request.WaitNone {
		s.park(q, r.Wait)
	} else {
		if s.readsCache(q) {
			s.reserveHashes(q, cap(q.tokens))
			s.updateHashes(q, len(q.tokens)/s.hashSize) // here, not in a step that others wait for
		}
		s.enqueue(q)
	}
	s.enter(now, q)
	return nil
}

func (s *Scheduler) newSeq(r *request.Request) *seq {
	if len(s.seqs) == 0 {
		s.seqs, s.colds = make([]seq, 64), make([]cold, 64)
	}
	q := &s.seqs[0]
	q.cold = &s.colds[0]
	s.seqs, s.colds = s.seqs[1:], s.colds[1:]
	s.orders++
	q.id, q.priority, q.arrival, q.order = r.ID, r.Priority, r.ArrivalOrder, s.orders
	q.setRequest(r)
	q.client = r.Client
	q.numPrompt, q.resumable, q.slot, q.stopToken = len(r.Prompt), r.Resumable, -1, -1
	q.norecord = r.NoRecord || s.cfg.NoRecord
	q.fresh, q.needPrefill = true, true
	q.takeSampling(&r.Sampling, r.Repetition)
	q.setLimit(s.cfg.MaxModelLen)
	q.tokens = append(make([]int32, 0, len(r.Prompt)+s.reserve(q, queueReserve)), r.Prompt...)
	if len(s.groups) == 1 {
		q.tables, q.cached = q.oneTable[:], q.oneCached[:]
	} else {
		q.tables, q.cached = make([][]int32, len(s.groups)), make([]int, len(s.groups))
	}
	s.setMarks(q)
	return q
}

// enqueue puts a request where it waits: with those that hold KV, or with the others.
func (s *Scheduler) enqueue(q *seq) {
	if q.status == waitingStreaming {
		s.setDeferred(q, true)
	}
	if q.holdsKV() {
		s.holding.push(q)
	} else {
		s.waiting.push(q)
	}
}

func (s *Scheduler) setDeferred(q *seq, on bool) {
	if q.deferred == on {
		return
	}
	q.deferred = on
	if on {
		s.deferred++
	} else {
		s.deferred--
	}
}

// Abort ends requests in the given order, wherever they are, and returns their terminal outputs; unknown ids are ignored. Blocks
// and slots are free when it returns; what is in flight for them will be ignored.
func (s *Scheduler) Abort(now clock.Time, why request.FinishReason, ids ...request.ID) []request.Output {
	list := s.removing[:0]
	for _, id := range ids {
		if q := s.requests[id]; q != nil && !q.leaving {
			q.leaving = true
			list = append(list, q)
		}
	}
	s.removing = list
	var outs []request.Output
	s.withdraw(list)
	for _, q := range list {
		s.end(now, q)
		o := s.terminalOutput(q, why)
		o.Events, o.Changes = slices.Clone(q.events), slices.Clone(q.changes)
		q.events, q.changes = nil, nil
		outs = append(outs, o)
	}
	clear(list)
	return outs
}

// withdraw takes requests out of whatever queue they are in; they are marked as leaving.
func (s *Scheduler) withdraw(list []*seq) {
	live, queued := false, false
	for _, q := range list {
		switch q.status {
		case running:
			live = true
		case parked:
			s.unparkCounts(q)
		default:
			if q.status == waitingStreaming {
				s.sessions--
			}
			queued = true
			s.setDeferred(q, false)
		}
	}
	if live {
		s.sweepRunning()
	}
	if queued {
		s.waiting.remove(list)
		s.holding.remove(list)
	}
	for _, q := range list {
		q.leaving = false
	}
}

// sweepRunning drops the leaving requests from running, in one pass.
func (s *Scheduler) sweepRunning() {
	kept := s.running[:0]
	for _, q := range s.running {
		if !q.leaving {
			kept = append(kept, q)
		}
		q.leaving = false // a session lives on elsewhere and may leave again
	}
	clear(s.running[len(kept):])
	s.running = kept
}

// end frees all that a request holds and forgets it.
func (s *Scheduler) end(now clock.Time, q *seq) {
	s.freeBlocks(q)
	s.freeSlot(q)
	s.committed -= q.committed
	q.committed = 0
	q.status = ended
	s.enter(now, q)
	delete(s.requests, q.id)
	s.finished = append(s.finished, q.id)
}

func (s *Scheduler) terminalOutput(q *seq, why request.FinishReason) request.Output {
	return request.Output{ID: q.id, Client: q.client, Finish: why, StopToken: q.stopToken, Repeated: q.repeated, NumCached: q.prefillLocal, Terminal: true}
}

func (s *Scheduler) freeSlot(q *seq) {
	if q.slot >= 0 {
		s.slots = append(s.slots, q.slot)
		q.slot = -1
	}
}

func (s *Scheduler) takeSlot(q *seq) {
	if q.slot < 0 {
		q.slot = s.slots[len(s.slots)-1]
		s.slots = s.slots[:len(s.slots)-1]
		q.newSlot = true
	}
}

// Memory that a request gets in advance, in output tokens: a default max_tokens is the whole context, and a waiting request may never run.
const (
	maxReserve   = 1024
	queueReserve = 64
)

// reserve is for how many tokens more than it has a request gets memory.
func (s *Scheduler) reserve(q *seq, most int) int {
	return max(0, min(q.maxTokens-q.numOutput(), most, s.cfg.MaxModelLen-len(q.tokens))) + s.cfg.NumSpecTokens + 1
}

// reserveRunning makes room for the coming tokens and blocks of a request about to run, so that decode steps do not allocate.
func (s *Scheduler) reserveRunning(q *seq) {
	more := s.reserve(q, maxReserve)
	q.tokens = slices.Grow(q.tokens, more)
	s.reserveHashes(q, len(q.tokens)+more)
	for g := range q.tables {
		if want := ceilDiv(len(q.tokens)+more, s.groups[g].BlockSize) + 1; want > cap(q.tables[g]) {
			q.tables[g] = slices.Grow(q.tables[g], want-len(q.tables[g]))
		}
	}
}

func (s *Scheduler) reserveHashes(q *seq, tokens int) {
	if n := tokens/s.hashSize + 1; s.cfg.EnablePrefixCaching && n > cap(q.hashes) {
		q.hashes = slices.Grow(q.hashes, n-len(q.hashes))
	}
}

// SetPause changes the pause state.
func (s *Scheduler) SetPause(now clock.Time, p PauseState) {
	s.pause = p
	for _, q := range s.running {
		s.enter(now, q)
	}
	s.waiting.each(func(q *seq) { s.enter(now, q) })
	s.holding.each(func(q *seq) { s.enter(now, q) })
}

// Pause returns the pause state.
func (s *Scheduler) Pause() PauseState { return s.pause }

// HasRequests reports whether a step is due: something can run, or ends have not been reported by a Decision yet.
func (s *Scheduler) HasRequests() bool {
	if len(s.finished) > 0 || len(s.terminal) > 0 {
		return true
	}
	switch s.pause {
	case PausedAll:
		return false
	case PausedNew:
		return len(s.running)+s.holding.len()-s.sessions > 0
	}
	return len(s.running)+s.waiting.len()+s.holding.len()-s.sessions > 0
}

// NumRequests counts the requests in the scheduler, parked ones included.
func (s *Scheduler) NumRequests() int { return len(s.requests) }

// Has reports whether a request is in the scheduler.
func (s *Scheduler) Has(id request.ID) bool { return s.requests[id] != nil }

// IDs returns all requests in the order of their arrival.
func (s *Scheduler) IDs() []request.ID {
	all := make([]*seq, 0, len(s.requests))
	for _, q := range s.requests {
		all = append(all, q)
	}
	slices.SortFunc(all, func(a, b *seq) int { return int(int64(a.order) - int64(b.order)) })
	ids := make([]request.ID, len(all))
	for i, q := range all {
		ids[i] = q.id
	}
	return ids
}

// ResetPrefixCache forgets all cached blocks. It reports false while blocks are in use. With preemptRunning it preempts all running
// requests first, and drops what is in flight for them; an error then says that others (paused sessions, parked requests) hold blocks.
func (s *Scheduler) ResetPrefixCache(now clock.Time, preemptRunning bool) (bool, error) {
	if preemptRunning {
		for len(s.running) > 0 {
			q := s.running[len(s.running)-1]
			s.running[len(s.running)-1] = nil
			s.running = s.running[:len(s.running)-1]
			s.preempt(now, q, true)
		}
	}
	ok := s.pool.reset()
	if !ok {
		if preemptRunning {
			return false, fmt.Errorf("resetting the prefix cache: %d KV blocks are held by requests that are not running (paused sessions or parked requests)",
				s.cfg.NumBlocks-1-s.pool.free)
		}
		return false, nil
	}
	s.counters.PrefixReset = true
	s.cacheCleared()
	return true, nil
}

// Sleep empties the cache for a device that gives its memory up: every running request is preempted, and nothing is scheduled until Wake. Its
// error says who still holds blocks; the scheduler is then paused all the same.
func (s *Scheduler) Sleep(now clock.Time) error {
	s.SetPause(now, PausedAll)
	if _, err := s.ResetPrefixCache(now, true); err != nil {
		return fmt.Errorf("going to sleep: %w", err)
	}
	return nil
}

// Wake ends a Sleep.
func (s *Scheduler) Wake(now clock.Time) { s.SetPause(now, Unpaused) }
