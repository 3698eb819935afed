package gpu

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"omni-engine/kernels"
)

// program is a compiled module: weights on the device, and scratch memory that all steps share, since they run one after another
// on the device's stream.
type program struct {
	dev     *device
	plan    *plan
	weights *block
	scratch *block
	close   sync.Once
}

// Compile uploads the module's weights and lays out its buffers.
func (d *device) Compile(m *kernels.Module, l kernels.Limits) (kernels.Program, error) {
	p, err := newPlan(m, l, d.hardware())
	if err != nil {
		return nil, err
	}
	pr := &program{dev: d, plan: p}
	if err := pr.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("compiling %s for CUDA: %w", m.Name, err), pr.Close())
	}
	if p.usesLibrary() {
		d.log.Info("cuBLASLt multiplies dense weights in prefills", "library", d.blas.lib.Library(), "version", versionText(d.blas.lib.Version()))
	}
	return pr, nil
}

func (pr *program) build() (err error) {
	p, d := pr.plan, pr.dev
	mp := p.memory()
	if pr.weights, err = d.alloc("weights", mp.Weights); err != nil {
		return err
	}
	if pr.scratch, err = d.alloc("scratch", mp.Scratch); err != nil {
		return err
	}
	// Padding rows compute with what lies there.
	if err := d.cuda.Do(func() error { return d.cuda.Memset8(pr.scratch.base, 0, pr.scratch.size, d.stream) }); err != nil {
		return err
	}
	u, err := d.newUploader(uploadBytes)
	if err != nil {
		return err
	}
	return errors.Join(p.upload(u, pr.weights), u.close())
}

// SetAdapter refuses: adapters have no CUDA kernels yet.
func (pr *program) SetAdapter(int, *kernels.Adapter) error {
	return errors.New("adapters are not supported on CUDA")
}

// Explain lists what each entry became.
func (pr *program) Explain() string {
	var s strings.Builder
	fmt.Fprintf(&s, "cuda: activations %s, KV cache %s", pr.plan.act, pr.plan.kv)
	if pr.dev.eager {
		s.WriteString(", no graphs")
	} else {
		fmt.Fprintf(&s, ", decode graphs for %v rows", buckets(pr.plan.graphRows()))
	}
	if pr.plan.usesLibrary() {
		fmt.Fprintf(&s, ", dense products of more than %d rows outside graphs by %s\n", libraryRows, pr.dev.blas)
	} else {
		s.WriteString(", products by own kernels\n")
	}
	for _, e := range pr.plan.entries {
		e.explain(&s)
	}
	return s.String()
}

// Close frees the program's memory after what still runs on it.
func (pr *program) Close() (err error) {
	pr.close.Do(func() {
		d := pr.dev
		err = errors.Join(d.cuda.Do(func() error { return d.cuda.StreamSynchronize(d.stream) }), pr.weights.free(), pr.scratch.free())
	})
	return err
}
