package record

// CacheLookups are lookups of a cache and what they found, in tokens.
type CacheLookups struct{ Requests, Queries, Hits int }

// HitRate is hits over queries; 0 without a query.
func (c CacheLookups) HitRate() float64 {
	if c.Queries == 0 {
		return 0
	}
	return float64(c.Hits) / float64(c.Queries)
}

// windowRequests is how many requests vLLM's hit rate covers.
const windowRequests = 1000

// CacheWindow sums the lookups of the most recent requests, at least the last step's, as vLLM's log line shows them. The zero value is
// ready; its memory is bounded.
type CacheWindow struct {
	steps []CacheLookups // oldest first, from first on
	first int
	sum   CacheLookups
}

// Observe adds a step's lookups. reset says that the cache was forgotten before.
func (w *CacheWindow) Observe(requests, queries, hits int, reset bool) {
	if reset {
		w.steps, w.first, w.sum = w.steps[:0], 0, CacheLookups{}
	}
	if requests == 0 {
		return
	}
	if len(w.steps) == cap(w.steps) && w.first > 0 {
		w.steps, w.first = w.steps[:copy(w.steps, w.steps[w.first:])], 0
	}
	w.steps = append(w.steps, CacheLookups{requests, queries, hits})
	w.add(CacheLookups{requests, queries, hits}, 1)
	for w.sum.Requests > windowRequests && len(w.steps)-w.first > 1 {
		w.add(w.steps[w.first], -1)
		w.first++
	}
}

func (w *CacheWindow) add(s CacheLookups, sign int) {
	w.sum.Requests += sign * s.Requests
	w.sum.Queries += sign * s.Queries
	w.sum.Hits += sign * s.Hits
}

// Sum returns the window's lookups.
func (w *CacheWindow) Sum() CacheLookups { return w.sum }
