package ref

import (
	"fmt"
	"math"

	"omni-engine/kernels"
)

func timestepEmbed(e *Env, o *kernels.TimestepEmbed) error {
	out, half := e.Buffers[o.Out], o.Dim/2
	if len(e.Scalars) != 1 && len(e.Scalars) != out.Rows {
		return fmt.Errorf("%d scalars for %d rows", len(e.Scalars), out.Rows)
	}
	for r := range out.Rows {
		t := float64(float32(float64(e.Scalars[min(r, len(e.Scalars)-1)]) * o.Scale))
		y := out.Row(r)
		clear(y)
		for i := range half {
			f := float64(float32(math.Exp(-math.Log(o.MaxPeriod) * float64(i) / float64(half))))
			s, c := math.Sincos(float64(float32(t * f)))
			y[i], y[half+i] = float32(c), float32(s)
		}
	}
	return nil
}

func fillRows(e *Env, o *kernels.FillRows) error {
	out, value := e.Buffers[o.Out], e.Weights.Vector(o.Value)
	for _, in := range e.Batch.Inputs {
		if in.Name == o.Input {
			for _, t := range in.Rows {
				copy(out.Row(int(t)), value)
			}
		}
	}
	return nil
}

func scaleByRow(e *Env, o *kernels.ScaleByRow) error {
	out, in, by, b := e.Buffers[o.Out], e.Buffers[o.In], e.Buffers[o.By], e.Batch
	for r := range b.SeqLens {
		s := by.Row(r)
		for t := int(b.QueryStart[r]); t < int(b.QueryStart[r+1]); t++ {
			y := out.Row(t)
			for c, v := range in.Row(t) {
				y[c] = v * (o.Plus + s[c])
			}
		}
	}
	return nil
}

func fullAttention(e *Env, o *kernels.FullAttention) error {
	out, q, k, v, b := e.Buffers[o.Out], e.Buffers[o.Q], e.Buffers[o.K], e.Buffers[o.V], e.Batch
	seen := e.keys(o.Keys)
	for r := range b.SeqLens {
		from, to := int(b.QueryStart[r]), int(b.QueryStart[r+1])
		var keys, values []float32
		for t := from; t < to; t++ {
			if seen == nil || seen[t] {
				keys, values = append(keys, k.Row(t)...), append(values, v.Row(t)...)
			}
		}
		n := len(keys) / max(k.Width, 1)
		e.parallel(to-from, (to-from)*n*o.Heads*(o.KDim+o.VDim), func(lo, hi int) {
			scores := make([]float32, n)
			for t := from + lo; t < from+hi; t++ {
				if n == 0 {
					clear(out.Row(t))
					continue
				}
				heads(q.Row(t), keys, values, out.Row(t), scores, n, o.Heads, o.KVHeads, o.KDim, o.VDim, o.Scale)
			}
		})
	}
	return nil
}

// keys marks the tokens that inputs of these names list; nil without names.
func (e *Env) keys(names []string) []bool {
	if len(names) == 0 {
		return nil
	}
	seen := make([]bool, len(e.Batch.Tokens))
	for _, in := range e.Batch.Inputs {
		for _, name := range names {
			if in.Name == name {
				for _, t := range in.Rows {
					seen[t] = true
				}
			}
		}
	}
	return seen
}
