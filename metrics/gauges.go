package metrics

import (
	"strconv"

	"omni-engine/metrics/record"
)

// gaugeValue reads one gauge of a core's snapshot; v is the index of the family's own label value.
func gaugeValue(i id, v int, s *record.Snapshot) float64 {
	switch i {
	case running:
		return float64(s.Stats.Running)
	case waiting:
		return float64(s.Waiting())
	case waitingByReason:
		return float64([2]int{s.Stats.Waiting, s.Stats.Skipped}[v])
	case kvFetch:
		return float64(s.KVFetch[v])
	case sleepState:
		return flag(min(max(s.SleepLevel, 0), 2) == v)
	case kvUsage:
		return s.Stats.Usage
	case omniStageParked:
		return float64(s.Parked(parkedReasons()[v]))
	case omniHeldBlocks:
		return float64(s.HeldKV)
	}
	return 0
}

// whole folds a gauge over all cores into the pipeline's one series: the fullest KV cache, the deepest sleep of any core,
// the sum of everything that counts.
func whole(i id, v int, snaps []*record.Snapshot) float64 {
	total, highest, level := 0.0, 0.0, 0
	for _, s := range snaps {
		if s == nil {
			continue
		}
		f := gaugeValue(i, v, s)
		total, highest, level = total+f, max(highest, f), max(level, s.SleepLevel)
	}
	switch i {
	case kvUsage:
		return highest
	case sleepState:
		return flag(min(level, 2) == v)
	}
	return total
}

// modelGauge is a gauge over all stages: what runs in any, what waits in any queue or inbox. With several stages a request that
// is in two at once counts once, by what the orchestrator says ([Metrics.SetInFlight]), less what waits in a scheduler.
func (now *moment) modelGauge(i id) float64 {
	if i == omniVADSessions {
		return now.m.model[i][0].value()
	}
	running, queued, inbox := 0, 0, 0
	for _, s := range now.snaps {
		if s != nil {
			running, queued, inbox = running+s.Stats.Running, queued+s.Waiting(), inbox+s.Inbox
		}
	}
	if source := now.m.inFlight.Load(); source != nil {
		total, dispatched := (*source)()
		queued = min(queued, dispatched)
		running, inbox = dispatched-queued, max(total-dispatched, 0)
	}
	if i == omniRunning {
		return float64(running)
	}
	return float64(queued + inbox)
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// cacheSeries is the cache-config info series of one published configuration.
type cacheSeries struct {
	of     *record.CacheConfig
	series *series
}

// cacheInfo returns the replica's info series, encoded once a configuration.
func (r *replica) cacheInfo(c *record.CacheConfig) *series {
	if have := r.cache.Load(); have != nil && have.of == c {
		return have.series
	}
	var base []label
	for _, l := range r.labels {
		if l.name != "model_name" { // vLLM's has none
			base = append(base, l)
		}
	}
	s := newSeries(&family{kind: gauge}, append(base, cacheLabels(c)...))
	r.cache.Store(&cacheSeries{c, s})
	return s
}

// cacheLabels are vLLM's CacheConfig keys with values as Python prints them. What this engine has no counterpart for keeps
// vLLM's default.
func cacheLabels(c *record.CacheConfig) []label {
	none, size := "None", strconv.Itoa(c.BlockSize)
	optional := func(n int) string {
		if n == 0 {
			return none
		}
		return strconv.Itoa(n)
	}
	return []label{
		{"_block_size_resolved", "True"}, {"block_size", size}, {"cache_dtype", c.DType}, {"cache_hit_alignment_tokens", none},
		{"effective_attention_block_size", size}, {"enable_mamba_shared_prefix_checkpoint", "False"},
		{"enable_prefix_caching", python(c.PrefixCaching)}, {"gpu_memory_utilization", pythonFloat(c.MemoryUtilization)},
		{"hash_block_size", none}, {"is_attention_free", "False"}, {"kv_cache_dtype_skip_layers", "[]"}, {"kv_cache_layout", none},
		{"kv_cache_max_concurrency", pythonFloat(c.MaxConcurrency)}, {"kv_cache_memory_bytes", strconv.FormatInt(c.MemoryBytes, 10)},
		{"kv_cache_size_tokens", strconv.Itoa(c.SizeTokens)}, {"kv_offloading_backend", "native"}, {"kv_offloading_size", none},
		{"kv_sharing_fast_prefill", "False"}, {"mamba_block_size", none}, {"mamba_cache_dtype", "auto"}, {"mamba_cache_mode", "none"},
		{"mamba_page_size_padded", none}, {"mamba_ssm_cache_dtype", "float32"}, {"num_cpu_blocks", none},
		{"num_gpu_blocks", strconv.Itoa(c.NumBlocks)}, {"num_gpu_blocks_override", optional(c.NumBlocksOverridden)},
		{"prefix_cache_retention_interval", "0"}, {"prefix_caching_hash_algo", c.HashAlgo}, {"prefix_match_unit", none},
		{"replayssm_buffer_len", "16"}, {"skip_page_size_padded", none}, {"sliding_window", optional(c.SlidingWindow)},
		{"swa_bounded_replay", "True"}, {"use_kda_recoverssm", "False"}, {"use_replayssm", "False"},
		{"user_specified_block_size", python(c.UserBlockSize)},
	}
}

func python(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

func pythonFloat(f float64) string { return string(appendFloat(nil, f)) }
