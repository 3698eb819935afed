// Package kernels holds the operations that a model's module may contain, and the door to devices. A model builds a
// [Module] once; a [Device] compiles it into a [Program]; a [Step] is a batch filled in place and run. A device never knows
// the model, a model never the device. kernels/ref defines each operation; kernels/cpu and kernels/gpu follow it.
package kernels

import (
	"context"

	"omni-engine/internal/tensor"
)

// Device is one physical device, or a tensor-parallel group that looks like one. It owns threads or context and memory; all
// programs of a process share it.
type Device interface {
	Info() DeviceInfo
	// Plan sizes weights, states and scratch; it allocates nothing.
	Plan(*Module, Limits) (MemoryPlan, error)
	// Compile packs weights and lays out buffers. One error names every operation that the device lacks.
	Compile(*Module, Limits) (Program, error)
	Close() error
}

// DeviceInfo says what a device is.
type DeviceInfo struct {
	Kind    string // "cpu", "ref", "cuda"
	Name    string // e.g. the processor's name
	Level   string // the kernels in use, e.g. "avx512-vnni"
	Threads int
	Memory  int64 // bytes of memory that the device may use; 0 when unknown
}

// Limits bound a program: buffers are laid out for them once.
type Limits struct {
	Tokens       int // most tokens a step (max_num_batched_tokens)
	Rows         int // most requests a step (max_num_seqs)
	LogitRows    int // most rows of logits a step
	MaxModelLen  int // most tokens a request
	InFlight     int // steps in flight; at least 1
	AdapterSlots int
	Frames       int          // most frames a step (vocoders); 0 when unused
	BlockSize    int          // tokens a KV block (a multiple of the kernel's page, 16 on the CPU)
	KV           tensor.DType // element type of paged caches; Invalid lets the device choose
	Priority     int          // of this program's steps on a shared device; higher runs first
	// Exact asks for float32 arithmetic throughout: no quantised activations, no reduced-precision caches.
	Exact bool
	// Compute is the element type of activations on a device that has a choice (BF16, F16); Invalid lets it choose. Exact overrides it.
	Compute tensor.DType
}

// MemoryPlan is what a program will take, in bytes. The engine fills Blocks and Slots before NewStates.
type MemoryPlan struct {
	Weights    int64
	Scratch    int64
	BlockBytes []int64 // by KV group: bytes of one block over all the group's layers
	SlotBytes  int64   // bytes of one request's slot over all slot states
	Blocks     int     // KV blocks, the null block included; all groups draw from one pool
	Slots      int
}

// BlockSpan is what one block of the pool takes: a block belongs to one group at a time, so the largest group's bytes.
func (p *MemoryPlan) BlockSpan() (n int64) {
	for _, b := range p.BlockBytes {
		n = max(n, b)
	}
	return n
}

// Program is a compiled module.
type Program interface {
	NewStates(MemoryPlan) (States, error)
	NewStep(States) (Step, error)
	SetAdapter(slot int, a *Adapter) error
	Explain() string // phases or launches that each entry became, reference operations named as such
	Close() error
}

// Adapter is a set of low-rank updates by site name.
type Adapter struct {
	Name  string
	Scale float32
	A, B  map[string]tensor.View // site -> [rank, in], [out, rank]
}

// States is the memory that outlives a step: paged KV caches and per-request slots.
type States interface {
	Capacity(group int) (blocks, slots int)
	// Copy copies blocks within a group: pairs of (from, to).
	Copy(group int, pairs [][2]int32) error
	// Export writes blocks as float32 or the cache's type in canonical order [layer][K,V][token][head][dim].
	Export(group int, blocks []int32, dst []byte) error
	Import(group int, blocks []int32, src []byte) error
	Close() error
}

// Step is one batch. Fill Batch, Submit entries in order, Wait, read the Result; Release before the step is filled again.
type Step interface {
	Batch() *Batch
	Submit(calls ...Call) error
	Wait(context.Context) (*Result, error)
	// Output returns a named output buffer's rows after Wait: [rows, width] float32, valid until Release.
	Output(name string) (tensor.View, error)
	Release()
}

// Call runs one entry.
type Call struct {
	Entry   int
	Scalars []float32 // timestep, guidance
}
