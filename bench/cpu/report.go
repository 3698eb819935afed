package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// report is one model's figures.
type report struct {
	model   string
	level   string // that both engines were held to; empty: all that the machine has
	a, b    engine
	machine machine
	results []result
	quiet   float64
	roof    *roofline // nil where it could not be probed
}

// summary of a figure's counted rounds.
type summary struct {
	a, b, median, low, high float64
	counted, all            int
	disturbed               bool // no round was undisturbed: all are counted
	foreign                 float64
}

// undisturbed reports whether others used little during both sides.
func (p pair) undisturbed(limit float64) bool {
	return max(p.During[0].Foreign, p.During[1].Foreign) <= limit
}

// summarise takes the undisturbed rounds, or all where there is none.
func summarise(r result, limit float64) (s summary, ok bool) {
	counted := slices.DeleteFunc(slices.Clone(r.Pairs), func(p pair) bool { return !p.undisturbed(limit) })
	if s.disturbed = len(counted) == 0; s.disturbed {
		counted = r.Pairs
	}
	var as, bs, ratios []float64
	for _, p := range counted {
		if p.A <= 0 || p.B <= 0 {
			continue
		}
		as, bs, ratios = append(as, p.A), append(bs, p.B), append(ratios, p.A/p.B)
		s.foreign = max(s.foreign, p.During[0].Foreign, p.During[1].Foreign)
	}
	if len(ratios) == 0 {
		return s, false
	}
	s.a, s.b, s.median = median(as), median(bs), median(ratios)
	s.low, s.high = slices.Min(ratios), slices.Max(ratios)
	s.counted, s.all = len(ratios), len(r.Pairs)
	return s, true
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}

// ratios are the last lines of the output. A figure without a run has no line.
func (r *report) ratios(prefix string) (lines []string) {
	for _, x := range r.results {
		if s, ok := summarise(x, r.quiet); ok {
			lines = append(lines, fmt.Sprintf("ratio %s%s %s", prefix, x.Name, x.ratio(s.median)))
		}
	}
	return lines
}

func (x result) ratio(v float64) string {
	if x.Name == "perplexity" {
		return x.show(v)
	}
	return fmt.Sprintf("%.3g", v)
}

// failures are the works that ended in an error.
func (r *report) failures() (names []string) {
	for _, x := range r.results {
		if x.Failed && !slices.Contains(names, x.Work) {
			names = append(names, x.Work)
		}
	}
	return names
}

func markdown(reports []*report, command string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "`%s`\n", command)
	for _, r := range reports {
		r.write(&b)
	}
	return b.String()
}

func (r *report) write(b *strings.Builder) {
	m := r.machine
	level := "all instructions of the machine"
	if r.level != "" {
		level = r.level
	}
	fmt.Fprintf(b, "\n### %s, %s\n\n", r.model, level)
	fmt.Fprintf(b, "%s: %s; %s; %d CPUs, %d threads each, L3 %s, memory %s, Linux %s, load average afterwards %s.\n", m.When, m.Processor,
		strings.Join(m.Flags, " "), m.CPUs, m.Threads, m.L3, m.Memory, m.Kernel, m.Load)
	for _, e := range []engine{r.a, r.b} {
		var facts []string
		for _, f := range e.facts() {
			if f[0] != "name" {
				facts = append(facts, f[0]+" "+f[1])
			}
		}
		fmt.Fprintf(b, "- **%s**: %s.\n", e.name(), strings.Join(facts, "; "))
	}
	fmt.Fprintf(b, "\n| figure | work | %s | %s | ratio (min … max) | rounds | others |\n|---|---|---|---|---|---|---|\n", r.a.name(), r.b.name())
	for _, x := range r.results {
		r.row(b, x)
	}
	b.WriteString("\nMedians; a ratio is first / second of one round. Rounds: those that count, of all; a round counts when other processes used at most " +
		fmt.Sprintf("%g processors during it", r.quiet) + ", and where none was so quiet all count and the figure is marked †. Others: the most that they used in a counted round.\n")
	r.steadiness(b)
	if r.roof != nil {
		r.roof.write(b, r.ours())
	}
}

// ours are our medians by figure.
func (r *report) ours() map[string]float64 {
	v := map[string]float64{}
	for _, x := range r.results {
		if s, ok := summarise(x, r.quiet); ok {
			v[x.Name] = s.a
		}
	}
	return v
}

func (r *report) row(b *strings.Builder, x result) {
	s, ok := summarise(x, r.quiet)
	if !ok {
		fmt.Fprintf(b, "| %s | %s | – | – | not measured: %s | 0 | |\n", x.Name, x.What, cell(x.Why))
		return
	}
	mark, note := "", ""
	if s.disturbed {
		mark = " †"
	}
	if x.Why != "" {
		note = "; then " + cell(x.Why)
	}
	better := ""
	if x.Cost {
		better = ", less is better"
	}
	fmt.Fprintf(b, "| %s | %s (%s%s) | %s | %s | **%s** (%s … %s)%s | %d of %d%s | %.2f |\n", x.Name, x.What, x.Unit, better, x.show(s.a), x.show(s.b),
		x.show(s.median), x.show(s.low), x.show(s.high), mark, s.counted, s.all, note, s.foreign)
}

// cell makes an error fit a table.
func cell(text string) string {
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "|", "/")), " ")
	if len(text) > 160 {
		text = text[:160] + "…"
	}
	return text
}

// steadiness says how much of its own quiet speed each engine keeps beside a busy process.
func (r *report) steadiness(b *strings.Builder) {
	for _, x := range r.results {
		of, found := strings.CutPrefix(x.Name, "busy_")
		i := slices.IndexFunc(r.results, func(q result) bool { return q.Name == of })
		if !found || i < 0 {
			continue
		}
		busy, ok := summarise(x, r.quiet)
		quiet, okQuiet := summarise(r.results[i], r.quiet)
		if ok && okQuiet {
			fmt.Fprintf(b, "\nBeside one busy process %s keeps %s of its %s speed, %s %s.\n", r.a.name(), number(busy.a/quiet.a), of, r.b.name(), number(busy.b/quiet.b))
		}
	}
}

// number shows three digits.
func number(v float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Sprint(v)
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// show writes a figure with the digits that it deserves: half a percent of a perplexity matters.
func (x result) show(v float64) string {
	if x.Name == "perplexity" {
		return strconv.FormatFloat(v, 'f', 4, 64)
	}
	return number(v)
}

// replaceSection puts the text between the section's markers in a Markdown file, which must have them.
func replaceSection(path, name, text string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	begin, end := "<!-- "+name+":begin -->", "<!-- "+name+":end -->"
	head, rest, ok := strings.Cut(string(raw), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("writing the results: %s has no lines %s and %s", path, begin, end)
	}
	return os.WriteFile(path, []byte(head+begin+"\n"+strings.TrimSpace(text)+"\n"+end+tail), 0o644)
}
