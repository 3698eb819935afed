package scheduler

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// groupMix sets the keys of the KV groups apart.
const groupMix = 0x9e3779b97f4a7c15

// updateHashes extends the chain of block hashes to n blocks of hash size. SHA-256, cut to 128 bits: prompts are not trusted, and a
// collision would hand one user's KV to another.
func (s *Scheduler) updateHashes(q *seq, n int) {
	size := s.hashSize
	for i := len(q.hashes); i < n; i++ {
		buf := s.hashBuf[:0]
		if i > 0 {
			buf = binary.LittleEndian.AppendUint64(buf, q.hashes[i-1][0])
			buf = binary.LittleEndian.AppendUint64(buf, q.hashes[i-1][1])
		} else {
			buf = binary.LittleEndian.AppendUint64(buf, uint64(q.req.Adapter))
			buf = append(buf, q.req.CacheSalt...)
			buf = append(buf, 0)
		}
		from := len(buf)
		buf = slices.Grow(buf, 4*size)[:from+4*size]
		for j, t := range q.tokens[i*size : (i+1)*size] {
			binary.LittleEndian.PutUint32(buf[from+4*j:], uint32(t))
		}
		if q.mixed {
			if q.req.Rows != nil {
				buf = append(buf, q.req.Rows.Key(i*size, size)...)
			}
			if i > 0 && q.req.Adapter != 0 {
				buf = binary.LittleEndian.AppendUint64(buf, uint64(q.req.Adapter))
			}
		}
		s.hashBuf = buf
		sum := sha256.Sum256(buf)
		q.hashes = append(q.hashes, key{binary.LittleEndian.Uint64(sum[:8]), binary.LittleEndian.Uint64(sum[8:16])})
	}
	if s.hasher != nil {
		s.updateEventHashes(q, n)
	}
}

// keyOf returns the prefix-cache key of a group's i-th block; its hashes must be there.
func (s *Scheduler) keyOf(q *seq, g, i int) key {
	k := q.hashes[(i+1)*s.groups[g].ratio-1]
	k[0] ^= uint64(g) * groupMix
	k[1] += uint64(g) * groupMix
	return k
}
