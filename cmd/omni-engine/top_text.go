package main

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"

	"omni-engine/internal/server/dashboard"
)

// notObserved is how an absent value shows: never as a zero.
const notObserved = "–"

func ptr(f float64) *float64 { return &f }

// durationText shows milliseconds with about three digits.
func durationText(ms *float64) string {
	if ms == nil {
		return notObserved
	}
	switch v := *ms; {
	case v == 0:
		return "0 ms"
	case v < 1:
		return fmt.Sprintf("%.0f µs", max(1, v*1000))
	case v < 10:
		return fmt.Sprintf("%.2f ms", v)
	case v < 100:
		return fmt.Sprintf("%.1f ms", v)
	case v < 1000:
		return fmt.Sprintf("%.0f ms", v)
	case v < 10_000:
		return fmt.Sprintf("%.2f s", v/1000)
	case v < 100_000:
		return fmt.Sprintf("%.1f s", v/1000)
	default:
		return (time.Duration(v) * time.Millisecond).Round(time.Second).String()
	}
}

func rateText(f *float64) string {
	switch {
	case f == nil:
		return notObserved
	case *f > 0 && *f < 10:
		return fmt.Sprintf("%.1f", *f)
	}
	return fmt.Sprintf("%.0f", *f)
}

func percentText(f *float64) string {
	switch {
	case f == nil:
		return notObserved
	case *f > 0 && *f < 0.1:
		return fmt.Sprintf("%.1f %%", 100**f)
	}
	return fmt.Sprintf("%.0f %%", 100**f)
}

func countText(n uint64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f G", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.2f M", float64(n)/1e6)
	}
	return fmt.Sprint(n)
}

func agoText(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%.0f min", math.Floor(d.Minutes()))
	}
	return fmt.Sprintf("%.0f h", math.Floor(d.Hours()))
}

// printable cuts a text to width characters and makes it harmless: an id may hold what a terminal would obey, or runes of another
// width, and both come from users.
func printable(s string, width int) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n == width-1 && len([]rune(s)) > width {
			b.WriteRune('…')
			break
		}
		if n == width {
			break
		}
		if !unicode.IsPrint(r) || r > 0x2ff && !strings.ContainsRune("–…→·", r) {
			r = '·'
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// sparkline shows the newest samples, one a character; what was not seen stays empty.
func sparkline(history []dashboard.Sample, width int, pick func(*dashboard.Sample) *float64) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	history = history[max(0, len(history)-width):]
	most := 0.0
	for i := range history {
		if v := pick(&history[i]); v != nil {
			most = max(most, *v)
		}
	}
	out := []rune(strings.Repeat(" ", width-len(history)))
	for i := range history {
		switch v := pick(&history[i]); {
		case v == nil:
			out = append(out, ' ')
		case most == 0:
			out = append(out, levels[0])
		default:
			out = append(out, levels[int(*v/most*float64(len(levels)-1)+0.5)])
		}
	}
	return string(out)
}

// meter is a bar of a share, 0 to 1.
func (v *topView) meter(share *float64, width int) string {
	if share == nil {
		return strings.Repeat(" ", width)
	}
	n := int(min(max(*share, 0), 1)*float64(width) + 0.5)
	colour := green
	if *share > 0.9 {
		colour = amber
	}
	return v.in(colour, strings.Repeat("█", n)) + v.in(grey, strings.Repeat("░", width-n))
}
