package metrics

import (
	"slices"
	"strconv"
	"time"

	"omni-engine/metrics/record"
)

// scope says which labels a family carries besides its own: where its series come from.
type scope uint8

const (
	perReplica scope = iota // model_name, stage, replica (and engine, when asked for)
	perStage                // model_name, stage
	perModel                // model_name
)

type kind uint8

const (
	counter kind = iota
	gauge
	histogram
)

// feature is what must be switched on, or what a stage must be, for a family to exist there.
type feature uint8

const (
	always feature = iota
	speculative
	kvResidency
	kvConsumer
	nanCheck
	audioStage
	diffusionStage
)

// family is one line of the table: everything about a family but its series.
type family struct {
	name    string
	help    string
	kind    kind
	scope   scope
	label   string   // its own label, empty for none
	values  []string // the label's values, one series each, there before the first request
	buckets []float64
	needs   feature
	omni    bool // vllm_omni:*; stays when vllm:* families are switched off
	// ownStage is set for the one family that has a label "stage" of its own: the pipeline's stage is "pipeline_stage" there.
	ownStage bool
}

// id names a family of the table; its series are found by index, never by label.
type id int

// The families, in the order in which they are written: vLLM's own order first.
const (
	flops id = iota
	readBytes
	writeBytes
	running
	waiting
	waitingByReason
	kvFetch
	sleepState
	kvUsage
	corrupted
	prefixQueries
	prefixHits
	externalQueries
	externalHits
	mmQueries
	mmHits
	preemptions
	promptTokens
	promptBySource
	promptCached
	cachedBySource
	generationTokens
	requestSuccess
	admissionRejections
	requestPromptTokens
	requestGenerationTokens
	iterationTokens
	maxGenerationTokens
	paramsN
	paramsMaxTokens
	timeToFirstToken
	interTokenLatency
	timePerOutputToken
	e2eLatency
	queueTime
	inferenceTime
	prefillTime
	decodeTime
	numPreemptions
	prefillComputed
	blockLifetime
	blockIdle
	blockReuse
	specDrafts
	specDraftTokens
	specAccepted
	specAcceptedPerPos

	omniRunning
	omniWaiting
	omniSuccess
	omniFailed
	omniE2E
	omniPromptTokens
	omniGenerationTokens
	omniQueueWait
	omniStageGenTime
	omniStageWaiting
	omniStageParked
	omniHeldBlocks
	omniInboxWait
	omniInputWait
	omniChunkWait
	omniKVWait
	omniPreempted
	omniUnscheduled
	omniAudioDuration
	omniAudioRTF
	omniAudioFrames
	omniAudioSkipped
	omniDiffusionExec
	omniDiffusionPerStep
	omniDiffusionPre
	omniDiffusionPost
	omniVAEDecode
	omniDiffusionForward
	omniDiffusionKVLoad
	omniDenoiseStep
	omniStageInQueue
	omniInferenceSteps
	omniImageCount
	omniImagePixels
	omniImageFirst
	omniPeakMemory
	omniTransferKVWait
	omniAudioFirst
	omniAudioUnderrun
	omniAudioContinuous
	omniSpeechAborted
	omniSpeechCompleted
	omniVADSessions
	omniVADInference
	omniVADEndpoint
	omniVADErrors
	numFamilies
)

// reasons are the finished_reason values, in vLLM's order.
func reasons() []string { return []string{"stop", "length", "abort", "error", "repetition"} }

