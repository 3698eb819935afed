package metrics

import (
	"slices"
	"strconv"
	"sync"
	"time"
)

// HTTP records the server's own requests, in the families that vLLM's server has (prometheus_fastapi_instrumentator's).
type HTTP struct {
	mu       sync.Mutex
	requests map[[3]string]*series // handler, method, status group
	sizes    map[string]*[2]summary
	duration map[[2]string]*series
	fine     *series

	requestList, durationList []*series // in the order of first sight
	sizeList                  []*[2]summary
	families                  [5]family
}

// summary has no quantiles, only count and sum.
type summary struct {
	series *series
	count  uint64
	total  float64
}

func newHTTP() *HTTP {
	h := &HTTP{requests: map[[3]string]*series{}, sizes: map[string]*[2]summary{}, duration: map[[2]string]*series{}}
	h.families = [5]family{
		{name: "http_requests_total", help: "HTTP requests by route, method and status group."},
		{name: "http_request_size_bytes", help: "Content length of requests, by route."},
		{name: "http_response_size_bytes", help: "Content length of answers, by route; 0 for streams."},
		{name: "http_request_duration_highr_seconds", help: "Duration of all HTTP requests, in fine buckets.", kind: histogram,
			buckets: []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60}},
		{name: "http_request_duration_seconds", help: "Duration of HTTP requests by route and method.", kind: histogram,
			buckets: []float64{0.1, 0.5, 1}},
	}
	h.fine = newSeries(&h.families[3], nil)
	return h
}

// excluded are the routes that are not counted, as in vLLM.
func excluded(handler string) bool {
	return slices.Contains([]string{"/metrics", "/health", "/load", "/ping", "/version", "/server_info"}, handler)
}

// Observe records one answered request. handler is the route's pattern, "none" or empty when no route matched: what a
// client sends never becomes a label value (PS-71), so an unknown method is OTHER. Sizes are content lengths, 0 for streams.
func (h *HTTP) Observe(handler, method string, status int, requestBytes, responseBytes int64, took time.Duration) {
	if excluded(handler) {
		return
	}
	if handler == "" {
		handler = "none"
	}
	if !slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}, method) {
		method = "OTHER"
	}
	group := "5xx"
	if status >= 100 && status < 500 {
		group = strconv.Itoa(status/100) + "xx"
	}
	requests, duration, sizes := h.seriesOf(handler, method, group)
	requests.add(1)
	duration.hist.Observe(took.Seconds())
	h.fine.hist.Observe(took.Seconds())
	h.mu.Lock()
	sizes[0].add(requestBytes)
	sizes[1].add(responseBytes)
	h.mu.Unlock()
}

func (s *summary) add(bytes int64) {
	s.count++
	s.total += float64(max(bytes, 0))
}

func (h *HTTP) seriesOf(handler, method, group string) (requests, duration *series, sizes *[2]summary) {
	h.mu.Lock()
	defer h.mu.Unlock()
	requests = h.requests[[3]string{handler, method, group}]
	if requests == nil {
		requests = newSeries(&h.families[0], []label{{"handler", handler}, {"method", method}, {"status", group}})
		h.requests[[3]string{handler, method, group}] = requests
		h.requestList = append(h.requestList, requests)
	}
	duration = h.duration[[2]string{handler, method}]
	if duration == nil {
		duration = newSeries(&h.families[4], []label{{"handler", handler}, {"method", method}})
		h.duration[[2]string{handler, method}] = duration
		h.durationList = append(h.durationList, duration)
	}
	sizes = h.sizes[handler]
	if sizes == nil {
		labels := []label{{"handler", handler}}
		sizes = &[2]summary{{series: newSeries(&h.families[1], labels)}, {series: newSeries(&h.families[2], labels)}}
		h.sizes[handler] = sizes
		h.sizeList = append(h.sizeList, sizes)
	}
	return requests, duration, sizes
}
