package metrics

import (
	"math"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"

	"omni-engine/internal/clock"
)

// label is one name and value.
type label struct{ name, value string }

// series is one labelled child of a family: a sum, or a histogram. Whoever records holds it directly, so recording looks up
// nothing. Its label text is encoded once.
type series struct {
	labels  []label // sorted by name
	text    string  // a="b",c="d"
	before  string  // the part of text that sorts before le, with its comma
	after   string  // the rest, with a leading comma
	created time.Time

	createdText string // created in seconds, as it is printed

	sum  atomic.Uint64 // counter, or a gauge that is set: the bits of a float64
	hist *samples
}

func newSeries(f *family, labels []label) *series {
	s := &series{labels: append([]label{}, labels...), created: time.Now()}
	s.createdText = string(appendFloat(nil, float64(s.created.UnixNano())/1e9))
	sort.Slice(s.labels, func(i, j int) bool { return s.labels[i].name < s.labels[j].name })
	var before, after []string
	for _, l := range s.labels {
		if pair := l.name + `="` + escape(l.value) + `"`; l.name < "le" {
			before = append(before, pair)
		} else {
			after = append(after, pair)
		}
	}
	s.text = strings.Join(append(append([]string{}, before...), after...), ",")
	if len(before) > 0 {
		s.before = strings.Join(before, ",") + ","
	}
	if len(after) > 0 {
		s.after = "," + strings.Join(after, ",")
	}
	if f.kind == histogram {
		s.hist = newSamples(f)
	}
	return s
}

// children returns a family's series under base labels: one for each value of its own label.
func children(f *family, base []label) []*series {
	if f.ownStage {
		base = slices.Clone(base)
		for i := range base {
			if base[i].name == "stage" {
				base[i].name = "pipeline_stage"
			}
		}
	}
	if f.label == "" {
		return []*series{newSeries(f, base)}
	}
	out := make([]*series, len(f.values))
	for i, v := range f.values {
		out[i] = newSeries(f, append(append([]label{}, base...), label{f.label, v}))
	}
	return out
}

// add adds to a counter; anything not above 0 adds nothing, since a counter never goes down.
func (s *series) add(v float64) {
	if v > 0 {
		s.shift(v)
	}
}

// shift moves a gauge up or down.
func (s *series) shift(v float64) {
	for {
		old := s.sum.Load()
		if s.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

// set replaces a gauge's value.
func (s *series) set(v float64) { s.sum.Store(math.Float64bits(v)) }

func (s *series) value() float64 { return math.Float64frombits(s.sum.Load()) }

// observe adds a sample; an absent span is none (PS-11, PS-14).
func (s *series) observe(d clock.Span) {
	if sec, ok := d.Seconds(); ok {
		s.hist.Observe(sec)
	}
}

// observeTraced adds a sample with the request's trace as exemplar.
func (s *series) observeTraced(d clock.Span, trace string) {
	sec, ok := d.Seconds()
	if !ok {
		return
	}
	if trace == "" {
		s.hist.Observe(sec)
		return
	}
	s.hist.ObserveTraced(sec, trace)
}

func (s *series) pairs() []*dto.LabelPair {
	out := make([]*dto.LabelPair, len(s.labels))
	for i := range s.labels {
		out[i] = &dto.LabelPair{Name: &s.labels[i].name, Value: &s.labels[i].value}
	}
	return out
}

// escape writes a label value as the text formats want it.
func escape(v string) string {
	if !strings.ContainsAny(v, "\\\n\"") {
		return v
	}
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(v)
}
