package ref

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"omni-engine/kernels"
)

// greedyBelow is vLLM's _SAMPLING_EPS: lower temperatures are greedy.
const greedyBelow = 1e-5

// A sampler holds one worker's scratch.
type sampler struct {
	logits []float32
	order  []int32
	seen   map[int32]int32
}

func sample(e *Env, o *kernels.Sample) error {
	logits, b, res := e.Buffers[o.Logits], e.Batch, e.Result
	n := len(b.LogitRows)
	res.Tokens = make([]int32, n)
	res.Logprobs, res.Faults = nil, nil
	for i := range b.Sampling {
		if b.Sampling[i].Logprobs >= 0 {
			res.Logprobs = make([]kernels.Logprobs, n)
			break
		}
	}
	faults := make([]string, n)
	e.parallel(n, 16*len(logits.F), func(from, to int) {
		var s sampler
		for i := from; i < to; i++ {
			res.Tokens[i], faults[i] = s.row(logits.Row(i), &b.Sampling[i], mask(b, i, logits.Width))
			if b.Sampling[i].Logprobs >= 0 && faults[i] == "" {
				res.Logprobs[i] = RawLogprobs(logits.Row(i), b.Sampling[i], res.Tokens[i])
			}
		}
	})
	for i, f := range faults {
		if f != "" {
			res.Tokens[i] = -1
			res.Faults = append(res.Faults, kernels.RowFault{LogitRow: i, Reason: f})
		} else if !b.Sampling[i].Skip {
			e.remember(b.Slots[b.LogitOwner[i]], res.Tokens[i])
		}
	}
	return nil
}

func mask(b *kernels.Batch, i, vocab int) []uint32 {
	if len(b.Masks) == 0 {
		return nil
	}
	words := (vocab + 31) / 32
	return b.Masks[i*words : (i+1)*words]
}

// row samples one row; the fault is empty when it went well.
func (s *sampler) row(raw []float32, p *kernels.RowSampling, mask []uint32) (token int32, fault string) {
	for _, v := range raw {
		if v != v {
			return -1, "NaN in the logits"
		}
	}
	if p.Skip {
		return -1, ""
	}
	s.logits = append(s.logits[:0], raw...)
	s.restrict(p, mask)
	s.penalise(p)
	if p.Temperature < greedyBelow {
		return s.argmax()
	}
	for i := range s.logits {
		s.logits[i] /= p.Temperature
	}
	s.minP(p.MinP)
	s.topK(int(p.TopK))
	s.topP(p.TopP)
	return s.draw(Uniform(p.Seed, p.Position))
}

func ninf() float32 { return float32(math.Inf(-1)) }

// restrict applies what is allowed and banned, then the bias.
func (s *sampler) restrict(p *kernels.RowSampling, mask []uint32) {
	l := s.logits
	if mask != nil {
		for i := range l {
			if mask[i/32]>>(i%32)&1 == 0 {
				l[i] = ninf()
			}
		}
	}
	if p.Allowed != nil {
		s.set(p.Allowed)
		for i := range l {
			if _, ok := s.seen[int32(i)]; !ok {
				l[i] = ninf()
			}
		}
	}
	for _, id := range p.Banned {
		if id >= 0 && int(id) < len(l) {
			l[id] = ninf()
		}
	}
	for i, id := range p.BiasIDs {
		if id >= 0 && int(id) < len(l) {
			l[id] += p.Bias[i]
		}
	}
}

// set counts ids in seen.
func (s *sampler) set(lists ...[]int32) {
	if s.seen == nil {
		s.seen = map[int32]int32{}
	}
	clear(s.seen)
	for _, ids := range lists {
		for _, id := range ids {
			s.seen[id]++
		}
	}
}

// penalise: repetition over prompt and output, frequency and presence over the output.
func (s *sampler) penalise(p *kernels.RowSampling) {
	l := s.logits
	if p.Repetition != 0 && p.Repetition != 1 {
		s.set(p.Prompt, p.Output)
		for id := range s.seen {
			if id < 0 || int(id) >= len(l) {
				continue
			}
			if l[id] > 0 {
				l[id] /= p.Repetition
			} else {
				l[id] *= p.Repetition
			}
		}
	}
	if p.Frequency != 0 || p.Presence != 0 {
		s.set(p.Output)
		for id, n := range s.seen {
			if id >= 0 && int(id) < len(l) {
				l[id] -= p.Frequency*float32(n) + p.Presence
			}
		}
	}
}

// argmax is the lowest id among the maxima.
func (s *sampler) argmax() (int32, string) {
	at, top := int32(-1), ninf()
	for i, v := range s.logits {
		if v > top {
			at, top = int32(i), v
		}
	}
	if at < 0 {
		return -1, "no token may be sampled"
	}
	return at, ""
}

// minP drops tokens whose probability is below p times the highest.
func (s *sampler) minP(p float32) {
	if p <= 0 {
		return
	}
	top := slices.Max(s.logits)
	for i, v := range s.logits {
		if float32(math.Exp(float64(v-top))) < p {
			s.logits[i] = ninf()
		}
	}
}

