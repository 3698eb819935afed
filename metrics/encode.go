package metrics

import (
	"math"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// encoder writes the text format or OpenMetrics. Numbers and bucket bounds are in the Prometheus Python client's form
// ("1.0", not "1"), since dashboards match bucket labels as text.
type encoder struct {
	buf  []byte
	open bool // OpenMetrics: counter families lose _total, _created stays inside its family, exemplars are shown
}

// appendFloat appends f as the Prometheus Python client prints it.
func appendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(dst, "+Inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-Inf"...)
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	}
	if n := int64(f); f >= 0 && f < 1e6 && float64(n) == f {
		return append(strconv.AppendInt(dst, n, 10), ".0"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e6) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	for _, c := range dst[start:] {
		if c == '.' {
			return dst
		}
	}
	return append(dst, ".0"...)
}

func (e *encoder) str(parts ...string) {
	buf := e.buf
	for _, p := range parts {
		buf = append(buf, p...)
	}
	e.buf = buf
}

func (e *encoder) head(name, help, kind string) {
	if strings.ContainsAny(help, "\\\n") {
		help = strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(help)
	}
	e.str("# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n")
}

// line writes name{labels} value.
func (e *encoder) line(name, labels string, value float64) {
	e.key(name, labels)
	e.buf = append(appendFloat(e.buf, value), '\n')
}

func (e *encoder) key(name, labels string) {
	if labels == "" {
		e.str(name, " ")
	} else {
		e.str(name, "{", labels, "} ")
	}
}

func (e *encoder) block(b block) {
	switch {
	case b.summary:
		e.summaries(b)
	case b.f.kind == gauge:
		e.head(b.f.name, b.f.help, "gauge")
		for _, g := range b.gauges {
			e.line(b.f.name, g.s.text, g.value)
		}
	case b.f.kind == counter:
		base := strings.TrimSuffix(b.f.name, "_total")
		if e.open {
			e.head(base, b.f.help, "counter")
		} else {
			e.head(b.f.name, b.f.help, "counter")
		}
		for _, s := range b.series {
			e.line(b.f.name, s.text, s.value())
		}
		e.created(base, b.f.help, b.series)
	default:
		e.histograms(b)
	}
}

// created writes the creation times: a gauge family of its own in the text format, as the Python client has it.
func (e *encoder) created(base, help string, list []*series) {
	name := base + "_created"
	if !e.open {
		e.head(name, help, "gauge")
	}
	for _, s := range list {
		e.key(name, s.text)
		e.str(s.createdText, "\n")
	}
}

func (e *encoder) summaries(b block) {
	e.head(b.f.name, b.f.help, "summary")
	list := make([]*series, len(b.summaries))
	for i, s := range b.summaries {
		e.line(b.f.name+"_count", s.series.text, float64(s.count))
		e.line(b.f.name+"_sum", s.series.text, s.total)
		list[i] = s.series
	}
	e.created(b.f.name, b.f.help, list)
}

func (e *encoder) histograms(b block) {
	e.head(b.f.name, b.f.help, "histogram")
	bounds := make([]string, len(b.f.buckets))
	for i, f := range b.f.buckets {
		bounds[i] = string(appendFloat(nil, f))
	}
	name, count, sum := b.f.name+"_bucket{", b.f.name+"_count", b.f.name+"_sum"
	for _, s := range b.series {
		n := uint64(0)
		for i := range s.hist.buckets {
			n += s.hist.buckets[i].Load()
			bound := "+Inf"
			if i < len(bounds) {
				bound = bounds[i]
			}
			e.bucket(name, s, bound, n, s.hist.traced[i].Load())
		}
		e.line(count, s.text, float64(n))
		e.line(sum, s.text, math.Float64frombits(s.hist.sum.Load()))
	}
	e.created(b.f.name, b.f.help, b.series)
}

func (e *encoder) bucket(name string, s *series, bound string, n uint64, x *exemplar) {
	e.str(name, s.before, `le="`, bound, `"`, s.after, "} ")
	e.buf = appendFloat(e.buf, float64(n))
	if e.open && x != nil {
		e.str(` # {trace_id="`, escape(x.trace), `"} `)
		e.buf = append(appendFloat(e.buf, x.value), ' ')
		e.buf = appendFloat(e.buf, float64(x.at.UnixNano())/1e9)
	}
	e.buf = append(e.buf, '\n')
}

// foreign writes a family that another collector gathered: gauges, counters and summaries without labels of client text.
func (e *encoder) foreign(f *dto.MetricFamily) {
	name, kind := f.GetName(), strings.ToLower(f.GetType().String())
	switch {
	case e.open && kind == "counter":
		e.head(strings.TrimSuffix(name, "_total"), f.GetHelp(), kind)
		if !strings.HasSuffix(name, "_total") {
			name += "_total"
		}
	case kind == "untyped" && e.open:
		e.head(name, f.GetHelp(), "unknown")
	default:
		e.head(name, f.GetHelp(), kind)
	}
	for _, m := range f.GetMetric() {
		var pairs []string
		for _, l := range m.GetLabel() {
			pairs = append(pairs, l.GetName()+`="`+escape(l.GetValue())+`"`)
		}
		labels := strings.Join(pairs, ",")
		switch {
		case m.Gauge != nil:
			e.line(name, labels, m.GetGauge().GetValue())
		case m.Counter != nil:
			e.line(name, labels, m.GetCounter().GetValue())
		case m.Untyped != nil:
			e.line(name, labels, m.GetUntyped().GetValue())
		case m.Summary != nil:
			for _, q := range m.GetSummary().GetQuantile() {
				text := `quantile="` + string(appendFloat(nil, q.GetQuantile())) + `"`
				e.line(name, strings.Join(append(pairs, text), ","), q.GetValue())
			}
			e.line(name+"_sum", labels, m.GetSummary().GetSampleSum())
			e.line(name+"_count", labels, float64(m.GetSummary().GetSampleCount()))
		}
	}
}
