package stages

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine"
	"omni-engine/engine/enginetest"
	"omni-engine/engine/request"
	"omni-engine/metrics/record"
	"omni-engine/metrics/stagelog"
	"omni-engine/scheduler"
)

// Three cores, exact to the nanosecond: who waits for whom is in the right field of the right stage, everywhere it is shown
// (PS-20…24, PS-30, PS-31, PS-32, PS-35).
func TestPipelineOfThreeStagesPS30PS31(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe(t, speaker())
		defer p.close()
		rec := p.start(t.Context(), "a", 20, 0, 0, 0).wait()
		// The thinker's four steps end at 40; its text is there at 45; the talker's tokens come from 55 to 105, two a chunk, each
		// five later at the vocoder, which takes 10 and then waits for the next.
		require.Equal(t, []any{0.0, 10.0, 30.0, 0}, fields(rec[0]))
		require.Equal(t, []any{45.0, 10.0, 50.0, 0}, fields(rec[1]))
		require.Equal(t, []any{70.0, 10.0, 40.0, 0}, fields(rec[2]))
		require.Equal(t, []any{nil, nil, nil, 0.0, nil}, waited(rec[0]), "it cannot wait so: absent, not 0")
		require.Equal(t, []any{45.0, nil, nil, 0.0, nil}, waited(rec[1]))
		require.Equal(t, []any{70.0, 20.0, nil, 0.0, nil}, waited(rec[2]))
		for _, s := range rec {
			ledgerExact(t, s)
			within(t, s)
			require.Equal(t, request.FinishLength, s.Finish)
		}
		require.Equal(t, 20.0, millis(rec[2].Ledger.Part(request.StateWaitingChunk)))
		require.Equal(t, 0.0, millis(rec[1].SchedulerWait()), "queued less the wait for the input")

		m := p.samples()
		for series, want := range map[string]float64{
			"vllm:request_queue_time_seconds_sum{replica=0,stage=1}": 0.045, "vllm:request_queue_time_seconds_sum{replica=0,stage=2}": 0.07,
			"vllm:request_decode_time_seconds_sum{replica=0,stage=2}": 0.04, "vllm:request_prefill_time_seconds_sum{replica=0,stage=0}": 0.01,
			"vllm_omni:request_input_wait_s_sum{replica=0,stage=1}": 0.045, "vllm_omni:request_input_wait_s_count{replica=0,stage=0}": 0,
			"vllm_omni:request_chunk_wait_s_sum{replica=0,stage=2}": 0.02, "vllm_omni:request_chunk_wait_s_count{replica=0,stage=1}": 0,
			// The arrival of a later stage is stage 0's, with async chunks (PS-22); the pipeline's latency is its own family.
			"vllm:e2e_request_latency_seconds_sum{replica=0,stage=1}": 0.105, "vllm:e2e_request_latency_seconds_sum{replica=0,stage=2}": 0.12,
			"vllm_omni:e2e_request_latency_s_sum{}": 0.12, "vllm_omni:requests_success_total{finished_reason=length}": 1,
			"vllm_omni:prompt_tokens_total{}": 20, "vllm_omni:generation_tokens_total{}": 4 + 6 + 1,
			"vllm_omni:stage_gen_time_s_sum{stage=2,stage_type=llm}": 0.12,
			"vllm_omni:audio_frames_total{replica=0,stage=2}":        3 * chunkFrames, "vllm_omni:audio_duration_s_sum{replica=0,stage=2}": 0.3,
			"vllm_omni:audio_rtf_sum{replica=0,stage=2}":                                               0.4,
			"vllm_omni:transfer_size_bytes_sum{from_replica=0,from_stage=0,to_replica=0,to_stage=1}":   16,
			"vllm_omni:transfer_size_bytes_count{from_replica=0,from_stage=1,to_replica=0,to_stage=2}": 3,
			"vllm_omni:transfer_tx_s_sum{from_replica=0,from_stage=1,to_replica=0,to_stage=2}":         0.003,
			"vllm_omni:transfer_in_flight_s_sum{from_replica=0,from_stage=1,to_replica=0,to_stage=2}":  0.009,
			"vllm_omni:transfer_rx_s_sum{from_replica=0,from_stage=1,to_replica=0,to_stage=2}":         0.003,
			"vllm_omni:num_requests_running{}":                                                         0, "vllm_omni:num_requests_waiting{}": 0,
		} {
			require.Contains(t, m, series)
			require.InDelta(t, want, m[series], 1e-9, series)
		}
		log := p.lines.text()
		for _, row := range []string{
			"| Field                           |            0 |            1 |            2 |",
			"| vllm_chunk_wait_ms              |         None |         None |       20.000 |",
			"| vllm_input_wait_ms              |         None |       45.000 |       70.000 |",
			"| vllm_queued_ms                  |        0.000 |       45.000 |       70.000 |",
			"| vllm_prefill_ms                 |       10.000 |       10.000 |       10.000 |",
			"| vllm_decode_ms                  |       30.000 |       50.000 |       40.000 |",
			"[OmniTiming] req=req-a total=0.12s stages=[0:0.04s,1:0.10s,2:0.12s] transfers=[0->1=5.00ms,1->2=15.00ms]",
			"[TransferEdgeStats [request_id=req-a]]",
			"| Field             |  0->1 |  1->2 |",
			"| in_flight_time_ms | 3.000 | 9.000 |",
		} {
			require.Contains(t, log, row)
		}
		summary := stagelog.Of(&p.ends.list[0]).Build()
		require.Len(t, summary.Stages[0].Stages, 3, "every stage in stage_table (PS-21)")
		require.Equal(t, 20.0, summary.Stages[0].Stages[2].Get(record.VLLMChunkWaitMS).Number())
		client := record.StageMetrics(rec...)
		require.Equal(t, "vocoder", client["2"].Get(record.StageNameField).Text())
		require.False(t, client["0"].Get(record.VLLMInputWaitMS).IsSet())
		require.Equal(t, 45.0, client["1"].Get(record.VLLMInputWaitMS).Number())
	})
}

