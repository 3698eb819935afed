package ref

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"omni-engine/kernels"
)

func route(e *Env, o *kernels.Route) error {
	ids, weights, logits := e.Buffers[o.IDs], e.Buffers[o.Weights], e.Buffers[o.Logits]
	if o.TopK > logits.Width || o.Groups > 0 && logits.Width%o.Groups != 0 {
		return fmt.Errorf("route: %d of %d experts in %d groups", o.TopK, logits.Width, o.Groups)
	}
	bias := e.Weights.Vector(o.SelectBias)
	for t := range logits.Rows {
		chosen, w := ids.I[t*o.TopK:(t+1)*o.TopK], weights.Row(t)
		l := logits.Row(t)
		if o.Score == kernels.ScoreSparseMixer {
			sparseMixer(chosen, w, l, o.Jitter)
		} else {
			choose(chosen, w, l, bias, o)
		}
		if o.Renormalise {
			sum := float32(0)
			for _, v := range w {
				sum += v
			}
			for i := range w {
				w[i] /= sum
			}
		}
		scaleRow(w, w, orOne(o.Factor), false)
	}
	return nil
}

func choose(ids []int32, w, logits, bias []float32, o *kernels.Route) {
	scores := slices.Clone(logits)
	switch o.Score {
	case kernels.ScoreSoftmax:
		softmax(scores, math.Inf(-1))
	case kernels.ScoreSigmoid:
		for i, v := range scores {
			scores[i] = Activate(kernels.Sigmoid, v)
		}
	}
	pick := slices.Clone(scores)
	for i := range bias {
		pick[i] += bias[i]
	}
	if o.Groups > 1 {
		dropGroups(pick, o)
	}
	for k, id := range best(pick, len(ids)) {
		ids[k], w[k] = id, scores[id]
	}
	switch o.Score {
	case kernels.ScoreTopKSoftmax:
		softmax(w, math.Inf(-1))
	case kernels.ScoreTopKSigmoid:
		for i, v := range w {
			w[i] = Activate(kernels.Sigmoid, v)
		}
	}
}

// best returns the k highest, ties to the lower index.
func best(s []float32, k int) []int32 {
	ids := make([]int32, len(s))
	for i := range ids {
		ids[i] = int32(i)
	}
	slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(s[b], s[a]) })
	return ids[:k]
}

// dropGroups keeps only the experts of the best groups.
func dropGroups(pick []float32, o *kernels.Route) {
	size := len(pick) / o.Groups
	groups := make([]float32, o.Groups)
	for g := range groups {
		in := slices.Clone(pick[g*size : (g+1)*size])
		slices.SortFunc(in, func(a, b float32) int { return cmp.Compare(b, a) })
		groups[g] = in[0]
		if o.GroupSum2 && size > 1 {
			groups[g] += in[1]
		}
	}
	keep := best(groups, o.GroupTopK)
	for i := range pick {
		if !slices.Contains(keep, int32(i/size)) {
			pick[i] = float32(math.Inf(-1))
		}
	}
}

// sparseMixer picks the experts one after another, each by a softmax over those whose logit is near the best one left.
func sparseMixer(ids []int32, w, logits []float32, jitter float32) {
	left := slices.Clone(logits)
	for k := range ids {
		id := best(left, 1)[0]
		top := left[id]
		near := slices.Clone(left)
		for i, l := range logits {
			size := max(float32(math.Abs(float64(l))), top)
			if (top-l)/size > 2*jitter {
				near[i] = float32(math.Inf(-1))
			}
		}
		softmax(near, math.Inf(-1))
		ids[k], w[k] = id, near[id]
		left[id] = float32(math.Inf(-1))
	}
}

// experts visits each expert once, with the rows that chose it; a row's sum is in the order of its choices.
func experts(e *Env, o *kernels.Experts) error {
	out, in, ids, weights := e.Buffers[o.Out], e.Buffers[o.In], e.Buffers[o.IDs], e.Buffers[o.Weights]
	k := ids.Width
	parts := Value{F: make([]float32, in.Rows*k*out.Width), Rows: in.Rows * k, Width: out.Width}
	for x := range o.Down {
		var rows []int
		for i, id := range ids.I[:in.Rows*k] {
			if int(id) == x {
				rows = append(rows, i)
			}
		}
		if len(rows) > 0 {
			e.expert(o, x, rows, in, weights, parts)
		}
	}
	for t := range out.Rows {
		y := out.Row(t)
		clear(y)
		for j := range k {
			w := float32(1)
			if !o.WeightInput {
				w = weights.F[t*k+j]
			}
			scaleRow(y, parts.Row(t*k+j), w, true)
		}
	}
	return nil
}

// expert computes expert x for the (token, choice) pairs rows.
func (e *Env) expert(o *kernels.Experts, x int, rows []int, in, weights, parts Value) {
	k := weights.Width
	a := newValue(len(rows), in.Width)
	for i, p := range rows {
		w := float32(1)
		if o.WeightInput {
			w = weights.F[p]
		}
		scaleRow(a.Row(i), in.Row(p/k), w, false)
	}
	inner := e.Weights.Shape(o.Gate[x])[0]
	gate, up, y := newValue(len(rows), inner), newValue(len(rows), inner), newValue(len(rows), parts.Width)
	e.parallel(inner, 2*inner*in.Width*len(rows), func(from, to int) {
		e.matmul(gate, a, o.Gate[x], from, to, e.expertBias(o.GateBias, x))
		e.matmul(up, a, o.Up[x], from, to, e.expertBias(o.UpBias, x))
	})
	for i := range gate.F {
		gate.F[i] = gate1(o.Act, o.Limit, gate.F[i], up.F[i])
	}
	e.parallel(y.Width, y.Width*inner*len(rows), func(from, to int) {
		e.matmul(y, gate, o.Down[x], from, to, e.expertBias(o.DownBias, x))
	})
	for i, p := range rows {
		copy(parts.Row(p), y.Row(i))
	}
}

func (e *Env) expertBias(b []kernels.WeightID, x int) []float32 {
	if b == nil {
		return nil
	}
	return e.Weights.Vector(b[x])
}

func newValue(rows, width int) Value {
	return Value{F: make([]float32, rows*width), Rows: rows, Width: width}
}
