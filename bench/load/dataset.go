package load

import (
	"math"
	"math/rand/v2"
)

// item is one request to send.
type item struct {
	index  int
	ids    []int32
	output int
}

// firstID skips the special tokens that vocabularies begin with.
const firstID = 300

// requests draws the random dataset: token ids, lengths in the configured range.
func (c *Config) requests(rng *rand.Rand) []item {
	prefix := c.randomIDs(rng, c.PrefixLen)
	out := make([]item, c.NumPrompts)
	for i := range out {
		ids := append(append([]int32{}, prefix...), c.randomIDs(rng, c.vary(rng, c.InputLen))...)
		out[i] = item{i, ids, c.vary(rng, c.OutputLen)}
	}
	return out
}

func (c *Config) randomIDs(rng *rand.Rand, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(firstID + rng.IntN(max(1, c.VocabSize-firstID)))
	}
	return ids
}

func (c *Config) vary(rng *rand.Rand, n int) int {
	if c.RangeRatio == 0 {
		return n
	}
	lo, hi := int(float64(n)*(1-c.RangeRatio)), int(float64(n)*(1+c.RangeRatio))
	return max(1, lo+rng.IntN(hi-lo+1))
}

// gamma draws from a gamma distribution of the shape and scale 1 (Marsaglia and Tsang 2000).
func gamma(rng *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(rng, shape+1) * math.Pow(rng.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rng.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if u := rng.Float64(); math.Log(u) < 0.5*x*x+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}
