package gpu

import (
	"slices"
	"unsafe"

	"omni-engine/kernels"
)

// image is where a batch's arrays lie in one block of memory, the same in page-locked and in device memory, so that one copy moves
// all of them. Each bucket has an image of its own, without gaps; steps that are launched kernel by kernel use the one of the limits.
// The block tables come last, as their length varies.
type image struct {
	tokens, rows, logits int // capacities

	tokenIDs, positions, tokenSlots int64 // [tokens]
	queryStart, seqLens, logitRows  int64 // [rows+1], [rows], [logits]
	decodeRows                      int64 // [rows] rows of one token, for the attention kernel of such
	works                           []int64
	groups                          []groupImage
	fixed                           int64 // bytes before the block tables
	size                            int64
}

// groupImage is a KV group's part: where each token is written, and the rows' block tables.
type groupImage struct {
	slotMap  int64 // int32 [tokens]: block*BlockSize + offset
	start    int64 // int32 [rows+1]
	blocks   int64 // int32
	capacity int
}

// images are the layouts of a program's batches.
type images struct {
	limits  *image
	buckets map[int]*image
}

// tile notes the attention of that many heads, for which tiles of queries have to be listed.
func (p *plan) tile(heads, kvHeads, dim int) {
	n := 1
	if p.fastHeads(heads, kvHeads, dim) {
		n = tileQueries(heads / kvHeads)
	}
	if !slices.Contains(p.tiles, n) {
		p.tiles = append(p.tiles, n)
	}
}

// tableBlocks is the most blocks in a row's table.
func (p *plan) tableBlocks() int {
	if p.limits.BlockSize <= 0 {
		return 0
	}
	return (max(p.limits.MaxModelLen, p.limits.Tokens)+p.limits.BlockSize-1)/p.limits.BlockSize + 2
}

func (p *plan) newImages() {
	p.images = images{limits: p.newImage(p.limits.Tokens, p.limits.Rows, max(p.limits.LogitRows, 1)), buckets: map[int]*image{}}
	for _, n := range buckets(p.graphRows()) {
		p.images.buckets[n] = p.newImage(n, n, n)
	}
}

func (p *plan) newImage(tokens, rows, logits int) *image {
	m := &image{tokens: tokens, rows: rows, logits: logits}
	take := func(n int) int64 {
		at := m.size
		m.size += (int64(n)*4 + 63) &^ 63
		return at
	}
	m.tokenIDs, m.positions, m.tokenSlots = take(tokens), take(tokens), take(tokens)
	m.queryStart, m.seqLens, m.logitRows, m.decodeRows = take(rows+1), take(rows), take(logits), take(rows)
	for _, n := range p.tiles {
		m.works = append(m.works, take(2*(tokens/n+rows)))
	}
	for range p.module.Groups {
		m.groups = append(m.groups, groupImage{slotMap: take(tokens), start: take(rows + 1), capacity: rows * p.tableBlocks()})
	}
	m.fixed = m.size
	for g := range m.groups {
		m.groups[g].blocks = take(m.groups[g].capacity)
	}
	return m
}

func ints(base unsafe.Pointer, offset int64, n int) []int32 {
	return unsafe.Slice((*int32)(unsafe.Add(base, offset)), n)
}

