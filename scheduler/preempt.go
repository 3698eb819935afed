package scheduler

import (
	"slices"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// victim is the index in running of whom to preempt: the last under FCFS; under priority the least urgent, the first of equals.
// -1: nobody may be.
func (s *Scheduler) victim() int {
	if s.cfg.NonPreemptible || len(s.running) == 0 {
		return -1
	}
	if s.cfg.Policy != Priority {
		return len(s.running) - 1
	}
	worst := 0
	for i, q := range s.running[1:] {
		w := s.running[worst]
		if q.priority > w.priority || (q.priority == w.priority && q.arrival > w.arrival) {
			worst = i + 1
		}
	}
	return worst
}

// unschedule takes a victim that was already scheduled in this step out of the decision and gives its budget back. Under FCFS
// the victim comes after everyone scheduled so far.
func (s *Scheduler) unschedule(d *Decision, b *budget, v *seq) {
	if s.cfg.Policy != Priority {
		return
	}
	i := slices.IndexFunc(d.items, func(it item) bool { return it.q == v })
	if i < 0 {
		return
	}
	n := d.Rows[i].NumTokens
	d.TotalTokens -= n
	v.inFlight -= n
	v.prefillChunk = v.undoChunk
	if s.cfg.DecodeStagger > 1 {
		v.eligible = v.undoEligible
	}
	if v.prefillChunk {
		b.prefills += n
	}
	b.tokens += n
	b.input += n + s.cfg.DraftSlots
	d.items = slices.Delete(d.items, i, i+1)
	d.Rows = slices.Delete(d.Rows, i, i+1)
	b.hasRunning = len(d.items) > 0
}

// preempt takes a request's blocks and slot and puts it to the front of the waiting ones. What is in flight for it becomes stale:
// delivered when it comes, unless drop, but it no longer moves the counters that restart here. The caller took it out of running.
func (s *Scheduler) preempt(now clock.Time, q *seq, drop bool) {
	s.freeBlocks(q)
	s.freeSlot(q)
	s.committed -= q.committed
	q.committed = 0
	q.status = preempted
	q.computed = 0
	q.setSpec(nil)
	q.dropStale = drop || (q.dropStale && q.stale > 0)
	q.stale = q.inFlight
	q.placeholders = 0
	q.preemptions++
	s.counters.Preemptions++
	s.event(now, q, request.Preempted)
	s.waiting.pushFront(q)
	s.enter(now, q)
	s.preempted = append(s.preempted, q.id)
}

// breakDeadlock takes the blocks of the waiting request that would be served last, when nothing runs, no row is in flight, and those who wait hold
// the blocks that each of them lacks: several sessions or unparked requests. vLLM stays stuck there. A paused session may still
// free the blocks by itself, so then it waits, as vLLM does.
func (s *Scheduler) breakDeadlock(now clock.Time) bool {
	if len(s.running) > 0 || s.flights > 0 || s.sessions > 0 || s.cfg.NonPreemptible {
		return false
	}
	holders := s.holding.all()
	if len(holders) < 2 {
		return false
	}
	v := holders[len(holders)-1]
	s.holding.remove([]*seq{v})
	s.setDeferred(v, false)
	s.preempt(now, v, false)
	return true
}
