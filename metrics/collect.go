package metrics

import dto "github.com/prometheus/client_model/go"

// block is one family at one scrape: its samples in order, read but not yet encoded.
type block struct {
	f         *family
	summary   bool
	series    []*series // counters, histograms
	gauges    []sample
	summaries []summary
}

// sample is a gauge's series with its value.
type sample struct {
	s     *series
	value float64
}

// collect reads every family, in the table's order. With pipeline set, gauges have one series for the whole pipeline, for
// routers that read only one.
func (m *Metrics) collect(pipeline bool) []block {
	snaps, replicas, stages := m.snapshots(), *m.replicas.Load(), *m.stages.Load()
	out := make([]block, 0, int(numFamilies)+16)
	for n := range m.table {
		i, f := id(n), &m.table[n]
		if !m.enabled[i] {
			continue
		}
		b := block{f: f}
		switch {
		case f.kind == gauge && f.scope == perReplica && pipeline:
			for v, s := range m.pipeline[i] {
				b.gauges = append(b.gauges, sample{s, whole(i, v, snaps)})
			}
		case f.kind == gauge && f.scope == perReplica:
			for j, r := range replicas {
				for v, s := range r.series[i] {
					if snaps[j] != nil {
						b.gauges = append(b.gauges, sample{s, gaugeValue(i, v, snaps[j])})
					}
				}
			}
		case f.kind == gauge && f.scope == perModel:
			b.gauges = []sample{{m.model[i][0], modelGauge(i, snaps)}}
		case f.kind == gauge: // perStage: requests that wait in the stage's schedulers
			for _, st := range stages {
				total := 0.0
				for j, r := range replicas {
					if r.stage == st && snaps[j] != nil {
						total += gaugeValue(waiting, 0, snaps[j])
					}
				}
				b.gauges = append(b.gauges, sample{st.series[i][0], total})
			}
		case f.scope == perModel:
			b.series = m.model[i]
		case f.scope == perStage:
			for _, st := range stages {
				b.series = append(b.series, st.series[i]...)
			}
		default:
			for _, r := range replicas {
				b.series = append(b.series, r.series[i]...)
			}
		}
		out = append(out, b)
	}
	return append(out, m.others(pipeline)...)
}

// others are the families that the table does not hold: information, tools, transfers, the server's own requests.
func (m *Metrics) others(pipeline bool) []block {
	var out []block
	snaps := m.snapshots()
	if !m.cfg.DisableVLLM {
		info := block{f: &family{name: "vllm:cache_config_info", help: "The KV cache's configuration, in labels.", kind: gauge}}
		for j, r := range *m.replicas.Load() {
			if snaps[j] == nil || snaps[j].Cache == nil || pipeline && len(info.gauges) > 0 {
				continue
			}
			info.gauges = append(info.gauges, sample{r.cacheInfo(snaps[j].Cache), 1})
		}
		out = append(out, info)
	}
	if m.tools != nil {
		out = append(out, block{f: &m.tools.family, series: m.tools.list})
	}
	about := block{f: &family{name: "vllm_omni:stage_info", help: "The stages: their names and types, by stage id.", kind: gauge}}
	for _, st := range *m.stages.Load() {
		about.gauges = append(about.gauges, sample{st.about, 1})
	}
	out = append(out, about)
	m.transfer.each(func(f *family, s []*series) { out = append(out, block{f: f, series: s}) })
	build := &family{name: "omni_engine_build_info", help: "Version of the server, in labels.", kind: gauge}
	out = append(out, block{f: build, gauges: []sample{{m.build, 1}}})
	return append(out, m.http.collect()...)
}

func (h *HTTP) collect() []block {
	h.mu.Lock()
	defer h.mu.Unlock()
	size, answer := block{f: &h.families[1], summary: true}, block{f: &h.families[2], summary: true}
	for _, s := range h.sizeList {
		size.summaries, answer.summaries = append(size.summaries, s[0]), append(answer.summaries, s[1])
	}
	return []block{
		{f: &h.families[0], series: append([]*series{}, h.requestList...)}, size, answer,
		{f: &h.families[3], series: []*series{h.fine}},
		{f: &h.families[4], series: append([]*series{}, h.durationList...)},
	}
}

// ownProcess returns process_* and go_* as the client library reads them.
func (m *Metrics) ownProcess() []*dto.MetricFamily {
	families, err := m.process.Gather()
	if err != nil { // a file under /proc that cannot be read leaves its family out
		return families
	}
	return families
}
