package ref

import (
	"fmt"
	"math"

	"omni-engine/kernels"
)

func elementwise(e *Env, o *kernels.Binary) error {
	out, a, b := e.Buffers[o.Out], e.Buffers[o.A], e.Buffers[o.B]
	alpha := orOne(o.Alpha)
	for t := range out.Rows {
		y, x, z := out.Row(t), a.Row(t), b.Row(t)
		switch o.Kind {
		case kernels.Add:
			for i := range y {
				y[i] = x[i] + alpha*z[i]
			}
		case kernels.Mul:
			for i := range y {
				y[i] = x[i] * z[i]
			}
		case kernels.MulFirst:
			for i := range y {
				y[i] = x[i] * z[0]
			}
		default:
			return fmt.Errorf("binary kind %d is not supported", o.Kind)
		}
	}
	return nil
}

func orOne(v float32) float32 {
	if v == 0 {
		return 1
	}
	return v
}

func unary(e *Env, o *kernels.Unary) error {
	out, in := e.Buffers[o.Out], e.Buffers[o.In]
	scale, post := orOne(o.Scale), orOne(o.PostScale)
	e.parallel(out.Rows, 8*len(out.F), func(from, to int) {
		for i := from * out.Width; i < to*out.Width; i++ {
			v := Activate(o.Act, in.F[i]*scale)*post + o.Offset
			if o.Clamp > 0 {
				v = min(max(v, -o.Clamp), o.Clamp)
			}
			out.F[i] = v
		}
	})
	return nil
}

func gated(e *Env, o *kernels.Gated) error {
	out, gate, up := e.Buffers[o.Out], e.Buffers[o.Gate], e.Buffers[o.Up]
	e.parallel(out.Rows, 8*len(out.F), func(from, to int) {
		for i := from * out.Width; i < to*out.Width; i++ {
			out.F[i] = gate1(o.Act, o.Limit, gate.F[i], up.F[i])
		}
	})
	return nil
}

// gate1 is Act(g)*u; with a limit, gpt-oss's clamped form.
func gate1(act kernels.Act, limit, g, u float32) float32 {
	if limit > 0 {
		g = min(g, limit)
		u = min(max(u, -limit), limit)
		return Activate(kernels.Quick, g) * (u + 1)
	}
	return Activate(act, g) * u
}

// Activate applies an activation function.
func Activate(a kernels.Act, v float32) float32 {
	x := float64(v)
	switch a {
	case kernels.Silu:
		return float32(x / (1 + math.Exp(-x)))
	case kernels.Gelu:
		return float32(0.5 * x * (1 + math.Erf(x/math.Sqrt2)))
	case kernels.GeluTanh:
		return float32(0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))))
	case kernels.Relu:
		return max(v, 0)
	case kernels.Relu2:
		return max(v, 0) * max(v, 0)
	case kernels.Sigmoid:
		return float32(1 / (1 + math.Exp(-x)))
	case kernels.Tanh:
		return float32(math.Tanh(x))
	case kernels.Exp:
		return float32(math.Exp(x))
	case kernels.Softplus:
		if x > 20 {
			return v
		}
		return float32(math.Log1p(math.Exp(x)))
	case kernels.Quick:
		return float32(x / (1 + math.Exp(-1.702*x)))
	}
	return v
}

func copyColumns(e *Env, o *kernels.Copy) error {
	out, in := e.Buffers[o.Out], e.Buffers[o.In]
	for t := range out.Rows {
		y, x := out.Row(t), in.Row(t)
		for g := range o.Groups {
			copy(y[g*o.OutStride+o.OutFrom:][:o.Width], x[g*o.InStride+o.InFrom:][:o.Width])
		}
	}
	return nil
}

func columnScale(e *Env, o *kernels.ColumnScale) error {
	out, in := e.Buffers[o.Out], e.Buffers[o.In]
	scale, shift := e.Weights.Vector(o.Scale), e.Weights.Vector(o.Shift)
	for t := range out.Rows {
		y, x := out.Row(t), in.Row(t)
		for i := range y {
			v := x[i]
			if scale != nil {
				v *= scale[i]
			}
			if shift != nil {
				v += shift[i]
			}
			y[i] = v
		}
	}
	return nil
}
