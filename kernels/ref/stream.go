package ref

import (
	"fmt"
	"math"

	"omni-engine/kernels"
)

func inputIDs(e *Env, o *kernels.InputIDs) error {
	out := e.Buffers[o.Out]
	for i := range out.I {
		out.I[i] = -1
	}
	for _, in := range e.Batch.Inputs {
		if in.Name != o.Input {
			continue
		}
		if in.Width != out.Width {
			return fmt.Errorf("input %s has %d columns, the buffer %d", in.Name, in.Width, out.Width)
		}
		for i, t := range in.Rows {
			for c, v := range in.Data[i*in.Width : (i+1)*in.Width] {
				out.I[int(t)*out.Width+c] = int32(v)
			}
		}
	}
	return nil
}

func addRows(e *Env, o *kernels.AddRows) error {
	out := e.Buffers[o.Out]
	for _, in := range e.Batch.Inputs {
		if in.Name != o.Input {
			continue
		}
		if in.Width != out.Width {
			return fmt.Errorf("input %s has %d columns, the buffer %d", in.Name, in.Width, out.Width)
		}
		for i, t := range in.Rows {
			scaleRow(out.Row(int(t)), in.Data[i*in.Width:(i+1)*in.Width], 1, true)
		}
	}
	return nil
}

// Slots keep ids plus one: an empty slot is zero.

func slotStore(e *Env, o *kernels.SlotStore) error {
	in, b := e.Buffers[o.In], e.Batch
	for l, r := range b.LogitOwner {
		s := e.slot(o.State, b.Slots[r])
		for c := range in.Width {
			s[c] = float32(in.I[l*in.Width+c] + 1)
		}
	}
	return nil
}

func slotLoad(e *Env, o *kernels.SlotLoad) error {
	out, b := e.Buffers[o.Out], e.Batch
	for r, slot := range b.Slots {
		s := e.slot(o.State, slot)
		for t := int(b.QueryStart[r]); t < int(b.QueryStart[r+1]); t++ {
			for c := range out.Width {
				out.I[t*out.Width+c] = int32(s[c]) - 1
			}
		}
	}
	return nil
}

func sampled(e *Env, o *kernels.Sampled) error {
	out := e.Buffers[o.Out]
	if len(e.Result.Tokens) != out.Rows {
		return fmt.Errorf("%d tokens were sampled for %d rows", len(e.Result.Tokens), out.Rows)
	}
	for l, id := range e.Result.Tokens {
		out.I[l*out.Width+o.Column] = id
	}
	return nil
}

func sampleCode(e *Env, o *kernels.SampleCode) error {
	ids, logits := e.Buffers[o.IDs], e.Buffers[o.Logits]
	var s sampler
	for l := range logits.Rows {
		at := l*ids.Width + o.Column
		ids.I[at] = -1
		if ids.I[l*ids.Width] < 0 {
			continue
		}
		p := &e.Batch.Sampling[l]
		s.logits = append(s.logits[:0], logits.Row(l)...)
		var fault string
		if p.Temperature < greedyBelow {
			ids.I[at], fault = s.argmax()
		} else {
			s.topK(o.TopK)
			s.topP(o.TopP)
			ids.I[at], fault = s.draw(uniform(p.Seed, p.Position, uint32(o.Column)+1))
		}
		if fault != "" {
			e.Result.Faults = append(e.Result.Faults, kernels.RowFault{LogitRow: l, Reason: fmt.Sprintf("code %d: %s", o.Column, fault)})
		}
	}
	return nil
}

func ropeAt(e *Env, o *kernels.RopeAt) error {
	x, half := e.Buffers[o.X], o.RotDim/2
	if o.RotDim > o.HeadDim || len(o.InvFreq) != half {
		return fmt.Errorf("%d of %d columns, %d frequencies", o.RotDim, o.HeadDim, len(o.InvFreq))
	}
	cos, sin := make([]float32, half), make([]float32, half)
	for i, f := range o.InvFreq {
		s, c := math.Sincos(float64(o.Position) * f)
		sin[i], cos[i] = float32(s)*orOne(o.Factor), float32(c)*orOne(o.Factor)
	}
	for t := range x.Rows {
		for h := range o.Heads {
			rotate(x.Row(t)[h*o.HeadDim:][:o.RotDim], cos, sin, o.Pairing)
		}
	}
	return nil
}

