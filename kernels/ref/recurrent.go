package ref

import (
	"math"

	"omni-engine/kernels"
)

func convState(e *Env, o *kernels.ConvState) error {
	out, in, b := e.Buffers[o.Out], e.Buffers[o.In], e.Batch
	weight, bias, width := e.Weights.Vector(o.Weight), e.Weights.Vector(o.Bias), in.Width
	for r, slot := range b.Slots {
		tail := e.slot(o.State, slot) // the last Kernel-1 rows, oldest first
		for t := int(b.QueryStart[r]); t < int(b.QueryStart[r+1]); t++ {
			x, y := in.Row(t), out.Row(t)
			for c := range width {
				var s float32
				for j := range o.Kernel - 1 {
					s += weight[c*o.Kernel+j] * tail[j*width+c]
				}
				s += weight[c*o.Kernel+o.Kernel-1] * x[c]
				if bias != nil {
					s += bias[c]
				}
				y[c] = s
			}
			shift(tail, x)
			for c := range y {
				y[c] = Activate(o.Act, y[c])
			}
		}
	}
	return nil
}

// shift appends a row to a tail of rows and drops the oldest.
func shift(tail, x []float32) {
	if len(tail) >= len(x) {
		copy(tail, tail[len(x):])
		copy(tail[len(tail)-len(x):], x)
	}
}

func deltaRule(e *Env, o *kernels.DeltaRule) error {
	b := e.Batch
	e.parallel(len(b.Slots)*o.VHeads, len(b.Tokens)*o.VHeads*o.KDim*o.VDim*4, func(from, to int) {
		for i := from; i < to; i++ {
			r, h := i/o.VHeads, i%o.VHeads
			state := e.slot(o.State, b.Slots[r])[h*o.KDim*o.VDim : (h+1)*o.KDim*o.VDim]
			for t := int(b.QueryStart[r]); t < int(b.QueryStart[r+1]); t++ {
				deltaStep(e, o, state, t, h)
			}
		}
	})
	return nil
}

func deltaStep(e *Env, o *kernels.DeltaRule, s []float32, t, h int) {
	kh := h * o.KHeads / o.VHeads
	q := e.Buffers[o.Q].Row(t)[kh*o.KDim : (kh+1)*o.KDim]
	k := e.Buffers[o.K].Row(t)[kh*o.KDim : (kh+1)*o.KDim]
	v := e.Buffers[o.V].Row(t)[h*o.VDim : (h+1)*o.VDim]
	out := e.Buffers[o.Out].Row(t)[h*o.VDim : (h+1)*o.VDim]
	decay := float32(math.Exp(float64(e.Buffers[o.G].Row(t)[h])))
	beta := e.Buffers[o.Beta].Row(t)[h]
	delta := make([]float32, o.VDim)
	for i, ki := range k {
		for j := range delta {
			s[i*o.VDim+j] *= decay
			delta[j] += s[i*o.VDim+j] * ki
		}
	}
	for j := range delta {
		delta[j] = beta * (v[j] - delta[j])
	}
	clear(out)
	for i, ki := range k {
		qi := q[i] * o.Scale
		for j := range delta {
			s[i*o.VDim+j] += ki * delta[j]
			out[j] += s[i*o.VDim+j] * qi
		}
	}
}
