//go:build !nocuda && linux && amd64

package gpu

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// Products of any size, in any tile, with rows that lie apart, equal the float64 reference.
func TestKernelShapesOfProducts(t *testing.T) {
	x := newLab(t)
	tiles := map[string][2]int{"16": {16, 32}, "64": {64, 64}, "128": {128, 128}}
	rapid.Check(t, func(r *rapid.T) {
		e := rapid.SampledFrom(halves()).Draw(r, "type")
		tile := rapid.SampledFrom([]string{"16", "64", "128"}).Draw(r, "tile")
		s := shape{rapid.IntRange(1, 140).Draw(r, "m"), rapid.IntRange(1, 140).Draw(r, "n"), rapid.IntRange(1, 150).Draw(r, "k")}
		kind := rapid.SampledFrom([]int32{outF32, e.kind, outAddF32}).Draw(r, "kind")
		checkProduct(t, x, "gemm_"+e.name+"_"+tile, e, s, kind, rapid.Bool().Draw(r, "bias"), func() []int { return []int{ceilDiv(s.n, tiles[tile][1]), ceilDiv(s.m, tiles[tile][0])} })
	})
}

// Attention of any grouping, window, cap, block size and split: each kernel that may run gives the reference's values.
func TestKernelShapesOfAttention(t *testing.T) {
	x := newLab(t)
	rapid.Check(t, func(r *rapid.T) {
		e := rapid.SampledFrom(halves()).Draw(r, "type")
		c := attnCase{kv: rapid.IntRange(1, 3).Draw(r, "kv"), dim: rapid.SampledFrom([]int{64, 128, 256}).Draw(r, "dim"), size: 16 * rapid.IntRange(1, 3).Draw(r, "pages")}
		c.heads = c.kv * rapid.IntRange(1, 18).Draw(r, "group")
		if rapid.Bool().Draw(r, "windowed") {
			c.window = rapid.IntRange(1, 90).Draw(r, "window")
		}
		if rapid.Bool().Draw(r, "capped") {
			c.cap = 4
		}
		decode := rapid.Bool().Draw(r, "decode")
		for range rapid.IntRange(1, 3).Draw(r, "rows") {
			n := rapid.IntRange(1, 120).Draw(r, "length")
			c.lens = append(c.lens, n)
			if decode {
				c.queries = append(c.queries, 1)
			} else {
				c.queries = append(c.queries, rapid.IntRange(1, min(n, 24)).Draw(r, "queries"))
			}
		}
		splits := rapid.IntRange(1, 4).Draw(r, "splits")
		checkAttention(t, x, e, c, func(p attnParams, c attnCase) {
			if !decode {
				work := tilesOf(c, tileQueries(c.heads/c.kv))
				p.Work, p.N = put(x, work, 0), int32(len(work)/2)
				launchKernel(x, fmt.Sprintf("attn_prefill_%s_%d", e.name, c.dim), p, len(work)/2, c.kv)
				return
			}
			n := len(c.queries)
			p.N, p.Splits, p.Part = int32(n), int32(splits), x.alloc(n*c.heads*splits*(c.dim+2)*4)
			launchKernel(x, fmt.Sprintf("attn_decode_%s_%d", e.name, c.dim), p, c.kv*ceilDiv(c.heads/c.kv, 16), n, splits)
			if splits > 1 {
				launchKernel(x, "attn_merge_"+e.name, p, c.heads, n)
			}
		})
	})
}
