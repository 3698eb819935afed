package scheduler

import (
	"slices"

	"omni-engine/engine/request"
)

// Inspection is a copy of the scheduler's whole state, for tests, replays and debugging.
type Inspection struct {
	Running, Waiting, Holding, Deferred []request.ID // the queues in the order of service
	Free                                int
	Usage                               float64
	Requests                            []RequestState // in the order of arrival
	FreeQueue                           []int32        // next to be allocated first
	CachedBlocks                        []int32        // ascending
}

// RequestState is one request's part of an [Inspection].
type RequestState struct {
	ID                                             request.ID
	Status                                         string
	Computed, Tokens, Outputs, Preemptions, Drafts int
	Placeholders, InFlight, Stale                  int
	Pending                                        []request.EventType
	Ledger                                         request.State
	Blocks                                         [][]int32
}

// Inspect copies the state. Its cost grows with the cache; it is not for every step of a server.
func (s *Scheduler) Inspect() Inspection {
	in := Inspection{Running: ids(s.running), Waiting: ids(s.waiting.all()), Holding: ids(s.holding.all()), Free: s.pool.free, Usage: s.pool.usage()}
	for _, id := range s.IDs() {
		q := s.requests[id]
		if q.deferred {
			in.Deferred = append(in.Deferred, id)
		}
		st := RequestState{
			ID: id, Status: q.status.String(), Computed: q.computed, Tokens: len(q.tokens), Outputs: q.numOutput(), Preemptions: q.preemptions,
			Drafts: len(q.spec), Placeholders: q.placeholders, InFlight: q.inFlight, Stale: q.stale, Ledger: q.state,
		}
		for _, e := range q.events {
			st.Pending = append(st.Pending, e.Type)
		}
		for _, t := range q.tables {
			st.Blocks = append(st.Blocks, slices.Clone(t))
		}
		in.Requests = append(in.Requests, st)
	}
	for b := s.pool.blocks[0].next; b != 0; b = s.pool.blocks[b].next {
		in.FreeQueue = append(in.FreeQueue, b)
	}
	for i := range s.pool.blocks {
		if s.pool.blocks[i].hashed != 0 {
			in.CachedBlocks = append(in.CachedBlocks, int32(i))
		}
	}
	return in
}

// Queues returns the ids of running, waiting and KV-holding waiting requests, in the order of service, and the free blocks.
func (s *Scheduler) Queues() (running, waiting, holding []request.ID, free int) {
	return ids(s.running), ids(s.waiting.all()), ids(s.holding.all()), s.pool.free
}

func ids(list []*seq) []request.ID {
	out := make([]request.ID, len(list))
	for i, q := range list {
		out[i] = q.id
	}
	return out
}
