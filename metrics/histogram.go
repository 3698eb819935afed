package metrics

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// samples are one series' histogram: classic buckets, which a scrape reads without allocating, and the client library's histogram beside
// them, whose native buckets a scraper that speaks protobuf gets. A scrape with 128 replicas reads thousands of these.
type samples struct {
	bounds  []float64
	buckets []atomic.Uint64 // one a bound, then +Inf; each sample in one of them
	sum     atomic.Uint64   // the bits of a float64
	traced  []atomic.Pointer[exemplar]
	native  prometheus.Histogram
}

// exemplar is the last traced sample of a bucket.
type exemplar struct {
	trace string
	value float64
	at    time.Time
}

func newSamples(f *family) *samples {
	return &samples{bounds: f.buckets, buckets: make([]atomic.Uint64, len(f.buckets)+1), traced: make([]atomic.Pointer[exemplar], len(f.buckets)+1),
		native: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: f.name, Help: f.help, Buckets: f.buckets,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
		})}
}

// Observe adds a sample.
func (h *samples) Observe(v float64) {
	h.add(v)
	h.native.Observe(v)
}

// ObserveTraced adds a sample with its request's trace as exemplar.
func (h *samples) ObserveTraced(v float64, trace string) {
	h.traced[h.add(v)].Store(&exemplar{trace, v, time.Now()})
	h.native.(prometheus.ExemplarObserver).ObserveWithExemplar(v, prometheus.Labels{"trace_id": trace})
}

func (h *samples) add(v float64) (bucket int) {
	for bucket < len(h.bounds) && !(v <= h.bounds[bucket]) {
		bucket++
	}
	h.buckets[bucket].Add(1)
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return bucket
		}
	}
}

// Write fills in the protobuf model's metric, native buckets and classic ones.
func (h *samples) Write(m *dto.Metric) error { return h.native.Write(m) }
