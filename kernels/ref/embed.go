package ref

import (
	"fmt"

	"omni-engine/kernels"
)

func embed(e *Env, o *kernels.Embed) error {
	out, vocab := e.Buffers[o.Out], e.Weights.Shape(o.Table)[0]
	b := e.Batch
	for r := range b.SeqLens {
		for t := b.QueryStart[r]; t < b.QueryStart[r+1]; t++ {
			id := b.Tokens[t]
			if id < 0 {
				if id < -recent {
					return fmt.Errorf("token %d: a slot remembers its last %d samples", id, recent)
				}
				id = e.recent(b.Slots[r], -1-id)
			}
			if int(id) >= vocab {
				return fmt.Errorf("token id %d is outside the table of %d rows", id, vocab)
			}
			scaleRow(out.Row(int(t)), e.Weights.Row(o.Table, int(id), nil), o.Scale, false)
		}
	}
	return nil
}

func lookup(e *Env, o *kernels.Lookup) error {
	out, ids, table := e.Buffers[o.Out], e.Buffers[o.IDs], e.Weights.Shape(o.Table)[0]
	for t := range out.Rows {
		id := int(ids.I[t*ids.Width+o.Column])
		switch {
		case id >= table:
			return fmt.Errorf("id %d is outside the table of %d rows", id, table)
		case id >= 0:
			scaleRow(out.Row(t), e.Weights.Row(o.Table, id, nil), o.Scale, o.Accumulate)
		case !o.Accumulate:
			clear(out.Row(t))
		}
	}
	return nil
}

func scaleRow(dst, src []float32, scale float32, accumulate bool) {
	for i, v := range src {
		if accumulate {
			dst[i] += v * scale
		} else {
			dst[i] = v * scale
		}
	}
}

func inputRows(e *Env, o *kernels.InputRows) error {
	out := e.Buffers[o.Out]
	for _, in := range e.Batch.Inputs {
		if in.Name != o.Input {
			continue
		}
		if in.Width != out.Width {
			return fmt.Errorf("input %s has %d columns, the buffer %d", in.Name, in.Width, out.Width)
		}
		for i, t := range in.Rows {
			copy(out.Row(int(t)), in.Data[i*in.Width:(i+1)*in.Width])
		}
	}
	return nil
}

func gatherRows(e *Env, o *kernels.GatherRows) error {
	out, in := e.Buffers[o.Out], e.Buffers[o.In]
	for i, t := range e.Batch.LogitRows {
		copy(out.Row(i), in.Row(int(t)))
	}
	return nil
}
