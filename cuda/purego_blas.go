//go:build !nocuda && linux && (amd64 || arm64)

package cuda

import (
	"cmp"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Numbers of cublasLt.h.
const (
	blasCompute32F      = 68
	blasTransposed      = 1
	blasDescTransA      = 3
	blasPrefWorkspace   = 1
	blasStatusSupported = 0
)

type dynamicBLAS struct {
	library string
	handle  uintptr

	version, statusName, create, destroy, descCreate, descDestroy, descSet, layoutCreate, layoutDestroy proc
	prefCreate, prefDestroy, prefSet, heuristic, matmul                                                 proc
}

// OpenBLAS opens cuBLASLt and makes a handle, for which a context must be current.
func OpenBLAS(o Options) (BLAS, []Probe, error) {
	l := BLASLibrary()
	h, probes, err := systemFinder(dlopen).find(l, o.BLAS)
	if err != nil {
		return nil, probes, err
	}
	b := &dynamicBLAS{library: probes[len(probes)-1].Path}
	if err := bind(h, b.library, []binding{{"cublasLtGetVersion", &b.version}, {"cublasLtGetStatusName", &b.statusName}, {"cublasLtCreate", &b.create},
		{"cublasLtDestroy", &b.destroy}, {"cublasLtMatmulDescCreate", &b.descCreate}, {"cublasLtMatmulDescDestroy", &b.descDestroy},
		{"cublasLtMatmulDescSetAttribute", &b.descSet}, {"cublasLtMatrixLayoutCreate", &b.layoutCreate},
		{"cublasLtMatrixLayoutDestroy", &b.layoutDestroy}, {"cublasLtMatmulPreferenceCreate", &b.prefCreate},
		{"cublasLtMatmulPreferenceDestroy", &b.prefDestroy}, {"cublasLtMatmulPreferenceSetAttribute", &b.prefSet},
		{"cublasLtMatmulAlgoGetHeuristic", &b.heuristic}, {"cublasLtMatmul", &b.matmul}}); err != nil {
		return nil, probes, err
	}
	if err := b.failed(&b.create, b.create.invoke(uintptr(unsafe.Pointer(&b.handle)))); err != nil {
		return nil, probes, err
	}
	return b, probes, nil
}

func (b *dynamicBLAS) failed(p *proc, r int32) error {
	if r == 0 {
		return nil
	}
	name, _, _ := purego.SyscallN(b.statusName.addr, uintptr(r))
	return &LibraryError{Call: p.name, Code: int(r), Text: cString(name)}
}

func (b *dynamicBLAS) Library() string { return b.library }

func (b *dynamicBLAS) Version() int {
	v, _, _ := purego.SyscallN(b.version.addr)
	return int(v)
}

func (b *dynamicBLAS) Close() error { return b.failed(&b.destroy, b.destroy.invoke(b.handle)) }

// blasResult is cublasLtMatmulHeuristicResult_t.
type blasResult struct {
	algo      [8]uint64
	workspace uint64
	state     int32
	waves     float32
	reserved  [4]int32
}

// blasPlan holds what the library reads during a call, pinned.
type blasPlan struct {
	b             *dynamicBLAS
	desc          uintptr
	w, x, y       uintptr // layouts
	result        blasResult
	alpha, beta   float32
	args          [16]uintptr
	pin           runtime.Pinner
	pinned        bool
	product       Product
	workspaceSize int64
}

// Plan sees the row-major product as the column-major y^T[N,M] = (w^T)^T[N,K] * x^T[K,M], which needs no copy.
func (b *dynamicBLAS) Plan(p Product) (BLASPlan, error) {
	plan := &blasPlan{b: b, product: p}
	plan.pin.Pin(plan)
	plan.pinned = true
	if err := plan.prepare(); err != nil {
		_ = plan.Close()
		return nil, fmt.Errorf("a product of %dx%d by %dx%d: %w", p.M, p.K, p.N, p.K, err)
	}
	return plan, nil
}

func (p *blasPlan) prepare() error {
	b, q := p.b, p.product
	if err := b.failed(&b.descCreate, b.descCreate.invoke(uintptr(unsafe.Pointer(&p.desc)), blasCompute32F, uintptr(Float32))); err != nil {
		return err
	}
	one := int32(blasTransposed)
	if err := b.failed(&b.descSet, b.descSet.invoke(p.desc, blasDescTransA, uintptr(unsafe.Pointer(&one)), 4)); err != nil {
		return err
	}
	for _, l := range []struct {
		dst            *uintptr
		t              DataType
		rows, cols, ld int
	}{{&p.w, q.In, q.K, q.N, q.K}, {&p.x, q.In, q.K, q.M, cmp.Or(q.LDX, q.K)}, {&p.y, q.Out, q.N, q.M, cmp.Or(q.LDY, q.N)}} {
		if err := b.failed(&b.layoutCreate, b.layoutCreate.invoke(uintptr(unsafe.Pointer(l.dst)), uintptr(l.t), uintptr(l.rows), uintptr(l.cols), uintptr(l.ld))); err != nil {
			return err
		}
	}
	var pref uintptr
	if err := b.failed(&b.prefCreate, b.prefCreate.invoke(uintptr(unsafe.Pointer(&pref)))); err != nil {
		return err
	}
	defer b.prefDestroy.invoke(pref)
	limit := uint64(q.Workspace)
	if err := b.failed(&b.prefSet, b.prefSet.invoke(pref, blasPrefWorkspace, uintptr(unsafe.Pointer(&limit)), 8)); err != nil {
		return err
	}
	var got int32
	if err := b.failed(&b.heuristic, b.heuristic.invoke(b.handle, p.desc, p.w, p.x, p.y, p.y, pref, 1, uintptr(unsafe.Pointer(&p.result)), uintptr(unsafe.Pointer(&got)))); err != nil {
		return err
	}
	if got == 0 || p.result.state != blasStatusSupported {
		return &LibraryError{Call: b.heuristic.name, Code: int(p.result.state), Text: "no algorithm"}
	}
	p.workspaceSize = int64(p.result.workspace)
	return nil
}

func (p *blasPlan) Workspace() int64 { return p.workspaceSize }

func (p *blasPlan) Run(y, x, w DevicePtr, alpha, beta float32, workspace DevicePtr, s Stream) error {
	p.alpha, p.beta = alpha, beta
	p.args = [16]uintptr{p.b.handle, p.desc, uintptr(unsafe.Pointer(&p.alpha)), uintptr(w), p.w, uintptr(x), p.x, uintptr(unsafe.Pointer(&p.beta)),
		uintptr(y), p.y, uintptr(y), p.y, uintptr(unsafe.Pointer(&p.result.algo)), uintptr(workspace), uintptr(p.workspaceSize), uintptr(s)}
	r := p.b.matmul.invoke(p.args[:]...)
	runtime.KeepAlive(p)
	if r == 0 {
		return nil
	}
	return p.b.failed(&p.b.matmul, r)
}

func (p *blasPlan) Close() error {
	for _, l := range []*uintptr{&p.w, &p.x, &p.y} {
		if *l != 0 {
			p.b.layoutDestroy.invoke(*l)
			*l = 0
		}
	}
	if p.desc != 0 {
		p.b.descDestroy.invoke(p.desc)
		p.desc = 0
	}
	if p.pinned {
		p.pin.Unpin()
		p.pinned = false
	}
	return nil
}
