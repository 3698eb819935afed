package kernels

import (
	"errors"
	"fmt"

	"omni-engine/internal/tensor"
)

// Module is what one stage runs: entries that share weights and state. Built once from a model's config; immutable after.
type Module struct {
	Name    string
	Entries []Entry
	Weights []Weight
	States  []StateSpec
	Groups  []GroupSpec // KV groups in order; States of kind Paged name one
	Vocab   int         // width of the logits; 0 without a head
}

// Entry is a flat list of operations over its buffers; bounded loops are unrolled.
type Entry struct {
	Name    string // "forward", "sample", "code_predictor", "vocode", "denoise", "vae_decode"
	Ops     []Op
	Buffers []Buffer
}

// BufferID indexes Entry.Buffers.
type BufferID int32

// WeightID indexes Module.Weights.
type WeightID int32

// StateID indexes Module.States.
type StateID int32

// None is the absent buffer, weight or state.
const None = -1

// Weight is a named tensor; a linear's is [out, in].
type Weight struct {
	Name string
	View tensor.View
}

// Sym is a dimension known only at run time.
type Sym uint8

// The symbols.
const (
	Const Sym = iota // Add alone
	Tokens
	Rows
	LogitRows
	Frames
)

// Dim is Sym*Mul/Div+Add; Mul and Div of 0 mean 1.
type Dim struct {
	Sym           Sym
	Mul, Div, Add int
}

// Fixed is a constant dimension.
func Fixed(n int) Dim { return Dim{Sym: Const, Add: n} }

// Of is one symbol.
func Of(s Sym) Dim { return Dim{Sym: s} }

// Sizes binds the symbols of a step.
type Sizes struct{ Tokens, Rows, LogitRows, Frames int }

// At evaluates the dimension.
func (d Dim) At(s Sizes) int {
	n := [...]int{0, s.Tokens, s.Rows, s.LogitRows, s.Frames}[d.Sym]
	if d.Mul != 0 {
		n *= d.Mul
	}
	if d.Div != 0 {
		n /= d.Div
	}
	return n + d.Add
}

// Role says who may see a buffer.
type Role uint8

// The roles.
const (
	Temp   Role = iota
	Output      // may be read by name after Wait; the entries of a module share the memory of outputs of one name
)

// Buffer is a value within a step: [rows, width] float32 (or int32 for ids).
type Buffer struct {
	Name  string
	DType tensor.DType // F32 or I32
	Rows  Dim
	Width int
	Role  Role
}

// StateKind says how a state is addressed.
type StateKind uint8

// The kinds.
const (
	Paged StateKind = iota // per token, through the block table of a group
	Slot                   // fixed floats a request
)

// StateSpec is state that outlives a step: one a layer.
type StateSpec struct {
	Name  string
	Kind  StateKind
	Group int // Paged: the KV group
	// Paged: K and V vectors per token: Heads x KDim and Heads x VDim (VDim may be 0: keys only).
	Heads, KDim, VDim int
	Floats            int // Slot: float32 values a request
}

// GroupSpec is one KV group: layers that share block tables.
type GroupSpec struct {
	Name   string
	Window int // sliding window in tokens; 0: full attention
}

// Shape returns the bounds of a buffer for the given sizes.
func (b Buffer) Shape(s Sizes) (rows, width int) { return b.Rows.At(s), b.Width }

// Validate checks every index of the module: entries, buffers, weights and states that its operations name. Entries have names of their own;
// outputs of one name, whose memory entries share, have one type and shape.
func (m *Module) Validate() error {
	var errs []error
	outputs, names := map[string]Buffer{}, map[string]bool{}
	for _, e := range m.Entries {
		if names[e.Name] {
			errs = append(errs, fmt.Errorf("two entries are named %q", e.Name))
		}
		names[e.Name] = true
		errs = append(errs, e.checkBuffers(outputs)...)
		for i, op := range e.Ops {
			u := op.Uses()
			for _, b := range append(append([]BufferID{}, u.In...), u.Out...) {
				if b != None && (b < 0 || int(b) >= len(e.Buffers)) {
					errs = append(errs, fmt.Errorf("entry %s op %d %s: no buffer %d", e.Name, i, op.Name(), b))
				}
			}
			for _, w := range u.Weights {
				if w != None && (w < 0 || int(w) >= len(m.Weights)) {
					errs = append(errs, fmt.Errorf("entry %s op %d %s: no weight %d", e.Name, i, op.Name(), w))
				}
			}
			for _, s := range u.States {
				if s != None && (s < 0 || int(s) >= len(m.States)) {
					errs = append(errs, fmt.Errorf("entry %s op %d %s: no state %d", e.Name, i, op.Name(), s))
				}
			}
		}
	}
	for _, s := range m.States {
		switch {
		case s.Kind == Paged && (s.Group < 0 || s.Group >= len(m.Groups)):
			errs = append(errs, fmt.Errorf("state %s: no KV group %d", s.Name, s.Group))
		case s.Kind == Paged && (s.Heads <= 0 || s.KDim <= 0 || s.VDim < 0), s.Kind == Slot && s.Floats < 0, s.Kind > Slot:
			errs = append(errs, fmt.Errorf("state %s: %d heads of %d and %d, %d floats", s.Name, s.Heads, s.KDim, s.VDim, s.Floats))
		}
	}
	return errors.Join(errs...)
}

// checkBuffers checks shapes, and outputs against those of other entries.
func (e *Entry) checkBuffers(outputs map[string]Buffer) (errs []error) {
	for _, b := range e.Buffers {
		if b.Width <= 0 || b.DType != tensor.F32 && b.DType != tensor.I32 || b.Rows.Mul < 0 || b.Rows.Div < 0 || b.Rows.Sym > Frames {
			errs = append(errs, fmt.Errorf("entry %s: buffer %q of %s is %d wide", e.Name, b.Name, b.DType, b.Width))
		}
		if b.Role != Output {
			continue
		}
		if other, ok := outputs[b.Name]; ok && other != b {
			errs = append(errs, fmt.Errorf("entry %s: output %q differs from another entry's", e.Name, b.Name))
		}
		outputs[b.Name] = b
	}
	return errs
}

// Entry returns the index of the named entry, or -1.
func (m *Module) Entry(name string) int {
	for i, e := range m.Entries {
		if e.Name == name {
			return i
		}
	}
	return -1
}
