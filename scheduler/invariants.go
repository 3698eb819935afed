package scheduler

import (
	"fmt"
	"slices"
)

// check verifies what must hold between any two calls: every block is free or referenced, exactly as often as tables name it; the counts
// are right; each request is in one place. It costs the whole state, so only tests and builds with the tag invariants run it.
func (s *Scheduler) check() error {
	refs := make([]int32, len(s.pool.blocks))
	if err := s.checkRequests(refs); err != nil {
		return err
	}
	return s.checkPool(refs)
}

func (s *Scheduler) checkRequests(refs []int32) error {
	slots := map[int32]*seq{}
	places := map[*seq]int{}
	for _, q := range s.running {
		places[q]++
		if q.status != running || q.slot < 0 {
			return fmt.Errorf("%s runs with status %s and slot %d", q.id, q.status, q.slot)
		}
	}
	for _, queue := range []*queue{&s.waiting, &s.holding} {
		n := 0
		for _, q := range queue.all() {
			n++
			places[q]++
			if q.in != queue {
				return fmt.Errorf("%s is in a queue that it does not know", q.id)
			}
		}
		if n != queue.n {
			return fmt.Errorf("a queue of %d counts %d", n, queue.n)
		}
	}
	deferred, sessions, held, committed := 0, 0, 0, 0
	for id, q := range s.requests {
		want := 1
		if q.status == parked {
			want = 0
			if q.slot >= 0 {
				held++
			}
		}
		if places[q] != want || q.id != id || q.leaving {
			return fmt.Errorf("%s (%s) is in %d queues, leaving %v", id, q.status, places[q], q.leaving)
		}
		delete(places, q)
		if q.slot >= 0 {
			if other := slots[q.slot]; other != nil {
				return fmt.Errorf("%s and %s share slot %d", id, other.id, q.slot)
			}
			slots[q.slot] = q
		}
		if q.deferred {
			deferred++
		}
		if q.status == waitingStreaming {
			sessions++
		}
		committed += q.committed
		if err := s.checkCounters(q); err != nil {
			return err
		}
		if err := s.checkMarks(q); err != nil {
			return err
		}
		for _, t := range q.tables {
			for _, b := range t {
				refs[b]++
			}
		}
	}
	if len(places) > 0 || deferred != s.deferred || sessions != s.sessions || held != s.held || committed != s.committed {
		return fmt.Errorf("%d strangers queued; deferred %d, counted %d; sessions %d, counted %d; held slots %d, counted %d; committed %d, counted %d",
			len(places), deferred, s.deferred, sessions, s.sessions, held, s.held, committed, s.committed)
	}
	if len(slots)+len(s.slots) != s.cfg.MaxNumSeqs {
		return fmt.Errorf("%d slots held and %d free of %d", len(slots), len(s.slots), s.cfg.MaxNumSeqs)
	}
	return nil
}

func (s *Scheduler) checkCounters(q *seq) error {
	if q.computed < 0 || q.placeholders < 0 || q.inFlight < 0 || q.stale < 0 || q.numPrompt > len(q.tokens) {
		return fmt.Errorf("%s: computed %d, placeholders %d, in flight %d, stale %d, prompt %d of %d tokens",
			q.id, q.computed, q.placeholders, q.inFlight, q.stale, q.numPrompt, len(q.tokens))
	}
	for g, t := range q.tables {
		if q.cached[g] > len(t) || len(t)*s.groups[g].BlockSize < min(q.computed, s.cfg.MaxModelLen) {
			return fmt.Errorf("%s: group %d has %d blocks, %d of them hashed, for %d computed tokens", q.id, g, len(t), q.cached[g], q.computed)
		}
	}
	return nil
}

func (s *Scheduler) checkPool(refs []int32) error {
	free, prev := 0, int32(0)
	for b := s.pool.blocks[0].next; b != 0; b = s.pool.blocks[b].next {
		if s.pool.blocks[b].prev != prev || free > len(refs) {
			return fmt.Errorf("the free queue is broken at block %d", b)
		}
		if refs[b] != 0 {
			return fmt.Errorf("block %d is free and in %d tables", b, refs[b])
		}
		refs[b] = -1
		free++
		prev = b
	}
	if free != s.pool.free {
		return fmt.Errorf("%d free blocks, counted %d", free, s.pool.free)
	}
	for b := range s.pool.blocks {
		x := &s.pool.blocks[b]
		if b == 0 {
			continue
		}
		if want := max(refs[b], 0); x.ref != want {
			return fmt.Errorf("block %d has %d references, counted %d", b, want, x.ref)
		}
		if refs[b] == 0 {
			return fmt.Errorf("block %d is lost: neither free nor in a table", b)
		}
		if x.hashed != 0 && !s.pool.findable(int32(b)) {
			return fmt.Errorf("block %d has a hash and is not in the table", b)
		}
	}
	return nil
}

func (p *pool) findable(b int32) bool {
	if slices.Contains(p.pending, b) {
		return true
	}
	at := p.search(p.blocks[b].key)
	for at != 0 && at != b {
		at = p.blocks[at].dup
	}
	return at == b
}
