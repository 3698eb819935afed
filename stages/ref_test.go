package stages

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/engine"
	"omni-engine/engine/request"
	"omni-engine/internal/tensor"
	"omni-engine/kernels"
	"omni-engine/kernels/ref"
	"omni-engine/output"
	"omni-engine/scheduler"
)

// llama builds a random two-layer decoder: what a model does to a batch, in 40 lines.
func llama(seed uint64, window int) *kernels.Module {
	const dim, heads, kv, head, ff, vocab = 32, 4, 2, 8, 48, 101
	rng := rand.New(rand.NewPCG(seed, 1))
	m := &kernels.Module{Name: "random", Vocab: vocab, Groups: []kernels.GroupSpec{{Name: "full"}}}
	if window > 0 {
		m.Groups = append(m.Groups, kernels.GroupSpec{Name: "sliding", Window: window})
	}
	weight := func(rows, cols int) kernels.WeightID {
		data := make([]byte, 4*rows*cols)
		for i := range rows * cols {
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(rng.NormFloat64()/math.Sqrt(float64(cols)))))
		}
		m.Weights = append(m.Weights, kernels.Weight{Name: fmt.Sprint(len(m.Weights)),
			View: tensor.View{DType: tensor.F32, Shape: []int{rows, cols}, Data: data}})
		return kernels.WeightID(len(m.Weights) - 1)
	}
	e := kernels.Entry{Name: "forward"}
	buf := func(rows kernels.Sym, width int) kernels.BufferID {
		e.Buffers = append(e.Buffers, kernels.Buffer{Name: fmt.Sprint(len(e.Buffers)), DType: tensor.F32, Rows: kernels.Of(rows), Width: width})
		return kernels.BufferID(len(e.Buffers) - 1)
	}
	add := func(ops ...kernels.Op) { e.Ops = append(e.Ops, ops...) }
	x, h, q, k, v, a := buf(kernels.Tokens, dim), buf(kernels.Tokens, dim), buf(kernels.Tokens, heads*head), buf(kernels.Tokens, kv*head),
		buf(kernels.Tokens, kv*head), buf(kernels.Tokens, heads*head)
	g, u := buf(kernels.Tokens, ff), buf(kernels.Tokens, ff)
	linear := func(out, in kernels.BufferID, rows, cols int) {
		add(&kernels.Linear{Out: out, In: in, Weight: weight(rows, cols), Bias: kernels.None})
	}
	freq := []float64{1, 0.1, 0.01, 0.001}
	add(&kernels.Embed{Out: x, Table: weight(vocab, dim), Scale: 1})
	for layer := range 2 {
		group, w := 0, 0
		if window > 0 && layer == 1 {
			group, w = 1, window
		}
		m.States = append(m.States, kernels.StateSpec{Name: fmt.Sprint("kv", layer), Kind: kernels.Paged, Group: group, Heads: kv, KDim: head, VDim: head})
		state := kernels.StateID(layer)
		norm := func() {
			add(&kernels.Norm{Out: h, In: x, Kind: kernels.RMS, Weight: weight(1, dim), Bias: kernels.None, Eps: 1e-5, AddOne: true})
		}
		norm()
		linear(q, h, heads*head, dim)
		linear(k, h, kv*head, dim)
		linear(v, h, kv*head, dim)
		add(&kernels.Rope{X: q, Heads: heads, HeadDim: head, RotDim: head, InvFreq: freq}, &kernels.Rope{X: k, Heads: kv, HeadDim: head, RotDim: head, InvFreq: freq},
			&kernels.KVWrite{K: k, V: v, State: state},
			&kernels.Attention{Out: a, Q: q, State: state, Heads: heads, KVHeads: kv, KDim: head, VDim: head, Scale: 0.35, Window: w, Sinks: kernels.None})
		linear(h, a, dim, heads*head)
		add(&kernels.Binary{Out: x, A: x, B: h})
		norm()
		linear(g, h, ff, dim)
		linear(u, h, ff, dim)
		add(&kernels.Gated{Out: g, Gate: g, Up: u, Act: kernels.Silu})
		linear(h, g, dim, ff)
		add(&kernels.Binary{Out: x, A: x, B: h})
	}
	l, logits := buf(kernels.LogitRows, dim), buf(kernels.LogitRows, vocab)
	add(&kernels.GatherRows{Out: l, In: x})
	linear(logits, l, vocab, dim)
	add(&kernels.Sample{Logits: logits})
	m.Entries = []kernels.Entry{e}
	return m
}

// onRef starts a replica whose model runs on the reference device.
func onRef(t *testing.T, m *kernels.Module, o options) *bench {
	t.Helper()
	return on(t, ref.Open(ref.Options{Threads: 1}), m, o)
}

