//go:build cgo && linux && amd64

package cpu

// #include "omni.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"omni-engine/internal/weights/quant"
	"omni-engine/kernels"
)

// states is the KV memory of a program: one pool of blocks, each with room for the layers of whichever group holds it.
type states struct {
	program *program
	plan    kernels.MemoryPlan
	memory  arena
	base    unsafe.Pointer
	stride  int64
	offsets []int64 // of each state in a block
	last    []int32 // by slot: the token sampled last
	mu      sync.Mutex
}

// NewStates takes the memory of mp.Blocks blocks.
func (pr *program) NewStates(mp kernels.MemoryPlan) (kernels.States, error) {
	p := pr.plan
	s := &states{program: pr, plan: mp, offsets: make([]int64, len(p.module.States)), last: make([]int32, mp.Slots*recentTokens)}
	used := make([]int64, len(p.module.Groups))
	for i, st := range p.module.States {
		s.offsets[i] = used[st.Group]
		used[st.Group] += p.stateBlockBytes(st)
	}
	for _, n := range used {
		s.stride = max(s.stride, n)
	}
	if mp.Blocks < 0 || (s.stride > 0 && int64(mp.Blocks) > (1<<46)/s.stride) {
		return nil, fmt.Errorf("states: %d blocks are not possible", mp.Blocks)
	}
	var err error
	if s.base, err = s.memory.alloc(s.stride*int64(mp.Blocks) + readAhead); err != nil {
		return nil, fmt.Errorf("states of %d blocks: %w", mp.Blocks, err)
	}
	return s, nil
}

func (s *states) Capacity(int) (blocks, slots int) { return s.plan.Blocks, s.plan.Slots }

func (s *states) Close() error {
	s.program.mu.Lock()
	defer s.program.mu.Unlock()
	if s.program.bound == s {
		s.program.bound = nil
	}
	s.memory.free()
	s.base = nil
	return nil
}

func (s *states) block(b int32) ([]byte, error) {
	if s.base == nil {
		return nil, fmt.Errorf("states are closed")
	}
	if b < 0 || int(b) >= s.plan.Blocks {
		return nil, fmt.Errorf("block %d of %d", b, s.plan.Blocks)
	}
	return unsafe.Slice((*byte)(unsafe.Add(s.base, int64(b)*s.stride)), s.stride), nil
}

// Copy copies blocks.
func (s *states) Copy(group int, pairs [][2]int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pair := range pairs {
		from, err := s.block(pair[0])
		if err != nil {
			return fmt.Errorf("copying a block of group %d: %w", group, err)
		}
		to, err := s.block(pair[1])
		if err != nil {
			return fmt.Errorf("copying a block of group %d: %w", group, err)
		}
		copy(to, from)
	}
	return nil
}

// bind points the program's caches at this memory.
func (s *states) bind() {
	pr := s.program
	if pr.bound == s {
		return
	}
	for i := range pr.caches {
		pr.caches[i].base = (*C.uint8_t)(unsafe.Add(s.base, s.offsets[i]))
		pr.caches[i].block_stride = C.int64_t(s.stride)
	}
	pr.bound = s
}

// transfer calls move with every cached number of the blocks and its place in buf, which is float32 in canonical order:
// [layer][K,V][token][head][dim], the tokens of all blocks one after the other.
func (s *states) transfer(group int, blocks []int32, buf []byte, move func(cache, canonical []byte, kind C.int32_t)) error {
	p := s.program.plan
	s.mu.Lock()
	defer s.mu.Unlock()
	size, pairs := p.elemBytes(), p.kv == C.KV_PAIRS
	tokens, need := p.limits.BlockSize, 0
	for _, st := range p.module.States {
		if st.Group == group {
			need += len(blocks) * tokens * st.Heads * (st.KDim + st.VDim) * 4
		}
	}
	if need != len(buf) {
		return fmt.Errorf("%d blocks take %d bytes, got %d", len(blocks), need, len(buf))
	}
	for i, st := range p.module.States {
		if st.Group != group {
			continue
		}
		for _, value := range []bool{false, true} {
			dim := st.KDim
			if value {
				dim = st.VDim
			}
			for _, id := range blocks {
				block, err := s.block(id)
				if err != nil {
					return err
				}
				block = block[s.offsets[i]:]
				for t := range tokens {
					for h := range st.Heads {
						head := int64((t/16*st.Heads+h)*(st.KDim+st.VDim)) * 16
						for d := range dim {
							at := head + int64(d*16+t%16)
							switch {
							case pairs && value:
								at = head + int64(st.KDim*16+(t%16/2*dim+d)*2+t%2)
							case pairs:
								at = head + int64((d/2*16+t%16)*2+d%2)
							case value:
								at = head + int64(st.KDim*16+t%16*dim+d)
							}
							move(block[at*size:], buf, p.kv)
							buf = buf[4:]
						}
					}
				}
			}
		}
	}
	return nil
}

// Export writes blocks as float32 in canonical order.
func (s *states) Export(group int, blocks []int32, dst []byte) error {
	err := s.transfer(group, blocks, dst, func(cache, canonical []byte, kind C.int32_t) {
		switch kind {
		case C.KV_F16:
			binary.LittleEndian.PutUint32(canonical, math.Float32bits(quant.F16ToF32(binary.LittleEndian.Uint16(cache))))
		case C.KV_PAIRS:
			binary.LittleEndian.PutUint32(canonical, uint32(binary.LittleEndian.Uint16(cache))<<16)
		default:
			copy(canonical[:4], cache[:4])
		}
	})
	if err != nil {
		return fmt.Errorf("exporting blocks of group %d: %w", group, err)
	}
	return nil
}

// Import reads what Export wrote.
func (s *states) Import(group int, blocks []int32, src []byte) error {
	err := s.transfer(group, blocks, src, func(cache, canonical []byte, kind C.int32_t) {
		f := math.Float32frombits(binary.LittleEndian.Uint32(canonical))
		switch kind {
		case C.KV_F16:
			binary.LittleEndian.PutUint16(cache, quant.F32ToF16(f))
		case C.KV_PAIRS:
			binary.LittleEndian.PutUint16(cache, quant.F32ToBF16(f))
		default:
			copy(cache[:4], canonical[:4])
		}
	})
	if err != nil {
		return fmt.Errorf("importing blocks of group %d: %w", group, err)
	}
	return nil
}
