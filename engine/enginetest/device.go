package enginetest

import (
	"context"
	"fmt"
	"slices"

	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// Program is a compiled module without arithmetic: a step writes its token ids into the paged cache, and the token that
// follows a position is a hash of all ids before it, read back through the block table. A wrong table, position, slot, chunk
// border or a stale prefix-cache block changes the tokens.
type Program struct {
	Vocab, BlockSize int
	Groups           int
	Windows          []int // of each group; 0: full
	Recurrent        bool  // the answer also depends on a state in the slot, as a recurrent layer's does

	// Most rows of logits that one submit asked for.
	MostLogits int
	Steps      int
	Closed     bool
}

// Module returns a module with the entries that a runner looks for.
func (p *Program) Module() *kernels.Module {
	m := &kernels.Module{Name: "hash", Vocab: p.Vocab, Entries: []kernels.Entry{{Name: "forward"}, {Name: "sample"}}}
	for g := range p.Groups {
		m.Groups = append(m.Groups, kernels.GroupSpec{Name: fmt.Sprint(g), Window: p.window(g)})
	}
	return m
}

func (p *Program) window(g int) int {
	if g < len(p.Windows) {
		return p.Windows[g]
	}
	return 0
}

// NewStates allocates the cache.
func (p *Program) NewStates(plan kernels.MemoryPlan) (kernels.States, error) {
	s := &states{plan: plan, last: make([]int32, plan.Slots), roll: make([]uint64, plan.Slots)}
	for range p.Groups {
		s.cache = append(s.cache, make([]int32, plan.Blocks*p.BlockSize))
	}
	return s, nil
}

// NewStep returns a step over the states.
func (p *Program) NewStep(s kernels.States) (kernels.Step, error) {
	return &step{p: p, s: s.(*states)}, nil
}

// SetAdapter is not supported.
func (p *Program) SetAdapter(int, *kernels.Adapter) error { return fmt.Errorf("no adapters") }

// Explain names the program.
func (p *Program) Explain() string { return "hash" }

// Close notes it.
func (p *Program) Close() error { p.Closed = true; return nil }

type states struct {
	plan  kernels.MemoryPlan
	cache [][]int32
	last  []int32 // of each slot
	roll  []uint64
}

func (s *states) Capacity(int) (blocks, slots int)  { return s.plan.Blocks, s.plan.Slots }
func (s *states) Copy(int, [][2]int32) error        { return fmt.Errorf("not supported") }
func (s *states) Export(int, []int32, []byte) error { return fmt.Errorf("not supported") }
func (s *states) Import(int, []int32, []byte) error { return fmt.Errorf("not supported") }
func (s *states) Close() error                      { return nil }

type step struct {
	p     *Program
	s     *states
	b     kernels.Batch
	res   kernels.Result
	calls []int
}

func (s *step) Batch() *kernels.Batch { return &s.b }

func (s *step) Submit(calls ...kernels.Call) error {
	for _, c := range calls {
		s.calls = append(s.calls, c.Entry)
	}
	return nil
}

func (s *step) Output(name string) (tensor.View, error) {
	return tensor.View{}, fmt.Errorf("no output %s", name)
}

func (s *step) Release() { s.calls = s.calls[:0] }

// Wait runs what was submitted.
func (s *step) Wait(context.Context) (*kernels.Result, error) {
	if !slices.Equal(s.calls, []int{0, 1}) {
		return nil, fmt.Errorf("entries %v were submitted, not forward and sample", s.calls)
	}
	s.p.Steps++
	s.p.MostLogits = max(s.p.MostLogits, len(s.b.LogitRows))
	for r := range s.b.SeqLens {
		if err := s.write(r); err != nil {
			return nil, err
		}
	}
	s.res.Tokens, s.res.Logprobs = s.res.Tokens[:0], s.res.Logprobs[:0]
	for l := range s.b.LogitRows {
		tok, lp, err := s.answer(l)
		if err != nil {
			return nil, err
		}
		s.res.Tokens, s.res.Logprobs = append(s.res.Tokens, tok), append(s.res.Logprobs, lp)
		if tok >= 0 {
			s.s.last[s.b.Slots[s.b.LogitOwner[l]]] = tok
		}
	}
	return &s.res, nil
}

func (s *step) write(r int) error {
	b := &s.b
	roll := &s.s.roll[b.Slots[r]]
	if b.Flags[r]&kernels.RowFirst != 0 {
		*roll = 0
	}
	for t := b.QueryStart[r]; t < b.QueryStart[r+1]; t++ {
		tok, pos := b.Tokens[t], int(b.Positions[0][t])
		if tok < 0 {
			tok = s.s.last[b.Slots[r]]
		}
		*roll = (*roll ^ uint64(tok+1)) * 1099511628211
		for g := range s.s.cache {
			at, err := s.at(g, r, pos)
			if err != nil {
				return err
			}
			s.s.cache[g][at] = tok
		}
	}
	if last := b.Positions[0][b.QueryStart[r+1]-1]; last != b.SeqLens[r]-1 {
		return fmt.Errorf("row %d ends at position %d, its length is %d", r, last, b.SeqLens[r])
	}
	return nil
}

func (s *step) at(g, r, pos int) (int, error) {
	table := s.b.Tables[g].Row(r)
	if pos/s.p.BlockSize >= len(table) || table[pos/s.p.BlockSize] == 0 {
		return 0, fmt.Errorf("row %d has no block for position %d in group %d: %v", r, pos, g, table)
	}
	return int(table[pos/s.p.BlockSize])*s.p.BlockSize + pos%s.p.BlockSize, nil
}

// answer hashes what each group sees of the sequence up to logit row l.
func (s *step) answer(l int) (tok int32, lp kernels.Logprobs, err error) {
	t, r, how := s.b.LogitRows[l], int(s.b.LogitOwner[l]), &s.b.Sampling[l]
	pos := int(s.b.Positions[0][t])
	h := uint64(14695981039346656037)
	mix := func(v uint64) { h = (h ^ v) * 1099511628211 }
	for g := range s.s.cache {
		from := 0
		if w := s.p.window(g); w > 0 {
			from = max(0, pos-w+1)
		}
		for p := from; p <= pos; p++ {
			at, err := s.at(g, r, p)
			if err != nil {
				return 0, lp, err
			}
			mix(uint64(s.s.cache[g][at]))
		}
	}
	if s.p.Recurrent {
		mix(s.s.roll[s.b.Slots[r]])
	}
	lp.Values = []float32{-float32(h>>40) / (1 << 24)} // of the sequence alone
	if how.Temperature > 0 {
		mix(how.Seed)
		mix(how.Position)
	}
	for _, id := range slices.Concat(how.Prompt, how.Output) {
		mix(uint64(id) + 1)
	}
	tok = int32(3 + (h>>20)%uint64(s.p.Vocab-3))
	for slices.Contains(how.Banned, tok) {
		tok = 3 + (tok-2)%int32(s.p.Vocab-3)
	}
	lp.IDs, lp.Rank = []int32{tok}, 1
	if how.Skip {
		lp.IDs, tok = []int32{how.Target}, -1
	}
	for i := range how.Logprobs {
		lp.IDs, lp.Values = append(lp.IDs, i), append(lp.Values, -1-float32(i))
	}
	if how.Logprobs < 0 {
		lp = kernels.Logprobs{}
	}
	return tok, lp, nil
}
