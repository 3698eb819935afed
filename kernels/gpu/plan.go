package gpu

import (
	"errors"
	"fmt"
	"strings"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// plan is a module laid out for a device before anything is taken from it: nodes (one or more launches each), packed weights and
// buffers with their lifetimes.
type plan struct {
	module  *kernels.Module
	limits  kernels.Limits
	act     tensor.DType // element type of activations: F32, BF16 or F16
	kv      tensor.DType // element type of the caches
	entries []*entry

	matrices map[string]*matrix
	order    []*matrix
	vectors  map[vectorKey]*vector
	vecOrder []*vector
	ropes    []*ropeTable

	offsets []int64 // of each state in a KV block
	span    int64   // bytes from one KV block to the next
	hw      hardware
	tiles   []int // queries of a tile of prefill attention: the sizes in use
	samples int   // sampling operations
	images  images
	scratch scratch
	errs    []error
}

// hardware is what a plan depends on beside the module.
type hardware struct {
	sms       int   // multiprocessors, by which the splits of decode attention are chosen
	workspace int64 // bytes that a product of cuBLASLt may use; 0: all products are the own kernels'
}

// entry is one entry's nodes over its buffers.
type entry struct {
	spec    *kernels.Entry
	nodes   []node
	buffers []*buffer // the module's first, then those that fusing made
	logits  kernels.BufferID
	flow    *kernels.Flow
}

// rowsKind says what a buffer has a row for.
type rowsKind uint8

const (
	byToken rowsKind = iota
	byLogit
)

// buffer is a value of an entry.
type buffer struct {
	name   string
	width  int
	rows   rowsKind
	f32    bool // whatever the activations are: the residual stream and logits
	output bool
	shared bool // other entries read it: it keeps its memory
	first  int  // node that writes it first; -1: none
	last   int
	offset int64 // in the scratch memory
}

// matrix is a linear's weight on the device: rows of one or more weights of one type, one below the other.
type matrix struct {
	parts  []kernels.WeightID
	dtype  tensor.DType // as it lies on the device
	n, k   int
	offset int64
	bytes  int64
}

// vector is a small weight as float32: a norm's (plus one where the model says so) or a bias, perhaps several side by side.
type vector struct {
	data   []float32
	offset int64
}

type vectorKey struct {
	parts  string
	addOne bool
}

// ropeTable holds the frequencies of a rotation.
type ropeTable struct {
	op     *kernels.Rope
	offset int64
}

var errOperation = errors.New("has no CUDA kernels")

// types chooses the element types of activations and caches.
func (p *plan) types() {
	p.act = p.limits.Compute
	switch {
	case p.limits.Exact:
		p.act = tensor.F32
	case p.act == tensor.Invalid:
		p.act = tensor.BF16
		if has := p.weightTypes(); has[tensor.F16] && !has[tensor.BF16] {
			p.act = tensor.F16
		}
	}
	p.kv = p.limits.KV
	if p.kv == tensor.Invalid {
		p.kv = p.act
	}
}

// weightTypes are the element types of the module's matrices.
func (p *plan) weightTypes() map[tensor.DType]bool {
	has := map[tensor.DType]bool{}
	for _, w := range p.module.Weights {
		if len(w.View.Shape) == 2 {
			has[w.View.DType] = true
		}
	}
	return has
}

func newPlan(m *kernels.Module, l kernels.Limits, hw hardware) (*plan, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("module %s: %w", m.Name, err)
	}
	p := &plan{module: m, limits: l, hw: hw, matrices: map[string]*matrix{}, vectors: map[vectorKey]*vector{}}
	p.types()
	if err := p.checkLimits(); err != nil {
		return nil, fmt.Errorf("module %s on CUDA (--device cpu may serve it): %w", m.Name, err)
	}
	p.layoutStates()
	names := map[string]int{}
	for i := range m.Entries {
		for _, b := range m.Entries[i].Buffers {
			names[b.Name]++
		}
	}
	for i := range m.Entries {
		p.lower(&m.Entries[i], names)
	}
	if len(p.errs) > 0 {
		return nil, fmt.Errorf("module %s on CUDA (--device cpu may serve it): %w", m.Name, distinct(p.errs))
	}
	if len(p.tiles) > maxTiles {
		return nil, fmt.Errorf("module %s on CUDA (--device cpu may serve it): more than %d ratios of query heads to KV heads", m.Name, maxTiles)
	}
	p.newImages()
	p.layoutScratch()
	return p, nil
}

// distinct is one error that names every cause once.
func distinct(errs []error) error {
	seen := map[string]bool{}
	var out []error
	for _, e := range errs {
		if !seen[e.Error()] {
			seen[e.Error()] = true
			out = append(out, e)
		}
	}
	return errors.Join(out...)
}

