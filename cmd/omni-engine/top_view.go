package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"omni-engine/internal/server/dashboard"
)

// topView draws what a client knows as lines of at most width characters.
type topView struct {
	width, height int // height 0: as long as it gets
	paint         bool
	now           time.Time
}

// Colours of the 256-colour palette; a state has the colour that the page gives it.
const (
	bold   = "1"
	dim    = "2"
	red    = "38;5;203"
	green  = "38;5;78"
	amber  = "38;5;214"
	teal   = "38;5;43"
	blue   = "38;5;69"
	orange = "38;5;208"
	violet = "38;5;141"
	grey   = "38;5;245"
)

// stateLook is a state's colour and, without colours, the letter that its part of a bar is made of.
func stateLook(state string) (colour, letter string) {
	switch state {
	case "queued":
		return amber, "q"
	case "prefill":
		return teal, "p"
	case "decode":
		return blue, "d"
	case "recompute":
		return orange, "r"
	case "preempted":
		return red, "x"
	case "waiting_input", "waiting_chunk", "waiting_kv_load", "waiting_kv_ack", "waiting_grammar":
		return violet, "w"
	}
	return grey, "o"
}

func (v *topView) in(colour, text string) string {
	if !v.paint || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// fit is the frame cut to the terminal's height: the list takes what the figures leave.
func (v *topView) fit(c *topClient) []string {
	lines := v.frame(c, 0)
	if room := v.height - len(lines); room > 0 {
		lines = v.frame(c, room)
	}
	if len(lines) > v.height {
		more := len(lines) - v.height + 1
		lines = append(lines[:v.height-1], v.in(dim, fmt.Sprintf("… %d more lines: enlarge the terminal", more)))
	}
	return lines
}

// frame draws everything, with at most rows requests.
func (v *topView) frame(c *topClient, rows int) []string {
	lines := v.head(c)
	for _, st := range c.state.Stages {
		for i := range st.Replicas {
			lines = append(lines, "")
			lines = append(lines, v.replica(c, &st, &st.Replicas[i])...)
		}
	}
	return append(lines, v.requests(c, rows)...)
}

func (v *topView) head(c *topClient) []string {
	status, colour := "live", green
	if c.trouble != nil {
		status, colour = "stale since "+c.at.Format(time.TimeOnly), red
	}
	right := fmt.Sprintf("%s  last %s", status, windowName(c.state.Window))
	title := "omni-engine " + printable(strings.Join(c.state.Models, ", ")+"  "+c.state.Version, max(0, v.width-len(right)-14))
	space := strings.Repeat(" ", max(1, v.width-len([]rune(title))-len(right)-2))
	lines := []string{v.in(bold, title) + space + v.in(colour, "●") + " " + right}
	if c.trouble != nil {
		lines = append(lines, v.in(red, printable(c.trouble.Error(), v.width)))
	}
	if c.state.Trouble != "" {
		lines = append(lines, v.in(red, printable("not healthy: "+c.state.Trouble, v.width)))
	}
	if !c.state.Recording {
		lines = append(lines, v.in(amber, printable("recording is off (--no-log-stats): there are no request times", v.width)))
	}
	return lines
}

func windowName(seconds int) string {
	if seconds == 60 {
		return "minute"
	}
	return fmt.Sprintf("%d minutes", seconds/60)
}

func (v *topView) replica(c *topClient, st *dashboard.StageState, r *dashboard.ReplicaState) []string {
	name := fmt.Sprintf("Stage %d  %s  replica %d", st.ID, st.Type, r.Replica)
	if st.Name != fmt.Sprintf("stage_%d", st.ID) {
		name += "  " + printable(st.Name, 24)
	}
	if r.Core != nil && r.Core.Paused {
		name += "  PAUSED"
	}
	history := c.history[[2]int{st.ID, r.Replica}]
	lines := append([]string{v.in(bold, name)}, v.figures(r, history)...)
	if c.state.Recording {
		lines = append(lines, "")
		lines = append(lines, v.where(&r.Recent)...)
		lines = append(lines, "")
		lines = append(lines, v.latency(&r.Latency)...)
	}
	return lines
}

// figures is one line a figure: name, value, picture, note.
func (v *topView) figures(r *dashboard.ReplicaState, history []dashboard.Sample) []string {
	picture := max(0, min(60, v.width-58))
	line := func(name, value, pic, note string) string {
		left := v.width - 30
		if pic != "" {
			pic, left = pic+"  ", left-picture-2
		}
		return v.in(grey, fmt.Sprintf("  %-12s", name)) + v.in(bold, fmt.Sprintf("%14s", value)) + "  " + pic + v.in(grey, printable(note, max(0, left)))
	}
	spark := func(colour string, pick func(*dashboard.Sample) *float64) string {
		return v.in(colour, sparkline(history, picture, pick))
	}
	k := r.Core
	if k == nil {
		return []string{line("", "", "", "the engine core has not spoken yet")}
	}
	waiting := fmt.Sprintf("%d waiting", k.Waiting)
	for _, n := range []struct {
		n    int
		what string
	}{{k.Deferred, "deferred"}, {k.Inbox, "in the inbox"}} {
		if n.n > 0 {
			waiting += fmt.Sprintf(", %d %s", n.n, n.what)
		}
	}
	for _, why := range sortedKeys(k.Parked) {
		waiting += fmt.Sprintf(", %d parked (%s)", k.Parked[why], why)
	}
	kv := "no paged cache"
	if k.KVUsage != nil {
		kv = fmt.Sprintf("%d of %d blocks", k.KVBlocks-k.KVFree, k.KVBlocks)
	}
	lines := []string{
		line("Generation", rateText(r.Rates.Generation)+" tok/s", spark(blue, func(s *dashboard.Sample) *float64 { return s.Generation }), countText(k.GenerationTokens)+" since start"),
		line("Prefill", rateText(r.Rates.Prompt)+" tok/s", spark(teal, func(s *dashboard.Sample) *float64 { return s.Prompt }), countText(k.PromptTokens)+" since start"),
		line("Requests", fmt.Sprintf("%d running", k.Running), spark(violet, runningThen), waiting),
		line("KV cache", percentText(k.KVUsage), v.meter(k.KVUsage, picture), kv),
	}
	hits, over := r.Rates.PrefixHits, "of prompt tokens"
	if hits == nil {
		hits, over = r.Rates.PrefixHitsAll, "of prompt tokens since start"
	}
	lines = append(lines, line("Prefix hits", percentText(hits), v.meter(hits, picture), over))
	return append(lines, line("Finished", rateText(r.Rates.Requests)+"/s", "", reasonsText(&r.Recent)),
		line("Preemptions", fmt.Sprint(r.Recent.Preemptions), "", countText(k.Preemptions)+" since start"))
}

func runningThen(s *dashboard.Sample) *float64 {
	n := float64(s.Running)
	return &n
}

func reasonsText(r *dashboard.Recent) string {
	text := fmt.Sprintf("%d in %.0f s", r.Requests, r.Covered)
	for _, why := range sortedKeys(r.Reasons) {
		text += fmt.Sprintf("  %s %d", why, r.Reasons[why])
	}
	return text
}

func sortedKeys(m map[string]int) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// where is the bar of ledger states, within this stage and replica.
func (v *topView) where(r *dashboard.Recent) []string {
	if len(r.States) == 0 {
		return []string{v.in(grey, "  No request ended in this time.")}
	}
	whole := 0.0
	for _, s := range r.States {
		whole += s.MS
	}
	var bar strings.Builder
	bar.WriteString("  ")
	room, at, sum := v.width-4, 0, 0.0
	legend, lines, length := "  ", []string(nil), 2
	for _, s := range r.States {
		sum += s.MS
		to := int(sum/whole*float64(room) + 0.5)
		colour, letter := stateLook(s.State)
		fill := letter
		if v.paint {
			fill = "█"
		}
		bar.WriteString(v.in(colour, strings.Repeat(fill, to-at)))
		at = to
		mark := "■"
		if !v.paint {
			mark = letter
		}
		word := fmt.Sprintf(" %s %s  %s a request   ", s.State, percentText(ptr(s.MS/whole)), durationText(ptr(s.MS/float64(r.Accounted))))
		if n := len([]rune(word)) + 1; length+n > v.width {
			lines, legend, length = append(lines, strings.TrimRight(legend, " ")), "  "+v.in(colour, mark)+word, 2+n
		} else {
			legend, length = legend+v.in(colour, mark)+word, length+n
		}
	}
	title := fmt.Sprintf("  Where requests spend their time: %d that ended, on this core's clock", r.Accounted)
	return append([]string{v.in(grey, printable(title, v.width)), bar.String()}, append(lines, strings.TrimRight(legend, " "))...)
}

func (v *topView) latency(l *dashboard.Latencies) []string {
	lines := []string{v.in(grey, fmt.Sprintf("  %-16s%10s%10s%10s%9s", "Latency", "p50", "p90", "p99", "n"))}
	for _, m := range []struct {
		name string
		p    dashboard.Percentiles
	}{{"queued", l.Queued}, {"prefill", l.Prefill}, {"decode", l.Decode}, {"first token", l.TTFT}, {"between tokens", l.ITL}, {"end to end", l.E2E}} {
		lines = append(lines, fmt.Sprintf("  %-16s%s%10s%10s%9d", m.name, v.in(bold, fmt.Sprintf("%10s", durationText(m.p.P50))), durationText(m.p.P90), durationText(m.p.P99), m.p.N))
	}
	return lines
}

// requests lists as many as fit into rows lines, with two lines of head.
func (v *topView) requests(c *topClient, rows int) []string {
	const fixed = 2 + 8 + 1 + 13 + 10 + 10 + 9 // finish, tokens, first token, total, ended
	n := min(rows-2, len(c.list.Requests))
	if n <= 0 {
		return nil
	}
	id := max(10, v.width-fixed-1)
	lines := []string{"", v.in(grey, fmt.Sprintf("  %-8s %-*s%13s%10s%10s%9s", "Finish", id, printable(fmt.Sprintf("Request (%d kept)", c.list.Kept), id), "Tokens", "TTFT", "Total", "Ended"))}
	for _, r := range c.list.Requests[:n] {
		colour := green
		if r.Finish == "abort" || r.Finish == "error" {
			colour = red
		}
		name := r.ID
		if r.TraceID != "" {
			name += " trace " + r.TraceID
		}
		lines = append(lines, "  "+v.in(colour, fmt.Sprintf("%-8s", printable(r.Finish, 8)))+fmt.Sprintf(" %-*s%13s%10s%10s%9s", id, printable(name, id),
			fmt.Sprintf("%d → %d", r.Prompt, r.Output), durationText(r.TTFT), durationText(r.E2E), agoText(v.now.Sub(r.FinishedAt))))
	}
	return lines
}