// within is PS-31's inequality.
func within(t *testing.T, s *record.Stage) {
	t.Helper()
	get := func(v any) float64 { f, _ := v.(float64); return f }
	w, f := waited(s), fields(s)
	require.LessOrEqual(t, get(w[0])+get(w[2]), get(f[0])+1e-9, "input and KV wait lie in queued: %v of %v", w, f)
	require.LessOrEqual(t, get(w[1]), get(f[1])+get(f[2])+1e-9, "chunk wait lies in prefill and decode: %v of %v", w, f)
}

// PS-30: the wait for a chunk that comes before the first output lies inside prefill, a later one's inside decode.
func TestChunkWaitInsidePrefillAndInsideDecodePS30(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &chunkRunner{Runner: &enginetest.Runner{StepTime: stepTime}, whole: map[request.ID]bool{}, silent: true}
		k := &sink{}
		l := local(t, r, k, func(c *LocalConfig) { c.Output.Identity.Waits = record.CanWaitInput | record.CanWaitChunk })
		q := ask("a", 0, 1)
		q.Prompt, q.Wait = nil, request.WaitChunk
		s, err := l.Submit(t.Context(), q)
		require.NoError(t, err)
		chunk := func(at time.Duration, last bool) { // after the chunk's step the core waits for the next
			time.Sleep(at)
			r.mu.Lock()
			r.whole["a"] = last
			r.mu.Unlock()
			require.NoError(t, l.Core().Deliver("a", request.Payload{IDs: []int32{1, 2, 3}}))
			if !last {
				time.Sleep(stepTime + time.Nanosecond)
				require.NoError(t, l.Core().Park(t.Context(), "a", request.WaitChunk))
			}
		}
		chunk(20*time.Millisecond, false) // steps until 30, without an output; waits from 30 on
		r.mu.Lock()
		r.silent = false
		r.mu.Unlock()
		chunk(30*time.Millisecond-time.Nanosecond, false) // at 60: the first output at 70; waits from 70 on
		chunk(50*time.Millisecond-time.Nanosecond, true)  // at 120: ends at 130
		u := all(t, s)
		require.Equal(t, []any{20.0, 50.0, 60.0, 0}, fields(u.Record))
		require.InDelta(t, 30+50, waited(u.Record)[1], 1e-5, "30 of it in prefill, 50 in decode")
		require.Equal(t, 20.0, waited(u.Record)[0])
		within(t, u.Record)
		ledgerExact(t, u.Record)
		require.NoError(t, l.Close(t.Context()))
	})
}

