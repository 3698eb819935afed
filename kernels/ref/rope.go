package ref

import (
	"fmt"
	"math"

	"omni-engine/kernels"
)

func rope(e *Env, o *kernels.Rope) error {
	x, half := e.Buffers[o.X], o.RotDim/2
	if o.From+o.RotDim > o.HeadDim || o.Heads*o.HeadDim > x.Width || len(o.InvFreq) != half {
		return fmt.Errorf("rope: %d of %d columns from %d, %d frequencies", o.RotDim, o.HeadDim, o.From, len(o.InvFreq))
	}
	cos, sin := make([]float32, half), make([]float32, half)
	b := e.Batch
	for r, n := range b.SeqLens {
		freq, factor := o.InvFreq, orOne(o.Factor)
		if o.LongFrom > 0 && int(n) > o.LongFrom {
			freq, factor = o.LongFreq, orOne(o.LongFactor)
		}
		for t := int(b.QueryStart[r]); t < int(b.QueryStart[r+1]); t++ {
			for i := range half {
				s, c := math.Sincos(float64(e.position(o, t, i)) * freq[i])
				sin[i], cos[i] = float32(s)*factor, float32(c)*factor
			}
			for h := range o.Heads {
				rotate(x.Row(t)[h*o.HeadDim+o.From:][:o.RotDim], cos, sin, o.Pairing)
			}
		}
	}
	return nil
}

// position of token t for pair i: axis 0 stands in for axes that the batch leaves empty.
func (e *Env) position(o *kernels.Rope, t, i int) int32 {
	axis := uint8(0)
	if o.Axis != nil {
		axis = o.Axis[i]
	}
	if p := e.Batch.Positions[axis]; len(p) > 0 {
		return p[t]
	}
	return e.Batch.Positions[0][t]
}

func rotate(v, cos, sin []float32, p kernels.RopePairing) {
	half := len(cos)
	for i := range half {
		a, b := i, i+half
		if p == kernels.Pair {
			a, b = 2*i, 2*i+1
		}
		x, y := v[a], v[b]
		v[a], v[b] = x*cos[i]-y*sin[i], y*cos[i]+x*sin[i]
	}
}

func positionScale(e *Env, o *kernels.PositionScale) error {
	x := e.Buffers[o.X]
	for t := range x.Rows {
		p := float64(e.Batch.Positions[0][t])
		s := float32(1 + float64(o.Beta)*math.Log(1+math.Floor((p+float64(o.Plus))/float64(o.Floor))))
		scaleRow(x.Row(t), x.Row(t), s, false)
	}
	return nil
}
