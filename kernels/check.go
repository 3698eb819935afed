package kernels

import "fmt"

// Check verifies that a batch is consistent and fits the module, the limits and the plan, so that a device may index without
// further checks. It allocates nothing unless it fails.
func (b *Batch) Check(m *Module, l Limits, plan MemoryPlan) error {
	tokens, rows := len(b.Tokens), len(b.SeqLens)
	switch {
	case tokens > l.Tokens:
		return fmt.Errorf("batch: %d tokens exceed the limit of %d", tokens, l.Tokens)
	case rows > l.Rows:
		return fmt.Errorf("batch: %d rows exceed the limit of %d", rows, l.Rows)
	case len(b.LogitRows) > l.LogitRows:
		return fmt.Errorf("batch: %d logit rows exceed the limit of %d", len(b.LogitRows), l.LogitRows)
	case b.Frames > l.Frames:
		return fmt.Errorf("batch: %d frames exceed the limit of %d", b.Frames, l.Frames)
	case len(b.QueryStart) != rows+1 || len(b.Slots) != rows || len(b.Flags) != rows:
		return fmt.Errorf("batch: %d rows, but %d query starts, %d slots, %d flags", rows, len(b.QueryStart), len(b.Slots), len(b.Flags))
	case b.QueryStart[0] != 0 || int(b.QueryStart[rows]) != tokens:
		return fmt.Errorf("batch: query starts run from %d to %d over %d tokens", b.QueryStart[0], b.QueryStart[rows], tokens)
	case len(b.LogitOwner) != len(b.LogitRows) || len(b.Sampling) != len(b.LogitRows):
		return fmt.Errorf("batch: %d logit rows, %d owners, %d samplings", len(b.LogitRows), len(b.LogitOwner), len(b.Sampling))
	}
	for axis, p := range b.Positions {
		if len(p) != tokens && (axis == 0 || len(p) != 0) {
			return fmt.Errorf("batch: %d positions on axis %d for %d tokens", len(p), axis, tokens)
		}
	}
	for r := range rows {
		if err := b.checkRow(m, l, plan, r); err != nil {
			return err
		}
	}
	for i, t := range b.LogitRows {
		if t < 0 || int(t) >= tokens || b.LogitOwner[i] < 0 || int(b.LogitOwner[i]) >= rows {
			return fmt.Errorf("batch: logit row %d is token %d of row %d, outside the batch", i, t, b.LogitOwner[i])
		}
	}
	if n := len(b.LogitRows) * ((m.Vocab + 31) / 32); len(b.Masks) != 0 && len(b.Masks) != n {
		return fmt.Errorf("batch: grammar masks have %d words, not %d", len(b.Masks), n)
	}
	return b.checkInputs(tokens)
}

func (b *Batch) checkRow(m *Module, l Limits, plan MemoryPlan, r int) error {
	n := int(b.QueryStart[r+1] - b.QueryStart[r])
	seq := int(b.SeqLens[r])
	switch {
	case n < 0 || seq < n:
		return fmt.Errorf("batch: row %d has %d tokens of a sequence of %d", r, n, seq)
	case b.Slots[r] < 0 || int(b.Slots[r]) >= plan.Slots:
		return fmt.Errorf("batch: row %d is in slot %d of %d", r, b.Slots[r], plan.Slots)
	case b.Flags[r]&RowRelative != 0:
		return fmt.Errorf("batch: row %d has relative positions, which are not supported", r)
	}
	if len(m.Groups) == 0 {
		return nil
	}
	if len(b.Tables) != len(m.Groups) {
		return fmt.Errorf("batch: %d block tables for %d KV groups", len(b.Tables), len(m.Groups))
	}
	for g := range b.Tables {
		t := &b.Tables[g]
		if len(t.Start) != len(b.SeqLens)+1 {
			return fmt.Errorf("batch: block table of group %d has %d starts", g, len(t.Start))
		}
		if t.Start[r] < 0 || t.Start[r] > t.Start[r+1] || int(t.Start[r+1]) > len(t.Blocks) {
			return fmt.Errorf("batch: block table of group %d, row %d runs from %d to %d", g, r, t.Start[r], t.Start[r+1])
		}
		blocks := t.Row(r)
		if len(blocks)*l.BlockSize < seq {
			return fmt.Errorf("batch: row %d needs %d positions, its %d blocks of group %d hold %d", r, seq, len(blocks), g, len(blocks)*l.BlockSize)
		}
		for _, id := range blocks {
			if id < 0 || int(id) >= plan.Blocks {
				return fmt.Errorf("batch: row %d names block %d of %d", r, id, plan.Blocks)
			}
		}
	}
	return nil
}

func (b *Batch) checkInputs(tokens int) error {
	for _, in := range b.Inputs {
		if len(in.Data) != len(in.Rows)*in.Width {
			return fmt.Errorf("batch: input %s has %d values for %d rows of %d", in.Name, len(in.Data), len(in.Rows), in.Width)
		}
		for _, t := range in.Rows {
			if t < 0 || int(t) >= tokens {
				return fmt.Errorf("batch: input %s names token row %d of %d", in.Name, t, tokens)
			}
		}
	}
	return nil
}