// PS-36, PS-73: a stage whose input never comes ends the whole request, once, and every stage's blocks are free.
func TestInputThatNeverComesEndsThePipelinePS36(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defs := speaker()
		defs[1].options.inputWait = 33 * time.Millisecond // the text comes at 45
		p := newPipe(t, defs)
		defer p.close()
		rec := p.start(t.Context(), "a", 20, 0, 0, 0).wait()
		require.Equal(t, request.FinishError, rec[1].Finish)
		require.Equal(t, []any{nil, nil, nil, nil}, fields(rec[1]), "never scheduled (PS-04)")
		require.Equal(t, []any{nil, nil, nil, nil, 33.0}, waited(rec[1]))
		require.Equal(t, []any{nil, nil, nil, nil, 33.0}, waited(rec[2]), "its input will never come either")
		require.Equal(t, request.FinishError, rec[0].Finish)
		require.Equal(t, []any{0.0, 10.0, 20.0, 0}, fields(rec[0]), "what was observed until then; the step that ran is dropped")
		m := p.samples()
		require.Equal(t, 1.0, m["vllm_omni:requests_failed_total{reason=stage_error}"])
		require.Equal(t, 1.0, m["vllm_omni:requests_success_total{finished_reason=error}"])
		require.Zero(t, m["vllm_omni:e2e_request_latency_s_count{}"], "of requests that succeeded")
		for stage := range 3 {
			require.Equal(t, 1.0, m[fmt.Sprintf("vllm:request_success_total{finished_reason=error,replica=0,stage=%d}", stage)])
			snap := p.units[stage][0].Snapshot()
			require.Zero(t, snap.InCore)
			require.Zero(t, snap.Stats.Usage)
		}
	})
}

// PS-36: the clock restarts at each chunk.
func TestChunkClockRestartsAtEachChunkPS36(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{inputWait: 50 * time.Millisecond})
		defer b.stop(t)
		r := ask("a", 0, 9)
		r.Prompt, r.Wait = nil, request.WaitChunk
		s := b.submit(t, r)
		time.Sleep(40 * time.Millisecond)
		require.NoError(t, b.Core().Deliver("a", request.Payload{IDs: []int32{1}}))
		time.Sleep(5 * time.Millisecond)
		require.NoError(t, b.Core().Park(t.Context(), "a", request.WaitChunk)) // after the step, at 50: until 100
		u := all(t, s)
		require.Equal(t, request.FinishError, u.Output.Finish)
		require.Contains(t, u.Output.Err, "no input came within 50ms")
		require.Equal(t, 100.0, millis(u.Record.Ledger.Total()))
		require.Zero(t, b.Snapshot().Stats.Usage)
		require.Error(t, b.Core().Park(t.Context(), "a", request.WaitChunk), "it has ended")
	})
}

// PS-73: a client that goes away while the talker speaks: each stage says abort and what it had observed, the pipeline counts it once.
func TestAbortedPipelineCountsOncePS73(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe(t, speaker())
		defer p.close()
		ctx, gone := context.WithCancel(t.Context())
		tr := p.start(ctx, "a", 20, 0, 0, 0)
		time.Sleep(62 * time.Millisecond) // the talker speaks, the vocoder waits for it
		total, dispatched := p.traffic.InFlight()
		require.Equal(t, [2]int{1, 1}, [2]int{total, dispatched})
		m := p.samples()
		require.Equal(t, 1.0, m["vllm_omni:num_requests_running{}"], "two stages hold it, it is one request")
		time.Sleep(10 * time.Millisecond) // at 72 the vocoder has just begun
		gone()
		rec := tr.wait()
		require.Equal(t, request.FinishLength, rec[0].Finish, "it had ended")
		require.Equal(t, request.FinishAbort, rec[1].Finish)
		require.Equal(t, []any{45.0, 10.0, 10.0, 0}, fields(rec[1]))
		require.Equal(t, request.FinishAbort, rec[2].Finish)
		require.Equal(t, []any{70.0, nil, nil, 0}, fields(rec[2]))
		require.Equal(t, []any{70.0, nil, nil, 0.0, nil}, waited(rec[2]), "no output: the interval of the chunk wait is absent")
		require.False(t, tr.journey.End(request.FinishStop, "", rec[0].FinishedAt), "once")
		m = p.samples()
		require.Equal(t, 1.0, m["vllm_omni:requests_failed_total{reason=client_abort}"])
		require.Zero(t, m["vllm_omni:audio_skipped_requests_total{reason=no_audio_data,replica=0,stage=2}"], "an abort is no silent loss")
		require.Zero(t, m["vllm_omni:num_requests_running{}"])
		for stage := range 3 {
			require.Zero(t, p.units[stage][0].Snapshot().InCore)
		}
	})
}

