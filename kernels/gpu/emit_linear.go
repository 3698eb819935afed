package gpu

import (
	"fmt"

	"omni-engine/cuda"
	"omni-engine/internal/tensor"
)

// outKind is what a product writes.
func (m *emitter) outKind(n *linearNode) int32 {
	switch {
	case n.add:
		return outAddF32
	case m.bufferType(n.out) == "f32":
		return outF32
	case m.plan().act == tensor.F16:
		return outF16
	}
	return outBF16
}

// gemvSizes are the row counts that the kernels for few rows are made for.
func gemvSizes() []int { return []int{1, 2, 4, 8} }

func (m *emitter) linear(n *linearNode) {
	if m.bufferType(n.in) != typeName(m.plan().act) {
		m.errs = append(m.errs, fmt.Errorf("a product that reads a float32 buffer %w", errOperation))
		return
	}
	if n.weight.dtype.Quantised() {
		m.blocks(n)
		return
	}
	m.dense(n)
}

// gemm is the parameters that no step changes.
func (m *emitter) gemm(n *linearNode) gemmParams {
	out := m.entry.buffers[n.out]
	kind := m.outKind(n)
	elem := int64(2)
	if kind == outF32 || kind == outAddF32 {
		elem = 4
	}
	return gemmParams{Out: m.address(n.out).Add(int64(n.column) * elem), A: m.address(n.in), B: m.runs.program.weights.at(n.weight.offset), Bias: m.vector(n.bias),
		N: int32(n.weight.n), K: int32(n.weight.k), LDA: int32(m.entry.buffers[n.in].width), LDC: int32(out.width), OutKind: kind}
}

// few are the kernels of a name for at most that many rows.
func (m *emitter) few(prefix string) (k [4]found) {
	for i, s := range gemvSizes() {
		k[i] = m.find(fmt.Sprint(prefix, s))
	}
	return k
}

// fewFor is the smallest of them for m rows.
func fewFor(k *[4]found, rows int) found {
	for i, s := range gemvSizes() {
		if rows <= s {
			return k[i]
		}
	}
	return found{}
}

func set(l *cuda.Launch, k found, x, y uint32) {
	l.Function, l.Block, l.Shared, l.Grid = k.f, cuda.Dim3{X: uint32(k.threads)}, k.shared, cuda.Dim3{X: x, Y: y}
}

// dense multiplies by weights of the activations' type: few rows by vector kernels, more by tensor cores with tiles that fill the device.
func (m *emitter) dense(n *linearNode) {
	act := typeName(m.plan().act)
	few := m.few("gemv_" + act + "_")
	tiles := map[int]found{}
	if act == "f32" {
		tiles[64] = m.find("gemm_f32")
	} else {
		for _, t := range []int{16, 64, 128} {
			tiles[t] = m.find(fmt.Sprint("gemm_", act, "_", t))
		}
	}
	small, middle, large := tiles[16], tiles[64], tiles[128]
	l, p := kernel[gemmParams](m, "gemv_"+act+"_1")
	*p = m.gemm(n)
	in, sms, width := m.entry.buffers[n.in], m.plan().hw.sms, n.weight.n
	m.call("product", l, func(sz *sizes) bool {
		rows := in.count(sz)
		p.M = int32(rows)
		switch {
		case rows <= gemvRows:
			set(l, fewFor(&few, rows), ceil(width, 8), 1)
		case rows <= 16 && act != "f32":
			set(l, small, ceil(width, 32), ceil(rows, 16))
		case act == "f32" || rows <= 256 || int(ceil(width, 128)*ceil(rows, 128)) < sms:
			set(l, middle, ceil(width, 64), ceil(rows, 64))
		default:
			set(l, large, ceil(width, 128), ceil(rows, 128))
		}
		return rows == 0
	})
	if m.plan().library(m.entry, n) {
		m.calls[len(m.calls)-1].library = m.byLibrary(n, p)
	}
}

// blocks multiplies by quantised blocks: few rows are quantised and take integer products, more read the activations as they are.
func (m *emitter) blocks(n *linearNode) {
	act, q := typeName(m.plan().act), typeName(n.weight.dtype)
	in, s := m.entry.buffers[n.in], m.plan().scratch
	quants, scales := m.scratch(s.quants), m.scratch(s.scales)
	if !n.again {
		l, p := kernel[quantizeParams](m, "quantize_"+act)
		*p = quantizeParams{Q: quants, DS: scales, X: m.address(n.in), K: int32(n.weight.k), LDX: int32(in.width)}
		m.call("quantize", l, func(sz *sizes) bool {
			rows := in.count(sz)
			p.M = int32(rows)
			l.Grid.X = ceil(rows*n.weight.k/32, 8)
			return rows == 0 || rows > gemvRows
		})
	}
	g := m.gemm(n)
	few := m.few("gemv_" + q + "_")
	l, p := kernel[gemvQParams](m, "gemv_"+q+"_1")
	*p = gemvQParams{Out: g.Out, Q: quants, DS: scales, B: g.B, Bias: g.Bias, N: g.N, K: g.K, LDC: g.LDC, OutKind: g.OutKind}
	m.call("product", l, func(sz *sizes) bool {
		rows := in.count(sz)
		if rows == 0 || rows > gemvRows {
			return true
		}
		p.M = int32(rows)
		set(l, fewFor(&few, rows), ceil(n.weight.n, 4), 1)
		return false
	})
	name := "mmq_" + q + "_" + act
	large, lp := kernel[gemmParams](m, name)
	*lp = g
	m.call(name, large, func(sz *sizes) bool {
		rows := in.count(sz)
		lp.M = int32(rows)
		large.Grid = cuda.Dim3{X: ceil(n.weight.n, 64), Y: ceil(rows, 64)}
		return rows <= gemvRows
	})
}
