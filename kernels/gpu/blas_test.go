package gpu

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/cuda"
	"omni-engine/cuda/sim"
	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// withBLAS is a device whose prefills cuBLASLt multiplies in: the system's on a GPU, the stand-in on the software device.
func withBLAS(t *testing.T, o Options) *device {
	t.Helper()
	o.BLAS = AnyBLAS
	if os.Getenv("OMNI_CUDA_LIB") == "" && os.Getenv("OMNI_SIM") == "require" {
		o.BLAS = sim.Require(t, "driver", "kernels-plain").BLAS()
	}
	d := opened(t, o)
	if d.blas == nil {
		t.Skip("there is no cuBLASLt here")
	}
	return d
}

func wideLimits() kernels.Limits {
	l := limits()
	l.Tokens, l.LogitRows = 100, 100
	return l
}

// Products of cuBLASLt give the own kernels' logits, whole prompts and a chunk beside decodes, in 16-bit types, with and without
// residuals; decode graphs do not use it.
func TestLibraryProductsAreTheOwnKernels(t *testing.T) {
	for name, c := range map[string]struct {
		act      tensor.DType
		relative float64
	}{"bf16": {tensor.BF16, 0.03}, "f16": {tensor.F16, 0.006}} {
		for _, model := range []string{"llama_default", "gemma3_text"} {
			t.Run(name+" "+model, func(t *testing.T) {
				m, l := tiny(t, model), wideLimits()
				l.Compute = c.act
				var log bytes.Buffer
				d := withBLAS(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
				got, own := newRig(t, d, m, l), newRig(t, opened(t, Options{}), m, l)
				r := got.states.(*states).runs
				a, b := text(1, 90), text(2, 60)
				products := 0
				for i, batch := range [][]chunk{
					{{slot: 0, tokens: a, all: true}},
					{{slot: 1, tokens: b[:43], all: true}, {slot: 0, start: 90, tokens: []int32{7}}},
					{{slot: 1, start: 43, tokens: b[43:], all: true}},
					{{slot: 0, start: 91, tokens: []int32{9}}, {slot: 1, start: 60, tokens: []int32{9}}},
				} {
					g, _ := got.run(batch...)
					w, _ := own.run(batch...)
					diff, scale := difference(t, g, w)
					require.LessOrEqual(t, diff, c.relative*scale, "step %d", i)
					if i < 2 {
						require.Greater(t, r.library, products, "step %d is the library's", i)
					} else {
						require.Equal(t, products, r.library, "step %d has few rows", i)
					}
					products = r.library
				}
				require.Positive(t, r.replayed)
				require.Equal(t, 1, strings.Count(log.String(), `msg="cuBLASLt multiplies dense weights in prefills"`), log.String())
				require.Zero(t, own.states.(*states).runs.library)
				require.Contains(t, got.program.Explain(), "dense products of more than 32 rows outside graphs by cuBLASLt ")
				require.Contains(t, own.program.Explain(), ", products by own kernels\n")
			})
		}
	}
}

// A decode batch of more rows than the threshold: its graph holds own kernels.
func TestGraphsHoldOwnProducts(t *testing.T) {
	m, l := tiny(t, "llama_default"), wideLimits()
	l.Rows = 40
	d := withBLAS(t, Options{})
	r := newRig(t, d, m, l)
	batch := make([]chunk, 40)
	for i := range batch {
		batch[i] = chunk{slot: i % l.Rows, tokens: []int32{int32(i)}, how: greedy()}
	}
	r.run(batch...)
	runs := r.states.(*states).runs
	require.Equal(t, []int{2, 2, 0}, []int{runs.captured, runs.replayed, runs.library})
}

// What the library may use is in the plan, where a product may be its, and nowhere else.
func TestTheLibrarysWorkspaceIsPlanned(t *testing.T) {
	const workspace = 4 << 20
	scratch := func(name string, hw hardware, change func(*kernels.Limits)) int64 {
		l := wideLimits()
		if change != nil {
			change(&l)
		}
		p, err := newPlan(tiny(t, name), l, hw)
		require.NoError(t, err)
		return p.memory().Scratch
	}
	none, some := hardware{sms: 8}, hardware{sms: 8, workspace: workspace}
	require.Equal(t, scratch("llama_default", none, nil)+workspace, scratch("llama_default", some, nil))
	exact := func(l *kernels.Limits) { l.Exact = true }
	require.Equal(t, scratch("llama_default", none, exact), scratch("llama_default", some, exact), "float32 stays with the own kernels")
	few := func(l *kernels.Limits) { l.Tokens, l.LogitRows = 32, 6 }
	require.Equal(t, scratch("llama_default", none, few), scratch("llama_default", some, few))
}

func TestRowsArePaddedToAFewSizes(t *testing.T) {
	for _, c := range [][3]int{{33, 8192, 64}, {64, 8192, 64}, {65, 8192, 128}, {513, 8192, 640}, {2048, 8192, 2048}, {2049, 8192, 2304}, {8192, 8192, 8192}, {70, 100, 100}} {
		require.Equal(t, c[2], libraryBucket(c[0], c[1]), "%d rows of at most %d", c[0], c[1])
	}
	seen := map[int]bool{}
	for n := 33; n <= 8192; n++ {
		b := libraryBucket(n, 8192)
		require.GreaterOrEqual(t, b, n)
		require.LessOrEqual(t, b-n, max(63, n/4))
		seen[b] = true
	}
	require.Less(t, len(seen), 48)
}

// refusing is a library without algorithms.
type refusing struct{ asked int }

func (*refusing) Library() string { return "refusing" }
func (*refusing) Version() int    { return 130102 }
func (*refusing) Close() error    { return nil }
func (b *refusing) Plan(cuda.Product) (cuda.BLASPlan, error) {
	b.asked++
	return nil, &cuda.LibraryError{Call: "heuristic", Code: 15, Text: "no algorithm"}
}

// A product that the library refuses runs by an own kernel; it is asked for once, and said once.
func TestARefusedProductIsTheOwnKernels(t *testing.T) {
	m, l := tiny(t, "llama_default"), wideLimits()
	var log bytes.Buffer
	lib := &refusing{}
	d := opened(t, Options{})
	d.blas = &blas{lib: lib, log: slog.New(slog.NewTextHandler(&log, nil)), plans: map[cuda.Product]cuda.BLASPlan{}}
	got, own := newRig(t, d, m, l), newRig(t, opened(t, Options{}), m, l)
	for range 2 {
		g, _ := got.run(chunk{slot: 0, tokens: text(1, 90)})
		w, _ := own.run(chunk{slot: 0, tokens: text(1, 90)})
		require.Equal(t, w, g)
	}
	require.Positive(t, lib.asked)
	require.Len(t, d.blas.plans, lib.asked)
	require.Equal(t, lib.asked, strings.Count(log.String(), "cuBLASLt refuses a product"), log.String())
	require.Zero(t, got.states.(*states).runs.library)
	require.Contains(t, got.program.Explain(), "cuBLASLt 13.1.2 (refusing)")
}

func TestALibraryThatIsMissing(t *testing.T) {
	t.Setenv("OMNI_CUBLASLT_LIB", "/nowhere/libcublasLt.so.13")
	var log bytes.Buffer
	d := opened(t, Options{BLAS: AnyBLAS, Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.Nil(t, d.blas)
	require.Equal(t, 1, strings.Count(log.String(), "\n"))
	require.Contains(t, log.String(), `msg="cuBLASLt cannot be used: own kernels multiply" reason="libcublasLt.so.13 was not found (omni-engine devices says where it was looked for)"`)
	_, err := Open(d.cuda.Driver, Options{BLAS: "/nowhere/else.so"})
	require.ErrorContains(t, err, "opening the GPU")
	require.ErrorContains(t, err, "/nowhere/else.so")
	step := newRig(t, d, tiny(t, "llama_default"), limits()).steps[0]
	_, err = step.Wait(context.Background())
	require.NoError(t, err, "the device that is open is not touched by the one that failed")
}
