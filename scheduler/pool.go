package scheduler

// key identifies the content of a full block: the chained hash of all tokens up to its end, and its group.
type key [2]uint64

// block is one page's bookkeeping. Blocks refer to each other by index; 0, the null block, stands for none.
type block struct {
	prev, next int32 // free queue, a ring through the null block
	ref        int32
	hashed     int32 // prefix tokens that the hash covers; 0: no hash
	over       int32 // next block that its bucket had no place for
	dup        int32 // next block with the same key, in order of insertion
	dupPrev    int32 // 0: the first of its key, which is the one in the bucket
	dupLast    int32 // kept in the first of a key; 0: the table does not know it yet
	key        key
}

// pool owns all blocks: the free queue in eviction order and the prefix-cache table. Every operation costs the blocks that it
// touches, never the size of the pool.
type pool struct {
	blocks  []block
	free    int
	buckets []bucket // the table: see bucketOf
	used    int      // keys in it
	low     int      // a power of two
	split   int      // buckets below it are split already
	caching bool
	pending []int32       // cached, not in the table yet
	warmed  uint32        // keeps the reads of settle
	evicted func(b int32) // a block loses its hash: for KV events

	residency *residency // nil: no block's life is followed
}

func newPool(n int, caching bool) *pool {
	p := &pool{blocks: make([]block, n), free: n - 1, caching: caching}
	for i := range p.blocks {
		p.blocks[i].prev, p.blocks[i].next = int32(i-1), int32(i+1)
	}
	p.blocks[0].prev, p.blocks[n-1].next = int32(n-1), 0
	size := 2
	for size*bucketLoad < n {
		size *= 2
	}
	if caching {
		p.buckets, p.low, p.pending = make([]bucket, size), 1, make([]int32, 0, 64)
	}
	return p
}

// usage is the fraction of usable blocks in use; the null block does not count.
func (p *pool) usage() float64 {
	if len(p.blocks) == 1 {
		return 0
	}
	return 1.0 - float64(p.free)/float64(len(p.blocks)-1)
}

// unlink takes a block out of the free queue.
func (p *pool) unlink(b int32) {
	x := &p.blocks[b]
	p.blocks[x.prev].next, p.blocks[x.next].prev = x.next, x.prev
	p.free--
}

// linkAfter puts a block into the free queue behind another; behind 0 is the front.
func (p *pool) linkAfter(at, b int32) {
	x := &p.blocks[b]
	x.prev, x.next = at, p.blocks[at].next
	p.blocks[x.next].prev, p.blocks[at].next = b, b
	p.free++
}

// take appends n blocks from the front of the free queue to dst. A block that still has a hash loses it now (lazy eviction).
func (p *pool) take(dst []int32, n int) []int32 {
	for ; n > 0; n-- {
		b := p.blocks[0].next
		p.unlink(b)
		p.blocks[b].ref = 1
		if p.blocks[b].hashed != 0 {
			p.evict(b)
		}
		if p.residency != nil {
			p.reuse(b)
		}
		dst = append(dst, b)
	}
	return dst
}

// reuse follows a block that gets new content. Without a prefix cache there is nothing to evict, as in vLLM.
func (p *pool) reuse(b int32) {
	if p.caching {
		p.residency.evicted(b)
	}
	p.residency.allocated(b)
}

// touch adds a reference to a cached block.
func (p *pool) touch(b int32) {
	if b == 0 {
		return
	}
	if p.blocks[b].ref == 0 {
		p.unlink(b)
	}
	p.blocks[b].ref++
	if p.residency != nil {
		p.residency.used(b)
	}
}

// releaser gives blocks back in one batch. Blocks without a hash go to the front of the free queue in the order in which they
// are given, those with one to its tail (spec scheduler rule 30).
type releaser struct {
	p     *pool
	front int32
}

func (r *releaser) put(b int32) {
	if b == 0 {
		return
	}
	x := &r.p.blocks[b]
	if x.ref--; x.ref != 0 {
		return
	}
	if x.hashed == 0 || !r.p.caching {
		r.p.linkAfter(r.front, b)
		r.front = b
	} else {
		r.p.linkAfter(r.p.blocks[0].prev, b)
	}
}

// release gives back a block table, last block first.
func (p *pool) release(table []int32) {
	r := releaser{p: p}
	for i := len(table) - 1; i >= 0; i-- {
		r.put(table[i])
	}
}

