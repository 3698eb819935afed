package ref

import (
	"fmt"

	"omni-engine/kernels"
)

// stream is a request's rows in this step behind its tail, oldest first; rows before the signal's start are zero.
type stream struct {
	width int
	tail  []float32 // the rows before this step
	rows  []float32 // copies of this step's rows
}

// stream reads the rows of request r from in, which has rate rows a frame and whose first delay rows are padding.
func (e *Env) stream(in Value, tail []float32, r, rate, delay int) stream {
	b := e.Batch
	from, to := int(b.QueryStart[r])*rate, int(b.QueryStart[r+1])*rate
	s := stream{width: in.Width, tail: tail, rows: make([]float32, (to-from)*in.Width)}
	copy(s.rows, in.F[from*in.Width:to*in.Width])
	first := int(b.SeqLens[r])*rate - (to - from) // index in the stream
	if pad := min(max(delay-first, 0), to-from); pad > 0 {
		clear(s.rows[:pad*in.Width])
	}
	return s
}

// at returns row i, which may be negative: in the tail.
func (s stream) at(i int) []float32 {
	if i < 0 {
		return s.tail[len(s.tail)+i*s.width:][:s.width]
	}
	return s.rows[i*s.width:][:s.width]
}

// keep moves the newest rows to the tail.
func (s stream) keep() {
	if n := len(s.rows); n >= len(s.tail) {
		copy(s.tail, s.rows[n-len(s.tail):])
	} else {
		copy(s.tail, s.tail[n:])
		copy(s.tail[len(s.tail)-n:], s.rows)
	}
}

func conv1d(e *Env, o *kernels.Conv1d) error {
	out, in := e.Buffers[o.Out], e.Buffers[o.In]
	bias := e.Weights.Vector(o.Bias)
	channels := in.Width
	if o.Depthwise {
		channels = 1
	}
	if w := e.Weights.Shape(o.Weight); len(w) != 3 || w[0] != out.Width || w[1] != channels || w[2] != o.Kernel {
		return fmt.Errorf("weight %v for %d columns to %d, kernel %d", w, in.Width, out.Width, o.Kernel)
	}
	for r, slot := range e.Batch.Slots {
		s := e.stream(in, e.slot(o.State, slot), r, o.Rate, o.Delay)
		n, base := len(s.rows)/max(in.Width, 1), int(e.Batch.QueryStart[r])*o.Rate
		e.parallel(n, n*out.Width*channels*o.Kernel, func(from, to int) {
			block := newValue(to-from, in.Width*o.Kernel) // rows of [channel, tap]
			for t := from; t < to; t++ {
				patch := block.Row(t - from)
				for j := range o.Kernel {
					for c, v := range s.at(t - (o.Kernel-1-j)*o.Dilation) {
						patch[c*o.Kernel+j] = v
					}
				}
			}
			y := Value{F: out.F[(base+from)*out.Width : (base+to)*out.Width], Rows: to - from, Width: out.Width}
			if o.Depthwise {
				depthwise(e, y, block, o, bias)
			} else {
				e.matmul(y, block, o.Weight, 0, out.Width, bias)
			}
		})
		s.keep()
	}
	return nil
}

func depthwise(e *Env, y, block Value, o *kernels.Conv1d, bias []float32) {
	w := e.Weights.Vector(o.Weight)
	for t := range y.Rows {
		row, patch := y.Row(t), block.Row(t)
		for c := range row {
			row[c] = dot(patch[c*o.Kernel:(c+1)*o.Kernel], w[c*o.Kernel:(c+1)*o.Kernel])
			if bias != nil {
				row[c] += bias[c]
			}
		}
	}
}

func convTranspose1d(e *Env, o *kernels.ConvTranspose1d) error {
	out, in := e.Buffers[o.Out], e.Buffers[o.In]
	w, bias := e.Weights.Vector(o.Weight), e.Weights.Vector(o.Bias)
	if s := e.Weights.Shape(o.Weight); len(s) != 3 || s[0] != in.Width || s[1] != out.Width || s[2] != o.Kernel || o.Kernel%o.Stride != 0 {
		return fmt.Errorf("weight %v for %d columns to %d, kernel %d, stride %d", s, in.Width, out.Width, o.Kernel, o.Stride)
	}
	taps := o.Kernel / o.Stride
	for r, slot := range e.Batch.Slots {
		var tail []float32
		if taps > 1 {
			tail = e.slot(o.State, slot)
		}
		s := e.stream(in, tail, r, o.Rate, o.Delay)
		n, base := len(s.rows)/max(in.Width, 1), int(e.Batch.QueryStart[r])*o.Rate*o.Stride
		e.parallel(n, n*o.Kernel*in.Width*out.Width, func(from, to int) {
			for t := from; t < to; t++ {
				for p := range o.Stride {
					y := out.Row(base + t*o.Stride + p)
					clear(y)
					if bias != nil {
						copy(y, bias)
					}
					// The newest input gives the block's first taps; older ones reach into it with later taps.
					for a := taps - 1; a >= 0; a-- {
						for c, v := range s.at(t - a) {
							row := w[c*out.Width*o.Kernel:]
							for d := range y {
								y[d] += v * row[d*o.Kernel+p+a*o.Stride]
							}
						}
					}
				}
			}
		})
		s.keep()
	}
	return nil
}
