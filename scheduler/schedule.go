package scheduler

import (
	"math"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// budget is what is left of one step.
type budget struct {
	tokens     int // max_num_scheduled_tokens
	input      int // max_num_batched_tokens, which draft slots are charged to as well
	threshold  int // long-prefill threshold, 0: off
	prefills   int // prefill tokens that may run beside decodes
	prefill    bool
	hasRunning bool // a running request was scheduled
	deferring  bool // prefills are held back in this step
}

// Schedule decides the next step: running requests first, in order, then waiting ones, and those only if nobody was preempted.
// The decision is valid until its Update; several may be in flight.
func (s *Scheduler) Schedule(now clock.Time) *Decision { return s.ScheduleThrottled(now, false) }

// ScheduleThrottled is Schedule with vLLM's throttle_prefills: while some request decodes, prefill is put off to a later step unless
// the last admitting step left requests waiting.
func (s *Scheduler) ScheduleThrottled(now clock.Time, throttle bool) *Decision {
	s.step++
	if s.pool.residency != nil {
		s.pool.residency.now = now
	}
	d := s.newDecision(now)
	b := budget{tokens: s.cfg.MaxNumScheduledTokens, input: s.cfg.MaxNumBatchedTokens}
	if s.pause == PausedAll {
		b.tokens = 0
	}
	b.deferring = throttle && !s.capacityBound && s.anyDecoding()
	b.threshold = s.prefillThreshold()
	b.prefills = math.MaxInt
	if s.cfg.MaxPrefillTokensBesideDecode > 0 && s.cfg.EnableChunkedPrefill && s.anyDecoding() {
		b.prefills = s.cfg.MaxPrefillTokensBesideDecode
	}
	before := len(s.preempted)
	s.scheduleRunning(now, d, &b)
	switch {
	case len(s.preempted) > before:
		d.Held = HeldPreemption
	case s.pause == PausedAll:
		d.Held = HeldPaused
	default:
		d.Held = s.admitWaiting(now, d, &b)
		for d.Held == HeldBlocks && s.breakDeadlock(now) {
			d.Held = s.admitWaiting(now, d, &b)
		}
		if !b.deferring {
			s.capacityBound = s.waiting.len()+s.holding.len() > s.deferred
		}
	}
	s.conclude(d)
	if len(d.Rows) > 0 {
		s.flights++
	}
	s.verifyScheduled(d)
	return d
}

func (s *Scheduler) newDecision(now clock.Time) *Decision {
	var d *Decision
	if n := len(s.decisions); n > 0 {
		d = s.decisions[n-1]
		s.decisions = s.decisions[:n-1]
	} else {
		d = &Decision{}
	}
	d.Seq, d.At = s.step, now
	d.Rows, d.items, d.news = d.Rows[:0], d.items[:0], d.news[:0]
	d.TotalTokens = 0
	return d
}

func (s *Scheduler) anyDecoding() bool {
	for _, q := range s.running {
		if !q.prefillChunk {
			return true
		}
	}
	return false
}

// prefillThreshold is the cap of one long prefill: it protects others, so it applies only if there are others.
func (s *Scheduler) prefillThreshold() int {
	n := len(s.running) + s.waiting.len() + s.holding.len()
	t := s.cfg.LongPrefillTokenThreshold
	if n <= 1 || t <= 0 {
		return 0
	}
	if s.cfg.LongPrefillTokenThresholdAdaptive {
		t = max(t, s.cfg.MaxNumBatchedTokens/n)
	}
	return t
}

func (s *Scheduler) scheduleRunning(now clock.Time, d *Decision, b *budget) {
	for i := 0; i < len(s.running) && b.tokens > 0; {
		if b.input <= s.cfg.DraftSlots {
			return
		}
		if i%ahead == 0 && len(s.running) >= manyRows {
			s.warmed += warmTables(s.running[i:min(i+ahead, len(s.running))])
		}
		q := s.running[i]
		n := s.runningTokens(q, b)
		if n == 0 {
			i++
			continue
		}
		if s.fits(q, n) {
			b.take(s, q, n)
			s.addRow(d, q, n)
			i++
			continue
		}
		had := len(q.tables[0])
		multi := len(s.groups) > 1
		if multi {
			s.noteTables(q)
		}
		for !s.grow(q, n) {
			victim := s.victim()
			if victim < 0 {
				return
			}
			v := s.running[victim]
			s.running = append(s.running[:victim], s.running[victim+1:]...)
			if victim < i {
				i--
			}
			s.unschedule(d, b, v)
			s.preempt(now, v, false)
			if v == q {
				return
			}
		}
		b.take(s, q, n)
		s.addNewBlocks(d, q, s.addRow(d, q, n), had)
		i++
	}
}

// runningTokens is how many tokens a running request would take now; 0 passes it over.
func (s *Scheduler) runningTokens(q *seq, b *budget) int {
	if q.placeholders > 0 && q.computed+2-q.placeholders >= q.numPrompt+q.maxTokens {
		return 0 // the step in flight is sure to reach max_tokens
	}
	if (b.deferring && q.prefillChunk) || (s.cfg.DecodeStagger > 1 && s.step < q.eligible) {
		return 0
	}
	n := len(q.tokens) + q.placeholders - q.computed
	if q.drafted {
		n += len(q.spec)
	}
	if b.threshold > 0 && n > b.threshold {
		n = b.threshold
	}
	if q.prefillChunk {
		n = min(n, b.prefills)
	}
	return max(0, min(n, b.tokens, b.input-s.cfg.DraftSlots, s.cfg.MaxModelLen-q.computed-1))
}

// take charges a running request's tokens.
func (b *budget) take(s *Scheduler, q *seq, n int) {
	if q.prefillChunk {
		b.prefill = true
		b.prefills -= n
	}
	b.hasRunning = true
	b.tokens -= n
	b.input -= n + s.cfg.DraftSlots
}

// addRow puts a running request into the decision.
func (s *Scheduler) addRow(d *Decision, q *seq, n int) *Row {
	row, it := d.add(q, n)
	row.New, row.Resumed = false, false
	if q.drafted {
		if k := n + q.computed - len(q.tokens) - q.placeholders; k > 0 {
			row.Drafts = q.spec[:min(k, len(q.spec))]
			it.drafts, it.seldom = int32(len(row.Drafts)), true
		}
		q.setSpec(q.spec[:0])
	}
	s.advance(d, q, row, it)
	return row
}

// addNewBlocks gives the row the blocks that its request had not before.
func (s *Scheduler) addNewBlocks(d *Decision, q *seq, row *Row, had int) {
	if len(s.groups) > 1 {
		row.NewBlocks = s.newBlocks(d, q)
	} else if len(q.tables[0]) > had {
		d.news = append(d.news, q.tables[0][had:])
		row.NewBlocks = d.news[len(d.news)-1:]
	}
	d.items[len(d.items)-1].seldom = true
}

// noteTables remembers the lengths of a request's tables, for newBlocks.
func (s *Scheduler) noteTables(q *seq) {
	for g := range s.hits {
		s.hits[g] = append(s.hits[g][:0], int32(len(q.tables[g])))
	}
}

func (s *Scheduler) newBlocks(d *Decision, q *seq) [][]int32 {
	from, any := len(d.news), false
	for g := range q.tables {
		had := s.hits[g][0]
		any = any || len(q.tables[g]) > int(had)
		d.news = append(d.news, q.tables[g][had:])
	}
	if !any {
		d.news = d.news[:from]
		return nil
	}
	return d.news[from:]
}

// add appends a row. What stays the same from step to step is written only if another row was here.
func (d *Decision) add(q *seq, n int) (*Row, *item) {
	i := len(d.items)
	if i == cap(d.items) {
		d.items = append(d.items, item{})
	}
	if i == cap(d.Rows) {
		d.Rows = append(d.Rows, Row{})
	}
	d.items, d.Rows = d.items[:i+1], d.Rows[:i+1]
	it, row := &d.items[i], &d.Rows[i]
	if it.q != q || it.epoch != q.epoch {
		*it = item{q: q, epoch: q.epoch, seldom: true}
		row.ID, row.Req, row.Slot, row.PromptLen, row.Tokens, row.Blocks = q.id, q.req, int(q.slot), q.numPrompt, q.tokens, q.tables
	}
	if it.seldom {
		row.Drafts, row.NewBlocks = nil, nil
		it.seldom = false
	}
	it.n, it.drafts = int32(n), 0
	row.Tokens = row.Tokens[:len(q.tokens)]
	row.NumComputed, row.NumTokens, row.NumOutput, row.InFlight = q.computed, n, q.numOutput()+q.placeholders, q.placeholders
	row.First = q.newSlot
	q.newSlot = false
	return row, it
}

// admitWaiting admits waiting requests until one does not fit; it never looks behind that one.
func (s *Scheduler) admitWaiting(now clock.Time, d *Decision, b *budget) (held Held) {
	loras := s.scheduledLoRAs(d)
	for b.tokens > 0 && held == HeldNone {
		from := &s.holding
		if from.len() == 0 && s.pause == Unpaused {
			from = &s.waiting
		}
		switch {
		case from.len() == 0:
			held = HeldEmpty
		case b.input <= s.cfg.DraftSlots:
			held = HeldBudget
		case len(s.running)+s.sessions+s.held >= s.cfg.MaxNumActiveSeqs:
			held = HeldSeqs
		default:
			q := from.peek()
			if s.blocked(q, loras) {
				s.skip(from)
				continue
			}
			if q.slot < 0 && len(s.slots) == 0 {
				held = HeldSeqs
				break
			}
			if held = s.admitOne(now, d, b, from, q); held == HeldNone && s.cfg.MaxLoRAs > 0 && q.req.Adapter != 0 {
				loras = addLoRA(loras, q.req.Adapter)
			}
		}
	}
	if held == HeldNone {
		held = HeldBudget
	}
	s.loras = loras
	s.requeueSkipped()
	return held
}

// blocked reports whether a request cannot run in this step whatever the budget; it is passed over.
func (s *Scheduler) blocked(q *seq, loras []int) bool {
	if q.status == waitingStreaming || (q.stale > 0 && !q.dropStale) || q.computed >= len(q.tokens) {
		return true
	}
	if s.cfg.MaxLoRAs == 0 || q.req.Adapter == 0 || len(loras) < s.cfg.MaxLoRAs {
		return false
	}
	for _, l := range loras {
		if l == q.req.Adapter {
			return false
		}
	}
	return true
}

func addLoRA(list []int, id int) []int {
	for _, l := range list {
		if l == id {
			return list
		}
	}
	return append(list, id)
}

func (s *Scheduler) scheduledLoRAs(d *Decision) []int {
	list := s.loras[:0]
	if s.cfg.MaxLoRAs == 0 {
		return list
	}
	for i := range d.Rows {
		if id := d.Rows[i].Req.Adapter; id != 0 {
			list = addLoRA(list, id)
		}
	}
	return list
}

func (s *Scheduler) skip(from *queue) {
	q := from.pop()
	s.setDeferred(q, true)
	if q.holdsKV() {
		s.skippedK = append(s.skippedK, q)
	} else {
		s.skipped = append(s.skipped, q)
	}
}

// requeueSkipped puts the passed-over requests back to the front, in their old order.
func (s *Scheduler) requeueSkipped() {
	for i := len(s.skippedK) - 1; i >= 0; i-- {
		s.holding.pushFront(s.skippedK[i])
	}
	for i := len(s.skipped) - 1; i >= 0; i-- {
		s.waiting.pushFront(s.skipped[i])
	}
	clear(s.skippedK)
	clear(s.skipped)
	s.skippedK, s.skipped = s.skippedK[:0], s.skipped[:0]
}

// admitOne admits the request at the head of a queue, or says what held it.
func (s *Scheduler) admitOne(now clock.Time, d *Decision, b *budget, from *queue, q *seq) Held {
	computed, lookup := q.computed, q.computed == 0
	if lookup {
		computed = s.lookup(q)
		if q.needPrefill && q.preemptions == 0 {
			q.prefillPrompt, q.prefillLocal = q.numPrompt, computed
		}
	}
	if b.deferring && computed < len(q.tokens)-1 {
		return HeldThrottle
	}
	room := min(b.tokens, b.input-s.cfg.DraftSlots)
	n, padded := len(q.tokens)-computed, false
	if s.cfg.NumSpecTokens > 0 && n == 1 && !b.prefill && (b.hasRunning || computed > 0) &&
		computed+1+s.cfg.NumSpecTokens+1 <= s.cfg.MaxModelLen {
		// A decode that joins is padded to the batch's uniform size.
		if 1+s.cfg.NumSpecTokens > room {
			return HeldBudget
		}
		n, padded = 1+s.cfg.NumSpecTokens, true
	}
	if b.threshold > 0 && n > b.threshold {
		n = b.threshold
	}
	if !s.cfg.EnableChunkedPrefill && n > room {
		return HeldBudget
	}
	n = min(n, room)
	prefill := len(q.tokens)-computed > 1
	if prefill {
		if n = min(n, b.prefills); n <= 0 {
			return HeldBudget
		}
	}
	if q.slot < 0 {
		s.reserveRunning(q)
	}
	if !s.admit(q, computed, n, lookup) {
		return HeldBlocks
	}
	if lookup {
		s.countLookup(q, computed)
	}
	from.pop()
	s.setDeferred(q, false)
	s.running = append(s.running, q)
	s.start(now, q, computed)
	first, again := q.status == waiting, q.status == preempted
	q.status = running
	s.enter(now, q)
	s.takeSlot(q)
	q.epoch++
	row, it := d.add(q, n)
	row.New, row.Resumed, it.seldom = first, again, true
	from0 := len(d.news)
	d.news = append(d.news, q.tables...)
	row.NewBlocks = d.news[from0:]
	if padded {
		row.Drafts = s.placeholders
		it.drafts = int32(len(row.Drafts))
	}
	s.advance(d, q, row, it)
	if prefill {
		b.prefills -= n
	}
	b.tokens -= n
	b.input -= n + s.cfg.DraftSlots
	return HeldNone
}

// start notes that a request leaves its queue for running.
func (s *Scheduler) start(now clock.Time, q *seq, computed int) {
	s.event(now, q, request.Scheduled)
	if q.status == preempted && q.hasOutput {
		q.recompute = true
	}
	q.fresh = false
	q.computed = computed
}

func (s *Scheduler) countLookup(q *seq, hit int) {
	if !s.readsCache(q) {
		return
	}
	if q.preemptions > 0 {
		s.counters.PreemptedRequests++
		s.counters.PreemptedQueries += len(q.tokens)
		s.counters.PreemptedHits += hit
		return
	}
	s.counters.PrefixRequests++
	s.counters.PrefixQueries += len(q.tokens)
	s.counters.PrefixHits += hit
}

// advance commits a row to its request at once: the next step may be planned before this one ran.
func (s *Scheduler) advance(d *Decision, q *seq, row *Row, it *item) {
	n := int(it.n)
	d.TotalTokens += n
	if s.cfg.Policy == Priority {
		q.undoChunk = q.prefillChunk
	}
	q.computed += n
	q.inFlight += n
	q.prefillChunk = q.computed < len(q.tokens)+q.placeholders
	row.Samples = !q.prefillChunk
	if s.cfg.Async && !q.prefillChunk {
		q.placeholders += 1 + int(it.drafts)
		if len(s.placeholders) > 0 {
			q.setSpec(s.placeholders)
		}
	}
	if s.cfg.DecodeStagger > 1 {
		q.undoEligible = q.eligible
		if s.cfg.Async && !q.prefillChunk {
			q.eligible = s.step + uint64(s.cfg.DecodeStagger)
		}
	}
}

// conclude hands the ends and preemptions since the last decision over.
func (s *Scheduler) conclude(d *Decision) {
	if n := len(d.items); n < d.high {
		clear(d.items[n:d.high]) // what is not overwritten would keep old requests' memory
		clear(d.Rows[n:d.high])
	}
	d.high = len(d.items)
	d.Finished, s.finished = s.finished, d.Finished[:0]
	d.Preempted, s.preempted = s.preempted, d.Preempted[:0]
	d.Running, d.Waiting, d.Free = len(s.running), s.waiting.len()+s.holding.len(), s.pool.free
	s.counters.ScheduledTokens += d.TotalTokens
}
