package dashboard

import (
	"time"

	"omni-engine/metrics/record"
)

// Sample is a core at one look. Rates are over the time since the look before; they are absent at the first look, and after a
// pause in looking: an average over a pause would hide what happened in it.
type Sample struct {
	At         int64    `json:"at"` // milliseconds since 1970
	Generation *float64 `json:"gen"`
	Prompt     *float64 `json:"prompt"`
	Running    int      `json:"run"`
	Waiting    int      `json:"wait"`
	KV         *float64 `json:"kv"`
}

const (
	lookEvery  = 900 * time.Millisecond // looks that follow quicker share one sample: viewers ask every second
	longestGap = 5 * time.Second
	keptLooks  = 15 * 60
)

// history holds a replica's samples. It grows only while somebody looks.
type history struct {
	samples []Sample
	totals  []record.Totals // beside samples
	last    time.Time
}

// look takes a sample.
func (h *history) look(now time.Time, s *record.Snapshot) {
	v := Sample{At: now.UnixMilli(), Running: s.Stats.Running, Waiting: s.Waiting(), KV: finite(s.Stats.Usage)}
	if n := len(h.totals); n > 0 {
		if gap := now.Sub(h.last); gap > 0 && gap <= longestGap {
			prev := &h.totals[n-1]
			v.Generation = perSecond(prev.GenerationTokens, s.Totals.GenerationTokens, gap)
			v.Prompt = perSecond(prev.PromptTokens, s.Totals.PromptTokens, gap)
		}
	}
	if len(h.samples) == keptLooks {
		h.samples = append(h.samples[:0], h.samples[1:]...)
		h.totals = append(h.totals[:0], h.totals[1:]...)
	}
	totals := s.Totals
	totals.AcceptedPerPos = nil
	h.samples, h.totals, h.last = append(h.samples, v), append(h.totals, totals), now
}

func perSecond(from, to uint64, gap time.Duration) *float64 {
	if to < from { // the core began anew
		return nil
	}
	return finite(float64(to-from) / gap.Seconds())
}

// after returns a copy of the samples later than since, milliseconds.
func (h *history) after(since int64) []Sample {
	at := len(h.samples)
	for at > 0 && h.samples[at-1].At > since {
		at--
	}
	return append([]Sample{}, h.samples[at:]...)
}

// hitRate is the share of prompt tokens that the prefix cache had, since the oldest look after from.
func (h *history) hitRate(from time.Time) *float64 {
	for i := range h.samples {
		if h.samples[i].At >= from.UnixMilli() {
			a, b := &h.totals[i], &h.totals[len(h.totals)-1]
			if b.PrefixQueries < a.PrefixQueries || b.PrefixHits < a.PrefixHits {
				return nil
			}
			return ratio(float64(b.PrefixHits-a.PrefixHits), float64(b.PrefixQueries-a.PrefixQueries))
		}
	}
	return nil
}
