package ref

import (
	"math"

	"omni-engine/kernels"
)

// place finds position p of row r in the block table of the state's group.
func (e *Env) place(group, r, p int) (block int32, offset int) {
	size := e.Limits.BlockSize
	return e.Batch.Tables[group].Row(r)[p/size], p % size
}

func kvWrite(e *Env, o *kernels.KVWrite) error {
	k, v, b, c := e.Buffers[o.K], e.Buffers[o.V], e.Batch, e.cache(o.State)
	g := e.Module.States[o.State].Group
	for r, n := range b.SeqLens {
		from, to := int(b.QueryStart[r]), int(b.QueryStart[r+1])
		for t := from; t < to; t++ {
			block, offset := e.place(g, r, int(n)-to+t)
			c.Store(block, offset, k.Row(t), v.Row(t))
		}
	}
	return nil
}

func attention(e *Env, o *kernels.Attention) error {
	out, q, b := e.Buffers[o.Out], e.Buffers[o.Q], e.Batch
	sinks := e.Weights.Vector(o.Sinks)
	type unit struct{ row, token, pos int }
	units := make([]unit, 0, q.Rows)
	cost := 0
	for r, n := range b.SeqLens {
		from, to := int(b.QueryStart[r]), int(b.QueryStart[r+1])
		for t := from; t < to; t++ {
			units = append(units, unit{r, t, int(n) - to + t})
			cost += int(n) * o.Heads * (o.KDim + o.VDim)
		}
	}
	e.parallel(len(units), cost, func(from, to int) {
		var a attend
		for _, u := range units[from:to] {
			a.token(e, o, sinks, u.row, u.pos, q.Row(u.token), out.Row(u.token))
		}
	})
	return nil
}

// attend is scratch for one worker.
type attend struct {
	keys, values []float32 // a row's context, [positions, KVHeads*dim]
	scores       []float32
}

// token computes all heads of one query token. Keys are visited in the order of their positions.
func (a *attend) token(e *Env, o *kernels.Attention, sinks []float32, row, pos int, q, out []float32) {
	from := 0
	if o.Window > 0 {
		from = max(0, pos-o.Window+1)
	}
	if o.Chunk > 0 {
		from = max(from, pos/o.Chunk*o.Chunk)
	}
	n := pos + 1 - from
	kw, vw := o.KVHeads*o.KDim, o.KVHeads*o.VDim
	a.keys, a.values, a.scores = sized(a.keys, n*kw), sized(a.values, n*vw), sized(a.scores, n)
	c, g := e.cache(o.State), e.Module.States[o.State].Group
	for i := range n {
		block, offset := e.place(g, row, from+i)
		k, v := c.Load(block, offset, a.keys[i*kw:(i+1)*kw], a.values[i*vw:(i+1)*vw])
		copy(a.keys[i*kw:], k)
		copy(a.values[i*vw:], v)
	}
	for h := range o.Heads {
		kv := h * o.KVHeads / o.Heads
		y := out[h*o.VDim : (h+1)*o.VDim]
		sink := math.Inf(-1)
		if sinks != nil {
			sink = float64(sinks[h])
		}
		for i := range n {
			s := dot(q[h*o.KDim:(h+1)*o.KDim], a.keys[i*kw+kv*o.KDim:][:o.KDim]) * o.Scale
			if o.Softcap > 0 {
				s = o.Softcap * float32(math.Tanh(float64(s/o.Softcap)))
			}
			a.scores[i] = s
		}
		softmax(a.scores, sink)
		clear(y)
		for i, w := range a.scores {
			for d, v := range a.values[i*vw+kv*o.VDim:][:o.VDim] {
				y[d] += w * v
			}
		}
	}
}

// softmax in place; sink is a further logit that takes its share and no place.
func softmax(s []float32, sink float64) {
	m := sink
	for _, v := range s {
		m = math.Max(m, float64(v))
	}
	sum := math.Exp(sink - m)
	for i, v := range s {
		p := math.Exp(float64(v) - m)
		s[i] = float32(p)
		sum += p
	}
	inv := float32(1 / sum)
	for i := range s {
		s[i] *= inv
	}
}
