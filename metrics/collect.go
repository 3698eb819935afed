package metrics

import (
	dto "github.com/prometheus/client_model/go"

	"omni-engine/metrics/record"
)

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

// moment is what one scrape reads: the replicas of that moment with their newest snapshots.
type moment struct {
	m        *Metrics
	replicas []*replica
	stages   []*stage
	snaps    []*record.Snapshot // by replica; nil for one that left
	pipeline bool
}

// collect reads every family, in the table's order. With pipeline set, gauges have one series for the whole pipeline, for
// routers that read only one.
func (m *Metrics) collect(pipeline bool) []block {
	now := moment{m: m, replicas: *m.replicas.Load(), stages: *m.stages.Load(), pipeline: pipeline}
	now.snaps = snapshots(now.replicas)
	out := make([]block, 0, int(numFamilies)+16)
	for n := range m.table {
		if f := &m.table[n]; m.enabled[n] {
			b := block{f: f}
			if f.kind == gauge {
				b.gauges = now.gauges(id(n), f)
			} else {
				b.series = now.series(id(n), f)
			}
			out = append(out, b)
		}
	}
	return append(out, now.others()...)
}

// series returns a counter's or histogram's children, ordered by stage and replica.
func (now *moment) series(i id, f *family) []*series {
	var out []*series
	switch f.scope {
	case perModel:
		return now.m.model[i]
	case perStage:
		for _, st := range now.stages {
			out = append(out, st.series[i]...)
		}
	default:
		for _, r := range now.replicas {
			out = append(out, r.series[i]...)
		}
	}
	return out
}

// gauges reads a gauge's children from the snapshots.
func (now *moment) gauges(i id, f *family) []sample {
	var out []sample
	switch {
	case f.scope == perModel:
		return []sample{{now.m.model[i][0], now.modelGauge(i)}}
	case i == omniPeakMemory:
		for _, st := range now.stages {
			out = append(out, sample{st.series[i][0], st.series[i][0].value()})
		}
	case f.scope == perStage: // requests that wait in the stage's schedulers
		for _, st := range now.stages {
			total := 0.0
			for j, r := range now.replicas {
				if r.stage == st && now.snaps[j] != nil {
					total += gaugeValue(waiting, 0, now.snaps[j])
				}
			}
			out = append(out, sample{st.series[i][0], total})
		}
	case now.pipeline:
		for v, s := range now.m.pipeline[i] {
			out = append(out, sample{s, whole(i, v, now.snaps)})
		}
	default:
		for j, r := range now.replicas {
			for v, s := range r.series[i] {
				if now.snaps[j] != nil {
					out = append(out, sample{s, gaugeValue(i, v, now.snaps[j])})
				}
			}
		}
	}
	return out
}

// others are the families that the table does not hold: information, tools, transfers, the server's own requests.
func (now *moment) others() []block {
	var out []block
	m := now.m
	if !m.cfg.DisableVLLM {
		info := block{f: &family{name: "vllm:cache_config_info", help: "The KV cache's configuration, in labels.", kind: gauge}}
		for j, r := range now.replicas {
			if now.snaps[j] == nil || now.snaps[j].Cache == nil || now.pipeline && len(info.gauges) > 0 {
				continue
			}
			info.gauges = append(info.gauges, sample{r.cacheInfo(now.snaps[j].Cache), 1})
		}
		out = append(out, info)
	}
	if m.tools != nil {
		out = append(out, block{f: &m.tools.family, series: m.tools.list})
	}
	if m.lora != nil {
		out = append(out, m.lora.collect())
	}
	out = append(append(out, m.sleep.collect()...), m.sockets.collect()...)
	about := block{f: &family{name: "vllm_omni:stage_info", help: "The stages: their names and types, by stage id.", kind: gauge}}
	for _, st := range now.stages {
		about.gauges = append(about.gauges, sample{st.about, 1})
	}
	out = append(out, about)
	m.transfer.each(func(f *family, s []*series) { out = append(out, block{f: f, series: s}) })
	out = append(out, m.streams.collect()...)
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
	families, _ := m.process.Gather() // a file under /proc that cannot be read leaves its family out
	return families
}
