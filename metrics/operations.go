package metrics

import (
	"sync/atomic"
	"time"
)

// hold adds one to a gauge until done is called; a second call does nothing.
func hold(s *series) (done func()) {
	s.shift(1)
	var once atomic.Bool
	return func() {
		if once.CompareAndSwap(false, true) {
			s.shift(-1)
		}
	}
}

// sleepOperations are the families of the endpoints that put the engine to sleep and wake it.
type sleepOperations struct {
	duration, inFlight         family
	durationList, inFlightList []*series // by operation; nil when the endpoints are not served
}

// The operations, the values of a label.
func sleepOperationNames() []string { return []string{"sleep", "release_kv_cache_memory", "wake"} }

func newSleepOperations(on bool) *sleepOperations {
	s := &sleepOperations{
		duration: family{name: "vllm:sleep_mode_operation_duration_seconds", help: "Time that one sleep or wake took.", kind: histogram,
			buckets: []float64{0.01, 0.1, 1, 10, 30, 60, 120, 300, 600}, label: "operation", values: sleepOperationNames()},
		inFlight: family{name: "vllm:sleep_mode_operations_in_flight", help: "Sleeps and wakes that are awaited now.", kind: gauge,
			label: "operation", values: sleepOperationNames()},
	}
	if on {
		s.durationList, s.inFlightList = children(&s.duration, nil), children(&s.inFlight, nil)
	}
	return s
}

func (s *sleepOperations) collect() []block {
	if s.durationList == nil {
		return nil
	}
	flight := block{f: &s.inFlight}
	for _, x := range s.inFlightList {
		flight.gauges = append(flight.gauges, sample{x, x.value()})
	}
	return []block{{f: &s.duration, series: s.durationList}, flight}
}

// SleepOperation records one operation from now until done is called: sleep, release_kv_cache_memory or wake. It records nothing
// when the endpoints are not served.
func (m *Metrics) SleepOperation(operation string) (done func()) {
	for i, name := range sleepOperationNames() {
		if name == operation && m.sleep.durationList != nil {
			begin, over := time.Now(), hold(m.sleep.inFlightList[i])
			return func() {
				over()
				m.sleep.durationList[i].hist.Observe(time.Since(begin).Seconds())
			}
		}
	}
	return func() {}
}

// webSockets are the families of websocket connections.
type webSockets struct {
	families                [3]family
	active, total, duration *series // nil when no websocket is served
}

func newWebSockets(on bool) *webSockets {
	w := &webSockets{families: [3]family{
		{name: "vllm:websocket_connections_active", help: "Open websockets.", kind: gauge},
		{name: "vllm:websocket_connections_total", help: "Websockets accepted."},
		{name: "vllm:websocket_connection_duration_seconds", help: "Lifetime of websockets.", kind: histogram,
			buckets: []float64{0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800}},
	}}
	if on {
		w.active, w.total, w.duration = newSeries(&w.families[0], nil), newSeries(&w.families[1], nil), newSeries(&w.families[2], nil)
	}
	return w
}

func (w *webSockets) collect() []block {
	if w.active == nil {
		return nil
	}
	return []block{{f: &w.families[0], gauges: []sample{{w.active, w.active.value()}}},
		{f: &w.families[1], series: []*series{w.total}}, {f: &w.families[2], series: []*series{w.duration}}}
}

// WebSocketAccepted counts an open websocket until closed is called. It records nothing when none is served (Config.Realtime).
func (m *Metrics) WebSocketAccepted() (closed func()) {
	w := m.sockets
	if w.active == nil {
		return func() {}
	}
	begin, over := time.Now(), hold(w.active)
	w.total.add(1)
	return func() {
		over()
		w.duration.hist.Observe(time.Since(begin).Seconds())
	}
}
