package scheduler

import (
	"math"
	"slices"
)

// group is a KV-cache group at work.
type group struct {
	GroupSpec
	ratio int // hash units a block
	cap   int // most blocks one request holds
	mask  int // sliding window in a hybrid: only the last mask blocks of each segment can serve a hit; 0: all can
	seg   int // blocks a segment
}

func (s *Scheduler) setGroups() {
	largest := 0
	for _, g := range s.cfg.Groups {
		if s.hashSize == 0 || g.BlockSize < s.hashSize {
			s.hashSize = g.BlockSize
		}
		largest = max(largest, g.BlockSize)
	}
	s.alignment = largest
	for _, g := range s.cfg.Groups {
		s.alignment = lcm(s.alignment, g.BlockSize)
	}
	for _, g := range s.cfg.Groups {
		x := group{GroupSpec: g, ratio: g.BlockSize / s.hashSize, cap: s.cfg.admissionCap(g), seg: s.alignment / g.BlockSize}
		if need := ceilDiv(g.Window-1, g.BlockSize); g.Kind == SlidingWindow && need < x.seg {
			x.mask = need
		}
		s.groups = append(s.groups, x)
	}
	// Groups with the same layout are looked up together; full attention first, since its hits can only shrink.
	seen := map[GroupSpec]int{}
	for _, kind := range []GroupKind{FullAttention, SlidingWindow} {
		for i, g := range s.cfg.Groups {
			if g.Kind != kind {
				continue
			}
			at, ok := seen[g]
			if !ok {
				at = len(s.specs)
				seen[g] = at
				s.specs = append(s.specs, nil)
			}
			s.specs[at] = append(s.specs[at], i)
		}
	}
	s.hits = make([][]int32, len(s.groups))
}

