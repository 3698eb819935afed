package metrics

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
)

// bucketSets are the upper bounds that --custom-histogram-buckets may replace, by vLLM's family keys; +Inf is implied.
type bucketSets struct {
	latency, firstToken, interToken, iteration, paramsN, preemptions, tokens, residency []float64
}

// newBuckets returns vLLM's default bounds with the operator's replacements.
func newBuckets(maxModelLen int, custom map[string][]float64) (bucketSets, error) {
	b := bucketSets{
		latency:     []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680},
		firstToken:  []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560},
		interToken:  []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80},
		iteration:   []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384},
		paramsN:     []float64{1, 2, 5, 10, 20},
		preemptions: []float64{1, 2, 3, 4, 5, 10, 20},
		tokens:      oneTwoFive(maxModelLen),
		residency:   []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800},
	}
	sets := map[string]*[]float64{
		"request_latency": &b.latency, "time_to_first_token": &b.firstToken, "inter_token_latency": &b.interToken,
		"iteration_tokens": &b.iteration, "request_params_n": &b.paramsN, "request_num_preemptions": &b.preemptions,
		"request_tokens": &b.tokens, "kv_cache_residency": &b.residency,
	}
	for key, bounds := range custom {
		set, ok := sets[key]
		if !ok {
			return b, fmt.Errorf("custom histogram buckets: %q is no family key (known: %s)", key, strings.Join(sortedKeys(sets), ", "))
		}
		if err := checkBounds(bounds); err != nil {
			return b, fmt.Errorf("custom histogram buckets of %q: %w", key, err)
		}
		*set = bounds
	}
	return b, nil
}

func checkBounds(bounds []float64) error {
	if len(bounds) == 0 {
		return fmt.Errorf("no bounds are given")
	}
	for i, f := range bounds {
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("bound %d is not finite", i)
		}
		if i > 0 && f <= bounds[i-1] {
			return fmt.Errorf("bound %v does not grow after %v", f, bounds[i-1])
		}
	}
	return nil
}

// oneTwoFive returns 1, 2, 5, 10, 20, 50… up to limit, as vLLM builds its token buckets.
func oneTwoFive(limit int) []float64 {
	out := []float64{1}
	for decade := 1; ; decade *= 10 {
		for _, m := range []int{1, 2, 5} {
			v := m * decade
			if v > limit || v < decade {
				return out
			}
			if v > 1 {
				out = append(out, float64(v))
			}
		}
	}
}

func omniLong() []float64 { return []float64{0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300} }
func omniShort() []float64 {
	return []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60}
}

// waitBuckets are those of the waits (PS-31).
func waitBuckets() []float64 {
	return []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 300, 600}
}

func transferBytes() []float64 {
	return []float64{1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864, 268435456}
}

// clientDefault are the Prometheus Python client's, which vLLM-Omni leaves on some families.
func clientDefault() []float64 {
	return []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
}

func numbers(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = strconv.Itoa(i)
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
