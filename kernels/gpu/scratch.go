package gpu

import (
	"unsafe"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// scratch is what a program's steps use on the device beside weights and caches; they run one after another, so one is enough.
// Offsets into one allocation.
type scratch struct {
	batch    int64 // the batch's image
	sampling sampleArea
	quants   int64 // int8 activations of up to gemvRows rows, then their scales
	scales   int64
	part     int64 // partial results of split attention
	blas     int64 // what cuBLASLt works in
	size     int64
}

// sampleArea is what sampling reads and writes.
type sampleArea struct {
	rows           int64 // sampleRow [logits]
	ids, bias      int64 // int32 and float32 [idCap]
	idCap          int
	masks          int64 // uint32 [logits, words]
	words          int
	stats, work    int64
	results        int64 // tokens, faults and ranks, int32 [logits] each
	topIDs, topVal int64
	chunks         int
}

// gemvRows is the most rows of the products that read quantised activations.
const gemvRows = 8

// sampleRowBytes is the size of one row's question.
const sampleRowBytes = int64(unsafe.Sizeof(sampleRow{}))

// widen marks the buffers that are float32 whatever the activations are: the residual stream, what is gathered of it, outputs and logits.
func (p *plan) widen(e *entry) {
	wide := func(b kernels.BufferID) {
		if b != kernels.None {
			e.buffers[b].f32 = true
		}
	}
	for i, b := range e.spec.Buffers {
		if b.Role == kernels.Output {
			wide(kernels.BufferID(i))
		}
	}
	for _, o := range e.spec.Ops {
		switch o := o.(type) {
		case *kernels.Embed:
			wide(o.Out)
		case *kernels.Binary:
			wide(o.Out)
		case *kernels.Sample:
			wide(o.Logits)
		case *kernels.GatherRows:
			e.buffers[o.Out].f32 = e.buffers[o.In].f32
		}
	}
}

// wide reports whether a buffer holds float32.
func (p *plan) wide(b *buffer) bool { return b.f32 || p.act == tensor.F32 }

// layoutScratch places everything; buffers of one entry may lie where another entry's do, except for those that are read later.
func (p *plan) layoutScratch() {
	var l layout
	s := &p.scratch
	s.batch = l.take(p.images.limits.size)
	p.sampleLayout(&l)
	widest, part := 0, int64(0)
	for _, m := range p.order {
		if m.dtype.Quantised() {
			widest = max(widest, m.k)
		}
	}
	if widest > 0 {
		s.quants, s.scales = l.take(gemvRows*int64(widest)), l.take(gemvRows*int64(widest)/32*8)
	}
	for _, e := range p.entries {
		for _, n := range e.nodes {
			if a, ok := n.(*attentionNode); ok && p.fast(a) {
				part = max(part, int64(a.heads)*int64(p.splitRows(a))*int64(a.dim+2)*4)
			}
		}
	}
	s.part = l.take(part)
	if p.usesLibrary() {
		s.blas = l.take(p.hw.workspace)
	}
	placed := map[*buffer]bool{}
	for _, e := range p.entries {
		for _, b := range e.buffers {
			if b.output && b.first >= 0 && !placed[b] {
				placed[b], b.offset = true, l.take(p.bufferBytes(b))
			}
		}
	}
	from := l.size
	for _, e := range p.entries {
		l.size = max(l.size, p.layoutTemps(e, from))
	}
	s.size = l.size
}

func (p *plan) sampleLayout(l *layout) {
	n, v := max(p.limits.LogitRows, 1), p.module.Vocab
	if v == 0 {
		return
	}
	a := &p.scratch.sampling
	a.idCap = min(16*n+4*max(p.limits.MaxModelLen, 1024), 1<<20)
	a.words, a.chunks = (v+31)/32, (v+logitChunk-1)/logitChunk
	a.rows = l.take(int64(n) * sampleRowBytes)
	a.ids, a.bias = l.take(int64(a.idCap)*4), l.take(int64(a.idCap)*4)
	a.masks = l.take(int64(n) * int64(a.words) * 4)
	a.stats, a.work = l.take(int64(n)*int64(a.chunks)*chunkStatBytes), l.take(int64(n)*int64(v)*4)
	a.results = l.take(int64(n) * 12)
	a.topIDs, a.topVal = l.take(int64(n)*(maxLogprobs+1)*4), l.take(int64(n)*(maxLogprobs+1)*4)
}

func (p *plan) bufferBytes(b *buffer) int64 {
	elem := int64(2)
	if p.wide(b) {
		elem = 4
	}
	return int64(p.rowLimit(b.rows)) * int64(b.width) * elem
}

// layoutTemps gives an entry's other buffers their places from an offset on and returns the end. Values that are never alive together
// share memory.
func (p *plan) layoutTemps(e *entry, from int64) int64 {
	type piece struct {
		at, size int64
		free     int // the node after which it may be used again
	}
	var pieces []piece
	end := from
	for i := range e.nodes {
		for _, b := range e.buffers {
			if b.first != i || b.output {
				continue
			}
			size, best := roundUp(p.bufferBytes(b)), -1
			for j, pc := range pieces {
				if pc.free < b.first && pc.size >= size && (best < 0 || pc.size < pieces[best].size) {
					best = j
				}
			}
			if best >= 0 {
				pieces[best].free, b.offset = b.last, pieces[best].at
				continue
			}
			pieces = append(pieces, piece{end, size, b.last})
			b.offset = end
			end += size
		}
	}
	return end
}

func (p *plan) rowLimit(k rowsKind) int {
	if k == byLogit {
		return max(p.limits.LogitRows, 1)
	}
	return p.limits.Tokens
}
