package ref

import (
	"fmt"

	"omni-engine/internal/tensor"
	"omni-engine/internal/weights/quant"
	"omni-engine/kernels"
)

// smallWeight is the most elements that are kept as float32 beside the stored form: norms, biases, convolutions.
const smallWeight = 1 << 16

// Weights reads a module's weights as float32, a few rows at a time. It is safe for concurrent reading.
type Weights struct {
	views []tensor.View
	small [][]float32
}

// NewWeights dequantises the small weights of a module and checks the types of the others.
func NewWeights(m *kernels.Module) (*Weights, error) {
	w := &Weights{small: make([][]float32, len(m.Weights))}
	for i, spec := range m.Weights {
		v := spec.View
		n, err := tensor.Elems(v.Shape)
		if err != nil {
			return nil, fmt.Errorf("weight %s: %w", spec.Name, err)
		}
		if _, err := tensor.NewView(v.DType, v.Shape, v.Data); err != nil {
			return nil, fmt.Errorf("weight %s: %w", spec.Name, err)
		}
		w.views = append(w.views, v)
		probe := int(n)
		if n > smallWeight {
			probe = min(v.Shape[len(v.Shape)-1], v.DType.BlockElems())
		}
		dst := make([]float32, probe)
		size, err := v.DType.Bytes(int64(probe))
		if err != nil {
			return nil, fmt.Errorf("weight %s: %w", spec.Name, err)
		}
		if err := quant.Dequantize(dst, v.DType, v.Data[:size]); err != nil {
			return nil, fmt.Errorf("weight %s: %w", spec.Name, err)
		}
		if n <= smallWeight {
			w.small[i] = dst
		}
	}
	return w, nil
}

// Shape of a weight.
func (w *Weights) Shape(id kernels.WeightID) []int { return w.views[id].Shape }

// Vector returns a whole small weight; nil for None.
func (w *Weights) Vector(id kernels.WeightID) []float32 {
	if id == kernels.None {
		return nil
	}
	if s := w.small[id]; s != nil {
		return s
	}
	v := w.views[id]
	n, _ := tensor.Elems(v.Shape)
	dst := make([]float32, n)
	w.must(quant.Dequantize(dst, v.DType, v.Data))
	return dst
}

// Row returns row i of a weight seen as [Shape[0], rest], in scratch (which it may grow) or in place.
func (w *Weights) Row(id kernels.WeightID, i int, scratch []float32) []float32 {
	v := w.views[id]
	width := rowWidth(v)
	if s := w.small[id]; s != nil {
		return s[i*width : (i+1)*width]
	}
	if cap(scratch) < width {
		scratch = make([]float32, width)
	}
	scratch = scratch[:width]
	w.must(quant.Dequantize(scratch, v.DType, v.Row(i, i+1)))
	return scratch
}

func rowWidth(v tensor.View) int {
	n := 1
	for _, d := range v.Shape[1:] {
		n *= d
	}
	return n
}

// must cannot fail after NewWeights: types and sizes were checked there.
func (w *Weights) must(err error) {
	if err != nil {
		panic(err)
	}
}
