package config

import "fmt"

// vllmFlags are flags of vLLM and vLLM-Omni that are known and not supported: naming one is answered with that, not with a guess.
func vllmFlags() []string {
	return []string{
		"additional-config", "aggregate-engine-logging", "all2all-backend", "allow-deprecated-quantization",
		"allowed-local-media-path", "allowed-media-domains", "anthropic-disabled-thinking-effort", "api-server-count",
		"async-chunk", "attention-backend", "attention-config", "aux-output-config", "batch-timeout", "cache-backend",
		"cache-config", "code-revision", "cohere-format", "cohere-is-reasoning-model", "collect-detailed-traces",
		"compilation-config", "config-format", "convert", "cp-kv-cache-interleave-size", "cpu-distributed-timeout-seconds",
		"cpu-offload-gb", "cpu-offload-params", "cudagraph-capture-sizes", "cudagraph-metrics", "data-parallel-address",
		"data-parallel-backend", "data-parallel-external-lb", "data-parallel-hybrid-lb", "data-parallel-multi-port-external-lb",
		"data-parallel-rank", "data-parallel-rpc-port", "data-parallel-size", "data-parallel-size-local",
		"data-parallel-start-rank", "data-parallel-supervisor-port", "dbo-decode-token-threshold", "dbo-prefill-token-threshold",
		"dcp-comm-backend", "dcp-kv-cache-interleave-size", "dcp-q-replicate", "decode-context-parallel-size",
		"default-mm-loras", "default-sampling-params", "deploy-config", "device-ids", "device-memory-utilization",
		"diffusion-config", "diffusion-streaming-output", "disable-cascade-attn", "disable-chunked-mm-input",
		"disable-custom-all-reduce", "disable-fastapi-docs", "disable-hybrid-kv-cache-manager",
		"disable-nccl-for-dp-synchronization", "disable-sliding-window", "distributed-executor-backend",
		"distributed-timeout-seconds", "dp-supervisor-probe-failure-threshold", "dp-supervisor-probe-interval-s",
		"dp-supervisor-probe-timeout-s", "dp-sync-interval", "ec-manager-config", "ec-transfer-config", "elastic-ep-max-dp-size",
		"enable-ar-profiler", "enable-auto-tool-choice", "enable-batch-sharded-sampling", "enable-cumem-allocator", "enable-dbo",
		"enable-diffusion-pipeline-profiler", "enable-elastic-ep", "enable-ep-weight-filter", "enable-eplb",
		"enable-expert-parallel", "enable-fault-tolerance", "enable-flash-late-interaction", "enable-flashinfer-autotune",
		"enable-hc-sp", "enable-layerwise-nvtx-tracing", "enable-log-deltas", "enable-logging-iteration-details", "enable-lora",
		"enable-mamba-cache-stochastic-rounding", "enable-mamba-shared-prefix-checkpoint", "enable-mfu-metrics",
		"enable-mixed-moe-lora-format", "enable-mm-embeds", "enable-moe-shared-loras", "enable-nccl-comm-suspend",
		"enable-offline-docs", "enable-orch-monitor", "enable-prompt-embeds", "enable-return-routed-experts", "enable-scale-out",
		"enable-shm-tensor-arena", "enable-sleep-mode", "enable-ssl-refresh", "enable-tokenizer-info-endpoint",
		"enable-tower-connector-lora", "enable-trace-replay", "engram-config", "eplb-config",
		"exclude-tools-when-tool-choice-none", "expert-placement-strategy", "fail-on-environ-validation",
		"fault-tolerance-config", "fully-sharded-loras", "gdn-prefill-backend", "grpc", "grpc-port",
		"h11-max-header-count", "h11-max-incomplete-event-size", "headless", "hf-config-path", "hf-overrides", "hf-token",
		"ignore-patterns", "init-timeout", "interleave-mm-strings", "io-processor-plugin", "ir-op-priority", "jit-monitor-mode",
		"jit-monitor-verbose", "kda-decode-backend", "kda-prefill-backend", "kernel-config", "kv-cache-dtype-skip-layers",
		"kv-events-config", "kv-offloading-backend", "kv-offloading-size",
		"kv-sharing-fast-prefill", "kv-transfer-config", "language-model-only", "limit-mm-per-prompt", "linear-backend",
		"load-format", "log-config-file", "log-error-stack", "log-file", "logging-config", "logits-processors", "logprobs-mode",
		"long-prefill-token-threshold-adaptive", "lora-dtype", "lora-modules", "lora-target-modules", "mamba-backend",
		"mamba-block-size", "mamba-cache-dtype", "mamba-cache-mode", "mamba-cache-philox-rounds", "mamba-ssm-cache-dtype",
		"mamba-ssu-algorithm", "master-addr", "master-port", "max-cpu-loras", "max-cudagraph-capture-size",
		"max-generated-image-size", "max-lora-cls-labels", "max-lora-rank", "max-loras", "max-parallel-loading-workers",
		"media-io-kwargs", "middleware", "mm-device-do-normalize", "mm-encoder-attn-backend", "mm-encoder-attn-dtype",
		"mm-encoder-fp8-scale-path", "mm-encoder-fp8-scale-save-margin", "mm-encoder-fp8-scale-save-path", "mm-encoder-only",
		"mm-encoder-tp-mode", "mm-hasher-algorithm", "mm-ipc-gpu-memory-gb", "mm-processor-cache-gb", "mm-processor-cache-type",
		"mm-processor-device", "mm-processor-kwargs", "mm-shm-cache-max-object-size-mb", "mm-tensor-ipc", "model-class-name",
		"model-class-overrides", "model-impl", "model-loader-extra-config", "moe-backend", "nnodes", "no-guardrails",
		"node-rank", "num-gpus", "numa-bind", "numa-bind-cpus", "numa-bind-nodes", "offload-backend", "offload-group-size",
		"offload-num-in-group", "offload-params", "offload-prefetch-step", "omni", "omni-dp-size-local",
		"omni-heartbeat-timeout", "omni-lb-policy", "omni-master-address", "omni-master-port", "omni-replica-address",
		"omni-request-timeout-s", "optimization-level", "per-request-spec-decode-metrics",
		"performance-mode", "pipeline-parallel-size", "pooler-config", "prefill-context-parallel-size",
		"prefill-schedule-interval", "prefix-cache-retention-interval", "prefix-match-unit", "print-stage", "profiler-config",
		"pt-load-map-location", "quantization", "quantization-config", "ray-address", "ray-workers-use-nsight",
		"reasoning-config", "reasoning-parser", "reasoning-parser-plugin", "renderer-num-workers", "replayssm-buffer-len",
		"replica-id", "request-batch-max-wait-ms", "return-sampling-mask", "robot-openpi-idle-timeout", "runner",
		"safetensors-load-strategy", "safetensors-prefetch-block-size", "safetensors-prefetch-num-threads", "scheduler-cls",
		"shm-threshold-bytes", "skip-mm-profiling", "skip-tokenizer-init",
		"sleep-mode-offload-cudagraph", "sleep-preserve-parameter-names", "sparse-indexer-topk-backend", "spec-method",
		"spec-model", "spec-tokens", "specialize-active-lora", "speculative-config", "ssl-ca-certs", "ssl-cert-reqs",
		"ssl-ciphers", "stage-id", "stage-init-timeout", "stage-overrides", "step-execution", "strategy-config",
		"structured-outputs-config", "swa-bounded-replay", "task-type", "tensor-parallel-size", "tokenizer-mode",
		"tokenizer-revision", "tokens-only", "tool-call-parser", "tool-parser-plugin", "tool-server", "tool-strict-level",
		"trust-remote-code", "trust-request-mm-kwargs", "tts-max-instructions-length", "ubatch-size", "use-fp64-gumbel",
		"use-replayssm", "use-tqdm-on-load", "uvicorn-log-level", "video-pruning-method", "video-pruning-rate",
		"watermark-config", "weight-transfer-config", "worker-backend", "worker-cls", "worker-extension-cls",
	}
}

func unknown(name string) error {
	if name == "collect-detailed-traces" {
		return fmt.Errorf("--%s is accepted by vLLM, whose V1 engine measures nothing more for it; here the spans of --otlp-traces-endpoint "+
			"always hold every phase and wait that was observed: remove it", name)
	}
	for _, f := range vllmFlags() {
		if name == f || name == "no-"+f {
			return fmt.Errorf("--%s is an option of vLLM that omni-engine does not support yet; remove it", name)
		}
	}
	return fmt.Errorf("unknown option --%s", name)
}

// Unknown explains a flag that the parser did not know.
func Unknown(name string) error { return unknown(name) }
