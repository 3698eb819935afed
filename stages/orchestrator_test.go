package stages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"omni-engine/engine/enginetest"
	"omni-engine/engine/request"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func orchestrate(t *testing.T, opt Options, benches ...*bench) *Orchestrator {
	t.Helper()
	var reps []Replica
	for _, b := range benches {
		reps = append(reps, b.Local)
	}
	o, err := New(opt, reps...)
	require.NoError(t, err)
	return o
}

func TestSequencesOfOneRequestHaveRecordsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{})
		o := orchestrate(t, Options{}, b)
		defer b.stop(t)
		r := ask("p", 4, 6)
		seed := int64(7)
		r.Sampling.Seed = &seed
		g, err := o.SubmitN(context.Background(), r, 3)
		require.NoError(t, err)
		require.Equal(t, []request.ID{"0_p", "1_p", "2_p"}, g.IDs())
		tokens, records := map[int]int{}, map[int]string{}
		for {
			i, u, err := g.Next(context.Background())
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			tokens[i] += len(u.Output.NewTokens)
			if u.Record != nil {
				records[i] = u.Record.RequestID
			}
		}
		require.Equal(t, map[int]int{0: 6, 1: 6, 2: 6}, tokens)
		synctest.Wait()
		require.Equal(t, map[int]string{0: "cmpl-p", 1: "cmpl-p", 2: "cmpl-p"}, records)
		require.Len(t, b.sink.finished, 3)
		require.Equal(t, [][2]int{{3, 6}}, b.sink.parents)
		require.EqualValues(t, 7, *r.Sampling.Seed)
	})
}

func TestGroupAbandonedByItsClientIsAbortedWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{})
		o := orchestrate(t, Options{}, b)
		defer b.stop(t)
		ctx, gone := context.WithCancel(context.Background())
		_, err := o.SubmitN(ctx, ask("p", 4, 600), 4)
		require.NoError(t, err)
		time.Sleep(25 * time.Millisecond)
		gone()
		time.Sleep(stepTime)
		synctest.Wait()
		require.Len(t, b.sink.finished, 4)
		require.Len(t, b.sink.parents, 1)
		require.Zero(t, b.Snapshot().InCore)
	})
}

func TestQueueLimitsCountEverySequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{})
		defer b.stop(t)
		var rejected []string
		o := orchestrate(t, Options{MaxQueuedRequests: 2, OnReject: func(l string) { rejected = append(rejected, l) }}, b)
		_, err := o.SubmitN(context.Background(), ask("p", 4, 6), 3)
		var full *QueueFullError
		require.ErrorAs(t, err, &full)
		require.Equal(t, QueueFullError{Limit: LimitRequests, Current: 0, Add: 3, Max: 2}, *full)
		require.EqualError(t, full, "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.")
		first, err := o.Submit(context.Background(), ask("a", 4, 6))
		require.NoError(t, err)
		second, err := o.Submit(context.Background(), ask("b", 4, 6))
		require.NoError(t, err)
		_, err = o.Submit(context.Background(), ask("c", 4, 6))
		require.ErrorAs(t, err, &full, "before the core has even seen the others")
		all(t, first)
		all(t, second)
		_, err = o.Submit(context.Background(), ask("c", 4, 1))
		require.NoError(t, err)
		require.Equal(t, []string{LimitRequests, LimitRequests}, rejected)

		o = orchestrate(t, Options{MaxQueuedTokens: 10}, b)
		_, err = o.Submit(context.Background(), ask("d", 30, 60))
		require.NoError(t, err)
		_, err = o.Submit(context.Background(), ask("e", 4, 6))
		require.ErrorAs(t, err, &full)
		require.Equal(t, LimitTokens, full.Limit)
		time.Sleep(3*stepTime + stepTime/2) // past its first output
		_, err = o.Submit(context.Background(), ask("e", 4, 6))
		require.NoError(t, err)
	})
}

func TestReplicaChoice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := start(t, options{}), start(t, options{})
		defer a.stop(t)
		defer b.stop(t)
		o := orchestrate(t, Options{Policy: LeastQueue}, a, b)
		for i := range 4 {
			_, err := o.Submit(context.Background(), ask(request.ID(fmt.Sprint("r", i)), 4, 60))
			require.NoError(t, err)
		}
		require.Equal(t, 2, a.Load().Requests)
		require.Equal(t, 2, b.Load().Requests)
		require.NoError(t, a.Close(context.Background()))
		s, err := o.Submit(context.Background(), ask("x", 4, 1))
		require.NoError(t, err, "a closed replica is not chosen")
		require.Equal(t, request.FinishLength, all(t, s).Record.Finish)
		require.NoError(t, o.Health())
	})
}

// PS-72: exact counts under concurrency, random aborts, preemptions and scrapes.
func TestTwoHundredConcurrentRequestsWithRandomAborts(t *testing.T) {
	b := start(t, options{blocks: 60, seqs: 32, tokens: 128, runner: &enginetest.Runner{StepTime: 200 * time.Microsecond}}) // steps take time: requests overlap, and clients leave while theirs run
	o := orchestrate(t, Options{}, b)
	ctx, stopScrapes := context.WithCancel(context.Background())
	var scrapes sync.WaitGroup
	scrapes.Go(func() {
		for ctx.Err() == nil {
			if s := b.Snapshot(); s.Stats.Running < 0 {
				panic("never")
			}
		}
	})
	const n = 200
	var wg sync.WaitGroup
	var mu sync.Mutex
	reasons := map[request.FinishReason]int{}
	got := 0
	for i := range n {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			ctx, gone := context.WithCancel(context.Background())
			defer gone()
			s, err := o.Submit(ctx, ask(request.ID(fmt.Sprint("r", i)), 1+rng.IntN(60), 1+rng.IntN(60)))
			if err != nil {
				panic(err)
			}
			quit := rng.IntN(50)
			for k := 0; ; k++ {
				// Some leave at once: on a slow machine updates are merged, and a later one may never be seen.
				if (i%10 == 0 && k == 0) || (rng.IntN(3) == 0 && k == quit) {
					gone()
				}
				u, err := s.Next(context.Background())
				if err != nil {
					panic(err)
				}
				mu.Lock()
				got += len(u.Output.NewTokens)
				mu.Unlock()
				if u.Done() {
					mu.Lock()
					reasons[u.Record.Finish]++
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	stopScrapes()
	scrapes.Wait()
	require.NoError(t, o.Drain(context.Background()))
	snap := b.Snapshot()
	require.Zero(t, snap.InCore)
	require.Zero(t, snap.Stats.Usage)
	require.NoError(t, o.Close(context.Background()))
	require.Equal(t, n, reasons[request.FinishLength]+reasons[request.FinishAbort])
	require.Positive(t, reasons[request.FinishAbort])
	require.Len(t, b.sink.finished, n)
	tokens, preempted := 0, 0
	for _, r := range b.sink.finished {
		tokens += r.NumGenerationTokens
		preempted += r.NumPreemptions
		if r.QueuedTS.IsSet() {
			ledgerExact(t, r)
		}
	}
	require.Equal(t, tokens, b.sink.tokens)
	require.Equal(t, tokens, got)
	require.LessOrEqual(t, preempted, b.sink.preemptions)
	require.Positive(t, b.sink.preemptions)
	require.Len(t, b.sink.parents, n)
}
