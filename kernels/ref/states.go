package ref

import (
	"encoding/binary"
	"fmt"
	"math"

	"omni-engine/kernels"
)

// recent is how many of its last samples a slot remembers, for steps that run before the host knows them.
const recent = 8

// Cache is one layer's paged keys and values.
type Cache interface {
	// Load returns the key and value rows [heads*dim] at an offset of a block; it may fill and return the scratch rows.
	Load(block int32, offset int, k, v []float32) (key, value []float32)
	// Store writes them.
	Store(block int32, offset int, k, v []float32)
}

type paged struct {
	blockSize, kw, vw int
	k, v              []float32 // [blocks*blockSize, width]
}

func (p *paged) Load(block int32, offset int, _, _ []float32) (key, value []float32) {
	at := int(block)*p.blockSize + offset
	return p.k[at*p.kw : (at+1)*p.kw], p.v[at*p.vw : (at+1)*p.vw]
}

func (p *paged) Store(block int32, offset int, k, v []float32) {
	at := int(block)*p.blockSize + offset
	copy(p.k[at*p.kw:(at+1)*p.kw], k)
	copy(p.v[at*p.vw:(at+1)*p.vw], v)
}

type slots struct {
	floats int
	data   []float32 // [slots, floats]
}

// states holds paged caches in float32 and slots.
type states struct {
	module *kernels.Module
	limits kernels.Limits
	plan   kernels.MemoryPlan
	paged  []*paged // by state; nil for slots
	slots  []*slots // by state; nil for paged
	last   []int32  // [slots, recent], newest first
}

// NewStates allocates caches for plan.Blocks blocks and plan.Slots slots.
func (p *program) NewStates(plan kernels.MemoryPlan) (kernels.States, error) {
	s := &states{module: p.module, limits: p.limits, plan: plan, last: make([]int32, plan.Slots*recent)}
	for _, spec := range p.module.States {
		switch spec.Kind {
		case kernels.Paged:
			n := plan.Blocks * p.limits.BlockSize
			c := &paged{blockSize: p.limits.BlockSize, kw: spec.Heads * spec.KDim, vw: spec.Heads * spec.VDim}
			c.k, c.v = make([]float32, n*c.kw), make([]float32, n*c.vw)
			s.paged, s.slots = append(s.paged, c), append(s.slots, nil)
		case kernels.Slot:
			s.paged = append(s.paged, nil)
			s.slots = append(s.slots, &slots{floats: spec.Floats, data: make([]float32, plan.Slots*spec.Floats)})
		default:
			return nil, fmt.Errorf("state %s: kind %d is not supported", spec.Name, spec.Kind)
		}
	}
	return s, nil
}

func (s *states) Capacity(int) (blocks, slots int) { return s.plan.Blocks, s.plan.Slots }

// reset empties a slot for a new request.
func (s *states) reset(slot int32) {
	for _, st := range s.slots {
		if st != nil {
			clear(st.data[int(slot)*st.floats : (int(slot)+1)*st.floats])
		}
	}
	clear(s.last[int(slot)*recent : (int(slot)+1)*recent])
}

func (s *states) remember(slot, token int32) {
	l := s.last[int(slot)*recent : (int(slot)+1)*recent]
	copy(l[1:], l[:recent-1])
	l[0] = token
}

func (s *states) check(group int, blocks ...int32) error {
	if group < 0 || group >= len(s.module.Groups) {
		return fmt.Errorf("KV group %d of %d", group, len(s.module.Groups))
	}
	for _, b := range blocks {
		if b < 0 || int(b) >= s.plan.Blocks {
			return fmt.Errorf("block %d of %d", b, s.plan.Blocks)
		}
	}
	return nil
}

// layers calls f with each cache of the group.
func (s *states) layers(group int, f func(*paged)) {
	for i, spec := range s.module.States {
		if spec.Kind == kernels.Paged && spec.Group == group {
			f(s.paged[i])
		}
	}
}

func (s *states) Copy(group int, pairs [][2]int32) error {
	for _, p := range pairs {
		if err := s.check(group, p[0], p[1]); err != nil {
			return fmt.Errorf("copy blocks: %w", err)
		}
		s.layers(group, func(c *paged) {
			kn, vn := c.blockSize*c.kw, c.blockSize*c.vw
			copy(c.k[int(p[1])*kn:][:kn], c.k[int(p[0])*kn:][:kn])
			copy(c.v[int(p[1])*vn:][:vn], c.v[int(p[0])*vn:][:vn])
		})
	}
	return nil
}

// parts calls f with each [token][head][dim] run in canonical order: layer, K then V, block.
func (s *states) parts(group int, blocks []int32, f func([]float32)) {
	s.layers(group, func(c *paged) {
		for _, kv := range []struct {
			data  []float32
			width int
		}{{c.k, c.kw}, {c.v, c.vw}} {
			n := c.blockSize * kv.width
			for _, b := range blocks {
				f(kv.data[int(b)*n : (int(b)+1)*n])
			}
		}
	})
}

func (s *states) transfer(what string, group int, blocks []int32, buf []byte, f func([]float32, []byte)) error {
	if err := s.check(group, blocks...); err != nil {
		return fmt.Errorf("%s blocks: %w", what, err)
	}
	need := 0
	s.parts(group, blocks, func(p []float32) { need += 4 * len(p) })
	if need != len(buf) {
		return fmt.Errorf("%s blocks: %d blocks take %d bytes, got %d", what, len(blocks), need, len(buf))
	}
	s.parts(group, blocks, func(p []float32) {
		f(p, buf)
		buf = buf[4*len(p):]
	})
	return nil
}

// Export writes blocks as float32.
func (s *states) Export(group int, blocks []int32, dst []byte) error {
	return s.transfer("export", group, blocks, dst, func(p []float32, b []byte) {
		for i, v := range p {
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
		}
	})
}

// Import reads what Export wrote.
func (s *states) Import(group int, blocks []int32, src []byte) error {
	return s.transfer("import", group, blocks, src, func(p []float32, b []byte) {
		for i := range p {
			p[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	})
}

func (s *states) Close() error { return nil }