// table returns the families. Names, labels and buckets are those of vLLM 0.32 and vLLM-Omni 0.30; the help is ours.
func table(b bucketSets, specTokens int, connectors []string) [numFamilies]family {
	c := func(name, help string) family { return family{name: name, help: help} }
	g := func(name, help string) family { return family{name: name, help: help, kind: gauge} }
	h := func(name, help string, buckets []float64) family {
		return family{name: name, help: help, kind: histogram, buckets: buckets}
	}
	with := func(f family, label string, values ...string) family { f.label, f.values = label, values; return f }
	needs := func(f family, n feature) family { f.needs = n; return f }
	in := func(f family, s scope) family { f.scope = s; return f }

	t := [numFamilies]family{
		flops:           c("vllm:estimated_flops_per_gpu_total", "Estimated floating point operations per device."),
		readBytes:       c("vllm:estimated_read_bytes_per_gpu_total", "Estimated bytes read from memory per device."),
		writeBytes:      c("vllm:estimated_write_bytes_per_gpu_total", "Estimated bytes written to memory per device."),
		running:         g("vllm:num_requests_running", "Requests in the running batch."),
		waiting:         g("vllm:num_requests_waiting", "Requests queued, blocked by capacity or deferred."),
		waitingByReason: with(g("vllm:num_requests_waiting_by_reason", "Requests queued, by reason; the series sum to num_requests_waiting."), "reason", "capacity", "deferred"),
		kvFetch: needs(with(g("vllm:num_requests_kv_fetch_by_stage", "Requests that load KV from elsewhere, by how far the load is."), "stage",
			"waiting_to_start", "in_progress", "completed_waiting"), kvConsumer),
		sleepState:      with(g("vllm:engine_sleep_state", "Sleep state flags: 1 for the current state."), "sleep_state", "awake", "weights_offloaded", "discard_all"),
		kvUsage:         g("vllm:kv_cache_usage_perc", "Fraction of KV blocks in use; 1 is all."),
		corrupted:       needs(c("vllm:corrupted_requests_total", "Finished requests whose logits held NaN."), nanCheck),
		prefixQueries:   c("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache."),
		prefixHits:      c("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache."),
		externalQueries: c("vllm:external_prefix_cache_queries_total", "Tokens asked from a KV connector."),
		externalHits:    c("vllm:external_prefix_cache_hits_total", "Tokens supplied by a KV connector."),
		mmQueries:       c("vllm:mm_cache_queries_total", "Multimodal items looked up in the processor cache."),
		mmHits:          c("vllm:mm_cache_hits_total", "Multimodal items found in the processor cache."),
		preemptions:     c("vllm:num_preemptions_total", "Preemptions by the scheduler."),
		promptTokens:    c("vllm:prompt_tokens_total", "Prompt tokens, counted at a request's first output, cached ones included."),
		promptBySource:  with(c("vllm:prompt_tokens_by_source_total", "Prompt tokens by origin; the series sum to prompt_tokens_total."), "source", "local_compute", "local_cache_hit", "external_kv_transfer"),
		promptCached:    c("vllm:prompt_tokens_cached_total", "Prompt tokens that were not computed here."),
		cachedBySource: with(c("vllm:prompt_tokens_cached_by_source_total", "Prefix tokens found in a cache, by tier, counted at admission."), "source",
			"device", "host", "p2p", "disk", "external_unspecified"),
		generationTokens:        c("vllm:generation_tokens_total", "Generated tokens."),
		requestSuccess:          with(c("vllm:request_success_total", "Finished sequences by reason."), "finished_reason", reasons()...),
		admissionRejections:     in(with(c("vllm:admission_rejections_total", "Requests refused by a queue limit."), "reason", "max_num_queued_reqs", "max_num_queued_tokens"), perModel),
		requestPromptTokens:     h("vllm:request_prompt_tokens", "Prompt length of finished requests, in tokens.", b.tokens),
		requestGenerationTokens: h("vllm:request_generation_tokens", "Output length of finished requests, in tokens.", b.tokens),
		iterationTokens:         h("vllm:iteration_tokens_total", "Tokens handled by a step that yields outputs.", b.iteration),
		maxGenerationTokens:     h("vllm:request_max_num_generation_tokens", "Longest output among a request's sequences, in tokens.", b.tokens),
		paramsN:                 h("vllm:request_params_n", "The n of finished requests.", b.paramsN),
		paramsMaxTokens:         h("vllm:request_params_max_tokens", "Effective max_tokens of finished sequences.", b.tokens),
		timeToFirstToken:        h("vllm:time_to_first_token_seconds", "Arrival to first output, front-end clock.", b.firstToken),
		interTokenLatency:       h("vllm:inter_token_latency_seconds", "Time between successive outputs of a request, one sample a step.", b.interToken),
		timePerOutputToken:      h("vllm:request_time_per_output_token_seconds", "Decode time over generated tokens less one, per finished request.", b.interToken),
		e2eLatency:              h("vllm:e2e_request_latency_seconds", "Arrival to end, front-end clock.", b.latency),
		queueTime:               h("vllm:request_queue_time_seconds", "QUEUED to first SCHEDULED.", b.latency),
		inferenceTime:           h("vllm:request_inference_time_seconds", "First SCHEDULED to last output.", b.latency),
		prefillTime:             h("vllm:request_prefill_time_seconds", "First SCHEDULED to first output.", b.latency),
		decodeTime:              h("vllm:request_decode_time_seconds", "First output to last output.", b.latency),
		numPreemptions:          h("vllm:request_num_preemptions", "Preemptions that a finished request suffered.", b.preemptions),
		prefillComputed:         h("vllm:request_prefill_kv_computed_tokens", "Prompt tokens of a finished request that were computed, not cached.", b.tokens),
		blockLifetime:           needs(h("vllm:kv_block_lifetime_seconds", "Allocation to eviction of sampled KV blocks.", b.residency), kvResidency),
		blockIdle:               needs(h("vllm:kv_block_idle_before_evict_seconds", "Last access to eviction of sampled KV blocks.", b.residency), kvResidency),
		blockReuse:              needs(h("vllm:kv_block_reuse_gap_seconds", "Time between accesses of sampled KV blocks.", b.residency), kvResidency),
		specDrafts:              needs(c("vllm:spec_decode_num_drafts_total", "Steps that verified a draft."), speculative),
		specDraftTokens:         needs(c("vllm:spec_decode_num_draft_tokens_total", "Draft tokens proposed."), speculative),
		specAccepted:            needs(c("vllm:spec_decode_num_accepted_tokens_total", "Draft tokens accepted."), speculative),
		specAcceptedPerPos:      needs(with(c("vllm:spec_decode_num_accepted_tokens_per_pos_total", "Draft tokens accepted, by position in the draft."), "position", numbers(specTokens)...), speculative),
	}
	t[kvFetch].ownStage = true
	omniTable(&t, connectors)
	return t
}

