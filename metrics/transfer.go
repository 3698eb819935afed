package metrics

import (
	"strconv"
	"sync"

	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// transfers holds the families of the edges between stages; an edge's series exist once it is known.
type transfers struct {
	model    string
	families [4]family // size, tx, rx, in flight
	mu       sync.Mutex
	edges    []*Edge
}

// Edge is one pair of replicas between which payloads travel.
type Edge struct {
	from, fromReplica, to, toReplica int
	series                           [4]*series
}

func newTransfers(model string) *transfers {
	h := func(name, help string, b []float64) family {
		return family{name: "vllm_omni:" + name, help: help, kind: histogram, buckets: b, omni: true}
	}
	return &transfers{model: model, families: [4]family{
		h("transfer_size_bytes", "Payload of one hop between stages.", transferBytes()),
		h("transfer_tx_s", "Time to send a payload to the next stage.", omniShort()),
		h("transfer_rx_s", "Time to receive and decode a payload.", omniShort()),
		h("transfer_in_flight_s", "End of the send to the start of the receive.", omniShort()),
	}}
}

// Edge returns the recorder of one edge, the same for the same replicas.
func (m *Metrics) Edge(from, fromReplica, to, toReplica int) *Edge {
	t := m.transfer
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.edges {
		if e.from == from && e.fromReplica == fromReplica && e.to == to && e.toReplica == toReplica {
			return e
		}
	}
	e := &Edge{from: from, fromReplica: fromReplica, to: to, toReplica: toReplica}
	labels := []label{{"model_name", t.model}, {"from_stage", strconv.Itoa(from)}, {"from_replica", strconv.Itoa(fromReplica)},
		{"to_stage", strconv.Itoa(to)}, {"to_replica", strconv.Itoa(toReplica)}}
	for i := range t.families {
		e.series[i] = newSeries(&t.families[i], labels)
	}
	t.edges = append(t.edges, e)
	return e
}

// Transferred records a payload on its edge. A replica that is not known (a negative number) leaves it out, as in vLLM-Omni.
func (m *Metrics) Transferred(t *record.Transfer) {
	if t.FromReplica < 0 || t.ToReplica < 0 {
		return
	}
	e := m.Edge(t.From, t.FromReplica, t.To, t.ToReplica)
	e.Sent(t.Bytes, t.TX)
	e.Received(t.RX, t.InFlight)
}

// Sent records one payload of bytes and the time that sending it took.
func (e *Edge) Sent(bytes int, took clock.Span) {
	e.series[0].hist.Observe(float64(bytes))
	e.series[1].observe(took)
}

// Received records the receiver's time, and the time in flight; absent ones are no sample.
func (e *Edge) Received(took, inFlight clock.Span) {
	e.series[2].observe(took)
	e.series[3].observe(inFlight)
}

// each calls f with every family and its series, for encoding.
func (t *transfers) each(f func(*family, []*series)) {
	t.mu.Lock()
	edges := append([]*Edge{}, t.edges...)
	t.mu.Unlock()
	for i := range t.families {
		list := make([]*series, len(edges))
		for j, e := range edges {
			list[j] = e.series[i]
		}
		f(&t.families[i], list)
	}
}