// PS-72: a lost replica's requests are recorded under its labels; nobody else's series change, and the next replica starts its own.
func TestLostReplicaKeepsItsSeriesPS72(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defs := speaker()
		defs[1].replicas = 2
		p := newPipe(t, defs)
		defer p.close()
		healthy := p.start(t.Context(), "a", 20, 0, 1, 0).wait()
		require.Equal(t, request.FinishLength, healthy[1].Finish)
		before := p.samples()
		p.units[1][0].runner.Fail = func(int, *scheduler.Decision) error { return engine.ErrDeviceLost }
		rec := p.start(t.Context(), "b", 20, 0, 0, 0).wait()
		require.Equal(t, request.FinishError, rec[1].Finish)
		require.Equal(t, 0, rec[1].Replica)
		require.Error(t, p.units[1][0].Health())
		p.metrics.RemoveReplica(1, 0)
		after := p.samples()
		require.Equal(t, 1.0, after["vllm:request_success_total{finished_reason=error,replica=0,stage=1}"])
		require.Equal(t, 1.0, after["vllm:e2e_request_latency_seconds_count{replica=0,stage=1}"])
		require.Equal(t, 1.0, after["vllm_omni:requests_failed_total{reason=stage_error}"])
		require.NotContains(t, after, "vllm:num_requests_running{replica=0,stage=1}", "its gauges are gone")
		for series, v := range before {
			if strings.Contains(series, "{replica=1,stage=1}") {
				require.Equal(t, v, after[series], series)
			}
		}
		require.NoError(t, p.metrics.AddReplica(1, 2))
		p.add(1, 2)
		again := p.start(t.Context(), "c", 20, 0, 2, 0).wait()
		require.Equal(t, 2, again[1].Replica)
		m := p.samples()
		require.Equal(t, 1.0, m["vllm:request_success_total{finished_reason=length,replica=2,stage=1}"])
		require.Equal(t, after["vllm:e2e_request_latency_seconds_count{replica=0,stage=1}"], m["vllm:e2e_request_latency_seconds_count{replica=0,stage=1}"])
		require.Equal(t, 1.0, m["vllm_omni:transfer_size_bytes_count{from_replica=0,from_stage=0,to_replica=2,to_stage=1}"], "an edge is a pair of replicas")
	})
}

// PS-34: a request whose chunk came has its blocks still, and no room in the step: requeued, not preempted, and nothing is counted.
func TestUnparkedWithoutRoomIsRequeuedPS34(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, options{tokens: 8})
		defer b.stop(t)
		r := ask("a", 6, 4)
		s := b.submit(t, r)
		_, err := s.Next(t.Context()) // its first token, at 10
		require.NoError(t, err)
		require.NoError(t, b.Core().Park(t.Context(), "a", request.WaitChunk))
		other := b.submit(t, ask("b", 40, 1)) // five whole steps
		time.Sleep(15 * time.Millisecond)     // at 25, into its second step
		require.NoError(t, b.Core().Deliver("a", request.Payload{}))
		require.Equal(t, 1, b.Snapshot().Stats.Running)
		u := all(t, s)
		require.Equal(t, request.FinishLength, u.Output.Finish)
		n, ok := u.Record.Preemptions()
		require.True(t, ok)
		require.Zero(t, n)
		require.Equal(t, 0.0, millis(u.Record.PreemptedTime()))
		requeued, _ := u.Record.Ledger.Part(request.StateRequeued).Get()
		require.Positive(t, requeued)
		require.Zero(t, millis(u.Record.Ledger.Part(request.StatePreempted)))
		ledgerExact(t, u.Record)
		all(t, other)
		synctest.Wait()
		require.Zero(t, b.sink.preemptions)
	})
}