// omniTable adds vLLM-Omni's families and the project's own beside them. All exist from the start, as there; series of audio and
// diffusion only where a stage is of that kind.
func omniTable(t *[numFamilies]family, connectors []string) {
	add := func(at id, k kind, s scope, name, help string, buckets []float64) *family {
		t[at] = family{name: "vllm_omni:" + name, help: help, kind: k, scope: s, buckets: buckets, omni: true}
		return &t[at]
	}
	long, short, waits := omniLong(), omniShort(), waitBuckets()
	add(omniRunning, gauge, perModel, "num_requests_running", "Requests that run in a stage.", nil)
	add(omniWaiting, gauge, perModel, "num_requests_waiting", "Requests that wait for a stage or in its scheduler.", nil)
	f := add(omniSuccess, counter, perModel, "requests_success_total", "Finished requests by reason; aborts too.", nil)
	f.label, f.values = "finished_reason", reasons()
	f = add(omniFailed, counter, perModel, "requests_failed_total", "Failed requests by bounded reason.", nil)
	f.label, f.values = "reason", []string{"client_abort", "client_disconnect", "stage_error", "unknown"}
	add(omniE2E, histogram, perModel, "e2e_request_latency_s", "Arrival to final result, of requests that succeeded.", long)
	add(omniPromptTokens, counter, perModel, "prompt_tokens_total", "Input tokens of the entry stage.", nil)
	add(omniGenerationTokens, counter, perModel, "generation_tokens_total", "Output tokens over all stages.", nil)
	add(omniQueueWait, histogram, perModel, "request_queue_wait_s", "Front end's enqueue to submit to the entry stage (orchestration, not the scheduler's queue).", long)
	add(omniStageGenTime, histogram, perStage, "stage_gen_time_s", "Submit to a stage until its finished output.", long)
	add(omniStageWaiting, gauge, perStage, "stage_waiting_requests", "Requests waiting in the schedulers of a stage.", nil)
	f = add(omniStageParked, gauge, perReplica, "stage_parked_requests", "Requests parked outside running and waiting, by what they wait for.", nil)
	f.label, f.values = "reason", []string{"input", "chunk", "kv", "session"}
	add(omniHeldBlocks, gauge, perReplica, "kv_held_blocks", "KV blocks of ended requests that a transfer or a device step still holds.", nil)
	add(omniInboxWait, histogram, perReplica, "core_inbox_wait_s", "Time in the core's inbox, before QUEUED.", waits)
	add(omniInputWait, histogram, perReplica, "request_input_wait_s", "Wait for the input or the first chunk, inside the queue time.", waits)
	add(omniChunkWait, histogram, perReplica, "request_chunk_wait_s", "Wait for later chunks, inside prefill and decode time.", waits)
	add(omniKVWait, histogram, perReplica, "request_kv_wait_s", "Wait for remote KV, or for the acknowledgement of a KV extraction.", waits)
	add(omniPreempted, histogram, perReplica, "request_preempted_s", "PREEMPTED to next SCHEDULED, summed over a request.", waits)
	add(omniUnscheduled, histogram, perReplica, "request_unscheduled_wait_s", "QUEUED to end, of requests that were never scheduled.", waits)

	add(omniPeakMemory, gauge, perStage, "peak_memory_mb", "Most device memory that a stage used, in MB.", nil)
	f = add(omniTransferKVWait, histogram, perModel, "kv_wait_s", "Wait for a KV transfer between engines, by connector.", long)
	f.label, f.values = "connector_type", append(slices.Clone(connectors), unknown)
	omniRealtime(add)

	add(omniAudioFirst, histogram, perReplica, "audio_ttfp_s", "Arrival to the first audio packet.", long).needs = audioStage
	add(omniAudioUnderrun, histogram, perReplica, "audio_underrun_s", "Longest time that a player of a stream was without audio.", short).needs = audioStage
	f = add(omniAudioContinuous, counter, perReplica, "audio_continuity_ok_total", "Streams whose longest underrun stayed within the threshold.", nil)
	f.needs, f.label, f.values = audioStage, "threshold_ms", []string{strconv.Itoa(int(record.AudibleGap / time.Millisecond))}
	add(omniAudioDuration, histogram, perReplica, "audio_duration_s", "Length of the audio that a request got.", long).needs = audioStage
	add(omniAudioRTF, histogram, perReplica, "audio_rtf", "Stage time over audio length.", []float64{0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.25, 1.5, 2, 5, 10}).needs = audioStage
	add(omniAudioFrames, counter, perReplica, "audio_frames_total", "Audio samples produced.", nil).needs = audioStage
	f = add(omniAudioSkipped, counter, perReplica, "audio_skipped_requests_total", "Audio results without samples.", nil)
	f.needs, f.label, f.values = audioStage, "reason", []string{"no_audio_data"}

	for _, d := range []struct {
		at         id
		name, help string
		buckets    []float64
	}{
		{omniDiffusionExec, "diffusion_exec_s", "Execution time of the diffusion engine.", long},
		{omniDiffusionPerStep, "diffusion_exec_per_step_s", "Execution time over denoise steps.", short},
		{omniDiffusionPre, "diffusion_preprocess_s", "Preprocessing before the denoise loop.", short},
		{omniDiffusionPost, "diffusion_postprocess_s", "Postprocessing after the denoise loop.", short},
		{omniVAEDecode, "vae_decode_s", "VAE decode.", long},
		{omniDiffusionForward, "diffusion_forward_s", "The denoise loop alone.", long},
		{omniDiffusionKVLoad, "diffusion_kv_load_s", "KV receive before diffusion.", short},
		{omniDenoiseStep, "denoise_step_latency_s", "Denoise loop over its steps.", short},
		{omniImageFirst, "image_ttfp_s", "Submit to the stage until the first image.", long},
	} {
		add(d.at, histogram, perReplica, d.name, d.help, d.buckets).needs = diffusionStage
	}
	add(omniStageInQueue, histogram, perStage, "stage_in_queue_s", "Diffusion scheduler's enqueue to admission.", short).needs = diffusionStage
	add(omniInferenceSteps, histogram, perModel, "num_inference_steps", "Denoise steps of a request.", clientDefault())
	add(omniImageCount, counter, perModel, "image_count_total", "Images produced.", nil)
	add(omniImagePixels, histogram, perModel, "image_pixels", "Pixels of a request's images.", clientDefault())
}

// unknown is the label value of what is in no list: client text never becomes one (PS-71).
const unknown = "unknown"

// omniRealtime adds the families of speech streams and realtime sessions.
func omniRealtime(add func(at id, k kind, s scope, name, help string, buckets []float64) *family) {
	short := omniShort()
	f := add(omniSpeechAborted, counter, perModel, "speech_stream_aborted_total", "Speech streams that ended before their last sample.", nil)
	f.label, f.values = "reason", []string{"cancelled", "closed", "engine_dead", "error"}
	add(omniSpeechCompleted, counter, perModel, "speech_stream_completed_total", "Speech streams that were produced to their end.", nil)
	add(omniVADSessions, gauge, perModel, "realtime_vad_active_sessions", "Realtime sessions with voice activity detection.", nil)
	add(omniVADInference, histogram, perModel, "realtime_vad_inference_latency_s", "Voice activity detection of one appended batch of audio.", short)
	add(omniVADEndpoint, histogram, perModel, "realtime_vad_endpoint_delay_s", "Silence between the last speech and its commit.", short)
	f = add(omniVADErrors, counter, perModel, "realtime_vad_errors_total", "Errors and refusals of voice activity detection.", nil)
	f.label, f.values = "reason", []string{"error", "overflow", unknown}
}
