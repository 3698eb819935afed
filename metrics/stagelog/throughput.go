package stagelog

import (
	"fmt"
	"log/slog"
	"strings"

	"omni-engine/metrics/record"
)

// Throughput writes vLLM's periodic line for one core, from two of its snapshots.
type Throughput struct {
	Engine int    // the number in "Engine 000"
	Device string // CPU or GPU
	last   *record.Snapshot
	moved  bool // tokens moved in the interval before
}

// Next returns the line for the time since the last call, and whether it is worth INFO: without tokens in this and the last
// interval it is DEBUG, as in vLLM. The first call only remembers, and ok is false.
func (t *Throughput) Next(s record.Snapshot) (line string, level slog.Level, ok bool) {
	prev := t.last
	t.last = &s
	if prev == nil {
		return "", slog.LevelDebug, false
	}
	sec, known := s.Wall.Sub(prev.Wall).Seconds()
	if !known || sec <= 0 {
		return "", slog.LevelDebug, false
	}
	prompt := float64(s.Totals.PromptTokens-prev.Totals.PromptTokens) / sec
	generation := float64(s.Totals.GenerationTokens-prev.Totals.GenerationTokens) / sec
	parts := []string{fmt.Sprintf("Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f tokens/s, Running: %d reqs, Waiting: %d reqs",
		prompt, generation, s.Stats.Running, s.Waiting())}
	if n := s.Stats.Skipped; n > 0 {
		parts = append(parts, fmt.Sprintf("Deferred: %d reqs", n))
	}
	if f := s.KVFetch; f != [record.NumKVFetch]int{} {
		parts = append(parts, fmt.Sprintf("KV fetch: %d waiting to start, %d in progress, %d completed waiting",
			f[record.KVFetchWaitingToStart], f[record.KVFetchInProgress], f[record.KVFetchCompleted]))
	}
	if n := s.Totals.Preemptions - prev.Totals.Preemptions; n > 0 {
		parts = append(parts, fmt.Sprintf("Preemptions: %d", n))
	}
	parts = append(parts, fmt.Sprintf("%s KV cache usage: %.1f%%", t.Device, s.Stats.Usage*100))
	if s.RecentPrefix.Requests > 0 {
		parts = append(parts, fmt.Sprintf("Prefix cache hit rate: %.1f%%", s.RecentPrefix.HitRate()*100))
	}
	moves := prompt > 0 || generation > 0
	level = slog.LevelDebug
	if moves || t.moved {
		level = slog.LevelInfo
	}
	t.moved = moves
	return fmt.Sprintf("Engine %03d: ", t.Engine) + strings.Join(parts, ", "), level, true
}

// Speculation returns vLLM's line on speculative decoding since the snapshot before; ok is false when nothing was drafted.
func Speculation(prev, s record.Snapshot) (line string, ok bool) {
	sec, known := s.Wall.Sub(prev.Wall).Seconds()
	drafts := float64(s.Totals.Drafts - prev.Totals.Drafts)
	drafted, accepted := float64(s.Totals.DraftTokens-prev.Totals.DraftTokens), float64(s.Totals.AcceptedTokens-prev.Totals.AcceptedTokens)
	if !known || sec <= 0 || drafts == 0 || drafted == 0 {
		return "", false
	}
	return fmt.Sprintf("SpecDecoding metrics: Mean acceptance length: %.2f, Accepted throughput: %.2f tokens/s, Drafted throughput: %.2f tokens/s, "+
		"Accepted: %.0f tokens, Drafted: %.0f tokens, Per-position acceptance rate: %s, Avg Draft acceptance rate: %.1f%%",
		1+accepted/drafts, accepted/sec, drafted/sec, accepted, drafted, perPosition(prev, s, drafts), 100*accepted/drafted), true
}

func perPosition(prev, s record.Snapshot, drafts float64) string {
	rates := make([]string, len(s.Totals.AcceptedPerPos))
	for i, n := range s.Totals.AcceptedPerPos {
		if i < len(prev.Totals.AcceptedPerPos) {
			n -= prev.Totals.AcceptedPerPos[i]
		}
		rates[i] = fmt.Sprintf("%.3f", float64(n)/drafts)
	}
	return strings.Join(rates, ", ")
}