// bucketOf finds a key's bucket by linear hashing: low+split buckets are in use, and every few new keys split one more. So the memory touched
// follows the number of keys, not the size of the pool, and no insertion has to rebuild the table.
func (p *pool) bucketOf(k key) *bucket {
	i := tagOf(k) & uint32(p.low-1)
	if i < uint32(p.split) {
		i = tagOf(k) & uint32(2*p.low-1)
	}
	return &p.buckets[i]
}

// grow counts a new key, and splits the next bucket when there are too many for the buckets in use.
func (p *pool) grow() {
	p.used++
	if p.used <= bucketLoad*(p.low+p.split) || p.low+p.split == len(p.buckets) {
		return
	}
	old, bit := p.split, uint32(p.low)
	if p.split++; p.split == p.low {
		p.low, p.split = 2*p.low, 0
	}
	stay, move := &p.buckets[old], &p.buckets[old+int(bit)]
	was := *stay
	*stay = bucket{}
	put := func(e entry) {
		if e.tag&bit == 0 {
			stay.add(p, e)
		} else {
			move.add(p, e)
		}
	}
	for _, e := range was.entries {
		if e.block != 0 {
			put(e)
		}
	}
	for b := was.over; b != 0; {
		next := p.blocks[b].over
		put(entry{tagOf(p.blocks[b].key), b})
		b = next
	}
}

// find returns the block with this content that was cached first, 0 for none.
func (p *pool) find(k key) int32 {
	if len(p.pending) > 0 {
		p.settle()
	}
	return p.search(k)
}

func (p *pool) search(k key) int32 {
	at, tag := p.bucketOf(k), tagOf(k)
	for _, e := range at.entries {
		if e.block == 0 {
			return 0
		}
		if e.tag == tag && p.blocks[e.block].key == k {
			return e.block
		}
	}
	b := at.over
	for b != 0 && p.blocks[b].key != k {
		b = p.blocks[b].over
	}
	return b
}

// cache gives a block its hash, which covers n prefix tokens. Equal blocks are all kept, under one key. The table learns of it when it is next asked.
func (p *pool) cache(b int32, k key, n int) {
	x := &p.blocks[b]
	x.key, x.hashed, x.dup, x.dupPrev, x.dupLast = k, int32(n), 0, 0, 0
	if p.pending = append(p.pending, b); len(p.pending) == cap(p.pending) {
		p.settle()
	}
}

// settle enters the pending blocks into the table, in their order. They come together so that the processor can fetch their buckets together:
// each is a cache miss in a large cache.
func (p *pool) settle() {
	for _, b := range p.pending {
		p.warmed += p.bucketOf(p.blocks[b].key).entries[0].tag
	}
	for _, b := range p.pending {
		p.enter(b)
	}
	p.pending = p.pending[:0]
}

func (p *pool) enter(b int32) {
	x := &p.blocks[b]
	x.dupLast = b
	if first := p.search(x.key); first != 0 {
		last := p.blocks[first].dupLast
		p.blocks[last].dup, x.dupPrev, p.blocks[first].dupLast = b, last, b
		return
	}
	p.grow()
	p.bucketOf(x.key).add(p, entry{tagOf(x.key), b})
}

// evict takes a block's hash away.
func (p *pool) evict(b int32) {
	if p.evicted != nil {
		p.evicted(b)
	}
	x := &p.blocks[b]
	if x.dupLast == 0 { // pending
		p.settle()
	}
	x.hashed = 0
	if x.dupPrev != 0 {
		p.blocks[x.dupPrev].dup = x.dup
		if x.dup != 0 {
			p.blocks[x.dup].dupPrev = x.dupPrev
		} else {
			p.blocks[p.search(x.key)].dupLast = x.dupPrev
		}
		return
	}
	at := p.bucketOf(x.key)
	at.remove(p, b)
	if x.dup == 0 {
		p.used--
		return
	}
	heir := &p.blocks[x.dup]
	heir.dupPrev, heir.dupLast = 0, x.dupLast
	at.add(p, entry{tagOf(x.key), x.dup})
}

// reset forgets all hashes. It refuses while any block but the null block is in use; the free queue keeps its order.
func (p *pool) reset() bool {
	if p.free != len(p.blocks)-1 {
		return false
	}
	if p.residency != nil {
		p.residency.reset()
	}
	clear(p.buckets[:p.low+p.split])
	p.pending = p.pending[:0]
	p.used, p.low, p.split = 0, min(p.low, 1), 0
	for i := range p.blocks {
		p.blocks[i].hashed = 0
	}
	return true
}
