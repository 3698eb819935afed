package stages

import (
	"context"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omni-engine/engine/request"
	"omni-engine/metrics/record"
)

// trip is one request of a random pipeline run.
type trip struct {
	prompt, replica   int
	after, abortAfter time.Duration // abortAfter 0: never
}

// Any mix of requests, aborts, small caches and replicas: each record's ledger is exact and its waits lie where they must (PS-31, PS-32);
// every stage and replica counts each of its requests once, and the pipeline each of its own (PS-72); nothing is left behind.
func TestRandomPipelinesAddUpPS31PS32PS72(t *testing.T) {
	check := func(rt *rapid.T) {
		defs := speaker()
		for i := range defs {
			defs[i].options = options{blocks: rapid.IntRange(6, 30).Draw(rt, "blocks"), seqs: rapid.IntRange(1, 4).Draw(rt, "seqs"),
				tokens: rapid.IntRange(4, 40).Draw(rt, "tokens"), maxLen: 80, inputWait: time.Duration(rapid.SampledFrom([]int{0, 0, 60, 200}).Draw(rt, "wait")) * time.Millisecond}
		}
		defs[0].max, defs[1].max = rapid.IntRange(1, 30).Draw(rt, "text"), rapid.IntRange(1, 20).Draw(rt, "speech")
		defs[1].replicas = 2
		trips := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) trip {
			return trip{prompt: rapid.IntRange(1, 45).Draw(t, "prompt"), replica: rapid.IntRange(0, 1).Draw(t, "replica"),
				after:      time.Duration(rapid.IntRange(0, 40).Draw(t, "after")) * time.Millisecond,
				abortAfter: time.Duration(max(0, rapid.IntRange(-300, 300).Draw(t, "abort"))) * time.Millisecond}
		}), 1, 12).Draw(rt, "trips")
		synctest.Test(t, func(t *testing.T) { randomPipeline(t, defs, trips) })
	}
	if os.Getenv("OMNI_LONG") == "1" {
		rapid.Check(t, check)
		return
	}
	for seed := range 12 {
		rapid.Custom(func(rt *rapid.T) int { check(rt); return 0 }).Example(seed)
	}
}

func randomPipeline(t *testing.T, defs []stageDef, trips []trip) {
	p := newPipe(t, defs)
	defer p.close()
	var on []*travel
	for i, tr := range trips {
		time.Sleep(tr.after)
		ctx, gone := context.WithCancel(t.Context())
		defer gone()
		if tr.abortAfter > 0 {
			time.AfterFunc(tr.abortAfter, gone)
		}
		on = append(on, p.start(ctx, request.ID(fmt.Sprint("r", i)), tr.prompt, 0, tr.replica, 0))
	}
	submitted := map[string]int{}
	for _, tr := range on {
		for k, s := range tr.wait() {
			if s == nil {
				continue
			}
			submitted[fmt.Sprintf("replica=%d,stage=%d", tr.at[k], k)]++
			within(t, s)
			if s.QueuedTS.IsSet() {
				ledgerExact(t, s)
			}
			if _, ok := s.PrefillTime().Get(); ok {
				inference, _ := s.InferenceTime().Get()
				prefill, _ := s.PrefillTime().Get()
				decode, _ := s.DecodeTime().Get()
				require.Equal(t, inference, prefill+decode)
			}
		}
	}
	synctest.Wait()
	m := p.samples()
	for own, n := range submitted {
		for _, family := range []string{"vllm:e2e_request_latency_seconds_count", "vllm:request_prompt_tokens_count", "vllm:request_generation_tokens_count"} {
			require.Equal(t, float64(n), m[family+"{"+own+"}"], family)
		}
		sum := 0.0
		for _, why := range []string{"stop", "length", "abort", "error", "repetition"} {
			sum += m["vllm:request_success_total{finished_reason="+why+","+own+"}"]
		}
		require.Equal(t, float64(n), sum)
		require.Equal(t, m["vllm:prompt_tokens_total{"+own+"}"], m["vllm:request_prompt_tokens_sum{"+own+"}"], "idle: counters are the sums")
		require.Equal(t, m["vllm:generation_tokens_total{"+own+"}"], m["vllm:request_generation_tokens_sum{"+own+"}"])
		require.GreaterOrEqual(t, m["vllm:num_preemptions_total{"+own+"}"], m["vllm:request_num_preemptions_sum{"+own+"}"])
	}
	ended := 0.0
	for _, why := range []string{"stop", "length", "abort", "error", "repetition"} {
		ended += m["vllm_omni:requests_success_total{finished_reason="+why+"}"]
	}
	require.Equal(t, float64(len(trips)), ended, "each request of the pipeline ends once")
	require.Len(t, p.ends.list, len(trips))
	total, dispatched := p.traffic.InFlight()
	require.Zero(t, total+dispatched)
	for k := range p.units {
		for _, u := range p.units[k] {
			require.Zero(t, u.Snapshot().InCore)
			require.Zero(t, u.Snapshot().Stats.Usage)
			require.Empty(t, u.log.unended())
		}
	}
}

// unended returns records that reached the sink before they ended.
func (s *sink) unended() (out []*record.Stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.finished {
		if !r.Ended() {
			out = append(out, r)
		}
	}
	return out
}