func lcm(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// skippedTokens counts the tokens that no later position attends to.
func (g *group) skippedTokens(computed int) int {
	if g.Kind != SlidingWindow {
		return 0
	}
	return max(0, computed-g.Window+1)
}

// setMarks works out where a request's next block and its next hash are due, after a change of its table. With several groups, or with a
// window, each step works that out anew.
func (s *Scheduler) setMarks(q *seq) {
	q.roof, q.hashAt = -1, 0
	if len(s.groups) == 1 && s.groups[0].Kind == FullAttention {
		q.roof = len(q.tables[0]) * s.groups[0].BlockSize
		q.hashAt = (q.cached[0] + 1) * s.groups[0].BlockSize
	}
	if !s.cfg.EnablePrefixCaching {
		q.hashAt = math.MaxInt
	}
}

// fits reports whether n more tokens lie in the request's blocks and fill none of them: the step then has nothing to do here.
func (s *Scheduler) fits(q *seq, n int) bool {
	to := q.computed + n
	return min(to+s.cfg.NumLookaheadTokens, s.cfg.MaxModelLen) <= q.roof && min(to, len(q.tokens)) < q.hashAt
}

// grow gives a running request the blocks for n more tokens. False means that they are not free; then nothing changed, but for
// blocks that slid out of a window.
func (s *Scheduler) grow(q *seq, n int) bool {
	need := min(q.computed+n+s.cfg.NumLookaheadTokens, s.cfg.MaxModelLen)
	if len(s.groups) == 1 && s.groups[0].Kind == FullAttention {
		have, size := len(q.tables[0]), s.groups[0].BlockSize
		if need > have*size { // seldom: a division each step would be felt
			more := ceilDiv(need, size) - have
			if more > s.pool.free {
				return false
			}
			q.tables[0] = s.pool.take(q.tables[0], more)
		}
	} else {
		s.freeSkipped(q, max(0, q.computed-q.inFlight))
		total := 0
		for g := range s.groups {
			total += max(0, ceilDiv(need, s.groups[g].BlockSize)-len(q.tables[g]))
		}
		if total > s.pool.free {
			return false
		}
		s.extendTables(q, need)
	}
	s.cacheBlocks(q, min(q.computed+n, len(q.tokens)))
	s.setMarks(q)
	return true
}

func (s *Scheduler) extendTables(q *seq, tokens int) {
	for g := range s.groups {
		if more := ceilDiv(tokens, s.groups[g].BlockSize) - len(q.tables[g]); more > 0 {
			q.tables[g] = s.pool.take(q.tables[g], more)
		}
	}
}

// freeSkipped gives back the blocks that slid out of the windows of all later positions and puts the null block in their place.
func (s *Scheduler) freeSkipped(q *seq, processed int) {
	for g := range s.groups {
		table := q.tables[g]
		n := min(s.groups[g].skippedTokens(processed)/s.groups[g].BlockSize, len(table))
		r := releaser{p: s.pool}
		for i := n - 1; i >= 0 && table[i] != 0; i-- {
			r.put(table[i])
			table[i] = 0
		}
	}
}

// admit gives a waiting request its blocks: hit are the cached blocks in s.hits that cover local tokens, n the tokens to compute after
// them. False changes nothing, but for blocks that slid out of a window.
func (s *Scheduler) admit(q *seq, computed, n int, lookup bool) bool {
	watermark := 0
	if len(s.running) > 0 {
		watermark = s.watermark
	}
	if s.cfg.ReserveFullISL {
		full := min(len(q.tokens), s.cfg.MaxModelLen)
		if s.blocksNeeded(q, full, computed, lookup, true)+watermark > s.pool.free {
			return false
		}
	}
	need := min(computed+n+s.cfg.NumLookaheadTokens, s.cfg.MaxModelLen)
	s.freeSkipped(q, max(0, min(computed, s.cfg.MaxModelLen)-q.inFlight))
	if s.blocksNeeded(q, need, computed, lookup, false)+watermark > s.pool.free {
		return false
	}
	if s.cfg.NonPreemptible {
		want := s.cfg.blocksFor(min(max(len(q.tokens), q.numPrompt+q.maxTokens)+s.cfg.NumLookaheadTokens+s.cfg.draftRoom(), s.cfg.MaxModelLen))
		if s.committed-q.committed+want > s.cfg.NumBlocks-1 {
			return false
		}
		s.committed += want - q.committed
		q.committed = want
	}
	if lookup {
		for g := range s.groups {
			s.adoptHits(q, g, computed)
		}
	}
	s.extendTables(q, need)
	s.cacheBlocks(q, min(computed+n, len(q.tokens)))
	s.setMarks(q)
	return true
}

// adoptHits puts a group's hits into the request's empty table; what lies outside the window is the null block.
func (s *Scheduler) adoptHits(q *seq, g, computed int) {
	hits := s.hits[g]
	if len(hits) == 0 {
		return
	}
	skipped := min(s.groups[g].skippedTokens(computed)/s.groups[g].BlockSize, len(hits))
	for i, b := range hits {
		if i < skipped {
			b = 0
		}
		s.pool.touch(b)
		q.tables[g] = append(q.tables[g], b)
	}
	q.cached[g] = len(hits)
}

// blocksNeeded counts the free blocks that a waiting request takes so that n tokens have a slot. Hits that lie in the free
// queue count: taking them leaves fewer free blocks (spec scheduler rule 22).
func (s *Scheduler) blocksNeeded(q *seq, n, computed int, lookup, admission bool) int {
	total := 0
	for i := range s.groups {
		g := &s.groups[i]
		want := ceilDiv(n, g.BlockSize)
		if admission {
			want = min(want, g.cap)
		}
		have := len(q.tables[i])
		if !lookup {
			total += max(0, want-have)
			continue
		}
		hits := s.hits[i]
		skipped := g.skippedTokens(computed) / g.BlockSize
		total += max(0, want-max(skipped, len(hits)+have))
		for _, b := range hits[min(max(0, skipped-have), len(hits)):] {
			if b != 0 && s.pool.blocks[b].ref == 0 {
				total++
			}
		}
	}
	return total
}

// cacheBlocks gives the full blocks of the first n tokens their hashes: when they are scheduled, not when they are computed, so
// that a request admitted later in the same step already hits them (spec scheduler rule 27).
func (s *Scheduler) cacheBlocks(q *seq, n int) {
	if !s.cfg.EnablePrefixCaching {
		return
	}
	if len(s.groups) > 1 {
		n -= n % s.alignment
	}
	for i := range s.groups {
		g := &s.groups[i]
		from := q.cached[i]
		if n < (from+1)*g.BlockSize {
			continue
		}
		full := n / g.BlockSize
		s.updateHashes(q, full*g.ratio)
		for b := from; b < full; b++ {
			if id := q.tables[i][b]; id != 0 && g.reachable(b) {
				s.pool.cache(id, s.keyOf(q, i, b), (b+1)*g.BlockSize)
			}
		}
		q.cached[i] = full
		if s.hasher != nil {
			s.blocksStored(q, i, from, full)
		}
	}
}

// reachable reports whether a block can ever serve a hit, which ends at a multiple of the alignment.
func (g *group) reachable(b int) bool {
	return g.mask == 0 || b%g.seg >= g.seg-g.mask
}

// freeBlocks gives all blocks of a request back.
func (s *Scheduler) freeBlocks(q *seq) {
	for g := range q.tables {
		s.pool.release(q.tables[g])
		q.tables[g] = q.tables[g][:0]
		q.cached[g] = 0
	}
	s.setMarks(q)
}

// hashedTokens is how many tokens of the request carry a hash in every group.
func (s *Scheduler) hashedTokens(q *seq) int {
	least := -1
	for g := range q.tables {
		most := 0
		for i := len(q.tables[g]) - 1; i >= 0; i-- {
			if b := q.tables[g][i]; b != 0 && s.pool.blocks[b].hashed != 0 {
				most = int(s.pool.blocks[b].hashed)
				break
			}
		}
		if least < 0 || most < least {
			least = most
		}
	}
	return max(least, 0)
}

// readsCache reports whether a request may be served from the prefix cache.
func (s *Scheduler) readsCache(q *seq) bool {
	return s.cfg.EnablePrefixCaching && !q.req.SkipReadingPrefixCache
}

// lookup finds the longest cached prefix of a waiting request, at most all tokens but the last. It fills s.hits and returns
// its length in tokens.
func (s *Scheduler) lookup(q *seq) int {
	for g := range s.hits {
		s.hits[g] = s.hits[g][:0]
	}
	if !s.readsCache(q) {
		return 0
	}
	limit := len(q.tokens) - 1
	s.updateHashes(q, len(q.tokens)/s.hashSize)
	if len(s.groups) == 1 && s.groups[0].Kind == FullAttention {
		return s.hitFull(q, s.specs[0], limit)
	}
	return s.hitHybrid(q, limit)
}

// hitHybrid reconciles the groups: each either accepts the length found so far or shortens it; a shortening starts another round.
func (s *Scheduler) hitHybrid(q *seq, limit int) int {
	length, full := limit, -1
	for {
		cur := length
		for i, ids := range s.specs {
			if s.groups[ids[0]].Kind == FullAttention {
				if full < 0 || i != 0 {
					cur = s.hitFull(q, ids, cur)
					full = cur
				} else {
					cur = min(cur, full)
				}
				continue
			}
			cur = s.hitWindow(q, ids, cur)
		}
		if cur >= length {
			break
		}
		length = cur
		if len(s.specs) == 1 || (len(s.specs) == 2 && s.groups[s.specs[0][0]].Kind == FullAttention) {
			break
		}
	}
	for g := range s.groups {
		if n := ceilDiv(length, s.groups[g].BlockSize); s.groups[g].Kind == FullAttention && len(s.hits[g]) > n {
			s.hits[g] = s.hits[g][:n]
		}
	}
	return length
}

// hitFull walks the chain of full blocks from the start.
func (s *Scheduler) hitFull(q *seq, ids []int, limit int) int {
	size := s.groups[ids[0]].BlockSize
	n := 0
	for _, g := range ids {
		s.hits[g] = s.hits[g][:0]
	}
walk:
	for ; n < limit/size; n++ {
		for _, g := range ids {
			b := s.pool.find(s.keyOf(q, g, n))
			if b == 0 {
				for _, h := range ids {
					s.hits[h] = s.hits[h][:n]
				}
				break walk
			}
			s.hits[g] = append(s.hits[g], b)
		}
	}
	n = n * size / s.alignment * s.alignment / size
	for _, g := range ids {
		s.hits[g] = s.hits[g][:n]
	}
	return n * size
}

// hitWindow searches from the right for a run of cached blocks that fills the window; in front of it stand null blocks.
func (s *Scheduler) hitWindow(q *seq, ids []int, limit int) int {
	size := s.groups[ids[0]].BlockSize
	need := ceilDiv(s.groups[ids[0]].Window-1, size)
	n := limit / size
	for _, g := range ids {
		s.hits[g] = slices.Grow(s.hits[g][:0], n)[:n]
		clear(s.hits[g])
	}
	run, end := 0, -1
	for i := n - 1; i >= 0; i-- {
		if !s.cachedIn(q, ids, i) {
			run = 0
			continue
		}
		if run == 0 && (i+1)*size%s.alignment != 0 {
			continue
		}
		for _, g := range ids {
			s.hits[g][i] = s.pool.find(s.keyOf(q, g, i))
		}
		if run++; run >= need {
			end = i + run
			break
		}
	}
	if end < 0 {
		for end = run; end*size%s.alignment != 0; {
			end--
		}
	}
	for _, g := range ids {
		s.hits[g] = s.hits[g][:end]
	}
	return end * size
}

func (s *Scheduler) cachedIn(q *seq, ids []int, i int) bool {
	for _, g := range ids {
		if s.pool.find(s.keyOf(q, g, i)) == 0 {
			return false
		}
	}
	return true
}
