package tokenizer

import "math/rand/v2"

// merge is what a pair of neighbouring tokens becomes; the lowest rank goes first.
type merge struct {
	rank uint32
	id   int32
}

const noRank = ^uint32(0)

// pairTable maps (left, right) to a merge: open addressing, at most half full. The multiplier is random, so that no
// vocabulary can be written to collide.
type pairTable struct {
	mask  uint64
	mul   uint64
	slots []pairSlot
	size  int
}

type pairSlot struct {
	key uint64 // 0: free
	merge
}

func newPairTable(capacity int) *pairTable {
	size := uint64(16)
	for size < 2*uint64(capacity) {
		size *= 2
	}
	return &pairTable{mask: size - 1, mul: rand.Uint64() | 1, slots: make([]pairSlot, size)}
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left)+1)<<32 | uint64(uint32(right)) }

func (t *pairTable) slot(key uint64) *pairSlot {
	h := key * t.mul
	for i := h ^ h>>32; ; i++ {
		s := &t.slots[i&t.mask]
		if s.key == key || s.key == 0 {
			return s
		}
	}
}

// put adds a pair; of a pair given twice the last counts, as in the reference.
func (t *pairTable) put(left, right int32, m merge) {
	key := pairKey(left, right)
	s := t.slot(key)
	if s.key == 0 {
		if t.size++; 2*t.size > len(t.slots) {
			t.grow()
			s = t.slot(key)
		}
	}
	s.key, s.merge = key, m
}

func (t *pairTable) grow() {
	old := t.slots
	t.slots = make([]pairSlot, 2*len(old))
	t.mask = uint64(len(t.slots) - 1)
	for _, s := range old {
		if s.key != 0 {
			*t.slot(s.key) = s
		}
	}
}

// get returns the merge of a pair, rank noRank when there is none.
func (t *pairTable) get(left, right int32) merge {
	s := t.slot(pairKey(left, right))
	if s.key == 0 {
		return merge{rank: noRank}
	}
	return s.merge
}
