package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"omni-engine/cuda"
	"omni-engine/internal/tensor"
	"omni-engine/internal/weights/quant"
	"omni-engine/kernels"
)

// recentTokens is how many of its last samples a slot remembers, newest first.
const recentTokens = 8

// states is the KV memory of a program: one pool of blocks, each with room for the layers of whichever group holds it, and what
// each slot sampled last. One slot and block 0 belong to the padding rows of graphs.
type states struct {
	program *program
	plan    kernels.MemoryPlan
	memory  *block
	recent  cuda.DevicePtr // int32 [slots+1, recentTokens]
	staging *pinned        // for Export and Import; made when first used
	runs    *runs          // the program's launches over these states
}

// NewStates takes the memory of mp.Blocks blocks and mp.Slots slots.
func (pr *program) NewStates(mp kernels.MemoryPlan) (kernels.States, error) {
	if mp.Blocks < 0 || mp.Slots < 0 || pr.plan.span > 0 && int64(mp.Blocks) > (1<<46)/pr.plan.span {
		return nil, fmt.Errorf("states: %d blocks and %d slots are not possible", mp.Blocks, mp.Slots)
	}
	s := &states{program: pr, plan: mp}
	pool := roundUp(int64(max(mp.Blocks, 1))*pr.plan.span + readAhead)
	recent := int64(mp.Slots+1) * recentTokens * 4
	var err error
	if s.memory, err = pr.dev.alloc(fmt.Sprintf("%d KV blocks", mp.Blocks), pool+recent); err != nil {
		return nil, fmt.Errorf("states: %w", err)
	}
	s.recent = s.memory.at(pool)
	err = pr.dev.cuda.Do(func() error {
		// Kernels may load what no token was written to, as long as they ignore it: it must be no NaN.
		if err := pr.dev.cuda.Memset8(s.memory.base, 0, s.memory.size, pr.dev.stream); err != nil {
			return err
		}
		return pr.dev.cuda.StreamSynchronize(pr.dev.stream)
	})
	if err == nil {
		s.runs, err = pr.newRuns(s)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("states: %w", err), s.Close())
	}
	return s, nil
}

// Capacity is what was planned.
func (s *states) Capacity(int) (blocks, slots int) { return s.plan.Blocks, s.plan.Slots }

// Close frees the memory after what still runs on it.
func (s *states) Close() error {
	if s.memory == nil {
		return nil
	}
	d := s.program.dev
	errs := []error{d.cuda.Do(func() error { return d.cuda.StreamSynchronize(d.stream) })}
	if s.runs != nil {
		errs = append(errs, s.runs.close())
	}
	errs = append(errs, s.staging.free(), s.memory.free())
	s.memory, s.runs, s.staging = nil, nil, nil
	return errors.Join(errs...)
}

func (s *states) check(group int, blocks ...int32) error {
	if s.memory == nil {
		return errors.New("the states are closed")
	}
	if group < 0 || group >= len(s.program.plan.module.Groups) {
		return fmt.Errorf("KV group %d of %d", group, len(s.program.plan.module.Groups))
	}
	for _, b := range blocks {
		if b < 0 || int(b) >= s.plan.Blocks {
			return fmt.Errorf("block %d of %d", b, s.plan.Blocks)
		}
	}
	return nil
}

func (s *states) block(id int32) cuda.DevicePtr { return s.memory.at(int64(id) * s.program.plan.span) }

// Copy copies blocks on the device, after the steps that were submitted before.
func (s *states) Copy(group int, pairs [][2]int32) error {
	d := s.program.dev
	for _, pair := range pairs {
		if err := s.check(group, pair[0], pair[1]); err != nil {
			return fmt.Errorf("copy blocks: %w", err)
		}
		err := d.cuda.Do(func() error {
			return d.cuda.CopyOnDevice(s.block(pair[1]), s.block(pair[0]), s.program.plan.span, d.stream)
		})
		if err != nil {
			return fmt.Errorf("copy blocks: %w", err)
		}
	}
	return nil
}

// part is one layer's keys or values of one block.
type part struct {
	device cuda.DevicePtr
	n      int // elements
}

// parts lists what blocks hold in canonical order: layer, keys then values, block; within a part [token][head][dim], as on the device.
func (s *states) parts(group int, blocks []int32) (parts []part, elems int) {
	p := s.program.plan
	for i, st := range p.module.States {
		if st.Group != group || st.Kind != kernels.Paged {
			continue
		}
		for _, at := range []int64{p.offsets[i], p.offsets[i] + roundUp(p.keyBytes(st))} {
			for _, b := range blocks {
				n := p.limits.BlockSize * st.Heads * st.KDim
				parts = append(parts, part{s.block(b).Add(at), n})
				elems += n
			}
		}
	}
	return parts, elems
}

// transfer moves parts through page-locked memory, one at a time.
func (s *states) transfer(what string, group int, blocks []int32, buf []byte, move func(p part, buf []byte) error) error {
	if err := s.check(group, blocks...); err != nil {
		return fmt.Errorf("%s blocks: %w", what, err)
	}
	parts, elems := s.parts(group, blocks)
	if 4*elems != len(buf) {
		return fmt.Errorf("%s blocks: %d blocks take %d bytes, got %d", what, len(blocks), 4*elems, len(buf))
	}
	for _, p := range parts {
		size := int64(p.n) * 4
		if s.staging == nil || s.staging.size < size {
			if err := s.staging.free(); err != nil {
				return fmt.Errorf("%s blocks: %w", what, err)
			}
			var err error
			if s.staging, err = s.program.dev.pin("KV blocks", size); err != nil {
				return fmt.Errorf("%s blocks: %w", what, err)
			}
		}
		if err := s.program.dev.cuda.Do(func() error { return move(p, buf[:size]) }); err != nil {
			return fmt.Errorf("%s blocks: %w", what, err)
		}
		buf = buf[size:]
	}
	return nil
}

// Export writes blocks as float32 in canonical order.
func (s *states) Export(group int, blocks []int32, dst []byte) error {
	d, kv := s.program.dev, s.program.plan.kv
	return s.transfer("export", group, blocks, dst, func(p part, buf []byte) error {
		bytes := int64(p.n) * s.program.plan.kvElem()
		if err := d.cuda.CopyToHost(s.staging.p, p.device, bytes, d.stream); err != nil {
			return err
		}
		if err := d.cuda.StreamSynchronize(d.stream); err != nil {
			return err
		}
		raw := s.staging.bytes()
		for i := range p.n {
			var f float32
			switch kv {
			case tensor.F16:
				f = quant.F16ToF32(binary.LittleEndian.Uint16(raw[2*i:]))
			case tensor.BF16:
				f = quant.BF16ToF32(binary.LittleEndian.Uint16(raw[2*i:]))
			default:
				f = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
			}
			binary.LittleEndian.PutUint32(buf[4*i:], math.Float32bits(f))
		}
		return nil
	})
}

// Import reads what Export wrote.
func (s *states) Import(group int, blocks []int32, src []byte) error {
	d, kv := s.program.dev, s.program.plan.kv
	var floats []float32
	return s.transfer("import", group, blocks, src, func(p part, buf []byte) error {
		if cap(floats) < p.n {
			floats = make([]float32, p.n)
		}
		f := floats[:p.n]
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&f[0])), 4*p.n), buf)
		narrow(s.staging.bytes(), f, kv)
		if err := d.cuda.CopyToDevice(p.device, s.staging.p, int64(p.n)*s.program.plan.kvElem(), d.stream); err != nil {
			return err
		}
		return d.cuda.StreamSynchronize(d.stream) // the staging memory is used again
	})
}