// on starts a replica whose model runs on a device, in float32.
func on(t *testing.T, dev kernels.Device, m *kernels.Module, o options) *bench {
	t.Helper()
	if o.maxLen == 0 {
		o.maxLen = 112
	}
	o = o.defaults()
	made, err := engine.Assemble(dev, m, engine.Settings{
		MaxModelLen: o.maxLen, MaxSeqs: o.seqs, MaxTokens: o.tokens, BlockSize: blockSize, Depth: o.depth, Seed: 5, Blocks: o.blocks, Exact: true})
	require.NoError(t, err)
	k := &sink{}
	l, err := NewLocal(LocalConfig{Core: engine.Config{Name: "0/0", Scheduler: made.Scheduler(scheduler.DefaultConfig(), m), Depth: o.depth, Cache: made.Facts},
		Output: output.Config{Tokenizer: letters{}, Sink: k}}, made.Runner)
	require.NoError(t, err)
	b := &bench{Local: l, sink: k}
	t.Cleanup(func() { b.stop(t) })
	return b
}

// A tiny cache that preempts, small chunks, a crowd, a prefix-cache hit and steps planned ahead give the same tokens and logprobs as
// one request at a time in an ample cache, greedy and sampled.
func TestModelOutputIsAFunctionOfTheRequest(t *testing.T) {
	for _, window := range []int{0, 24} {
		m := llama(uint64(3+window), window)
		requests := func() (all []*request.Request) {
			for _, r := range sampled() {
				for i := range r.Prompt {
					r.Prompt[i] %= 101
				}
				n := 2
				r.Sampling.Logprobs = &n
				r.Sampling.BadWords = nil
				all = append(all, r)
			}
			return all
		}
		run := func(o options) (got [][]TokenLogprobs, preempted int) {
			b := onRef(t, m, o)
			var streams []Stream
			for _, r := range requests() {
				streams = append(streams, b.submit(t, r))
			}
			for _, s := range streams {
				u := all(t, s)
				require.Equal(t, request.FinishLength, u.Output.Finish, u.Output.Err)
				require.Len(t, u.Logprobs, 40)
				for i, l := range u.Logprobs {
					require.Equal(t, u.Output.NewTokens[i], l[0].ID)
				}
				got = append(got, u.Logprobs)
				preempted += u.Record.NumPreemptions
			}
			return got, preempted
		}
		want, _ := run(options{seqs: 1, tokens: 512})
		for name, o := range map[string]options{"crowd": {}, "chunks of 7": {tokens: 7}, "asynchronous": {depth: 2}} {
			t.Run(fmt.Sprintf("window %d, %s", window, name), func(t *testing.T) {
				got, _ := run(o)
				require.Equal(t, want, got)
				o.blocks = 14 * len(m.Groups)
				got, some := run(o)
				require.Positive(t, some)
				require.Equal(t, want, got, "with preemptions")
			})
		}
	}
}

func TestCacheTooSmallForOneSequenceIsRefusedBeforeCompiling(t *testing.T) {
	_, err := engine.Assemble(ref.Open(ref.Options{}), llama(1, 0), engine.Settings{MaxModelLen: 1024, MaxSeqs: 4, MaxTokens: 64, BlockSize: 16, CacheBytes: 65536})
	var small *engine.CacheTooSmallError
	require.ErrorAs(t, err, &small)
	require.Equal(t, 1024, small.MaxModelLen)
	require.EqualValues(t, 65*4*16*2*2*16, small.Needed, "65 blocks of 16 tokens, 2 layers, 2 heads, 8+8 floats")
	require.Equal(t, 240, small.FittingLen, "16 blocks of 4,096 bytes, one of them the null block")
}

func TestNaNEndsItsRequestAlone(t *testing.T) {
	m := llama(9, 0)
	const poison = 77
	row := m.Weights[0].View.Row(poison, poison+1)
	binary.LittleEndian.PutUint32(row, math.Float32bits(float32(math.NaN())))
	b := onRef(t, m, options{})
	good, bad := ask("good", 0, 20), ask("bad", 0, 20)
	good.Prompt, bad.Prompt = []int32{1, 2, 3}, []int32{1, 2, 3, poison}
	bias := map[int32]float32{poison: -100}
	good.Sampling.LogitBias = bias // it must not sample the poison itself
	ok, faulty := b.submit(t, good), b.submit(t, bad)
	u := all(t, faulty)
	require.Equal(t, request.FinishError, u.Output.Finish)
	require.Contains(t, u.Output.Err, "NaN")
	require.Equal(t, request.FinishLength, all(t, ok).Output.Finish)
	require.NoError(t, b.Health())
}
