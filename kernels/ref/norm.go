package ref

import (
	"fmt"
	"math"

	"omni-engine/kernels"
)

// norm sums in float64: the definition has no order of its own.
func norm(e *Env, o *kernels.Norm) error {
	out, in := e.Buffers[o.Out], e.Buffers[o.In]
	weight, bias := e.Weights.Vector(o.Weight), e.Weights.Vector(o.Bias)
	size := o.GroupSize
	if size == 0 {
		size = in.Width
	}
	if size <= 0 || in.Width%size != 0 {
		return fmt.Errorf("norm: groups of %d columns do not fill rows of %d", size, in.Width)
	}
	e.parallel(in.Rows, 4*len(in.F), func(from, to int) {
		for t := from; t < to; t++ {
			for c := 0; c < in.Width; c += size {
				normGroup(out.Row(t)[c:c+size], in.Row(t)[c:c+size], o, columns(weight, c, size), columns(bias, c, size))
			}
		}
	})
	return nil
}

// columns picks a group's part of a weight: its own columns, or the one group that serves all.
func columns(w []float32, at, size int) []float32 {
	if len(w) > size {
		return w[at : at+size]
	}
	return w
}

func normGroup(y, x []float32, o *kernels.Norm, weight, bias []float32) {
	var mean, sum float64
	if o.Kind == kernels.LayerNorm {
		for _, v := range x {
			mean += float64(v)
		}
		mean /= float64(len(x))
	}
	for _, v := range x {
		d := float64(v) - mean
		sum += d * d
	}
	if o.Kind != kernels.L2Norm {
		sum /= float64(len(x))
	}
	inv := 1 / math.Sqrt(sum+float64(o.Eps))
	for i, v := range x {
		n := float32((float64(v) - mean) * inv)
		if weight != nil {
			w := weight[i]
			if o.AddOne {
				w++
			}
			n *= w
		}
		if bias != nil {
			n += bias[i]
		}
		y[i] = n
	}
}
