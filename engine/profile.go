package engine

import (
	"context"
	"errors"
	"fmt"

	"omni-engine/kernels"
)

// profile runs one step as large as the limits allow, over caches of the null block alone, so that everything that a device takes
// lazily (kernels, library workspaces) is taken before the rest of its memory is given to the KV cache.
func profile(ctx context.Context, program kernels.Program, m *kernels.Module, l kernels.Limits, plan kernels.MemoryPlan) (err error) {
	plan.Blocks, plan.Slots = 1, l.Rows
	states, err := program.NewStates(plan)
	if err != nil {
		return fmt.Errorf("states of the profiling step: %w", err)
	}
	defer func() { err = errors.Join(err, states.Close()) }()
	step, err := program.NewStep(states)
	if err != nil {
		return fmt.Errorf("the profiling step: %w", err)
	}
	if c, ok := step.(interface{ Close() error }); ok {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	fillProfile(step.Batch(), m, l)
	var calls []kernels.Call
	for _, name := range []string{"forward", "sample"} {
		if e := m.Entry(name); e >= 0 {
			calls = append(calls, kernels.Call{Entry: e})
		}
	}
	if err := step.Submit(calls...); err != nil {
		return fmt.Errorf("submitting the profiling step: %w", err)
	}
	if _, err := step.Wait(ctx); err != nil {
		return fmt.Errorf("running the profiling step: %w", err)
	}
	step.Release()
	return nil
}

// fillProfile spreads the most tokens over the most rows; each row samples its last token.
func fillProfile(b *kernels.Batch, m *kernels.Module, l kernels.Limits) {
	longest := max(l.MaxModelLen, 1)
	rows := min(l.Rows, l.Tokens, l.LogitRows)
	b.QueryStart = append(b.QueryStart[:0], 0)
	if len(b.Tables) != len(m.Groups) {
		b.Tables = make([]kernels.GroupTable, len(m.Groups))
	}
	for g := range b.Tables {
		b.Tables[g].Start, b.Tables[g].Blocks = append(b.Tables[g].Start[:0], 0), b.Tables[g].Blocks[:0]
	}
	for r := range rows {
		n := min(l.Tokens/rows, longest)
		if r < l.Tokens%rows && n < longest {
			n++
		}
		for p := range n {
			b.Tokens = append(b.Tokens, 0)
			b.Positions[0] = append(b.Positions[0], int32(p))
		}
		b.QueryStart = append(b.QueryStart, int32(len(b.Tokens)))
		b.SeqLens, b.Slots = append(b.SeqLens, int32(n)), append(b.Slots, int32(r))
		b.Flags = append(b.Flags, kernels.RowFirst|kernels.RowPrefill)
		for g := range b.Tables {
			t := &b.Tables[g]
			for range ceilDiv(n, max(l.BlockSize, 1)) {
				t.Blocks = append(t.Blocks, 0)
			}
			t.Start = append(t.Start, int32(len(t.Blocks)))
		}
		b.LogitRows, b.LogitOwner = append(b.LogitRows, int32(len(b.Tokens)-1)), append(b.LogitOwner, int32(r))
		b.Sampling = append(b.Sampling, kernels.RowSampling{Logprobs: -1})
	}
}
