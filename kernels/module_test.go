package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
	"omni-engine/kernels/kerneltest"
)

func TestValidateAcceptsEveryCase(t *testing.T) {
	for _, c := range kerneltest.Cases() {
		require.NoError(t, c.Module.Validate(), c.Name)
	}
}

// Whatever index is moved out of range, Validate says so.
func TestValidateFindsWhatDoesNotExist(t *testing.T) {
	linear := func() *kernels.Linear { return &kernels.Linear{Out: 1, In: 0, Weight: 0, Bias: kernels.None} }
	write := func() *kernels.KVWrite { return &kernels.KVWrite{K: 0, V: 1, State: 0} }
	module := func(l *kernels.Linear, w *kernels.KVWrite) *kernels.Module {
		f := func(name string) kernels.Buffer {
			return kernels.Buffer{Name: name, DType: tensor.F32, Rows: kernels.Of(kernels.Tokens), Width: 4}
		}
		return &kernels.Module{Groups: []kernels.GroupSpec{{}}, States: []kernels.StateSpec{{Name: "kv", Heads: 1, KDim: 4, VDim: 4}}, Weights: make([]kernels.Weight, 1),
			Entries: []kernels.Entry{{Name: "forward", Buffers: []kernels.Buffer{f("a"), f("b")}, Ops: []kernels.Op{l, w}}}}
	}
	require.NoError(t, module(linear(), write()).Validate())
	rapid.Check(t, func(t *rapid.T) {
		l, w := linear(), write()
		bad := rapid.OneOf(rapid.Int32Range(-1000, -2), rapid.Int32Range(2, 1000)).Draw(t, "index")
		what := rapid.SampledFrom([]string{"buffer", "weight", "bias", "state", "group"}).Draw(t, "what")
		switch what {
		case "buffer":
			l.In = kernels.BufferID(bad)
		case "weight":
			l.Weight = kernels.WeightID(bad)
		case "bias":
			l.Bias = kernels.WeightID(bad)
		case "state":
			w.State = kernels.StateID(bad)
		}
		m := module(l, w)
		if what == "group" {
			m.States[0].Group = int(bad)
		}
		if m.Validate() == nil {
			t.Fatalf("%s %d was not found", what, bad)
		}
	})
}

func TestValidateRefusesOutputsThatDiffer(t *testing.T) {
	out := func(w int) kernels.Entry {
		return kernels.Entry{Name: string(rune('a' + w)), Buffers: []kernels.Buffer{{Name: "logits", DType: tensor.F32, Rows: kernels.Of(kernels.LogitRows), Width: w, Role: kernels.Output}}}
	}
	require.ErrorContains(t, (&kernels.Module{Entries: []kernels.Entry{out(3), out(4)}}).Validate(), `output "logits" differs`)
	require.ErrorContains(t, (&kernels.Module{Entries: []kernels.Entry{out(3), out(3)}}).Validate(), "two entries")
}

func TestDimensions(t *testing.T) {
	s := kernels.Sizes{Tokens: 7, Rows: 3, LogitRows: 5, Frames: 2}
	require.Equal(t, 7, kernels.Of(kernels.Tokens).At(s))
	require.Equal(t, 12, kernels.Fixed(12).At(s))
	require.Equal(t, 1921, kernels.Dim{Sym: kernels.Frames, Mul: 1920, Div: 2, Add: 1}.At(s))
}