// fill writes a batch into an image at base and returns the sizes that the kernels are told. With pad the image is filled up with rows
// of one token that read the null block and write nothing. used becomes the bytes of each group's block tables.
func (m *image) fill(base unsafe.Pointer, b *kernels.Batch, blockSize int, tiles []int, pad bool, used []int64) sizes {
	t, r, l := len(b.Tokens), len(b.SeqLens), len(b.LogitRows)
	copy(ints(base, m.tokenIDs, t), b.Tokens)
	copy(ints(base, m.positions, t), b.Positions[0])
	copy(ints(base, m.queryStart, r+1), b.QueryStart)
	copy(ints(base, m.seqLens, r), b.SeqLens)
	copy(ints(base, m.logitRows, l), b.LogitRows)
	slots := ints(base, m.tokenSlots, m.tokens)
	sz := sizes{image: m, tokens: t, rows: r, logits: l}
	for i := range r {
		for k := b.QueryStart[i]; k < b.QueryStart[i+1]; k++ {
			slots[k] = b.Slots[i]
		}
		sz.longest = max(sz.longest, int(b.SeqLens[i]))
	}
	for g := range m.groups {
		used[g] = m.groups[g].fill(base, &b.Tables[g], b.QueryStart, b.Positions[0], blockSize)
	}
	if pad {
		m.pad(base, t, r, l, used)
		sz.tokens, sz.rows, sz.logits = m.tokens, m.rows, m.logits
	}
	m.divide(base, &sz, tiles)
	return sz
}

// divide lists the rows of one token, and the tiles of queries: those of the longer rows, or, for tiles of one query, of all rows, since
// their kernel serves both.
func (m *image) divide(base unsafe.Pointer, sz *sizes, tiles []int) {
	start, decode := ints(base, m.queryStart, sz.rows+1), ints(base, m.decodeRows, sz.rows)
	for r := range sz.rows {
		if start[r+1]-start[r] == 1 {
			decode[sz.decodes] = int32(r)
			sz.decodes++
		}
	}
	for i, tile := range tiles {
		n, work := 0, ints(base, m.works[i], 2*(m.tokens/tile+m.rows))
		for r := range sz.rows {
			length := start[r+1] - start[r]
			if length == 1 && tile > 1 {
				continue
			}
			for q := int32(0); q < length; q += int32(tile) {
				work[2*n], work[2*n+1] = int32(r), q
				n++
			}
		}
		sz.work[min(i, len(sz.work)-1)] = n
	}
}

func (g *groupImage) fill(base unsafe.Pointer, t *kernels.GroupTable, queryStart, positions []int32, blockSize int) int64 {
	copy(ints(base, g.start, len(t.Start)), t.Start)
	blocks := ints(base, g.blocks, len(t.Blocks))
	if len(blocks) > 0 && &blocks[0] != &t.Blocks[0] {
		copy(blocks, t.Blocks)
	}
	slots := ints(base, g.slotMap, len(positions))
	size := int32(blockSize)
	for r := range len(queryStart) - 1 {
		row := t.Row(r)
		for k := queryStart[r]; k < queryStart[r+1]; k++ {
			p := positions[k]
			slots[k] = row[p/size]*size + p%size
		}
	}
	return int64(len(blocks)) * 4
}

// pad adds rows of one token at position 0 of the null block, whose keys and values are not stored.
func (m *image) pad(base unsafe.Pointer, t, r, l int, used []int64) {
	zero := func(offset int64, from, to int) { clear(ints(base, offset, to)[from:]) }
	zero(m.tokenIDs, t, m.tokens)
	zero(m.positions, t, m.tokens)
	zero(m.tokenSlots, t, m.tokens)
	start, lens := ints(base, m.queryStart, m.rows+1), ints(base, m.seqLens, m.rows)
	for i := r; i < m.rows; i++ {
		start[i+1], lens[i] = start[i]+1, 1
	}
	logit := ints(base, m.logitRows, m.logits)
	for i := l; i < m.logits; i++ {
		logit[i] = int32(t + i - l)
	}
	for g := range m.groups {
		gi := &m.groups[g]
		slots, starts := ints(base, gi.slotMap, m.tokens), ints(base, gi.start, m.rows+1)
		for i := t; i < m.tokens; i++ {
			slots[i] = -1
		}
		n := int(used[g] / 4)
		blocks := ints(base, gi.blocks, n+m.rows-r)
		for i := r; i < m.rows; i++ {
			blocks[starts[i]] = 0
			starts[i+1] = starts[i] + 1
		}
		used[g] = int64(n+m.rows-r) * 4
	}
}
