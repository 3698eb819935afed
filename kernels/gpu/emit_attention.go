package gpu

import (
	"fmt"
	"slices"

	"omni-engine/cuda"
	"omni-engine/internal/tensor"
)

// fastHeads reports whether the tensor-core kernels take heads of that size and grouping; attn_any takes the others.
func (p *plan) fastHeads(heads, kvHeads, dim int) bool {
	return p.act != tensor.F32 && (dim == 64 || dim == 128 || dim == 256) && heads/kvHeads <= prefillRows
}

func (p *plan) fast(n *attentionNode) bool { return p.fastHeads(n.heads, n.kvHeads, n.dim) }

// splitTokens is the least context that is worth a split of decode attention.
const splitTokens = 256

// blocksY is how many blocks of decode attention one row and one split take.
func blocksY(n *attentionNode) int { return n.kvHeads * ((n.heads/n.kvHeads + 15) / 16) }

// splits of decode attention: enough blocks for every multiprocessor twice, never more than the context has parts.
func (p *plan) splits(n *attentionNode, rows, longest int) int {
	return max(1, min(2*p.hw.sms/max(rows*blocksY(n), 1), (longest+splitTokens-1)/splitTokens))
}

// splitRows bounds rows times splits where there is more than one.
func (p *plan) splitRows(n *attentionNode) int { return 2*p.hw.sms/blocksY(n) + 1 }

func (m *emitter) attention(n *attentionNode) {
	p := m.plan()
	st := p.module.States[n.state]
	k := m.runs.states.memory.at(p.offsets[n.state])
	fixed := attnParams{Out: m.address(n.out), Q: m.address(n.in), K: k, V: k.Add(roundUp(p.keyBytes(st))), BlockStride: p.span,
		Heads: int32(n.heads), KVHeads: int32(n.kvHeads), Dim: int32(n.dim), BlockSize: int32(p.limits.BlockSize),
		LDQ: int32(m.entry.buffers[n.in].width), LDO: int32(m.entry.buffers[n.out].width), Window: int32(n.window), Splits: 1, Scale: n.scale, Softcap: n.softcap}
	act := typeName(p.act)
	if !p.fast(n) {
		m.tiled(n, "attn_any_"+act, slices.Index(p.tiles, 1), uint32(n.heads), fixed)
		return
	}
	m.decode(n, fmt.Sprintf("attn_decode_%s_%d", act, n.dim), fixed)
	m.tiled(n, fmt.Sprintf("attn_prefill_%s_%d", act, n.dim), slices.Index(p.tiles, tileQueries(n.heads/n.kvHeads)), uint32(n.kvHeads), fixed)
}

// batchOf writes the addresses of the batch.
func (r *runs) batchOf(q *attnParams, group int, im *image) {
	g := &im.groups[group]
	q.TableStart, q.Blocks, q.QueryStart, q.SeqLens = r.batch(g.start), r.batch(g.blocks), r.batch(im.queryStart), r.batch(im.seqLens)
}

// tiled attends tile by tile of queries.
func (m *emitter) tiled(n *attentionNode, name string, tile int, gridY uint32, fixed attnParams) {
	l, q := kernel[attnParams](m, name)
	*q = fixed
	r, group := m.runs, m.plan().module.States[n.state].Group
	m.call(name, l, func(sz *sizes) bool {
		r.batchOf(q, group, sz.image)
		q.Work, q.N = r.batch(sz.image.works[tile]), int32(sz.work[tile])
		l.Grid = cuda.Dim3{X: uint32(q.N), Y: gridY}
		return q.N == 0
	})
}

// decode attends for the rows of one token, their contexts split over blocks, whose results are merged.
func (m *emitter) decode(n *attentionNode, name string, fixed attnParams) {
	p, r := m.plan(), m.runs
	group := p.module.States[n.state].Group
	l, q := kernel[attnParams](m, name)
	merge, mq := kernel[attnParams](m, "attn_merge_"+typeName(p.act))
	fixed.Part = m.scratch(p.scratch.part)
	*q = fixed
	m.call(name, l, func(sz *sizes) bool {
		r.batchOf(q, group, sz.image)
		q.N, q.Work, q.Splits = int32(sz.decodes), 0, int32(p.splits(n, sz.decodes, sz.longest))
		if sz.decodes < sz.rows {
			q.Work = r.batch(sz.image.decodeRows)
		}
		l.Grid = cuda.Dim3{X: uint32(blocksY(n)), Y: uint32(q.N), Z: uint32(q.Splits)}
		*mq = *q
		return q.N == 0
	})
	m.call("attn_merge", merge, func(*sizes) bool {
		merge.Grid = cuda.Dim3{X: uint32(n.heads), Y: uint32(mq.N)}
		return mq.N == 0 || mq.Splits == 1
	})
}
