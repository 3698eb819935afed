package gpu

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"omni-engine/cuda"
	"omni-engine/kernels"
)

var _ kernels.GraphStates = (*states)(nil)

// CaptureGraphs captures every entry at every bucket, the largest first: what has no memory is then a small batch, which can better be
// launched kernel by kernel.
func (s *states) CaptureGraphs() error {
	p, d := s.program.plan, s.program.dev
	if d.eager {
		return nil
	}
	if s.memory == nil {
		return errors.New("capturing graphs: the states are closed")
	}
	before, begin := s.runs.captured, time.Now()
	free, _, err := d.Memory()
	if err != nil {
		return fmt.Errorf("capturing graphs: %w", err)
	}
	sizes := slices.Backward(buckets(p.graphRows()))
	err = d.cuda.Do(func() error {
		for _, bucket := range sizes {
			sz := s.padding(bucket)
			for i := range p.entries {
				exec, err := s.runs.keep(i, &sz, bucket)
				if err != nil {
					return err
				}
				if exec == 0 {
					return nil
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("entries as graphs: %w", classed(err))
	}
	left, _, err := d.Memory()
	if err != nil {
		return fmt.Errorf("capturing graphs: %w", err)
	}
	d.log.Info("graphs captured", "graphs", s.runs.captured-before, "rows", fmt.Sprint(buckets(p.graphRows())), "seconds", time.Since(begin).Seconds(), "bytes", max(free-left, 0))
	return nil
}

// padding is the sizes of a batch of padding rows alone: those of every batch of that bucket.
func (s *states) padding(bucket int) sizes {
	p := s.program.plan
	m := p.images.buckets[bucket]
	memory := make([]int32, m.size/4+1)
	b := kernels.Batch{QueryStart: []int32{0}, Tables: make([]kernels.GroupTable, len(m.groups))}
	for g := range b.Tables {
		b.Tables[g].Start = []int32{0}
	}
	sz := m.fill(unsafe.Pointer(&memory[0]), &b, p.limits.BlockSize, p.tiles, true, make([]int64, len(m.groups)))
	sz.longest = p.limits.MaxModelLen
	sz.ids, sz.bias = s.program.scratch.at(p.scratch.sampling.ids), s.program.scratch.at(p.scratch.sampling.bias)
	return sz
}

// keep captures an entry at a bucket and keeps the graph; 0: there was no memory for it.
func (r *runs) keep(entry int, sz *sizes, bucket int) (cuda.GraphExec, error) {
	exec, err := r.capture(entry, sz)
	if err != nil && !errors.Is(err, cuda.ResultOutOfMemory) {
		return 0, fmt.Errorf("capturing a graph of %d rows: %w", bucket, err)
	}
	if r.graphs[graphKey{entry, bucket}] = exec; err == nil {
		r.captured++
	}
	return exec, nil
}

func (r *runs) capture(entry int, sz *sizes) (cuda.GraphExec, error) {
	d := r.program.dev
	before := r.launched
	inGraph := *sz
	inGraph.captured = true
	g, err := d.cuda.Capture(d.stream, func() error { return r.launch(entry, &inGraph) })
	r.launched = before
	if err != nil {
		return 0, err
	}
	exec, err := d.cuda.GraphInstantiate(g)
	if err != nil {
		exec = 0
	}
	return exec, errors.Join(err, d.cuda.GraphDestroy(g))
}
