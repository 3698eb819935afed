package metrics

import (
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// sink feeds one replica's series. Every child is resolved when it is made: a step or a request looks up nothing.
type sink struct {
	m     *Metrics
	r     *replica
	vllm  bool // vllm:* families exist
	alone bool // the only stage: its records are the pipeline's
}

func (m *Metrics) newSink(r *replica) *sink {
	return &sink{m: m, r: r, vllm: !m.cfg.DisableVLLM, alone: len(m.cfg.Stages) == 1}
}

func (k *sink) one(i id) *series { return k.r.series[i][0] }

// Step takes in one executed step.
func (k *sink) Step(stats *request.SchedulerStats, it *record.Iteration) {
	if !k.vllm {
		return
	}
	if stats != nil {
		k.one(prefixQueries).add(float64(stats.PrefixQueries))
		k.one(prefixHits).add(float64(stats.PrefixHits))
		k.one(externalQueries).add(float64(stats.ExternalQueries))
		k.one(externalHits).add(float64(stats.ExternalHits))
		tiers := k.r.series[cachedBySource]
		tiers[0].add(float64(stats.PrefixHits))
		for i, n := range stats.ExternalHitsByTier {
			tiers[1+i].add(float64(n))
		}
		k.speculation(stats)
	}
	if it == nil {
		return
	}
	if k.m.lora != nil && it.Adapters != nil {
		k.m.lora.observe(k.r, it.Adapters)
	}
	k.one(preemptions).add(float64(it.Preemptions))
	k.one(promptTokens).add(float64(it.PromptTokens))
	k.one(promptCached).add(float64(it.LocalCacheHit + it.External))
	sources := k.r.series[promptBySource]
	sources[0].add(float64(it.LocalCompute))
	sources[1].add(float64(it.LocalCacheHit))
	sources[2].add(float64(it.External))
	k.one(generationTokens).add(float64(it.GenerationTokens))
	if it.Outputs > 0 {
		k.one(iterationTokens).hist.Observe(float64(it.LocalCompute + it.GenerationTokens))
	}
	for _, t := range it.TTFT {
		k.one(timeToFirstToken).observeTraced(t.Span, t.TraceID)
	}
	for _, d := range it.ITL {
		k.one(interTokenLatency).observe(d)
	}
}

func (k *sink) speculation(stats *request.SchedulerStats) {
	if !k.m.enabled[specDrafts] || stats.NumDrafts == 0 {
		return
	}
	k.one(specDrafts).add(float64(stats.NumDrafts))
	k.one(specDraftTokens).add(float64(stats.DraftTokens))
	k.one(specAccepted).add(float64(stats.Accepted))
	positions := k.r.series[specAcceptedPerPos]
	for i, n := range stats.AcceptedPerPos[:min(len(stats.AcceptedPerPos), len(positions))] {
		positions[i].add(float64(n))
	}
}

// Finished takes in one request's end in this stage.
func (k *sink) Finished(s *record.Stage) {
	if !s.Recorded() {
		return
	}
	if k.vllm {
		k.request(s)
	}
	k.waits(s)
	if gen := k.r.stage.series[omniStageGenTime]; gen != nil {
		gen[0].observe(s.GenTime())
	}
	k.modality(s)
	if k.alone {
		p := record.PipelineOf(s)
		k.m.pipelineFinished(&p)
	}
}

// request fills vLLM's per-request families. An interval that was not observed gives no sample (PS-14).
func (k *sink) request(s *record.Stage) {
	if i := int(s.Finish) - int(request.FinishStop); i >= 0 && i < len(k.r.series[requestSuccess]) {
		k.r.series[requestSuccess][i].add(1) // reasons() is in FinishReason's order
	}
	k.one(requestPromptTokens).hist.Observe(float64(s.PromptTokens))
	k.one(requestGenerationTokens).hist.Observe(float64(s.NumGenerationTokens))
	k.one(prefillComputed).hist.Observe(float64(max(s.PromptTokens-max(s.CachedTokens, 0), 0)))
	if s.MaxTokens > 0 {
		k.one(paramsMaxTokens).hist.Observe(float64(s.MaxTokens))
	}
	k.one(e2eLatency).observeTraced(s.E2E(), s.TraceID)
	k.one(queueTime).observeTraced(s.QueuedTime(), s.TraceID)
	k.one(prefillTime).observeTraced(s.PrefillTime(), s.TraceID)
	k.one(decodeTime).observeTraced(s.DecodeTime(), s.TraceID)
	k.one(inferenceTime).observeTraced(s.InferenceTime(), s.TraceID)
	k.one(timePerOutputToken).observe(s.MeanTimePerOutputToken())
	if s.Corrupted && k.m.enabled[corrupted] {
		k.one(corrupted).add(1)
	}
	if n, ok := s.Preemptions(); ok {
		k.one(numPreemptions).hist.Observe(float64(n))
	}
}

// waits fills the families of PS-31.
func (k *sink) waits(s *record.Stage) {
	k.one(omniInboxWait).observe(s.InboxWait())
	k.one(omniInputWait).observe(s.InputWait())
	k.one(omniChunkWait).observe(s.ChunkWait())
	k.one(omniKVWait).observe(s.KVWait())
	k.one(omniPreempted).observe(s.PreemptedTime())
	k.one(omniUnscheduled).observe(s.UnscheduledWait())
}

// ParentFinished takes in a request whose last child ended.
func (k *sink) ParentFinished(n, maxTokens int) {
	if !k.vllm {
		return
	}
	k.one(paramsN).hist.Observe(float64(n))
	k.one(maxGenerationTokens).hist.Observe(float64(maxTokens))
}

// KVBlockEvicted takes in a sampled block's residency.
func (k *sink) KVBlockEvicted(lifetime, idle clock.Span, reuse []clock.Span) {
	if !k.m.enabled[blockLifetime] {
		return
	}
	k.one(blockLifetime).observe(lifetime)
	k.one(blockIdle).observe(idle)
	for _, gap := range reuse {
		k.one(blockReuse).observe(gap)
	}
}

// Pipeline returns the door for the ends of whole requests. With a single stage its records say it already.
func (m *Metrics) Pipeline() record.PipelineSink {
	if len(m.cfg.Stages) == 1 {
		return alonePipeline{}
	}
	return m
}

type alonePipeline struct{}

func (alonePipeline) PipelineFinished(*record.Pipeline) {}

// PipelineFinished counts one request's end over all stages. Use [Metrics.Pipeline] to get the door.
func (m *Metrics) PipelineFinished(p *record.Pipeline) {
	m.pipelineFinished(p)
	m.FrontFinished(record.FrontOf(p))
}

func (m *Metrics) pipelineFinished(p *record.Pipeline) {
	if i := int(p.Reason) - int(request.FinishStop); i >= 0 && i < len(m.model[omniSuccess]) {
		m.model[omniSuccess][i].add(1)
	}
	if p.Reason == request.FinishAbort || p.Reason == request.FinishError || p.Failure != "" {
		m.model[omniFailed][failureIndex(m.table[omniFailed].values, p)].add(1)
		return
	}
	m.model[omniE2E][0].observe(p.E2E())
	m.model[omniPromptTokens][0].add(float64(p.TokensIn))
	m.model[omniGenerationTokens][0].add(float64(p.TokensOut))
	m.model[omniQueueWait][0].observe(p.QueueWait)
}

// failureIndex bounds the reason to the label's values.
func failureIndex(values []string, p *record.Pipeline) int {
	why := p.Failure
	if why == "" {
		why = map[request.FinishReason]string{request.FinishAbort: "client_abort", request.FinishError: "stage_error"}[p.Reason]
	}
	for i, v := range values {
		if v == why {
			return i
		}
	}
	return len(values) - 1 // unknown
}
