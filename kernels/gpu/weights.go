package gpu

import (
	"fmt"
	"math"
	"strings"

	"omni-engine/internal/tensor"
	"omni-engine/internal/weights/quant"
	"omni-engine/kernels"
)

// deviceType is how a weight lies on the device: quantised blocks as they are where kernels read them, other weights in the
// activations' type. An exact program computes in float32.
func (p *plan) deviceType(d tensor.DType) tensor.DType {
	if p.act != tensor.F32 && blocks(d) {
		return d
	}
	return p.act
}

// blocks are the quantised types whose blocks the kernels read; others are dequantised on the way to the device.
func blocks(d tensor.DType) bool {
	switch d {
	case tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q8_0, tensor.Q4_K, tensor.Q5_K, tensor.Q6_K:
		return true
	}
	return false
}

func (p *plan) elems(w kernels.WeightID) int {
	n, _ := tensor.Elems(p.module.Weights[w].View.Shape)
	return int(n)
}

// matrix is the device's matrix of weights [out, in], one below the other.
func (p *plan) matrix(parts ...kernels.WeightID) *matrix {
	key := fmt.Sprint(parts)
	if m, ok := p.matrices[key]; ok {
		return m
	}
	m := &matrix{parts: parts}
	for i, id := range parts {
		w := p.module.Weights[id]
		if len(w.View.Shape) != 2 || w.View.Shape[0] <= 0 || w.View.Shape[1] <= 0 {
			p.errs = append(p.errs, fmt.Errorf("weight %s: shape %v is not [out, in]", w.Name, w.View.Shape))
			continue
		}
		if i == 0 {
			m.dtype, m.k = p.deviceType(w.View.DType), w.View.Shape[1]
		}
		m.n += w.View.Shape[0]
	}
	p.place(key, m)
	return m
}

// table is the matrix of an embedding whose rows have the given width, whatever its shape says.
func (p *plan) table(w kernels.WeightID, width int) *matrix {
	if v := p.module.Weights[w].View; len(v.Shape) == 2 && v.Shape[1] == width {
		return p.matrix(w)
	}
	p.errs = append(p.errs, fmt.Errorf("weight %s: shape %v is no table of rows of %d", p.module.Weights[w].Name, p.module.Weights[w].View.Shape, width))
	return &matrix{dtype: p.act, n: 1, k: width}
}

func (p *plan) place(key string, m *matrix) {
	n, err := m.dtype.Bytes(int64(m.n) * int64(m.k))
	if err == nil && m.dtype.Quantised() && m.k%m.dtype.BlockElems() != 0 {
		err = fmt.Errorf("rows of %d do not fill blocks of %d", m.k, m.dtype.BlockElems())
	}
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("weight %s: %w", p.module.Weights[m.parts[0]].Name, err))
	}
	m.bytes = n
	p.matrices[key] = m
	p.order = append(p.order, m)
}

// vector is norm weights or biases as float32, side by side; addOne adds one to each.
func (p *plan) vector(addOne bool, parts ...kernels.WeightID) *vector {
	key := vectorKey{strings.Trim(fmt.Sprint(parts), "[]"), addOne}
	if v, ok := p.vectors[key]; ok {
		return v
	}
	v := &vector{}
	for _, id := range parts {
		w := p.module.Weights[id]
		f, err := quant.Float32s(w.View)
		if err != nil {
			p.errs = append(p.errs, fmt.Errorf("weight %s: %w", w.Name, err))
		}
		v.data = append(v.data, f...)
	}
	if addOne {
		for i := range v.data {
			v.data[i]++
		}
	}
	p.vectors[key] = v
	p.vecOrder = append(p.vecOrder, v)
	return v
}

// upload sends all weights to memory that starts at base.
func (p *plan) upload(u *uploader, b *block) error {
	var scratch []float32
	for _, m := range p.order {
		at := b.at(m.offset)
		for _, id := range m.parts {
			w := p.module.Weights[id]
			var err error
			if scratch, err = u.weight(at, w.View, m.dtype, scratch); err != nil {
				return fmt.Errorf("uploading %s: %w", w.Name, err)
			}
			n, err := m.dtype.Bytes(int64(w.View.Shape[0]) * int64(m.k))
			if err != nil {
				return fmt.Errorf("uploading %s: %w", w.Name, err)
			}
			at = at.Add(n)
		}
	}
	for _, v := range p.vecOrder {
		if err := u.write(b.at(v.offset), asBytes(v.data)); err != nil {
			return fmt.Errorf("uploading a vector: %w", err)
		}
	}
	for _, r := range p.ropes {
		turns := make([]float64, len(r.op.InvFreq))
		for i, f := range r.op.InvFreq {
			turns[i] = f / (2 * math.Pi)
		}
		if err := u.write(b.at(r.offset), asBytes(turns)); err != nil {
			return fmt.Errorf("uploading frequencies: %w", err)
		}
	}
	return u.finish()
}
