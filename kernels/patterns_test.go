package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/kernels"
)

// flowOf looks at operations over buffers 0 to 15; none is kept after the entry but those named.
func flowOf(ops []kernels.Op, kept ...kernels.BufferID) *kernels.Flow {
	k := make([]bool, 16)
	for _, b := range kept {
		k[b] = true
	}
	return kernels.NewFlow(&kernels.Entry{Ops: ops, Buffers: make([]kernels.Buffer, 16)}, k)
}

func linear(out, in kernels.BufferID) *kernels.Linear {
	return &kernels.Linear{Out: out, In: in, Bias: kernels.None}
}

func TestGatedProductsMatchInEitherOrderAndOnlyUnread(t *testing.T) {
	gate, up := linear(1, 0), linear(2, 0)
	join := &kernels.Gated{Out: 3, Gate: 1, Up: 2}
	for name, ops := range map[string][]kernels.Op{"gate first": {gate, up, join}, "up first": {up, gate, join}} {
		g, a, b, ok := flowOf(ops, 3).Gated(0)
		require.True(t, ok, name)
		require.Equal(t, []any{join, gate, up}, []any{g, a, b}, name)
	}
	for name, c := range map[string]struct {
		ops  []kernels.Op
		kept []kernels.BufferID
	}{
		"cut off":             {[]kernels.Op{gate, up}, nil},
		"other inputs":        {[]kernels.Op{gate, linear(2, 4), join}, nil},
		"one buffer twice":    {[]kernels.Op{gate, linear(1, 0), join}, nil},
		"another's results":   {[]kernels.Op{gate, up, &kernels.Gated{Out: 3, Gate: 5, Up: 2}}, nil},
		"read again":          {[]kernels.Op{gate, up, join, linear(6, 2)}, nil},
		"kept for the caller": {[]kernels.Op{gate, up, join}, []kernels.BufferID{1}},
	} {
		_, _, _, ok := flowOf(c.ops, c.kept...).Gated(0)
		require.False(t, ok, name)
	}
}

func TestAResidualProductIsAddedInPlaceAndReadByNobodyElse(t *testing.T) {
	l, add := linear(1, 0), &kernels.Binary{Kind: kernels.Add, Out: 2, A: 2, B: 1}
	got, sum, ok := flowOf([]kernels.Op{l, add}, 2).Residual(0)
	require.True(t, ok)
	require.Equal(t, []any{l, add}, []any{got, sum})
	for name, ops := range map[string][]kernels.Op{
		"not in place":       {l, &kernels.Binary{Kind: kernels.Add, Out: 3, A: 2, B: 1}},
		"a product":          {l, &kernels.Binary{Kind: kernels.Mul, Out: 2, A: 2, B: 1}},
		"onto itself":        {l, &kernels.Binary{Kind: kernels.Add, Out: 1, A: 1, B: 1}},
		"reads the stream":   {linear(1, 2), add},
		"its result is read": {l, add, linear(4, 1)},
	} {
		_, _, ok := flowOf(ops, 2).Residual(0)
		require.False(t, ok, name)
	}
}

func TestHeadsFollowTheirChainsToOneInput(t *testing.T) {
	norm := func(b kernels.BufferID) *kernels.Norm { return &kernels.Norm{Out: b, In: b, GroupSize: 8} }
	write := &kernels.KVWrite{K: 2, V: 3, State: 1}
	att := &kernels.Attention{Out: 4, Q: 1, State: 1, Sinks: kernels.None}
	ops := []kernels.Op{linear(1, 0), linear(2, 0), linear(3, 0), norm(1), norm(2), write, att}
	h, ok := flowOf(ops, 4).Heads(0)
	require.True(t, ok)
	require.Equal(t, 7, h.Ops)
	require.Equal(t, kernels.BufferID(0), h.In)
	require.Equal(t, []*kernels.Norm{ops[3].(*kernels.Norm), ops[4].(*kernels.Norm), nil}, []*kernels.Norm{h.Chains[0].Norm, h.Chains[1].Norm, h.Chains[2].Norm})
	other := *att
	other.State = 2
	for name, ops := range map[string][]kernels.Op{
		"another cache":        {ops[0], ops[1], ops[2], write, &other},
		"another input":        {ops[0], ops[1], linear(3, 5), write, att},
		"something in between": {ops[0], ops[1], ops[2], linear(9, 8), write, att},
		"no attention":         {ops[0], ops[1], ops[2], write},
		"no write":             {ops[0], ops[1], ops[2]},
	} {
		_, ok := flowOf(ops, 4).Heads(0)
		require.False(t, ok, name)
	}
}