// sort orders the ids that are left from the best on; ties to the lower id.
func (s *sampler) sort() {
	s.order = s.order[:0]
	for i, v := range s.logits {
		if v > ninf() {
			s.order = append(s.order, int32(i))
		}
	}
	slices.SortFunc(s.order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(s.logits[b], s.logits[a]), cmp.Compare(a, b))
	})
}

// topK keeps the k best and what ties with the k-th.
func (s *sampler) topK(k int) {
	if k <= 0 || k >= len(s.logits) {
		return
	}
	s.sort()
	if k >= len(s.order) {
		return
	}
	limit := s.logits[s.order[k-1]]
	for i, v := range s.logits {
		if v < limit {
			s.logits[i] = ninf()
		}
	}
}

// topP keeps the smallest set of best tokens whose probability reaches p; always one.
func (s *sampler) topP(p float32) {
	if p <= 0 || p >= 1 {
		return
	}
	s.sort()
	if len(s.order) == 0 {
		return
	}
	top := float64(s.logits[s.order[0]])
	var sum float64
	for _, id := range s.order {
		sum += math.Exp(float64(s.logits[id]) - top)
	}
	var before float64 // probability of the better ones
	for k, id := range s.order {
		if k > 0 && before >= float64(p)*sum {
			s.logits[id] = ninf()
			continue
		}
		before += math.Exp(float64(s.logits[id]) - top)
	}
}

// draw inverts the distribution of what is left, in the order of token ids.
func (s *sampler) draw(u float64) (int32, string) {
	top := slices.Max(s.logits)
	if math.IsInf(float64(top), 0) {
		if top > 0 {
			return -1, "infinite logit"
		}
		return -1, "no token may be sampled"
	}
	var sum float64
	for _, v := range s.logits {
		sum += math.Exp(float64(v - top))
	}
	u *= sum
	last := int32(-1)
	var at float64
	for i, v := range s.logits {
		w := math.Exp(float64(v - top))
		if w == 0 {
			continue
		}
		at, last = at+w, int32(i)
		if u < at {
			break
		}
	}
	return last, ""
}

// Uniform is the row's random number in [0, 1): 53 bits of the first two words of Philox4x32-10 with the seed as key (low word
// first) and the position as the counter's first two words (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
func Uniform(seed, position uint64) float64 { return uniform(seed, position, 0) }

// uniform is Uniform of one of a position's streams.
func uniform(seed, position uint64, stream uint32) float64 {
	c := philox([4]uint32{uint32(position), uint32(position >> 32), stream}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return float64((uint64(c[0])<<32|uint64(c[1]))>>11) / (1 << 53)
}

func philox(c [4]uint32, k [2]uint32) [4]uint32 {
	for range 10 {
		h0, l0 := bits.Mul32(0xD2511F53, c[0])
		h1, l1 := bits.Mul32(0xCD9E8D57, c[2])
		c = [4]uint32{h1 ^ c[1] ^ k[0], l1, h0 ^ c[3] ^ k[1], l0}
		k[0] += 0x9E3779B9
		k[1] += 0xBB67AE85
	}
	return c
}

// RawLogprobs reports the chosen token (or the target of a row that samples nothing) and the n best of the raw logits.
func RawLogprobs(raw []float32, p kernels.RowSampling, token int32) kernels.Logprobs {
	if p.Skip {
		token = p.Target
	}
	top := float64(slices.Max(raw))
	var sum float64
	for _, v := range raw {
		sum += math.Exp(float64(v) - top)
	}
	lse := top + math.Log(sum)
	n := min(int(p.Logprobs), len(raw))
	out := kernels.Logprobs{IDs: make([]int32, 0, n+1), Values: make([]float32, 0, n+1)}
	add := func(id int32) {
		out.IDs = append(out.IDs, id)
		out.Values = append(out.Values, float32(float64(raw[id])-lse))
	}
	if token >= 0 && int(token) < len(raw) {
		add(token)
		for _, v := range raw {
			if v >= raw[token] {
				out.Rank++
			}
		}
	}
	for _, id := range nBest(raw, n) {
		add(id)
	}
	return out
}

// nBest returns the n highest, ties to the lower id.
func nBest(v []float32, n int) []int32 {
	if n == 0 {
		return nil
	}
	better := func(a, b int32) int { return cmp.Or(cmp.Compare(v[b], v[a]), cmp.Compare(a, b)) }
	if n > 64 {
		all := make([]int32, len(v))
		for i := range all {
			all[i] = int32(i)
		}
		slices.SortFunc(all, better)
		return all[:n]
	}
	top := make([]int32, 0, n+1)
	for i := range v {
		if len(top) == n && v[i] <= v[top[n-1]] {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, int32(i), better)
		top = slices.Insert(top, at, int32(i))
		top = top[:min(len(top), n)]
	}
	return top
}