func (p *plan) checkLimits() error {
	l, m := p.limits, p.module
	if l.Tokens < 1 || l.Rows < 1 || l.LogitRows < 0 {
		return fmt.Errorf("limits: %d tokens, %d rows, %d logit rows", l.Tokens, l.Rows, l.LogitRows)
	}
	switch p.act {
	case tensor.F32, tensor.BF16, tensor.F16:
	default:
		return fmt.Errorf("activations of %s are not supported (F32, BF16, F16)", p.act)
	}
	var errs []error
	const mostRows = 65535 // of a grid's second dimension
	if l.Tokens > mostRows || l.LogitRows > mostRows {
		errs = append(errs, fmt.Errorf("limits: %d tokens and %d logit rows a step, at most %d are possible", l.Tokens, l.LogitRows, mostRows))
	}
	paged := false
	for _, s := range m.States {
		if s.Kind == kernels.Slot {
			errs = append(errs, errors.New("slot states (recurrent layers, convolutions) have no CUDA kernels"))
			continue
		}
		paged = true
		if s.KDim != s.VDim || !headDim(s.KDim) {
			errs = append(errs, fmt.Errorf("attention heads of %d and %d have no CUDA kernels (keys and values alike, a multiple of 8, at most 512)", s.KDim, s.VDim))
		}
	}
	if paged && (l.BlockSize <= 0 || l.BlockSize%page != 0) {
		errs = append(errs, fmt.Errorf("limits: block size %d is no multiple of the kernels' page of %d tokens", l.BlockSize, page))
	}
	if paged && p.kv != p.act {
		errs = append(errs, fmt.Errorf("a KV cache of %s beside activations of %s has no CUDA kernels: they are of one type", p.kv, p.act))
	}
	if len(errs) > 0 {
		return distinct(errs)
	}
	return nil
}

// headDim reports whether some attention kernel takes heads of that size.
func headDim(n int) bool { return n > 0 && n <= 512 && n%8 == 0 }

// page is the kernels' KV page in tokens.
const page = 16

// layoutStates gives each state its place in a block of its group: keys, then values. All groups draw blocks from one pool, so a
// block is as long as the largest group's layers together.
func (p *plan) layoutStates() {
	p.offsets = make([]int64, len(p.module.States))
	used := make([]int64, len(p.module.Groups))
	for i, s := range p.module.States {
		if s.Kind != kernels.Paged {
			continue
		}
		p.offsets[i] = used[s.Group]
		used[s.Group] += p.stateBytes(s)
	}
	for _, n := range used {
		p.span = max(p.span, n)
	}
}

func (p *plan) kvElem() int64 {
	if p.kv == tensor.F32 {
		return 4
	}
	return 2
}

// stateBytes is one layer's keys and values of one block.
func (p *plan) stateBytes(s kernels.StateSpec) int64 {
	return roundUp(p.keyBytes(s)) + roundUp(p.keyBytes(s))
}

func (p *plan) keyBytes(s kernels.StateSpec) int64 {
	return int64(p.limits.BlockSize) * int64(s.Heads) * int64(s.KDim) * p.kvElem()
}

// memory is what the program takes.
func (p *plan) memory() kernels.MemoryPlan {
	mp := kernels.MemoryPlan{BlockBytes: make([]int64, len(p.module.Groups))}
	mp.Weights = p.layoutWeights()
	mp.Scratch = p.scratch.size
	for _, s := range p.module.States {
		mp.BlockBytes[s.Group] += p.stateBytes(s)
	}
	return mp
}

// layoutWeights places matrices and vectors and returns their size.
func (p *plan) layoutWeights() int64 {
	var l layout
	for _, m := range p.order {
		m.offset = l.take(m.bytes + readAhead)
	}
	for _, v := range p.vecOrder {
		v.offset = l.take(int64(len(v.data)) * 4)
	}
	for _, r := range p.ropes {
		r.offset = l.take(int64(len(r.op.InvFreq)) * 8)
	}
	return l.size
}

// readAhead keeps wide loads behind the last row inside the allocation.
const readAhead = 256

// explain lists an entry's nodes in the order of their first appearance, equal ones counted.
func (e *entry) explain(s *strings.Builder) {
	fmt.Fprintf(s, "entry %s: %d operations in %d nodes\n", e.spec.Name, len(e.spec.Ops), len(e.nodes))
	counts := map[string]int{}
	var order []string
	for _, n := range e.nodes {
		label := n.label()
		if counts[label] == 0 {
			order = append(order, label)
		}
		counts[label]++
	}
	for _, label := range order {
		fmt.Fprintf(s, "  %4d x %s\n", counts[label], label)
	}
}