// PS-37: at every moment running + waiting + parked are the requests in the core, in every stage, and the gauges say so.
func TestParkedRequestsAreCountedApartPS37(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defs := speaker()
		defs[0].options = options{seqs: 2}
		p := newPipe(t, defs)
		defer p.close()
		var on []*travel
		for i := range 5 {
			on = append(on, p.start(t.Context(), request.ID(fmt.Sprint("r", i)), 20))
		}
		seen := map[string]float64{}
		for range 40 {
			time.Sleep(5 * time.Millisecond)
			synctest.Wait()
			m := p.samples()
			for stage := range 3 {
				own := fmt.Sprintf("replica=0,stage=%d}", stage)
				sum := m["vllm:num_requests_running{"+own] + m["vllm:num_requests_waiting{"+own]
				for _, why := range []string{"input", "chunk", "kv", "session"} {
					n := m["vllm_omni:stage_parked_requests{reason="+why+","+own]
					sum += n
					seen[why] = max(seen[why], n)
				}
				require.Equal(t, float64(p.units[stage][0].Snapshot().InCore), sum, "stage %d", stage)
			}
			total, _ := p.traffic.InFlight()
			require.Equal(t, float64(total), m["vllm_omni:num_requests_running{}"]+m["vllm_omni:num_requests_waiting{}"])
		}
		require.Equal(t, map[string]float64{"input": 5, "chunk": 5, "kv": 0, "session": 0}, seen)
		for _, tr := range on {
			for _, s := range tr.wait() {
				ledgerExact(t, s)
				within(t, s)
			}
		}
	})
}

// PS-15: recording off in the pipeline: all fields absent in every stage, nothing in histograms, tables or summary.
func TestPipelineWithRecordingOffPS15(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defs := speaker()
		for i := range defs {
			defs[i].options.noRecord = true
		}
		p := newPipe(t, defs)
		defer p.close()
		for _, s := range p.start(t.Context(), "a", 20, 0, 0, 0).wait() {
			require.Equal(t, []any{nil, nil, nil, nil}, fields(s))
			require.Equal(t, []any{nil, nil, nil, nil, nil}, waited(s))
		}
		require.NotContains(t, p.lines.text(), "StageRequestStats")
		m := p.samples()
		for stage := range 3 {
			require.Zero(t, m[fmt.Sprintf("vllm:e2e_request_latency_seconds_count{replica=0,stage=%d}", stage)])
		}
	})
}

// The device's sleep empties the cache and is in the snapshot; requests go on after it (vllm:engine_sleep_state).
func TestSleepIsInTheSnapshotAndLosesNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleeper := &sleepyRunner{Runner: &enginetest.Runner{StepTime: stepTime}}
		k := &sink{}
		l := local(t, sleeper, k)
		s, err := l.Submit(t.Context(), ask("a", 20, 4))
		require.NoError(t, err)
		time.Sleep(15 * time.Millisecond)
		require.NoError(t, l.Core().Sleep(t.Context(), 1))
		require.Equal(t, 1, l.Snapshot().SleepLevel)
		require.Zero(t, l.Snapshot().Stats.Usage)
		time.Sleep(time.Second)
		require.NoError(t, l.Core().Wake(t.Context()))
		require.Zero(t, l.Snapshot().SleepLevel)
		u := all(t, s)
		require.Equal(t, request.FinishLength, u.Output.Finish)
		require.Len(t, u.Output.NewTokens, 4)
		require.Equal(t, []int{1, 0}, sleeper.levels)
		n, _ := u.Record.Preemptions()
		require.Equal(t, 1, n)
		ledgerExact(t, u.Record)
		require.ErrorContains(t, l.Core().Sleep(t.Context(), 3), "level must be 1 or 2")
		require.NoError(t, l.Close(t.Context()))

		plain := start(t, options{})
		defer plain.stop(t)
		require.ErrorContains(t, plain.Core().Sleep(t.Context(), 1), "no sleep mode")
		require.NoError(t, plain.Core().Wake(t.Context()))
	})
}

// sleepyRunner is a fake device that can sleep.
type sleepyRunner struct {
	*enginetest.Runner
	levels []int
}

func (r *sleepyRunner) Sleep(level int) error { r.levels = append(r.levels, level); return nil }
func (r *sleepyRunner) Wake() error           { r.levels = append(r.levels, 0); return nil }
