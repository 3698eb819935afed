package scheduler

// bucketLoad is how many keys a bucket holds on average when the table is as full as it gets.
const bucketLoad = 4

// bucket is one cache line of the prefix-cache table. Its tags tell whether a block can be the one, so that a lookup and an insertion touch one line,
// and no block but the one that is found.
type bucket struct {
	entries [7]entry // in use from the front
	over    int32    // first of a chain of blocks for which there was no place, by block.over
	_       int32
}

// entry is the block that was cached first under a key.
type entry struct {
	tag   uint32
	block int32 // 0: none
}

// tagOf is the part of a key by which it is placed: keys are hashes, any bits are as good.
func tagOf(k key) uint32 { return uint32(k[0]) }

func (at *bucket) add(p *pool, e entry) {
	for i := range at.entries {
		if at.entries[i].block == 0 {
			at.entries[i] = e
			return
		}
	}
	p.blocks[e.block].over = at.over
	at.over = e.block
}

// remove takes a block out; it must be there.
func (at *bucket) remove(p *pool, b int32) {
	last := len(at.entries) - 1
	for last > 0 && at.entries[last].block == 0 {
		last--
	}
	for i := range at.entries {
		if at.entries[i].block != b {
			continue
		}
		if first := at.over; first != 0 {
			at.entries[i] = entry{tagOf(p.blocks[first].key), first}
			at.over = p.blocks[first].over
			return
		}
		at.entries[i], at.entries[last] = at.entries[last], entry{}
		return
	}
	link := &at.over
	for *link != b {
		link = &p.blocks[*link].over
	}
	*link = p.blocks[b].over
}