// heads is grouped-query attention of one query over n positions whose keys and values lie in order.
func heads(q, keys, values, out, scores []float32, n, heads, kvHeads, kdim, vdim int, scale float32) {
	kw, vw := kvHeads*kdim, kvHeads*vdim
	for h := range heads {
		kv := h * kvHeads / heads
		for i := range n {
			scores[i] = dot(q[h*kdim:(h+1)*kdim], keys[i*kw+kv*kdim:][:kdim]) * scale
		}
		softmax(scores[:n], math.Inf(-1))
		y := out[h*vdim : (h+1)*vdim]
		clear(y)
		for i, w := range scores[:n] {
			for d, v := range values[i*vw+kv*vdim:][:vdim] {
				y[d] += w * v
			}
		}
	}
}

func rowAttention(e *Env, o *kernels.RowAttention) error {
	out, q, k, v := e.Buffers[o.Out], e.Buffers[o.Q], e.Buffers[o.K], e.Buffers[o.V]
	e.parallel(q.Rows, q.Rows*o.Count*o.Heads*(o.KDim+o.VDim), func(from, to int) {
		scores := make([]float32, o.Count)
		for t := from; t < to; t++ {
			heads(q.Row(t), k.Row(t), v.Row(t), out.Row(t), scores, o.Count, o.Heads, o.KVHeads, o.KDim, o.VDim, o.Scale)
		}
	})
	return nil
}

func ringAttention(e *Env, o *kernels.RingAttention) error {
	out, q, k, v, b := e.Buffers[o.Out], e.Buffers[o.Q], e.Buffers[o.K], e.Buffers[o.V], e.Batch
	kw, vw := o.KVHeads*o.KDim, o.KVHeads*o.VDim
	keys, values, scores := make([]float32, o.Window*kw), make([]float32, o.Window*vw), make([]float32, o.Window)
	for r, slot := range b.Slots {
		ring := e.slot(o.State, slot)
		ringK, ringV := ring[:o.Window*kw], ring[o.Window*kw:]
		to := int(b.QueryStart[r+1])
		for t := int(b.QueryStart[r]); t < to; t++ {
			pos := int(b.SeqLens[r]) - to + t
			copy(ringK[pos%o.Window*kw:][:kw], k.Row(t))
			copy(ringV[pos%o.Window*vw:][:vw], v.Row(t))
			n := min(pos+1, o.Window)
			for i := range n {
				at := (pos + 1 - n + i) % o.Window
				copy(keys[i*kw:][:kw], ringK[at*kw:])
				copy(values[i*vw:][:vw], ringV[at*vw:])
			}
			heads(q.Row(t), keys, values, out.Row(t), scores, n, o.Heads, o.KVHeads, o.KDim, o.VDim, o.Scale)
		}
	}
	return nil
}

func snake(e *Env, o *kernels.Snake) error {
	out, in := e.Buffers[o.Out], e.Buffers[o.In]
	alpha, beta := e.Weights.Vector(o.Alpha), e.Weights.Vector(o.Beta)
	freq, inv := make([]float64, in.Width), make([]float64, in.Width)
	for c := range freq {
		freq[c], inv[c] = math.Exp(float64(alpha[c])), 1/(math.Exp(float64(beta[c]))+1e-9)
	}
	e.parallel(in.Rows, 16*len(in.F), func(from, to int) {
		for t := from; t < to; t++ {
			y := out.Row(t)
			for c, v := range in.Row(t) {
				s := math.Sin(float64(v) * freq[c])
				y[c] = float32(float64(v) + inv[c]*s*s)
			}
		}
	})
	return nil
}
