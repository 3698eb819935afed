package metrics

import (
	"strconv"
	"sync"

	"omni-engine/metrics/record"
)

// streams are the families of the edges of requests' streams, formed within one clock each, and of the traces that leave.
type streams struct {
	model     string
	firstByte family
	send      family
	chunk     family
	exported  family
	lost      family

	first  *series
	mu     sync.Mutex
	sends  []*edgeSeries  // by from and to
	chunks []*stageSeries // by stage and replica

	traces func() (exported, queueFull, exportFailed int64) // nil: tracing is off
	counts [3]*series
}

type edgeSeries struct {
	from, to int
	s        *series
}

type stageSeries struct {
	stage, replica int
	s              *series
}

func newStreams(cfg *Config) *streams {
	h := func(name, help string) family {
		return family{name: "omni_" + name, help: help, kind: histogram, buckets: waitBuckets()}
	}
	t := &streams{model: cfg.ModelName,
		firstByte: h("stream_first_byte_seconds", "Arrival to the first byte of the answer, server's clock."),
		send:      h("stream_send_seconds", "First to last byte that was sent over an edge, the sender's clock."),
		chunk:     h("stream_first_chunk_seconds", "First input to first output of a stage that waited for its input, its core's clock."),
		exported:  family{name: "omni_traces_exported_total", help: "Requests whose spans were exported."},
		lost:      family{name: "omni_traces_dropped_total", help: "Requests whose spans were dropped, by reason.", label: "reason", values: []string{"queue_full", "export_failed"}},
	}
	model := []label{{"model_name", t.model}}
	t.first = newSeries(&t.firstByte, model)
	lost := children(&t.lost, model)
	t.counts = [3]*series{newSeries(&t.exported, model), lost[0], lost[1]}
	for i, s := range cfg.Stages { // in order of their ids
		if i == len(cfg.Stages)-1 {
			t.sendOf(s.ID, record.Client)
		} else {
			t.sendOf(s.ID, cfg.Stages[i+1].ID)
		}
		for r := 0; i > 0 && r < max(s.Replicas, 1); r++ {
			t.chunkOf(s.ID, r)
		}
	}
	return t
}

// sendOf finds an edge's series, or makes it. The caller holds the lock, or is alone.
func (t *streams) sendOf(from, to int) *series {
	for _, e := range t.sends {
		if e.from == from && e.to == to {
			return e.s
		}
	}
	name := "client"
	if to != record.Client {
		name = strconv.Itoa(to)
	}
	s := newSeries(&t.send, []label{{"model_name", t.model}, {"from_stage", strconv.Itoa(from)}, {"to_stage", name}})
	t.sends = append(t.sends, &edgeSeries{from, to, s})
	return s
}

func (t *streams) chunkOf(stage, replica int) *series {
	for _, c := range t.chunks {
		if c.stage == stage && c.replica == replica {
			return c.s
		}
	}
	s := newSeries(&t.chunk, []label{{"model_name", t.model}, {"stage", strconv.Itoa(stage)}, {"replica", strconv.Itoa(replica)}})
	t.chunks = append(t.chunks, &stageSeries{stage, replica, s})
	return s
}

func (t *streams) collect() []block {
	t.mu.Lock()
	defer t.mu.Unlock()
	send, chunk := block{f: &t.send}, block{f: &t.chunk}
	for _, e := range t.sends {
		send.series = append(send.series, e.s)
	}
	for _, c := range t.chunks {
		chunk.series = append(chunk.series, c.s)
	}
	out := []block{{f: &t.firstByte, series: []*series{t.first}}, send}
	if len(chunk.series) > 0 {
		out = append(out, chunk)
	}
	if t.traces == nil {
		return out
	}
	exported, full, failed := t.traces()
	for i, n := range []int64{exported, full, failed} {
		t.counts[i].set(float64(n))
	}
	return append(out, block{f: &t.exported, series: t.counts[:1]}, block{f: &t.lost, series: t.counts[1:]})
}

// FrontFinished records the edges of a request that came over HTTP. A duration that was not formed within one clock is no sample.
func (m *Metrics) FrontFinished(f *record.Front) {
	t := m.streams
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range f.Edges {
		e := &f.Edges[i]
		t.sendOf(e.From, e.To).observe(e.SendTime())
		if e.To == record.Client {
			t.first.observe(e.FirstByte.Sub(record.ServerInstant(f.Arrival)))
		}
		if out := outOf(f.Edges, e); out != nil {
			t.chunkOf(out.From, out.FromReplica).observe(record.FirstChunkTime(e, out))
		}
	}
}

// outOf finds the edge that goes on from where one ends; nil at the client.
func outOf(edges []record.StreamEdge, in *record.StreamEdge) *record.StreamEdge {
	for i := range edges {
		if out := &edges[i]; in.To != record.Client && out.From == in.To && out.FromReplica == in.ToReplica {
			return out
		}
	}
	return nil
}

// SetTraces says where the counters of traces come from; without it there are none. Call it before the first scrape.
func (m *Metrics) SetTraces(source func() (exported, queueFull, exportFailed int64)) {
	m.streams.mu.Lock()
	defer m.streams.mu.Unlock()
	m.streams.traces = source
}
