package ref

import (
	"fmt"
	"sync"

	"omni-engine/kernels"
)

// Value is a buffer's memory: F or I, [Rows, Width] row-major.
type Value struct {
	F           []float32
	I           []int32
	Rows, Width int
}

// Row returns row i of a float buffer.
func (v Value) Row(i int) []float32 { return v.F[i*v.Width : (i+1)*v.Width] }

// Env is what an operation runs in. Other devices fill one to run an operation that they lack by its definition.
type Env struct {
	Module   *kernels.Module
	Entry    *kernels.Entry
	Batch    *kernels.Batch
	Scalars  []float32
	Sizes    kernels.Sizes
	Limits   kernels.Limits
	Buffers  []Value // by BufferID
	Weights  *Weights
	Adapters []*kernels.Adapter // by slot
	Threads  int
	Result   *kernels.Result

	// Caches, SlotOf and Recent replace the device's own states when set: another device's.
	Caches func(kernels.StateID) Cache
	SlotOf func(id kernels.StateID, slot int32) []float32
	// Recent returns the k-th last token that the slot sampled; Remember notes one.
	Recent   func(slot, k int32) int32
	Remember func(slot, token int32)

	states *states
}

func (e *Env) cache(id kernels.StateID) Cache {
	if e.Caches != nil {
		return e.Caches(id)
	}
	return e.states.paged[id]
}

func (e *Env) slot(id kernels.StateID, slot int32) []float32 {
	if e.SlotOf != nil {
		return e.SlotOf(id, slot)
	}
	s := e.states.slots[id]
	return s.data[int(slot)*s.floats : (int(slot)+1)*s.floats]
}

func (e *Env) recent(slot, k int32) int32 {
	if e.Recent != nil {
		return e.Recent(slot, k)
	}
	return e.states.last[slot*recent+k]
}

func (e *Env) remember(slot, token int32) {
	if e.Remember != nil {
		e.Remember(slot, token)
		return
	}
	e.states.remember(slot, token)
}

// Run runs one operation by its definition.
func Run(op kernels.Op, e *Env) error {
	f := run(op)
	if f == nil {
		return fmt.Errorf("operation %s (%T) is not supported by the reference device", op.Name(), op)
	}
	return f(e)
}

// run finds an operation's definition; nil when there is none.
func run(op kernels.Op) func(*Env) error {
	switch o := op.(type) {
	case *kernels.Embed:
		return func(e *Env) error { return embed(e, o) }
	case *kernels.Lookup:
		return func(e *Env) error { return lookup(e, o) }
	case *kernels.InputRows:
		return func(e *Env) error { return inputRows(e, o) }
	case *kernels.Norm:
		return func(e *Env) error { return norm(e, o) }
	case *kernels.Linear:
		return func(e *Env) error { return linear(e, o) }
	case *kernels.Binary:
		return func(e *Env) error { return elementwise(e, o) }
	case *kernels.Unary:
		return func(e *Env) error { return unary(e, o) }
	case *kernels.Gated:
		return func(e *Env) error { return gated(e, o) }
	case *kernels.Copy:
		return func(e *Env) error { return copyColumns(e, o) }
	case *kernels.ColumnScale:
		return func(e *Env) error { return columnScale(e, o) }
	case *kernels.Rope:
		return func(e *Env) error { return rope(e, o) }
	case *kernels.PositionScale:
		return func(e *Env) error { return positionScale(e, o) }
	case *kernels.KVWrite:
		return func(e *Env) error { return kvWrite(e, o) }
	case *kernels.Attention:
		return func(e *Env) error { return attention(e, o) }
	case *kernels.GatherRows:
		return func(e *Env) error { return gatherRows(e, o) }
	case *kernels.Sample:
		return func(e *Env) error { return sample(e, o) }
	case *kernels.Route:
		return func(e *Env) error { return route(e, o) }
	case *kernels.Experts:
		return func(e *Env) error { return experts(e, o) }
	case *kernels.ConvState:
		return func(e *Env) error { return convState(e, o) }
	case *kernels.DeltaRule:
		return func(e *Env) error { return deltaRule(e, o) }
	}
	return runStream(op)
}

// runStream finds the definitions of the stages behind a text model.
func runStream(op kernels.Op) func(*Env) error {
	switch o := op.(type) {
	case *kernels.InputIDs:
		return func(e *Env) error { return inputIDs(e, o) }
	case *kernels.AddRows:
		return func(e *Env) error { return addRows(e, o) }
	case *kernels.SlotStore:
		return func(e *Env) error { return slotStore(e, o) }
	case *kernels.SlotLoad:
		return func(e *Env) error { return slotLoad(e, o) }
	case *kernels.Sampled:
		return func(e *Env) error { return sampled(e, o) }
	case *kernels.SampleCode:
		return func(e *Env) error { return sampleCode(e, o) }
	case *kernels.RopeAt:
		return func(e *Env) error { return ropeAt(e, o) }
	case *kernels.RowAttention:
		return func(e *Env) error { return rowAttention(e, o) }
	case *kernels.RingAttention:
		return func(e *Env) error { return ringAttention(e, o) }
	case *kernels.Conv1d:
		return func(e *Env) error { return conv1d(e, o) }
	case *kernels.ConvTranspose1d:
		return func(e *Env) error { return convTranspose1d(e, o) }
	case *kernels.Snake:
		return func(e *Env) error { return snake(e, o) }
	case *kernels.TimestepEmbed:
		return func(e *Env) error { return timestepEmbed(e, o) }
	case *kernels.FillRows:
		return func(e *Env) error { return fillRows(e, o) }
	case *kernels.ScaleByRow:
		return func(e *Env) error { return scaleByRow(e, o) }
	case *kernels.FullAttention:
		return func(e *Env) error { return fullAttention(e, o) }
	case *kernels.Conv2d:
		return func(e *Env) error { return conv2d(e, o) }
	case *kernels.GroupNorm:
		return func(e *Env) error { return groupNorm(e, o) }
	case *kernels.Upsample2d:
		return func(e *Env) error { return upsample2d(e, o) }
	}
	return nil
}

// parallel calls f with ranges that together are [0, n). cost is the number of multiplications, about; little work stays here.
func (e *Env) parallel(n, cost int, f func(from, to int)) {
	workers := min(e.Threads, n)
	if workers <= 1 || cost < 1<<15 {
		f(0, n)
		return
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() { f(n*w/workers, n*(w+1)/workers) })
	}
	wg.Wait()
}
