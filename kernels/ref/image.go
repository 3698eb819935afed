package ref

import (
	"fmt"
	"math"

	"omni-engine/kernels"
)

// grid is one image of a buffer: its rows from at on, h by w pixels.
type grid struct{ at, h, w int }

// grids finds the images of a buffer of the given scale.
func (e *Env) grids(scale int) ([]grid, error) {
	b := e.Batch
	var out []grid
	for r := range b.SeqLens {
		from, to := int(b.QueryStart[r]), int(b.QueryStart[r+1])
		if from == to {
			continue
		}
		if len(b.Positions[1]) < to || len(b.Positions[2]) < to {
			return nil, fmt.Errorf("an image needs positions on three axes")
		}
		h, w := int(b.Positions[1][to-1])+1, int(b.Positions[2][to-1])+1
		if h <= 0 || w <= 0 || h*w != to-from {
			return nil, fmt.Errorf("image of %d tokens ends at row %d, column %d", to-from, h-1, w-1)
		}
		out = append(out, grid{at: from * scale * scale, h: h * scale, w: w * scale})
	}
	return out, nil
}

func conv2d(e *Env, o *kernels.Conv2d) error {
	out, in := e.Buffers[o.Out], e.Buffers[o.In]
	k, size := o.Kernel, in.Width*o.Kernel*o.Kernel
	if s := e.Weights.Shape(o.Weight); len(s) != 4 || s[0] != out.Width || s[1] != in.Width || s[2] != k || s[3] != k || k%2 == 0 {
		return fmt.Errorf("weight %v for %d columns to %d, kernel %d", s, in.Width, out.Width, k)
	}
	images, err := e.grids(o.Scale)
	if err != nil {
		return err
	}
	bias := e.Weights.Vector(o.Bias)
	for _, g := range images {
		e.parallel(g.h, g.h*g.w*size*out.Width, func(from, to int) {
			block := newValue(g.w, size)
			for y := from; y < to; y++ {
				for x := range g.w {
					patch2d(block.Row(x), in, g, y, x, k)
				}
				at := (g.at + y*g.w) * out.Width
				e.matmul(Value{F: out.F[at : at+g.w*out.Width], Rows: g.w, Width: out.Width}, block, o.Weight, 0, out.Width, bias)
			}
		})
	}
	return nil
}

// patch2d gathers [channel, ky, kx] around a pixel; outside is zero.
func patch2d(patch []float32, in Value, g grid, y, x, k int) {
	clear(patch)
	for ky := range k {
		for kx := range k {
			py, px := y+ky-k/2, x+kx-k/2
			if py < 0 || py >= g.h || px < 0 || px >= g.w {
				continue
			}
			for c, v := range in.Row(g.at + py*g.w + px) {
				patch[(c*k+ky)*k+kx] = v
			}
		}
	}
}

func groupNorm(e *Env, o *kernels.GroupNorm) error {
	out, in := e.Buffers[o.Out], e.Buffers[o.In]
	if o.Groups <= 0 || in.Width%o.Groups != 0 {
		return fmt.Errorf("%d groups of %d columns", o.Groups, in.Width)
	}
	images, err := e.grids(o.Scale)
	if err != nil {
		return err
	}
	weight, bias, size := e.Weights.Vector(o.Weight), e.Weights.Vector(o.Bias), in.Width/o.Groups
	for _, g := range images {
		e.parallel(o.Groups, 4*g.h*g.w*in.Width, func(from, to int) {
			for c := from * size; c < to*size; c += size {
				mean, inv := moments(in, g, c, size, float64(o.Eps))
				for p := g.at; p < g.at+g.h*g.w; p++ {
					for i := c; i < c+size; i++ {
						out.Row(p)[i] = float32((float64(in.Row(p)[i])-mean)*inv)*weight[i] + bias[i]
					}
				}
			}
		})
	}
	return nil
}

// moments gives mean and 1/sqrt(variance+eps) of columns [c, c+size) over an image.
func moments(in Value, g grid, c, size int, eps float64) (mean, inv float64) {
	n := float64(g.h * g.w * size)
	for p := g.at; p < g.at+g.h*g.w; p++ {
		for _, v := range in.Row(p)[c : c+size] {
			mean += float64(v)
		}
	}
	mean /= n
	var sum float64
	for p := g.at; p < g.at+g.h*g.w; p++ {
		for _, v := range in.Row(p)[c : c+size] {
			sum += (float64(v) - mean) * (float64(v) - mean)
		}
	}
	return mean, 1 / math.Sqrt(sum/n+eps)
}

func upsample2d(e *Env, o *kernels.Upsample2d) error {
	out, in := e.Buffers[o.Out], e.Buffers[o.In]
	images, err := e.grids(o.Scale)
	if err != nil {
		return err
	}
	for _, g := range images {
		for y := range 2 * g.h {
			for x := range 2 * g.w {
				copy(out.Row(4*g.at+y*2*g.w+x), in.Row(g.at+y/2*g.w+x/2))
			}
		}
	}
	return nil
}
