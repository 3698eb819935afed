//go:build !nocuda && linux && amd64

package gpu

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/cuda"
	"omni-engine/kernels"
	"omni-engine/kernels/ref"
)

// rms is the float64 reference of a norm.
func rms(x []float64, w []float32, eps float64) []float64 {
	var s float64
	for _, v := range x {
		s += v * v
	}
	inv := 1 / math.Sqrt(s/float64(len(x))+eps)
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v * inv * float64(w[i])
	}
	return out
}

func widen(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

func TestKernelNorm(t *testing.T) {
	x := newLab(t)
	for _, e := range elements() {
		for _, width := range []int{8, 72, 61, 1030, 4104} {
			const rows = 3
			w, iw := randoms(1, width, 1), randoms(2, width, 1)
			pin, in := putT(x, e, randoms(3, rows*width, 2))
			base := normParams{In: pin, Weight: put(x, w, 0), Rows: rows, Width: int32(width), Eps: 1e-5, Alpha: 0.75}

			p := base
			p.Out = x.alloc(rows * width * e.bytes)
			p.Index = put(x, []int32{2, 0, 2}, 0)
			launchKernel(x, "norm_"+e.name, p, rows+1)
			got := getT(x, e, p.Out, rows*width)
			for i, r := range []int{2, 0, 2} {
				near(t, "norm", rms(widen(in[r*width:(r+1)*width]), w, 1e-5), got[i*width:(i+1)*width], e.eps+1e-5, 1e-6)
			}

			for _, sandwich := range []bool{false, true} {
				res := randoms(4, rows*width, 1)
				p := base
				p.Out, p.Residual = x.alloc(rows*width*e.bytes), put(x, res, 0)
				if sandwich {
					p.InWeight = put(x, iw, 0)
				}
				launchKernel(x, "norm_"+e.name, p, rows)
				stream, got := get[float32](x, p.Residual, rows*width), getT(x, e, p.Out, rows*width)
				for i := range rows {
					add := widen(in[i*width : (i+1)*width])
					if sandwich {
						add = rms(add, iw, 1e-5)
					}
					for c := range add {
						add[c] = float64(res[i*width+c]) + 0.75*add[c]
					}
					near(t, "residual", add, stream[i*width:(i+1)*width], 1e-5, 1e-5)
					near(t, "norm of the residual", rms(add, w, 1e-5), got[i*width:(i+1)*width], e.eps+1e-5, 1e-4)
				}
			}

			f := randoms(5, rows*width, 1)
			p = base
			p.Out, p.In, p.InF32 = x.alloc(rows*width*e.bytes), put(x, f, 0), 1
			launchKernel(x, "norm_"+e.name, p, rows)
			got = getT(x, e, p.Out, rows*width)
			for i := range rows {
				near(t, "norm of floats", rms(widen(f[i*width:(i+1)*width]), w, 1e-5), got[i*width:(i+1)*width], e.eps+1e-5, 1e-6)
			}
		}
		const rows, groups, size = 3, 5, 48
		w := randoms(6, size, 1)
		pin, in := putT(x, e, randoms(7, rows*groups*size, 2))
		launchKernel(x, "group_norm_"+e.name, normParams{Out: pin, In: pin, Weight: put(x, w, 0), Rows: rows, Width: groups * size, Group: size, Eps: 1e-6}, ceilDiv(rows*groups, 4))
		got := getT(x, e, pin, len(in))
		for g := range rows * groups {
			near(t, "group norm", rms(widen(in[g*size:(g+1)*size]), w, 1e-6), got[g*size:(g+1)*size], e.eps+1e-5, 1e-6)
		}
	}
}

func TestKernelActivations(t *testing.T) {
	x := newLab(t)
	for _, e := range elements() {
		for _, width := range []int{64, 1100, 37} {
			const rows = 2
			pin, in := putT(x, e, randoms(1, rows*2*width, 3))
			for _, act := range []kernels.Act{kernels.Silu, kernels.Gelu, kernels.GeluTanh, kernels.Relu2, kernels.Sigmoid} {
				p := gatedParams{Out: x.alloc(rows * width * e.bytes), Gate: pin, Up: pin.Add(int64(width * e.bytes)), Rows: rows, Width: int32(width), LD: int32(2 * width), LDO: int32(width), Act: int32(act)}
				launchKernel(x, "gated_"+e.name, p, ceilDiv(width, 1024), rows)
				got := getT(x, e, p.Out, rows*width)
				for r := range rows {
					want := make([]float64, width)
					for i := range want {
						want[i] = float64(ref.Activate(act, in[r*2*width+i])) * float64(in[r*2*width+width+i])
					}
					near(t, fmt.Sprint("gated ", act), want, got[r*width:(r+1)*width], e.eps+1e-5, 1e-5)
				}
			}
			n := len(in)
			for act := kernels.Identity; act <= kernels.Quick; act++ {
				p := unaryParams{Out: x.alloc(n * e.bytes), In: pin, N: int64(n), Scale: 0.5, PostScale: 2, Offset: 0.25, Clamp: 3, Act: int32(act)}
				launchKernel(x, "unary_"+e.name, p, ceilDiv(n, 1024))
				want := make([]float64, n)
				for i, v := range in {
					want[i] = min(max(float64(ref.Activate(act, v*0.5))*2+0.25, -3), 3)
				}
				near(t, fmt.Sprint("unary ", act), want, getT(x, e, p.Out, n), e.eps+1e-5, 1e-5)
			}
		}
	}
}

func TestKernelCopies(t *testing.T) {
	x := newLab(t)
	for _, width := range []int{4, 7, 300} {
		in := randoms(1, 5*width, 1)
		index := []int32{4, 0, 2}
		p := gatherParams{Out: x.alloc(3 * width * 4), In: put(x, in, 0), Index: put(x, index, 0), Bytes: int64(width * 4), Rows: 3}
		launchKernel(x, "gather_rows", p, 4)
		got := get[float32](x, p.Out, 3*width)
		for i, r := range index {
			require.Equal(t, in[int(r)*width:int(r+1)*width], got[i*width:(i+1)*width])
		}
	}
	const stride = 20000
	blocks := make([]byte, 4*stride)
	for i := range blocks {
		blocks[i] = byte(i*7 + i/stride)
	}
	p := copyBlocksParams{Base: put(x, blocks, 0), Pairs: put(x, []int32{0, 3, 2, 1}, 0), BlockStride: stride, N: 2}
	launchKernel(x, "copy_blocks", p, 2, ceilDiv(stride, 16384))
	got := get[byte](x, p.Base, len(blocks))
	copy(blocks[3*stride:], blocks[:stride])
	copy(blocks[stride:], blocks[2*stride:3*stride])
	require.Equal(t, blocks, got)
}

func TestKernelHeads(t *testing.T) {
	x := newLab(t)
	for _, e := range elements() {
		for i, c := range []struct {
			heads, kv, dim, from, rot int
			pair, norm, rope          bool
		}{{4, 2, 64, 0, 64, false, true, true}, {3, 1, 128, 0, 128, true, false, true}, {2, 2, 256, 0, 256, false, true, true},
			{4, 4, 80, 16, 40, false, true, true}, {2, 1, 48, 8, 32, true, false, true}, {2, 1, 64, 0, 0, false, true, false}, {2, 1, 30, 0, 0, false, false, false}} {
			checkHeads(t, x, e, int64(i), c.heads, c.kv, c.dim, c.from, c.rot, c.pair, c.norm, c.rope)
		}
	}
}

func checkHeads(t *testing.T, x *lab, e element, seed int64, heads, kv, dim, from, rot int, pair, norm, rope bool) {
	t.Helper()
	const rows, size, blocks = 3, 32, 4
	width := (heads + 2*kv) * dim
	pin, in := putT(x, e, randoms(seed, rows*width, 1))
	positions, slots := []int32{0, 131071, 17}, []int32{18, -1, 63}
	qn, kn := randoms(seed+1, dim, 1), randoms(seed+2, dim, 1)
	turns := make([]float64, rot/2)
	for i := range turns {
		turns[i] = math.Pow(10000, -2*float64(i)/float64(max(rot, 1))) / (2 * math.Pi)
	}
	part := size * kv * dim * e.bytes
	stride := 2*part + 256
	cache, _ := putT(x, e, make([]float32, blocks*stride/e.bytes))
	p := headsParams{Q: x.alloc(rows * heads * dim * e.bytes), QKV: pin, K: cache, V: cache.Add(int64(part)), Positions: put(x, positions, 0), SlotMap: put(x, slots, 0),
		BlockStride: int64(stride), Rows: rows, Heads: int32(heads), KVHeads: int32(kv), Dim: int32(dim), LDQKV: int32(width), BlockSize: size,
		RotFrom: int32(from), RotDim: int32(rot), Eps: 1e-6, Factor: 1.25}
	if pair {
		p.RotPair = 1
	}
	if norm {
		p.QNorm, p.KNorm = put(x, qn, 0), put(x, kn, 0)
	}
	if rope {
		p.Turns = put(x, turns, 0)
	}
	launchKernel(x, "heads_"+e.name, p, rows+1)
	head := func(t, h int, w []float32) []float64 {
		v := widen(in[t*width+h*dim : t*width+(h+1)*dim])
		if w == nil {
			return v
		}
		if norm {
			v = rms(v, w, 1e-6)
		}
		for i := 0; rope && i < rot/2; i++ {
			a, b := from+i, from+i+rot/2
			if pair {
				a, b = from+2*i, from+2*i+1
			}
			s, c := math.Sincos(float64(positions[t]) * turns[i] * 2 * math.Pi)
			v[a], v[b] = 1.25*(v[a]*c-v[b]*s), 1.25*(v[b]*c+v[a]*s)
		}
		return v
	}
	q, kvs := getT(x, e, p.Q, rows*heads*dim), getT(x, e, cache, blocks*stride/e.bytes)
	what := fmt.Sprintf("heads_%s %d/%d of %d", e.name, heads, kv, dim)
	written := 0
	for r := range rows {
		for h := range heads {
			near(t, what+" query", head(r, h, qn), q[(r*heads+h)*dim:(r*heads+h+1)*dim], e.eps+2e-6, 4e-6)
		}
		if slots[r] < 0 {
			continue
		}
		for h := range kv {
			at := int(slots[r])/size*stride/e.bytes + (int(slots[r])%size*kv+h)*dim
			near(t, what+" key", head(r, heads+h, kn), kvs[at:at+dim], e.eps+2e-6, 4e-6)
			near(t, what+" value", head(r, heads+kv+h, nil), kvs[at+part/e.bytes:at+part/e.bytes+dim], 0, 0)
			written += 2 * dim
		}
	}
	others := 0
	for _, v := range kvs {
		if v != 0 {
			others++
		}
	}
	require.LessOrEqual(t, others, written, "nothing else in the cache is written")
}

// cacheOf is a paged cache filled with random keys and values for requests of the given lengths, and the block tables.
type cacheOf struct {
	k, v          cuda.DevicePtr
	start, blocks []int32
	stride        int
	keys, values  [][]float32 // by request [len, kv, dim]
}

func newCache(x *lab, e element, lens []int, kv, dim, size int) *cacheOf {
	part := size * kv * dim
	c := &cacheOf{start: []int32{0}, stride: (2*part + 128) * e.bytes}
	total := 1
	for _, n := range lens {
		total += ceilDiv(n, size)
	}
	data := make([]float32, total*c.stride/e.bytes)
	for i := range data {
		data[i] = float32(math.NaN()) // what is in no request must not be read
	}
	next := total - 1 // blocks in descending order
	for r, n := range lens {
		k, v := randoms(int64(10+r), n*kv*dim, 1), randoms(int64(50+r), n*kv*dim, 1)
		for i := range n {
			if i%size == 0 {
				c.blocks = append(c.blocks, int32(next))
				next--
			}
			at := int(c.blocks[len(c.blocks)-1])*c.stride/e.bytes + i%size*kv*dim
			copy(data[at:], k[i*kv*dim:(i+1)*kv*dim])
			copy(data[at+part:], v[i*kv*dim:(i+1)*kv*dim])
		}
		c.start = append(c.start, int32(len(c.blocks)))
		c.keys, c.values = append(c.keys, k), append(c.values, v)
	}
	c.k, data = putT(x, e, data)
	c.v = c.k.Add(int64(part * e.bytes))
	for r, n := range lens { // as the kernels see them
		for i := range n {
			at := int(c.blocks[int(c.start[r])+i/size])*c.stride/e.bytes + i%size*kv*dim
			copy(c.keys[r][i*kv*dim:], data[at:at+kv*dim])
			copy(c.values[r][i*kv*dim:], data[at+part:at+part+kv*dim])
		}
	}
	return c
}

// attend is the float64 reference for one query head at a position.
func attend(q, keys, values []float32, pos, kv, h, dim, window int, scale, cap float64) []float64 {
	from := 0
	if window > 0 {
		from = max(0, pos-window+1)
	}
	s := make([]float64, 0, pos+1)
	top := math.Inf(-1)
	for p := from; p <= pos; p++ {
		var d float64
		for i := range dim {
			d += float64(q[i]) * float64(keys[(p*kv+h)*dim+i])
		}
		d *= scale
		if cap > 0 {
			d = cap * math.Tanh(d/cap)
		}
		s = append(s, d)
		top = max(top, d)
	}
	var sum float64
	out := make([]float64, dim)
	for i, d := range s {
		w := math.Exp(d - top)
		sum += w
		for c := range dim {
			out[c] += w * float64(values[((from+i)*kv+h)*dim+c])
		}
	}
	for c := range out {
		out[c] /= sum
	}
	return out
}

type attnCase struct {
	heads, kv, dim, size, window int
	cap                          float32
	lens, queries                []int
}

func checkAttention(t *testing.T, x *lab, e element, c attnCase, launchAll func(p attnParams, c attnCase)) {
	t.Helper()
	cache := newCache(x, e, c.lens, c.kv, c.dim, c.size)
	starts, lens := []int32{0}, []int32{}
	for i, n := range c.queries {
		starts, lens = append(starts, starts[i]+int32(n)), append(lens, int32(c.lens[i]))
	}
	tokens, width := int(starts[len(starts)-1]), c.heads*c.dim
	pq, q := putT(x, e, randoms(99, tokens*width, 1))
	out, _ := putT(x, e, make([]float32, tokens*width))
	scale := float32(1 / math.Sqrt(float64(c.dim)))
	p := attnParams{Out: out, Q: pq, K: cache.k, V: cache.v, TableStart: put(x, cache.start, 0), Blocks: put(x, append(cache.blocks, 0), 0), QueryStart: put(x, starts, 0),
		SeqLens: put(x, lens, 0), BlockStride: int64(cache.stride), Heads: int32(c.heads), KVHeads: int32(c.kv), Dim: int32(c.dim), BlockSize: int32(c.size),
		LDQ: int32(width), LDO: int32(width), Window: int32(c.window), Splits: 1, Scale: scale, Softcap: c.cap}
	launchAll(p, c)
	got := getT(x, e, out, tokens*width)
	for r, n := range c.queries {
		for i := range n {
			tok := int(starts[r]) + i
			for h := range c.heads {
				at := tok*width + h*c.dim
				want := make([]float64, c.dim)
				if c.lens[r] > 0 {
					want = attend(q[at:at+c.dim], cache.keys[r], cache.values[r], c.lens[r]-n+i, c.kv, h*c.kv/c.heads, c.dim, c.window, float64(scale), float64(c.cap))
				}
				near(t, fmt.Sprintf("%+v %s row %d query %d head %d", c, e.name, r, i, h), want, got[at:at+c.dim], e.eps, 1.5*e.eps+2e-6)
			}
		}
	}
}

func tilesOf(c attnCase, tile int) []int32 {
	var work []int32
	for r, n := range c.queries {
		for q := 0; q < n; q += tile {
			work = append(work, int32(r), int32(q))
		}
	}
	return work
}

func TestKernelAttentionPrefill(t *testing.T) {
	x := newLab(t)
	cases := []attnCase{
		{heads: 4, kv: 2, dim: 64, size: 16, lens: []int{70, 1, 33}, queries: []int{70, 1, 9}},
		{heads: 3, kv: 1, dim: 64, size: 32, window: 20, cap: 5, lens: []int{150}, queries: []int{61}},
		{heads: 2, kv: 2, dim: 128, size: 16, lens: []int{130}, queries: []int{66}},
		{heads: 4, kv: 1, dim: 256, size: 16, window: 40, lens: []int{70, 17}, queries: []int{20, 17}},
	}
	for _, e := range halves() {
		for _, c := range cases {
			checkAttention(t, x, e, c, func(p attnParams, c attnCase) {
				work := tilesOf(c, tileQueries(c.heads/c.kv))
				p.Work, p.N = put(x, work, 0), int32(len(work)/2)
				launchKernel(x, fmt.Sprintf("attn_prefill_%s_%d", e.name, c.dim), p, len(work)/2+1, c.kv)
			})
		}
	}
}

func TestKernelAttentionDecode(t *testing.T) {
	x := newLab(t)
	cases := []attnCase{
		{heads: 4, kv: 2, dim: 64, size: 16, lens: []int{70, 1, 0, 333}, queries: []int{1, 1, 1, 1}},
		{heads: 20, kv: 1, dim: 64, size: 32, window: 50, cap: 5, lens: []int{200, 16}, queries: []int{1, 1}},
		{heads: 8, kv: 1, dim: 128, size: 16, lens: []int{129, 64, 17}, queries: []int{1, 1, 1}},
		{heads: 4, kv: 1, dim: 256, size: 16, window: 40, lens: []int{100, 17}, queries: []int{1, 1}},
	}
	for _, e := range halves() {
		for _, c := range cases {
			for _, splits := range []int{1, 3} {
				checkAttention(t, x, e, c, func(p attnParams, c attnCase) {
					n := len(c.queries)
					p.N, p.Splits = int32(n), int32(splits)
					if splits > 1 {
						work := make([]int32, n) // any order of rows
						for i := range work {
							work[i] = int32(n - 1 - i)
						}
						p.Work, p.Part = put(x, work, 0), x.alloc(n*c.heads*splits*(c.dim+2)*4)
					}
					launchKernel(x, fmt.Sprintf("attn_decode_%s_%d", e.name, c.dim), p, c.kv*ceilDiv(c.heads/c.kv, 16), n+1, splits)
					if splits > 1 {
						launchKernel(x, "attn_merge_"+e.name, p, c.heads, n+1)
					}
				})
			}
		}
	}
}

func TestKernelAttentionOfAnySize(t *testing.T) {
	x := newLab(t)
	cases := []attnCase{
		{heads: 4, kv: 2, dim: 16, size: 16, lens: []int{140, 1, 0}, queries: []int{4, 1, 1}},
		{heads: 2, kv: 1, dim: 80, size: 32, window: 30, cap: 5, lens: []int{150}, queries: []int{3}},
		{heads: 1, kv: 1, dim: 512, size: 16, lens: []int{20}, queries: []int{2}},
	}
	for _, e := range elements() {
		for _, c := range cases {
			checkAttention(t, x, e, c, func(p attnParams, c attnCase) {
				work := tilesOf(c, 1)
				p.Work, p.N = put(x, work, 0), int32(len(work)/2)
				launchKernel(x, "attn_any_"+e.name, p, len(work)/2+1, c.heads)
			})
		}
	}
}
