package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

func TestTheWorkOfAForwardPassIsItsLinears(t *testing.T) {
	view := func(out, in int) tensor.View {
		return tensor.View{DType: tensor.F32, Shape: []int{out, in}, Data: make([]byte, 4*out*in)}
	}
	rows := func(s kernels.Sym) kernels.Buffer { return kernels.Buffer{Rows: kernels.Dim{Sym: s}} }
	m := &kernels.Module{
		Weights: []kernels.Weight{{View: view(8, 4)}, {View: view(16, 8)}, {View: view(100, 16)}},
		Entries: []kernels.Entry{
			{Name: "forward", Buffers: []kernels.Buffer{rows(kernels.Tokens), rows(kernels.LogitRows)}, Ops: []kernels.Op{
				&kernels.Linear{Out: 0, Weight: 0}, &kernels.Linear{Out: 0, Weight: 1}, &kernels.Linear{Out: 1, Weight: 2}}},
			{Name: "sample", Buffers: []kernels.Buffer{rows(kernels.Tokens)}, Ops: []kernels.Op{&kernels.Linear{Out: 0, Weight: 0}}},
		},
	}
	require.Equal(t, matrixWork{TokenMACs: 8*4 + 16*8, LogitMACs: 1600, Bytes: 4 * (32 + 128 + 1600)}, workOf(m))
}
