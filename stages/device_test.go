package stages

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/engine"
	"omni-engine/engine/enginetest"
	"omni-engine/engine/request"
	"omni-engine/kernels"
	"omni-engine/output"
)

// device starts a replica whose real runner drives the hash device.
func device(t *testing.T, o options, p *enginetest.Program, logits int) *bench {
	t.Helper()
	o = o.defaults()
	cfg := schedulerConfig(o)
	limits := kernels.Limits{Tokens: o.tokens, Rows: o.seqs, LogitRows: logits, MaxModelLen: o.maxLen, InFlight: max(o.depth, 1), BlockSize: blockSize}
	r, err := engine.NewDeviceRunner(p, engine.RunnerConfig{Module: p.Module(), Limits: limits,
		Plan: kernels.MemoryPlan{Blocks: o.blocks, Slots: o.seqs}, Seed: 5})
	require.NoError(t, err)
	k := &sink{}
	l, err := NewLocal(LocalConfig{Core: engine.Config{Name: "0/0", Scheduler: cfg, Depth: o.depth},
		Output: output.Config{Tokenizer: letters{}, Sink: k}}, r)
	require.NoError(t, err)
	t.Cleanup(func() { (&bench{Local: l}).stop(t) })
	return &bench{Local: l, sink: k}
}

func hash() *enginetest.Program {
	return &enginetest.Program{Vocab: 500, BlockSize: blockSize, Groups: 1}
}

// sampled is a mix of requests with every kind of sampling that reads state.
func sampled() []*request.Request {
	var all []*request.Request
	for i := range 12 {
		r := ask(request.ID(fmt.Sprint("r", i)), 5+11*(i%5), 40)
		switch i % 4 {
		case 1:
			r.Sampling.Temperature = 1
		case 2:
			r.Sampling.FrequencyPenalty = 1
		case 3:
			r.Sampling.BadWords = [][]int32{{1}, {2, 3}}
		}
		if i%2 == 0 {
			r.Prompt = append([]int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, r.Prompt...) // shared prefix
		}
		all = append(all, r)
	}
	return all
}

func answers(t *testing.T, b *bench) (tokens [][]int32, preempted int) {
	t.Helper()
	var streams []Stream
	for _, r := range sampled() {
		streams = append(streams, b.submit(t, r))
	}
	for _, s := range streams {
		u := all(t, s)
		require.Equal(t, request.FinishLength, u.Output.Finish, u.Output.Err)
		tokens = append(tokens, u.Output.NewTokens)
		preempted += u.Record.NumPreemptions
	}
	return tokens, preempted
}

// The same tokens alone or in a crowd, with an ample or a tiny cache, in large or small chunks, planned ahead or not.
func TestTokensDependOnTheSequenceAlone(t *testing.T) {
	want, none := answers(t, device(t, options{seqs: 1, tokens: 512}, hash(), 64))
	require.Zero(t, none)
	for name, o := range map[string]options{
		"all at once": {}, "small chunks": {tokens: 7}, "asynchronous": {depth: 2}, "three in flight": {depth: 3},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := answers(t, device(t, o, hash(), 64))
			require.Equal(t, want, got)
			o.blocks = 14
			got, some := answers(t, device(t, o, hash(), 64))
			require.Positive(t, some, "the cache is tiny: requests are preempted")
			require.Equal(t, want, got)
		})
	}
}

func TestPromptLogprobsInParts(t *testing.T) {
	three := 3
	run := func(o options, logits int) ([]TokenLogprobs, *enginetest.Program) {
		p := hash()
		b := device(t, o, p, logits)
		b.submit(t, ask("other", 30, 20))
		r := ask("a", 50, 4)
		r.Sampling.PromptLogprobs, r.Sampling.Logprobs = &three, &three
		u := all(t, b.submit(t, r))
		require.Len(t, u.Logprobs, 4)
		require.Len(t, u.Logprobs[0], 4)
		require.Len(t, u.PromptLogprobs, 50)
		require.Nil(t, u.PromptLogprobs[0])
		for i, l := range u.PromptLogprobs[1:] {
			require.Equal(t, r.Prompt[i+1], l[0].ID, "position %d", i+1)
			require.Len(t, l, 4)
		}
		b.stop(t)
		return u.PromptLogprobs, p
	}
	whole, p := run(options{tokens: 512}, 64)
	require.GreaterOrEqual(t, p.MostLogits, 50)
	for _, logits := range []int{1, 2, 7} {
		parts, p := run(options{tokens: 512}, logits)
		require.Equal(t, whole, parts)
		require.LessOrEqual(t, p.MostLogits, logits, "never more logits than fit")
	}
	chunks, _ := run(options{tokens: 13}, 64)
	require.Equal(t, whole, chunks)
	async, _ := run(options{tokens: 13, depth: 2}, 5)
	require.Equal(t, whole, async)
	require.NotEqual(t, whole[1][0].Logprob, whole[2][0].Logprob)
}

// A prompt in the prefix cache is computed again, and a preemption does not give the prompt's logprobs twice.
func TestPromptLogprobsComeOnceAndWhole(t *testing.T) {
	b := device(t, options{blocks: 12}, hash(), 64)
	for range 2 {
		var streams []Stream
		for i := range 4 {
			r := ask(request.ID(fmt.Sprint("r", i)), 40, 50)
			r.Sampling.PromptLogprobs = new(int)
			streams = append(streams, b.submit(t, r))
		}
		preempted := 0
		for _, s := range streams {
			u := all(t, s)
			require.Len(t, u.PromptLogprobs, 40)
			preempted += u.Record.NumPreemptions
		}
		require.Positive(t, preempted)
	}
}

// With one slot and two steps in flight, a request is admitted into the slot of an aborted one whose step still runs.
func TestSlotOfAnAbortedRequestIsCleanForTheNext(t *testing.T) {
	b := device(t, options{seqs: 1, depth: 2, tokens: 13}, hash(), 64)
	for i := range 40 {
		first := b.submit(t, ask("first", 10, 900))
		r := ask("second", 40+i%3, 3)
		r.Sampling.PromptLogprobs = new(int)
		second := b.submit(t, r)
		_, err := first.Next(t.Context())
		require.NoError(t, err)
		require.NoError(t, b.Abort(request.FinishAbort, "first"))
		u := all(t, second)
		require.Equal(t, request.FinishLength, u.Output.Finish)
		require.Len(t, u.PromptLogprobs, len(r.Prompt))
		for k, l := range u.PromptLogprobs[1:] {
			require.Equal(t, r.Prompt[k+1], l[0].ID)
		}
		all(t, first)
	}
}

// State in a slot starts afresh for each owner of the slot, and after a preemption.
func TestRecurrentStateIsResetWithItsSlot(t *testing.T) {
	program := func() *enginetest.Program { p := hash(); p.Recurrent = true; return p }
	want, _ := answers(t, device(t, options{seqs: 1, tokens: 512, noPrefix: true}, program(), 64))
	for _, depth := range []int{1, 2} {
		got, some := answers(t, device(t, options{blocks: 14, depth: depth, noPrefix: true}, program(), 64))
		require.Positive(t, some)
		require.Equal(t, want, got)
	}
}

func TestPromptLogprobsOfOneTokenPrompt(t *testing.T) {
	one := 1
	b := device(t, options{}, hash(), 64)
	r := ask("a", 1, 2)
	r.Sampling.PromptLogprobs = &one
	u := all(t, b.submit(t, r))
	require.Equal(t, []TokenLogprobs{nil}, u.PromptLogprobs)
}
