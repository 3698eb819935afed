package metrics

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"

	"github.com/prometheus/common/expfmt"
)

// Handler serves /metrics: the text format, OpenMetrics with exemplars, or protobuf with native histograms, as the scraper
// asks. ?scope=pipeline gives each gauge one series for the whole pipeline. The answer is encoded before the first byte is
// sent, so a slow reader holds nothing.
func (m *Metrics) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scope := r.URL.Query().Get("scope")
		if scope != "" && scope != "pipeline" {
			http.Error(w, "scope must be pipeline or absent", http.StatusBadRequest)
			return
		}
		// The plain text comes first: it is what a client without a wish gets.
		format := expfmt.NegotiateAccept(r.Header, expfmt.FmtText, expfmt.FmtText_1_0_0, expfmt.FmtOpenMetrics_1_0_0,
			expfmt.FmtOpenMetrics_0_0_1, expfmt.FmtProtoDelim, expfmt.FmtProtoText, expfmt.FmtProtoCompact)
		body, err := m.encode(format, scope == "pipeline")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", string(format))
		w.Header().Add("Vary", "Accept, Accept-Encoding")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write(body) // the reader went away: nothing to tell it
			_ = z.Close()
			return
		}
		_, _ = w.Write(body)
	})
}

func (m *Metrics) encode(format expfmt.Format, pipeline bool) ([]byte, error) {
	blocks := m.collect(pipeline)
	if t := format.FormatType(); t == expfmt.TypeProtoDelim || t == expfmt.TypeProtoText || t == expfmt.TypeProtoCompact {
		var out bytes.Buffer
		enc := expfmt.NewEncoder(&out, format)
		for _, b := range blocks {
			if f := b.proto(); len(f.Metric) > 0 {
				if err := enc.Encode(f); err != nil {
					return nil, err
				}
			}
		}
		for _, f := range m.ownProcess() {
			if err := enc.Encode(f); err != nil {
				return nil, err
			}
		}
		return out.Bytes(), nil
	}
	e := encoder{open: format.FormatType() == expfmt.TypeOpenMetrics, buf: make([]byte, 0, m.lastSize.Load()+m.lastSize.Load()/8+4096)}
	for _, f := range m.ownProcess() {
		e.foreign(f)
	}
	for _, b := range blocks {
		e.block(b)
	}
	if e.open {
		e.str("# EOF\n")
	}
	m.lastSize.Store(int64(len(e.buf)))
	return e.buf, nil
}
