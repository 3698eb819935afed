package openai

import (
	"encoding/json"

	"omni-engine/internal/clock"
	"omni-engine/internal/server/schema"
	"omni-engine/metrics/record"
)

// perRequest are vLLM's keys of a response's metrics (--enable-per-request-metrics): engine-core times of one generation.
// A value that was not observed is null.
type perRequest struct {
	TimeToFirstToken *float64 `json:"time_to_first_token_ms"`
	GenerationTime   *float64 `json:"generation_time_ms"`
	QueueTime        *float64 `json:"queue_time_ms"`
	MeanITL          *float64 `json:"mean_itl_ms"`
	TokensPerSecond  *float64 `json:"tokens_per_second"`
}

func millis(s clock.Span) *float64 {
	if ms, ok := s.Milliseconds(); ok {
		return &ms
	}
	return nil
}

func newPerRequest(s *record.Stage, tokens int) *perRequest {
	m := &perRequest{TimeToFirstToken: millis(s.PrefillTime()), GenerationTime: millis(s.DecodeTime()),
		QueueTime: millis(s.QueuedTime()), MeanITL: millis(s.MeanTimePerOutputToken())}
	if sec, ok := s.InferenceTime().Seconds(); ok && sec > 0 {
		rate := float64(tokens) / sec
		m.TokensPerSecond = &rate
	}
	return m
}

// wantsStages reads return_stage_metrics as vLLM-Omni does: true, 1, "true", "yes", "on".
func wantsStages(d *schema.Dict) bool {
	v, _ := d.Get("return_stage_metrics")
	if extra := d.Dict("extra_body"); v == nil && extra != nil {
		v, _ = extra.Get("return_stage_metrics")
	}
	switch x := v.(type) {
	case bool:
		return x
	case int64:
		return x == 1
	case string:
		return x == "1" || x == "true" || x == "yes" || x == "on" || x == "True"
	}
	return false
}

// metricsOf is the response's metrics: null unless somebody asked. Times describe one generation, so an answer of several
// has none of them.
func (s *Server) metricsOf(c *call, jobs []*job, records []*record.Stage) any {
	d := c.body
	one := len(jobs) == 1 && len(records) == 1
	stages := wantsStages(d) && len(records) > 0
	if !one && !stages || (!s.opt.PerRequestMetrics && !stages) {
		return nil
	}
	out := map[string]any{}
	if s.opt.PerRequestMetrics && one {
		b, _ := json.Marshal(newPerRequest(records[0], jobs[0].tokens))
		_ = json.Unmarshal(b, &out)
	}
	if stages {
		last := records[len(records)-1]
		out["stage_metrics"] = record.StageMetrics(records...)
		edges, origins := []json.RawMessage{}, record.Origins(c.base.Arrival, records...)
		for _, e := range c.edges() {
			e.LastByte = record.Instant{} // this answer has not ended: nobody knows it yet
			edges = append(edges, e.JSON(origins))
		}
		out["stream_edges"] = edges
		out["stage_id"] = last.StageID
		out["final_output_type"] = last.FinalOutputType
		in, gen := 0, 0
		for _, r := range records {
			in += r.PromptTokens
			gen += r.NumGenerationTokens
		}
		out["num_tokens_in"], out["num_tokens_out"] = in, gen
	}
	return out
}
