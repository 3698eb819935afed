package scheduler

import (
	"fmt"
	"log/slog"
	"strings"
)

// Held says why a decision admitted no further request.
type Held uint8

// The reasons.
const (
	HeldNone       Held = iota
	HeldEmpty           // nobody waits
	HeldBudget          // the token budget is used up
	HeldSeqs            // max_num_active_seqs run
	HeldBlocks          // the next one's KV blocks are not free
	HeldThrottle        // prefills are put off
	HeldPreemption      // someone was preempted in this step
	HeldPaused          // the scheduler is paused
)

func (h Held) String() string {
	return [...]string{"none", "empty", "budget", "seqs", "blocks", "throttle", "preemption", "paused"}[h]
}

// String explains the decision in one line: each row as id:tokens@position, then the state around it.
func (d *Decision) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "step=%d tokens=%d rows=[", d.Seq, d.TotalTokens)
	for i := range d.Rows {
		r := &d.Rows[i]
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s:%d@%d", r.ID, r.NumTokens, r.NumComputed)
		switch {
		case r.New:
			b.WriteString("(new)")
		case r.Resumed:
			b.WriteString("(resumed)")
		}
		if len(r.Drafts) > 0 {
			fmt.Fprintf(&b, "+%dd", len(r.Drafts))
		}
	}
	fmt.Fprintf(&b, "] preempted=%v finished=%v running=%d waiting=%d free=%d held=%s", d.Preempted, d.Finished, d.Running, d.Waiting, d.Free, d.Held)
	return b.String()
}

// LogValue makes the explanation lazy: it costs nothing unless the line is logged.
func (d *Decision) LogValue() slog.Value { return slog.StringValue(d.String()) }
