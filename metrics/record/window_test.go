package record

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The hit rate covers the last 1,000 requests by steps, as vLLM's; a step of more is kept whole.
func TestHitRateCoversTheLastThousandRequests(t *testing.T) {
	var w CacheWindow
	require.Zero(t, w.Sum().HitRate())
	for range 1000 {
		w.Observe(1, 10, 0, false)
	}
	require.Equal(t, CacheLookups{1000, 10000, 0}, w.Sum())
	for range 500 {
		w.Observe(1, 10, 10, false)
		w.Observe(0, 0, 0, false) // a step without a lookup pushes nothing out
	}
	require.Equal(t, 0.5, w.Sum().HitRate())
	w.Observe(4000, 100, 25, false)
	require.Equal(t, CacheLookups{4000, 100, 25}, w.Sum())
	w.Observe(2, 8, 8, true)
	require.Equal(t, CacheLookups{2, 8, 8}, w.Sum(), "the cache was forgotten before")
	require.LessOrEqual(t, cap(w.steps), 4*windowRequests)
}

func TestHitRateIsThatOfAPlainQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w CacheWindow
		var all []CacheLookups
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			s := CacheLookups{rapid.IntRange(0, 400).Draw(t, "requests"), rapid.IntRange(0, 99).Draw(t, "queries"), rapid.IntRange(0, 99).Draw(t, "hits")}
			reset := rapid.IntRange(0, 20).Draw(t, "reset") == 0
			w.Observe(s.Requests, s.Queries, s.Hits, reset)
			if reset {
				all = nil
			}
			if s.Requests > 0 {
				all = append(all, s)
			}
			var sum CacheLookups
			for i := len(all) - 1; i >= 0 && (i == len(all)-1 || sum.Requests+all[i].Requests <= windowRequests); i-- {
				sum = CacheLookups{sum.Requests + all[i].Requests, sum.Queries + all[i].Queries, sum.Hits + all[i].Hits}
			}
			require.Equal(t, sum, w.Sum())
		}
	})
}
