package gpu

import (
	"fmt"
	"strings"
	"unsafe"

	"omni-engine/cuda"
	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// emitter turns an entry's nodes into launches. Addresses that no step changes are written once; each call's set writes the rest.
type emitter struct {
	runs  *runs
	entry *entry
	calls []*call
	errs  []error
}

func (m *emitter) plan() *plan { return m.runs.program.plan }

// address of a buffer.
func (m *emitter) address(b kernels.BufferID) cuda.DevicePtr {
	return m.runs.program.scratch.at(m.entry.buffers[b].offset)
}

func (m *emitter) scratch(offset int64) cuda.DevicePtr { return m.runs.program.scratch.at(offset) }

func (m *emitter) vector(v *vector) cuda.DevicePtr {
	if v == nil {
		return 0
	}
	return m.runs.program.weights.at(v.offset)
}

// batch is the address of an array of the batch's image.
func (r *runs) batch(offset int64) cuda.DevicePtr {
	return r.program.scratch.at(r.program.plan.scratch.batch + offset)
}

// count is how many rows a buffer has in a step.
func (b *buffer) count(sz *sizes) int {
	if b.rows == byLogit {
		return sz.logits
	}
	return sz.tokens
}

// typeName is an element or block type in a kernel's name.
func typeName(d tensor.DType) string { return strings.ToLower(d.String()) }

// bufferType is a buffer's element type in a kernel's name.
func (m *emitter) bufferType(b kernels.BufferID) string {
	if m.plan().wide(m.entry.buffers[b]) {
		return "f32"
	}
	return typeName(m.plan().act)
}

// kernel makes a launch of the kernel with parameters P, and returns where they live.
func kernel[P any](m *emitter, name string) (*cuda.Launch, *P) {
	var p P
	l := cuda.NewLaunch(0, unsafe.Sizeof(p))
	m.use(l, name)
	l.Stream = m.runs.program.dev.stream
	return l, cuda.Param[P](l, 0)
}

// use lets a launch run a kernel.
func (m *emitter) use(l *cuda.Launch, name string) {
	k := m.find(name)
	l.Function, l.Block, l.Shared = k.f, cuda.Dim3{X: uint32(k.threads)}, k.shared
}

// found is a kernel and how it is launched.
type found struct {
	f               cuda.Function
	threads, shared int
}

func (m *emitter) find(name string) found {
	l, ok := launches()[name]
	if !ok {
		m.errs = append(m.errs, fmt.Errorf("there is no kernel %s", name))
		return found{}
	}
	f, err := m.runs.program.dev.function(name, l.shared)
	if err != nil {
		m.errs = append(m.errs, err)
	}
	return found{f, l.threads, l.shared}
}

func (m *emitter) call(name string, l *cuda.Launch, set func(sz *sizes) bool) {
	m.calls = append(m.calls, &call{name: name, launch: l, set: set})
}

func ceil(a, b int) uint32 { return uint32((a + b - 1) / b) }

func (m *emitter) emit(n node) {
	switch n := n.(type) {
	case *embedNode:
		m.embed(n)
	case *linearNode:
		m.linear(n)
	case *normNode:
		m.norm(n)
	case *headsNode:
		m.heads(n)
	case *attentionNode:
		m.attention(n)
	case *gatedNode:
		m.gated(n)
	case *unaryNode:
		m.unary(n)
	case *gatherNode:
		m.gather(n)
	case *sampleNode:
		m.sample(n)
	}
}

func (m *emitter) embed(n *embedNode) {
	l, p := kernel[embedParams](m, "embed_"+typeName(n.table.dtype))
	*p = embedParams{Out: m.address(n.out), Table: m.runs.program.weights.at(n.table.offset), Recent: m.runs.states.recent,
		Width: int32(n.table.k), Vocab: int32(n.table.n), Scale: n.scale}
	r := m.runs
	m.call("embed", l, func(sz *sizes) bool {
		p.Tokens, p.Slots, p.Rows = r.batch(sz.image.tokenIDs), r.batch(sz.image.tokenSlots), int32(sz.tokens)
		l.Grid.X = uint32(sz.tokens)
		return sz.tokens == 0
	})
}

func (m *emitter) norm(n *normNode) {
	act := typeName(m.plan().act)
	if n.out != kernels.None && m.bufferType(n.out) != act {
		// A norm into float32 that is no residual stream: nothing of the text decoders does it.
		m.errs = append(m.errs, fmt.Errorf("norm into a float32 buffer %w", errOperation))
		return
	}
	name, in := "norm_"+act, m.entry.buffers[n.in]
	if n.group > 0 {
		name = "group_" + name
	}
	l, p := kernel[normParams](m, name)
	*p = normParams{In: m.address(n.in), Weight: m.vector(n.weight), InWeight: m.vector(n.inWeight), Width: int32(in.width), Group: int32(n.group), Eps: n.eps, Alpha: n.alpha}
	if n.out != kernels.None {
		p.Out = m.address(n.out)
	}
	if m.bufferType(n.in) == "f32" {
		p.InF32 = 1
	}
	counted := in
	if n.add != kernels.None {
		p.Residual = m.address(n.add)
	} else {
		counted = m.entry.buffers[n.out]
	}
	r := m.runs
	m.call(name, l, func(sz *sizes) bool {
		rows := counted.count(sz)
		if n.gather {
			p.Index = r.batch(sz.image.logitRows)
		}
		p.Rows = int32(rows)
		l.Grid.X = uint32(rows)
		if n.group > 0 {
			l.Grid.X = ceil(rows*(in.width/n.group), 4)
		}
		return rows == 0
	})
}

func (m *emitter) heads(n *headsNode) {
	p0 := m.plan()
	st := p0.module.States[n.state]
	l, p := kernel[headsParams](m, "heads_"+typeName(p0.act))
	k := m.runs.states.memory.at(p0.offsets[n.state])
	*p = headsParams{Q: m.address(n.out), QKV: m.address(n.in), K: k, V: k.Add(roundUp(p0.keyBytes(st))), QNorm: m.vector(n.qNorm), KNorm: m.vector(n.kNorm),
		BlockStride: p0.span, Heads: int32(n.heads), KVHeads: int32(n.kvHeads), Dim: int32(n.dim), LDQKV: int32(m.entry.buffers[n.in].width),
		BlockSize: int32(p0.limits.BlockSize), Eps: n.eps, Factor: 1}
	if n.rope != nil {
		o := n.rope.op
		p.Turns = m.runs.program.weights.at(n.rope.offset)
		p.RotFrom, p.RotDim, p.RotPair, p.Factor = int32(o.From), int32(o.RotDim), int32(o.Pairing), orOne(o.Factor)
	}
	r := m.runs
	m.call("heads", l, func(sz *sizes) bool {
		p.Positions, p.SlotMap, p.Rows = r.batch(sz.image.positions), r.batch(sz.image.groups[st.Group].slotMap), int32(sz.tokens)
		l.Grid.X = uint32(sz.tokens)
		return sz.tokens == 0
	})
}

func (m *emitter) gated(n *gatedNode) {
	out := m.entry.buffers[n.out]
	name := "gated_" + m.bufferType(n.out)
	l, p := kernel[gatedParams](m, name)
	in := m.address(n.in)
	elem := int64(2)
	if m.bufferType(n.in) == "f32" {
		elem = 4
	}
	*p = gatedParams{Out: m.address(n.out), Gate: in, Up: in.Add(int64(out.width) * elem), Width: int32(out.width), LD: int32(2 * out.width), LDO: int32(out.width), Act: int32(n.act)}
	m.call(name, l, func(sz *sizes) bool {
		rows := out.count(sz)
		p.Rows = int32(rows)
		l.Grid = cuda.Dim3{X: ceil(out.width, 1024), Y: uint32(rows)}
		return rows == 0
	})
}

func (m *emitter) unary(n *unaryNode) {
	out := m.entry.buffers[n.out]
	name := "unary_" + m.bufferType(n.out)
	if m.bufferType(n.in) != m.bufferType(n.out) {
		m.errs = append(m.errs, fmt.Errorf("an activation from %s to %s %w", m.bufferType(n.in), m.bufferType(n.out), errOperation))
	}
	l, p := kernel[unaryParams](m, name)
	*p = unaryParams{Out: m.address(n.out), In: m.address(n.in), Scale: n.scale, PostScale: n.postScale, Offset: n.offset, Clamp: n.clamp, Act: int32(n.act)}
	m.call(name, l, func(sz *sizes) bool {
		p.N = int64(out.count(sz)) * int64(out.width)
		l.Grid.X = ceil(int(p.N), 1024)
		return p.N == 0
	})
}

func (m *emitter) gather(n *gatherNode) {
	in := m.entry.buffers[n.in]
	elem := 2
	if m.bufferType(n.in) == "f32" {
		elem = 4
	}
	if m.bufferType(n.in) != m.bufferType(n.out) || in.width*elem%4 != 0 {
		m.errs = append(m.errs, fmt.Errorf("gathering rows of %d columns of %s %w", in.width, m.bufferType(n.in), errOperation))
	}
	l, p := kernel[gatherParams](m, "gather_rows")
	*p = gatherParams{Out: m.address(n.out), In: m.address(n.in), Bytes: int64(in.width * elem)}
	r := m.runs
	m.call("gather_rows", l, func(sz *sizes) bool {
		p.Index, p.Rows = r.batch(sz.image.logitRows), int32(sz.logits)
		l.Grid.X = uint32(sz.logits)
		return sz.logits == 0
	})
}

func (m *emitter) sample(n *sampleNode) {
	a, r := m.plan().scratch.sampling, m.runs
	fixed := sampleParams{Logits: m.address(n.logits), Work: m.scratch(a.work), Stats: m.scratch(a.stats), Row: m.scratch(a.rows), Masks: m.scratch(a.masks),
		Recent: r.states.recent, TopIDs: m.scratch(a.topIDs), TopValues: m.scratch(a.topVal), Vocab: int32(m.plan().module.Vocab), Chunks: int32(a.chunks)}
	rows := max(m.plan().limits.LogitRows, 1)
	fixed.Tokens = m.scratch(a.results)
	fixed.Faults, fixed.Ranks = fixed.Tokens.Add(int64(rows)*4), fixed.Tokens.Add(int64(rows)*8)
	for _, name := range []string{"logits_process", "sample", "logprobs"} {
		l, p := kernel[sampleParams](m, name)
		*p = fixed
		c := &call{name: name, launch: l, set: func(sz *sizes) bool {
			p.IDs, p.Bias, p.Rows, p.TopStride = sz.ids, sz.bias, int32(sz.logits), int32(sz.topStride)
			l.Grid.X = uint32(sz.logits)
			if name == "logits_process" {
				l.Grid = cuda.Dim3{X: uint32(a.chunks), Y: uint32(sz.logits)}
			}
			return sz.logits == 0
		}}
		if name == "logprobs" {
			r.logprobs = c
		} else {
			m.calls = append(m.calls, c)
		}
	}
}
