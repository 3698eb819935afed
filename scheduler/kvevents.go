package scheduler

import (
	"encoding/hex"
	"strconv"

	"omni-engine/engine/request"
)

// KVEventType is one of vLLM's KV-cache events.
type KVEventType string

// The events, named as vLLM's message tags.
const (
	BlockStored      KVEventType = "BlockStored"
	BlockRemoved     KVEventType = "BlockRemoved"
	AllBlocksCleared KVEventType = "AllBlocksCleared"
)

// KVEvent tells a router which prefixes this cache holds; the fields are vLLM's.
type KVEvent struct {
	Type            KVEventType
	BlockHashes     [][]byte // 32 bytes each
	ParentBlockHash []byte   // nil: the start of a sequence
	TokenIDs        []int32
	BlockSize       int
	LoRAID          *int
	LoRAName        string
	ExtraKeys       [][]string // one entry a block, nil for none: the LoRA name, the cache salt
	Medium          string     // "GPU"
	GroupIdx        int
	SpecKind        GroupKind // kv_cache_spec_kind
	SlidingWindow   int       // kv_cache_spec_sliding_window, 0 for none
}

// TakeKVEvents returns the events since the last call, in order, and forgets them. They are collected only with Config.KVEvents.
func (s *Scheduler) TakeKVEvents() []KVEvent {
	events := s.kvEvents
	s.kvEvents = nil
	return events
}

// extraKeys are what else a block's hash covers: the adapter in every block, the salt in the first.
func (s *Scheduler) extraKeys(r *request.Request, first bool) (tagged []extraKey, plain []string) {
	if r.Adapter != 0 {
		name, path := s.adapterName(r.Adapter)
		tagged, plain = append(tagged, extraKey{"lora", name, path}), append(plain, name)
	}
	if first && r.CacheSalt != "" {
		tagged, plain = append(tagged, extraKey{"cache_salt", r.CacheSalt}), append(plain, r.CacheSalt)
	}
	return tagged, plain
}

func (s *Scheduler) adapterName(id int) (name, path string) {
	if s.cfg.AdapterName == nil {
		return strconv.Itoa(id), ""
	}
	return s.cfg.AdapterName(id)
}

// updateEventHashes extends the request's chain of vLLM block hashes to n.
func (s *Scheduler) updateEventHashes(q *seq, n int) {
	for i := len(q.eventHashes); i < n; i++ {
		var parent []byte
		if i > 0 {
			parent = q.eventHashes[i-1]
		}
		extra, _ := s.extraKeys(q.req, i == 0)
		if q.req.Rows != nil {
			extra = append(extra, extraKey{"prompt_embeds", hex.EncodeToString(q.req.Rows.Key(i*s.hashSize, s.hashSize))})
		}
		q.eventHashes = append(q.eventHashes, s.hasher.block(parent, q.tokens[i*s.hashSize:(i+1)*s.hashSize], extra))
	}
}

// blocksStored reports the blocks [from, to) of a group as cached.
func (s *Scheduler) blocksStored(q *seq, g, from, to int) {
	spec := &s.groups[g]
	e := KVEvent{Type: BlockStored, BlockSize: spec.BlockSize, Medium: "GPU", GroupIdx: g, SpecKind: spec.Kind, SlidingWindow: spec.Window}
	hash := func(b int) []byte { return q.eventHashes[(b+1)*spec.ratio-1] }
	for b := from; b < to; b++ {
		id := q.tables[g][b]
		if id == 0 || !spec.reachable(b) {
			continue
		}
		s.blockHash[id], s.blockGroup[id] = hash(b), uint8(g)
		_, plain := s.extraKeys(q.req, b == 0)
		e.BlockHashes, e.ExtraKeys = append(e.BlockHashes, hash(b)), append(e.ExtraKeys, plain)
	}
	if from > 0 {
		e.ParentBlockHash = hash(from - 1)
	}
	e.TokenIDs = append(e.TokenIDs, q.tokens[from*spec.BlockSize:to*spec.BlockSize]...)
	if id := q.req.Adapter; id != 0 {
		e.LoRAID = &id
		e.LoRAName, _ = s.adapterName(id)
	}
	s.kvEvents = append(s.kvEvents, e)
}

// blockEvicted reports that a block lost its hash.
func (s *Scheduler) blockEvicted(b int32) {
	s.kvEvents = append(s.kvEvents, KVEvent{Type: BlockRemoved, BlockHashes: [][]byte{s.blockHash[b]}, Medium: "GPU", GroupIdx: int(s.blockGroup[b])})
	s.blockHash[b] = nil
}

func (s *Scheduler) cacheCleared() {
	if s.hasher == nil {
		return
	}
	clear(s.blockHash)
	s.kvEvents = append(s.kvEvents, KVEvent{Type: AllBlocksCleared})
}
