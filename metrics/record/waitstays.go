package record

import (
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// WaitStay is one wait of PS-31, clipped to the interval that it lies in.
type WaitStay struct {
	Name     string // input_wait, chunk_wait, kv_wait, preempted
	From, To clock.Time
}

// Length is To − From.
func (w WaitStay) Length() clock.Span { return w.To.Sub(w.From).NonNegative() }

// WaitStays returns the waits one by one, in order, those alone whose sum the record tells ([Stage.InputWait], …). The ledger keeps at
// most [MaxStays] stays, so later ones may be missing.
func (s *Stage) WaitStays() []WaitStay {
	stays, _ := s.Ledger.Stays()
	var out []WaitStay
	for _, st := range stays {
		w := WaitStay{From: st.From, To: st.To}
		queued := false // it lies in [QUEUED, first SCHEDULED], not in [first SCHEDULED, last output]
		set := clock.Span{}
		switch st.State {
		case request.StateWaitingInput:
			w.Name, queued, set = "input_wait", true, s.InputWait()
		case request.StateWaitingChunk:
			if queued = st.From.Before(s.ScheduledTS); queued {
				w.Name, set = "input_wait", s.InputWait()
			} else {
				w.Name, set = "chunk_wait", s.ChunkWait()
			}
		case request.StateWaitingKVLoad:
			w.Name, queued, set = "kv_wait", true, s.KVWait()
		case request.StateWaitingKVAck:
			w.Name, set = "kv_wait", s.KVWait()
		case request.StatePreempted:
			w.Name, set = "preempted", s.PreemptedTime()
		}
		if !set.IsSet() {
			continue
		}
		from, to := s.ScheduledTS, s.LastTokenTS
		if queued {
			from, to = s.QueuedTS, s.ScheduledTS
		} else if st.State == request.StatePreempted {
			to = s.EndTS
		}
		if w.From.Before(from) {
			w.From = from
		}
		if to.Before(w.To) {
			w.To = to
		}
		if w.From.Before(w.To) {
			out = append(out, w)
		}
	}
	return out
}
