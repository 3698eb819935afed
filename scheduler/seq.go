package scheduler

import (
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// status is where a request is in the scheduler; vLLM's RequestStatus.
type status uint8

const (
	waiting          status = iota
	waitingStreaming        // WAITING_FOR_STREAMING_REQ: a session between two segments
	parked                  // out of the queues until Unpark
	running
	preempted
	ended
)

func (s status) String() string {
	return [...]string{"WAITING", "WAITING_FOR_STREAMING_REQ", "PARKED", "RUNNING", "PREEMPTED", "FINISHED"}[s]
}

// seq is the scheduler's record of a request. A decode step touches these two cache lines of it and no other: at a thousand requests the
// lines touched are the cost. The rest stands behind cold; records of neighbours lie side by side.
type seq struct {
	status       status
	prefillChunk bool // the last scheduled part was not the end of what is known
	dropStale    bool // stale output is dropped instead of delivered
	leaving      bool // stopped in this update, to be taken out of running
	hasOutput    bool // an output came since the start, the segment's start or the last preemption
	recompute    bool // resumed after a preemption, no output yet
	newSlot      bool // its next row is the first of its slot
	needPrefill  bool // its prefill statistics have not been reported
	noted        bool // events or ledger changes wait for its next output
	drafted      bool // spec is not empty
	mixed        bool // its hashes cover more than tokens: Rows, an adapter
	careful      bool // it has stop ids or a repetition to look for
	slot         int32
	epoch        uint32 // of what stays the same in its rows and outputs from step to step: a new admission, a moved tokens array
	eos          int32  // -1: none
	computed     int    // num_computed_tokens
	placeholders int    // num_output_placeholders
	inFlight     int    // num_in_flight_tokens
	stale        int    // num_stale_output_tokens
	roof         int    // tokens that its blocks hold; -1: to be worked out by group

	tokens    []int32 // prompt, then outputs
	numPrompt int
	limit     int // tokens at which it stops for its length
	maxTokens int
	hashAt    int // tokens at which its next block is hashed
	*cold
}

// cold is what a steady decode step does not read.
type cold struct {
	// What the filling of a block touches.
	tables    [][]int32
	oneTable  [1][]int32
	oneCached [1]int
	cached    []int // blocks hashed so far, by group
	hashes    []key
	_         [24]byte // to 128

	id           request.ID
	req          *request.Request
	client       int
	resumable    bool
	norecord     bool
	repeated     bool // the last stop was a repetition
	deferred     bool // counted as skipped
	fresh        bool // not scheduled since Add or since its segment began
	state        request.State
	wait         request.Wait // why it is parked
	stopToken    int32
	spec         []int32 // drafts for the next step
	events       []request.Event
	changes      []request.StateChange
	stops        []int32
	repeat       *request.Repetition
	undoChunk    bool   // prefillChunk before the last row, should that be taken back (priority)
	prefillLocal int    // prefix hit of the last lookup before any preemption, for the first output's statistics
	eligible     uint64 // next_decode_eligible_step
	undoEligible uint64

	minTokens     int
	priority      int
	arrival       float64
	order         uint64 // of arrival in this scheduler
	in            *queue
	before        *seq
	after         *seq
	segments      []request.Segment
	preemptions   int
	committed     int // blocks promised to it (NonPreemptible)
	prefillPrompt int
	eventHashes   [][]byte
}

func (q *seq) numOutput() int { return len(q.tokens) - q.numPrompt }

// takeSampling adopts sampling parameters at the start and with each segment.
func (q *seq) takeSampling(p *request.SamplingParams, repeat *request.Repetition) {
	q.maxTokens, q.minTokens, q.repeat = p.MaxTokens, p.MinTokens, repeat
	q.eos, q.stops = -1, p.StopTokenIDs
	if !p.IgnoreEOS && len(q.req.EOS) > 0 {
		q.eos = q.req.EOS[0]
		if len(q.req.EOS) > 1 {
			q.stops = append(append([]int32{}, p.StopTokenIDs...), q.req.EOS[1:]...)
		}
	}
	q.careful = len(q.stops) > 0 || repeat != nil
}

// setLimit works out the length at which the request stops, after a change of its prompt or its parameters.
func (q *seq) setLimit(maxModelLen int) {
	q.limit = maxModelLen
	if q.maxTokens < maxModelLen-q.numPrompt {
		q.limit = q.numPrompt + q.maxTokens
	}
}

// setRequest adopts what was asked for, at the start and when a session or a parked request gets more.
func (q *seq) setRequest(r *request.Request) {
	q.req, q.mixed = r, r.Rows != nil || r.Adapter != 0
}

// setSpec replaces the drafts for the next step.
func (q *seq) setSpec(drafts []int32) { q.spec, q.drafted = drafts, len(drafts) > 0 }

// holdsKV reports whether the request has computed tokens while it waits.
func (q *seq) holdsKV() bool { return q.computed > 0 }

// event records a lifecycle event that rides on the next output.
func (s *Scheduler) event(now clock.Time, q *seq, t request.EventType) {
	if !q.norecord {
		q.events = append(q.events, request.Event{Type: t, At: now})
		q.noted = true
	}
}

// enter brings the ledger up to date with the request's status (PS-32): it records a change only if there is one.
func (s *Scheduler) enter(now clock.Time, q *seq) {
	if q.norecord {
		return
	}
	if to := s.stateOf(q); to != q.state {
		q.state = to
		q.changes = append(q.changes, request.StateChange{To: to, At: now})
		q.noted = true
	}
}

func (s *Scheduler) stateOf(q *seq) request.State {
	switch q.status {
	case ended:
		return request.StateNone
	case waitingStreaming:
		return request.StateWaitingSession
	case parked:
		return parkedState(q)
	}
	if s.pause == PausedAll || (s.pause == PausedNew && q.status != running && !q.holdsKV()) {
		return request.StatePaused
	}
	switch q.status {
	case preempted:
		return request.StatePreempted
	case running:
		switch {
		case q.recompute:
			return request.StateRecompute
		case q.hasOutput:
			return request.StateDecode
		}
		return request.StatePrefill
	}
	if !q.fresh {
		return request.StateRequeued
	}
	return request.StateQueued
}

func parkedState(q *seq) request.State {
	switch q.wait {
	case request.WaitChunk:
		if q.fresh {
			return request.StateWaitingInput
		}
		return request.StateWaitingChunk
	case request.WaitGrammar:
		return request.StateWaitingGrammar
	case request.WaitKV:
		return request.StateWaitingKVLoad
	case request.WaitSession:
		return request.StateWaitingSession
	}
	return request.StateWaitingInput
}
