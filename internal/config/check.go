package config

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
)

// checkBatch returns what is wrong with the sizes of a step.
func checkBatch(s *Serve, maxLen int) (errs []error) {
	if s.MaxNumBatchedTokens < s.MaxNumSeqs {
		errs = append(errs, fmt.Errorf("max_num_batched_tokens (%d) must be greater than or equal to max_num_seqs (%d)", s.MaxNumBatchedTokens, s.MaxNumSeqs))
	}
	if !s.ChunkedPrefill && maxLen > s.MaxNumBatchedTokens {
		errs = append(errs, fmt.Errorf("max_num_batched_tokens (%d) is smaller than max_model_len (%d): longer prompts could never run without chunked prefill", s.MaxNumBatchedTokens, maxLen))
	}
	return errs
}

// check returns everything that is wrong with a configuration.
func check(s *Serve) (errs []error) {
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	atLeast := func(flag string, v, least int) {
		if v < least {
			bad("--%s must be at least %d, got %d", flag, least, v)
		}
	}
	if s.Port < 0 || s.Port > 65535 {
		bad("--port must be between 0 and 65535, got %d", s.Port)
	}
	atLeast("max-num-batched-tokens", s.MaxNumBatchedTokens, 1)
	atLeast("max-num-seqs", s.MaxNumSeqs, 1)
	atLeast("stream-interval", s.StreamInterval, 1)
	atLeast("max-logprobs", s.MaxLogprobs, -1)
	atLeast("max-log-len", s.MaxLogLen, -1)
	atLeast("max-prefill-tokens-beside-decode", s.PrefillBesideDecode, -1)
	for flag, v := range map[string]int{"threads": s.Threads, "max-model-len": s.MaxModelLen, "cpu-kvcache-space": s.KVSpaceGiB,
		"num-gpu-blocks-override": s.NumBlocks, "max-num-scheduled-tokens": s.MaxNumScheduled, "max-num-active-seqs": s.MaxNumActiveSeqs,
		"long-prefill-token-threshold": s.LongPrefillThreshold, "cuda-device": s.CUDADevice, "sse-keep-alive-interval": s.SSEKeepAlive,
		"max-num-queued-reqs": s.MaxNumQueuedReqs, "max-num-queued-tokens": s.MaxNumQueuedTokens} {
		atLeast(flag, v, 0)
	}
	if s.BlockSize < 16 || s.BlockSize%16 != 0 {
		bad("--block-size must be a multiple of 16, the page of the kernels, got %d", s.BlockSize)
	}
	if byDevice := s.TokensByDevice && (s.Device == "auto" || s.Device == "cuda"); !byDevice { // else ForDevice looks
		errs = append(errs, checkBatch(s, s.MaxModelLen)...)
	}
	if s.LongPrefillThreshold > 0 && s.MaxModelLen > 0 && s.LongPrefillThreshold > s.MaxModelLen {
		bad("long_prefill_token_threshold (%d) cannot be greater than the max_model_len (%d)", s.LongPrefillThreshold, s.MaxModelLen)
	}
	if s.Watermark < 0 || s.Watermark >= 1 {
		bad("--watermark must be in [0, 1), got %v", s.Watermark)
	}
	if s.Utilization <= 0 || s.Utilization > 1 {
		bad("--gpu-memory-utilization must be in (0, 1], got %v", s.Utilization)
	}
	if s.Device == "cpu" || s.Device == "ref" {
		for flag, given := range map[string]bool{"--dtype " + s.DType: s.DType == "bfloat16" || s.DType == "float16" || s.DType == "half",
			"--kv-cache-dtype " + s.KVCacheDType: s.KVCacheDType == "bfloat16"} {
			if given {
				bad("%s is for --device cuda; the CPU computes in float32 (--dtype auto, --dtype float32)", flag)
			}
		}
	}
	if s.InputWaitTimeout < 0 || math.IsInf(s.InputWaitTimeout, 0) {
		bad("--input-wait-timeout must be a finite number of seconds, 0 for never, got %v", s.InputWaitTimeout)
	}
	if !(s.KVCacheMetricsSample > 0 && s.KVCacheMetricsSample <= 1) {
		bad("--kv-cache-metrics-sample must be in (0, 1], got %v", s.KVCacheMetricsSample)
	}
	if v := s.ShowHiddenMetrics; v != "" && !isVersion(v) {
		bad("--show-hidden-metrics-for-version must be a version such as 0.31, got %q", v)
	}
	if s.LogStats && (s.NoLogStats || s.DisableLogStats) {
		bad("--log-stats asks for per-request logs, --no-log-stats and --disable-log-stats turn recording off: give one of them")
	}
	if s.LogOutputs && !s.LogRequests {
		bad("--enable-log-outputs needs --enable-log-requests")
	}
	if s.KVCacheBytes != 0 && s.KVSpaceGiB != 0 {
		bad("--kv-cache-memory-bytes and --cpu-kvcache-space (VLLM_CPU_KVCACHE_SPACE) both size the KV cache: give one of them")
	}
	if (s.SSLCertFile == "") != (s.SSLKeyFile == "") {
		bad("--ssl-certfile and --ssl-keyfile go together")
	}
	if (s.FingerprintMode == "custom") != (s.FingerprintValue != "") {
		bad("--fingerprint-value goes with --fingerprint-mode custom")
	}
	for flag, text := range map[string]string{"default-chat-template-kwargs": s.DefaultChatTemplateKwargs,
		"override-generation-config": s.OverrideGenerationConfig, "custom-histogram-buckets": s.CustomBuckets} {
		var object map[string]json.RawMessage
		if text != "" && json.Unmarshal([]byte(text), &object) != nil {
			bad("--%s must be a JSON object, got %q", flag, text)
		}
	}
	return errs
}

// isVersion reports whether text is a public version as Python's packaging reads it, such as 0.31, 0.31.0rc1 or 0.31.0.post1.
func isVersion(text string) bool {
	return regexp.MustCompile(`^(?i)v?(\d+!)?\d+(\.\d+)*([-_.]?(a|alpha|b|beta|c|rc|pre|preview)[-_.]?\d*)?((-\d+)|([-_.]?(post|rev|r)[-_.]?\d*))?([-_.]?dev[-_.]?\d*)?(\+[a-z0-9]+([-_.][a-z0-9]+)*)?$`).MatchString(text)
}
