package tokenizer

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// wordCache remembers the ids of words: one slot a hash value, the last word in it stays. It is bounded, and readers and
// writers never wait.
type wordCache struct {
	seed  maphash.Seed
	slots []atomic.Pointer[cachedWord]
}

type cachedWord struct {
	word string
	ids  []int32
}

const (
	cacheSlots   = 1 << 14
	maxCacheWord = 48 // bytes; longer words seldom come again
)

func newWordCache() *wordCache {
	return &wordCache{seed: maphash.MakeSeed(), slots: make([]atomic.Pointer[cachedWord], cacheSlots)}
}

func (c *wordCache) slot(word string) *atomic.Pointer[cachedWord] {
	return &c.slots[maphash.String(c.seed, word)&(cacheSlots-1)]
}

func put(slot *atomic.Pointer[cachedWord], word string, ids []int32) {
	slot.Store(&cachedWord{strings.Clone(word), append([]int32(nil), ids...)})
}
