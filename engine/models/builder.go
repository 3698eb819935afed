package models

import (
	"errors"
	"fmt"
	"slices"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// Weights gives tensors by name; both checkpoint readers are one.
type Weights interface {
	Names() []string
	Tensor(name string) (tensor.View, error)
}

// builder assembles a module. Errors gather; the first build step that fails does not hide the others.
type builder struct {
	src   Weights
	known map[string]bool
	m     *kernels.Module
	entry *kernels.Entry

	buffers map[string]kernels.BufferID
	weights map[string]kernels.WeightID
	errs    []error
}

func newBuilder(name string, src Weights) *builder {
	b := &builder{src: src, known: map[string]bool{}, m: &kernels.Module{Name: name}, weights: map[string]kernels.WeightID{}}
	for _, n := range src.Names() {
		b.known[n] = true
	}
	return b
}

// open starts an entry; finish adds it to the module.
func (b *builder) open(name string) {
	b.entry = &kernels.Entry{Name: name}
	b.buffers = map[string]kernels.BufferID{}
}

func (b *builder) finish() { b.m.Entries = append(b.m.Entries, *b.entry) }

func (b *builder) fail(format string, args ...any) {
	b.errs = append(b.errs, fmt.Errorf(format, args...))
}

// module returns what was built, checked.
func (b *builder) module() (*kernels.Module, error) {
	if len(b.errs) > 0 {
		const shown = 8
		errs := b.errs
		if len(errs) > shown {
			errs = append(slices.Clone(errs[:shown]), fmt.Errorf("and %d more", len(b.errs)-shown))
		}
		return nil, fmt.Errorf("build %s: %w", b.m.Name, errors.Join(errs...))
	}
	if err := b.m.Validate(); err != nil {
		return nil, fmt.Errorf("build %s: %w", b.m.Name, err)
	}
	return b.m, nil
}

func (b *builder) op(ops ...kernels.Op) { b.entry.Ops = append(b.entry.Ops, ops...) }

// buf returns the entry's buffer of that name and width; layers share them.
func (b *builder) buf(name string, rows kernels.Sym, width int) kernels.BufferID {
	return b.buffer(kernels.Buffer{Name: name, DType: tensor.F32, Rows: kernels.Of(rows), Width: width})
}

func (b *builder) buffer(spec kernels.Buffer) kernels.BufferID {
	key := fmt.Sprintf("%s/%v/%d", spec.Name, spec.Rows, spec.Width)
	if id, ok := b.buffers[key]; ok {
		return id
	}
	id := kernels.BufferID(len(b.entry.Buffers))
	b.entry.Buffers = append(b.entry.Buffers, spec)
	b.buffers[key] = id
	return id
}

func (b *builder) width(id kernels.BufferID) int { return b.entry.Buffers[id].Width }

// rows is the row dimension of a buffer.
func (b *builder) rows(id kernels.BufferID) kernels.Dim { return b.entry.Buffers[id].Rows }

// like makes a buffer with the rows of another.
func (b *builder) like(name string, of kernels.BufferID, width int) kernels.BufferID {
	return b.buffer(kernels.Buffer{Name: name, DType: tensor.F32, Rows: b.rows(of), Width: width})
}

func (b *builder) has(name string) bool { return b.known[name] }

// tensor reads a tensor that must exist.
func (b *builder) tensor(name string) tensor.View {
	v, err := b.src.Tensor(name)
	if err != nil {
		b.fail("%w", err)
	}
	switch v.DType {
	case tensor.I8, tensor.I16, tensor.I32, tensor.I64, tensor.U8, tensor.Bool:
		b.fail("tensor %s holds %s elements, which no weight of this model may be", name, v.DType)
	}
	return v
}

// add enters a weight under a name of its own.
func (b *builder) add(name string, v tensor.View) kernels.WeightID {
	if id, ok := b.weights[name]; ok {
		return id
	}
	id := kernels.WeightID(len(b.m.Weights))
	b.m.Weights = append(b.m.Weights, kernels.Weight{Name: name, View: v})
	b.weights[name] = id
	return id
}

// vector enters a whole tensor, which must have size elements (0: any).
func (b *builder) vector(name string, size int) kernels.WeightID {
	if id, ok := b.weights[name]; ok {
		return id
	}
	v := b.tensor(name)
	if n, err := tensor.Elems(v.Shape); err == nil && size > 0 && v.Data != nil && int(n) != size {
		b.fail("tensor %s has shape %v, not %d elements", name, v.Shape, size)
	}
	return b.add(name, v)
}

// optional is vector, or None when there is no such tensor.
func (b *builder) optional(name string, size int) kernels.WeightID {
	if !b.has(name) {
		return kernels.None
	}
	return b.vector(name, size)
}

// proj is a linear's weight and bias, perhaps rows of a fused one.
type proj struct {
	name string // unique, without ".weight"
	site string
	w    tensor.View // [out, in]
	bias *tensor.View
}

// proj reads a linear by the name of its weight.
func (b *builder) proj(name string) proj {
	p := proj{name: name, site: name, w: b.tensor(name + ".weight")}
	if p.w.Data != nil && len(p.w.Shape) != 2 {
		b.fail("tensor %s.weight has shape %v, not two dimensions", name, p.w.Shape)
	}
	if len(p.w.Shape) != 2 {
		p.w = tensor.View{DType: tensor.F32, Shape: []int{0, 0}}
	}
	if b.has(name + ".bias") {
		v := b.tensor(name + ".bias")
		if len(v.Shape) == 1 && v.Shape[0] == p.w.Shape[0] {
			p.bias = &v
		} else {
			b.fail("tensor %s.bias has shape %v for %d rows", name, v.Shape, p.w.Shape[0])
		}
	}
	return p
}

// part takes rows of a projection under a name of their own. Adapters name the whole, so a part is no site.
func (b *builder) part(p proj, label string, spans ...span) proj {
	out := proj{name: p.name + "." + label}
	var err error
	if out.w, err = pickRows(p.w, spans); err != nil {
		b.fail("%s: %s: %w", p.name, label, err)
		out.w = tensor.View{DType: tensor.F32, Shape: []int{0, 0}}
	}
	if p.bias != nil {
		v, err := pickRows(*p.bias, spans)
		if err != nil {
			b.fail("%s: %s: %w", p.name, label, err)
		}
		out.bias = &v
	}
	return out
}

// linear emits a projection of in into the named buffer. out and in widths are checked; out of 0 takes the weight's.
func (b *builder) linear(dst string, in kernels.BufferID, p proj, out int) kernels.BufferID {
	if out == 0 {
		out = p.w.Shape[0]
	}
	if p.w.Shape[0] != out || p.w.Shape[1] != b.width(in) {
		b.fail("%s.weight has shape %v, not [%d %d]", p.name, p.w.Shape, out, b.width(in))
	}
	y := b.like(dst, in, out)
	b.linearInto(y, in, p)
	return y
}

func (b *builder) linearInto(y, in kernels.BufferID, p proj) {
	op := &kernels.Linear{Out: y, In: in, Weight: b.add(p.name+".weight", p.w), Bias: kernels.None, Site: p.site}
	if p.bias != nil {
		op.Bias = b.add(p.name+".bias", *p.bias)
	}
	b.op(op)
}

// norm emits the residual stream's norm with the named weight into the named buffer.
func (b *builder) norm(dst string, in kernels.BufferID, cfg NormConfig, name string) kernels.BufferID {
	y := b.like(dst, in, b.width(in))
	b.op(&kernels.Norm{Out: y, In: in, Kind: cfg.Kind, Eps: cfg.Eps, AddOne: cfg.AddOne,
		Weight: b.vector(name+".weight", b.width(in)), Bias: b.optional(name+".bias", b.width(in))})
	return y
}

// groupNorm normalises each group of columns in place, by the named weight if there is one.
func (b *builder) groupNorm(x kernels.BufferID, kind kernels.NormKind, size int, eps float32, addOne bool, name string) {
	w := kernels.WeightID(kernels.None)
	if name != "" {
		w = b.vector(name+".weight", 0)
		v := b.m.Weights[w].View
		switch {
		case v.Data == nil:
		case len(v.Shape) == 1 && v.Shape[0] == size:
		case len(v.Shape) == 1 && v.Shape[0] == b.width(x):
			size = 0 // over the full width
		default:
			b.fail("tensor %s.weight has shape %v for %d columns in groups of %d", name, v.Shape, b.width(x), size)
		}
	}
	b.op(&kernels.Norm{Out: x, In: x, Kind: kind, Eps: eps, AddOne: addOne, Weight: w, Bias: b.optional(name+".bias", 0), GroupSize: size})
}

// paged adds a paged state in the KV group of a window.
func (b *builder) paged(name string, window, heads, kdim, vdim int) kernels.StateID {
	return b.state(kernels.StateSpec{Name: name, Kind: kernels.Paged, Group: b.group(window), Heads: heads, KDim: kdim, VDim: vdim})
}

func (b *builder) state(s kernels.StateSpec) kernels.StateID {
	b.m.States = append(b.m.States, s)
	return kernels.StateID(len(b.m.States) - 1)
}

// group finds or makes the KV group of an attention kind.
func (b *builder) group(window int) int {
	for i, g := range b.m.Groups {
		if g.Window == window {
			return i
		}
	}
	name := "full"
	if window > 0 {
		name = fmt.Sprintf("sliding_%d", window)
	}
	b.m.Groups = append(b.m.Groups, kernels.GroupSpec{Name: name, Window: window})
	return len(b.m.Groups) - 1
}
