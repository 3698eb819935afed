package gpu

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"omni-engine/cuda"
	"omni-engine/internal/tensor"
)

// AnyBLAS lets Options.BLAS be the first cuBLASLt that the system has; own kernels where it has none.
const AnyBLAS = "auto"

// libraryRows is the most rows that own kernels always multiply by: up to there the weights' bytes bound a product, and the
// library's are padded to a multiple of 64 rows.
const libraryRows = 32

// blas is cuBLASLt with the algorithms that it chose.
//
// It multiplies in eager steps only (prefills, alone or beside decodes). Graphs hold own kernels: capturing a product of the library
// would load its kernels, which a capture forbids; and tokens of decode steps do not depend on which library a machine has.
type blas struct {
	lib cuda.BLAS
	log *slog.Logger

	mu    sync.Mutex // a plan is for one goroutine at a time, and a device may have several programs
	plans map[cuda.Product]cuda.BLASPlan
}

// openBLAS opens the library that the options name. A context must be current.
func (d *device) openBLAS(o Options) error {
	if o.BLAS == "" {
		return nil
	}
	where := o.BLAS
	if where == AnyBLAS {
		where = ""
	}
	lib, _, err := cuda.OpenBLAS(cuda.Options{BLAS: where})
	if err != nil {
		if where != "" { // another one than the user named would surprise
			return fmt.Errorf("cuBLASLt at %s: %w", where, err)
		}
		d.log.Info("cuBLASLt cannot be used: own kernels multiply", "reason", brief(err))
		return nil
	}
	d.blas = &blas{lib: lib, log: d.log, plans: map[cuda.Product]cuda.BLASPlan{}}
	return nil
}

// brief is an error in one line: where a library was looked for is told by `omni-engine devices`.
func brief(err error) string {
	var missing *cuda.MissingError
	if errors.As(err, &missing) {
		return missing.Library + " was not found (omni-engine devices says where it was looked for)"
	}
	return err.Error()
}

// versionText is cublasLtGetVersion's number as it is usually written.
func versionText(v int) string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }

// String names the library.
func (b *blas) String() string {
	return fmt.Sprintf("cuBLASLt %s (%s)", versionText(b.lib.Version()), b.lib.Library())
}

// hardware is what plans for this device depend on. The workspace is what NVIDIA recommends: 32 MiB from Hopper on, else 4 MiB.
func (d *device) hardware() hardware {
	hw := hardware{sms: d.cuda.Info.Multiprocessors}
	if d.blas != nil {
		hw.workspace = 4 << 20
		if d.cuda.Info.Capability.Major >= 9 {
			hw.workspace = 32 << 20
		}
	}
	return hw
}

// run puts a product on the stream; false: the library has no algorithm for it.
func (b *blas) run(q cuda.Product, y, x, w cuda.DevicePtr, beta float32, workspace cuda.DevicePtr, s cuda.Stream) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	plan, known := b.plans[q]
	if !known {
		var err error
		if plan, err = b.lib.Plan(q); err != nil {
			var refused *cuda.LibraryError
			if !errors.As(err, &refused) {
				return false, err
			}
			b.log.Warn("cuBLASLt refuses a product: an own kernel runs it", "error", err)
			plan = nil
		}
		b.plans[q] = plan
	}
	if plan == nil {
		return false, nil
	}
	return true, plan.Run(y, x, w, 1, beta, workspace, s)
}

// close needs a current context.
func (b *blas) close() error {
	errs := make([]error, 0, len(b.plans)+1)
	for _, p := range b.plans {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(append(errs, b.lib.Close())...)
}

// library reports whether cuBLASLt takes a product: dense 16-bit weights without a bias, rows and addresses that vector loads like.
func (p *plan) library(e *entry, n *linearNode) bool {
	in, out := e.buffers[n.in], e.buffers[n.out]
	elem := 2
	if p.wide(out) {
		elem = 4
	}
	return p.hw.workspace > 0 && (p.act == tensor.BF16 || p.act == tensor.F16) && n.weight.dtype == p.act && n.bias == nil &&
		!p.wide(in) && in.rows == out.rows && p.rowLimit(in.rows) > libraryRows &&
		n.weight.k%8 == 0 && n.weight.n%8 == 0 && in.width%8 == 0 && out.width%8 == 0 && n.column*elem%align == 0
}

// usesLibrary reports whether some product may be cuBLASLt's.
func (p *plan) usesLibrary() bool {
	for _, e := range p.entries {
		for _, n := range e.nodes {
			if l, ok := n.(*linearNode); ok && p.library(e, l) {
				return true
			}
		}
	}
	return false
}

// libraryBucket is how many rows a product of the library computes for so many: algorithms are asked for and kept by that, and
// GEMM tiles are as large. The rows beyond are of the same buffers and nobody reads them.
func libraryBucket(rows, limit int) int {
	step := 64
	switch {
	case rows > 2048:
		step = 256
	case rows > 512:
		step = 128
	}
	return min((rows+step-1)/step*step, limit)
}

// byLibrary runs a product by cuBLASLt in steps of many rows; g has its addresses and sizes.
func (m *emitter) byLibrary(n *linearNode, g *gemmParams) func(sz *sizes) (bool, error) {
	d, in := m.runs.program.dev, m.entry.buffers[n.in]
	q := cuda.Product{N: int(g.N), K: int(g.K), LDX: int(g.LDA), LDY: int(g.LDC), In: cuda.BFloat16, Workspace: m.plan().hw.workspace}
	if m.plan().act == tensor.F16 {
		q.In = cuda.Float16
	}
	q.Out = q.In
	beta := float32(0)
	switch g.OutKind {
	case outAddF32:
		q.Out, beta = cuda.Float32, 1
	case outF32:
		q.Out = cuda.Float32
	}
	y, x, w := g.Out, g.A, g.B
	limit, workspace := m.plan().rowLimit(in.rows), m.scratch(m.plan().scratch.blas)
	return func(sz *sizes) (bool, error) {
		rows := in.count(sz)
		if rows <= libraryRows {
			return false, nil
		}
		q.M = libraryBucket(rows, limit)
		return d.blas.run(q, y, x, w, beta, workspace, d.stream)
	}
}
