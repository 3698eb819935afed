package config

// option ties a flag to its field, its environment variables and its help. The table is the only list of flags.
type option struct {
	name  string
	env   []string
	value value
	help  string
	neg   bool // --no-NAME exists too
}

func options(s *Serve) []option {
	str, num, yes := stringValue, intValue, boolValue
	return []option{
		{"model", nil, str(&s.Model), "model: GGUF file, Hugging Face directory or hub id (also the positional argument)", false},
		{"served-model-name", nil, listValue(&s.ServedModelName), "names in the API; the first is echoed", false},
		{"tokenizer", nil, str(&s.Tokenizer), "directory with tokenizer.json, when not the model's own", false},
		{"revision", nil, str(&s.Revision), "branch, tag or commit of a hub id", false},
		{"download-dir", nil, str(&s.DownloadDir), "hub cache directory (default: huggingface_hub's)", false},
		{"config", nil, str(&s.File), "YAML file of flags", false},

		{"host", nil, str(&s.Host), "address to bind; empty: all", false},
		{"port", nil, num(&s.Port), "port to bind; 0 picks a free one", false},
		{"port-file", nil, str(&s.PortFile), "write the bound port to this file once the server listens", false},
		{"uds", nil, str(&s.UDS), "unix socket instead of host and port", false},
		{"root-path", nil, str(&s.RootPath), "prefix that a proxy strips or keeps", false},
		{"ssl-certfile", nil, str(&s.SSLCertFile), "TLS certificate", false},
		{"ssl-keyfile", nil, str(&s.SSLKeyFile), "TLS key", false},
		{"api-key", []string{"VLLM_API_KEY"}, listValue(&s.APIKeys), "Bearer tokens that /v1 accepts", false},
		{"allowed-origins", nil, jsonListValue(&s.AllowedOrigins), "CORS origins, a JSON list", false},
		{"allowed-methods", nil, jsonListValue(&s.AllowedMethods), "CORS methods, a JSON list", false},
		{"allowed-headers", nil, jsonListValue(&s.AllowedHeaders), "CORS headers, a JSON list", false},
		{"allow-credentials", nil, yes(&s.AllowCredentials), "CORS credentials", true},
		{"enable-request-id-headers", nil, yes(&s.RequestIDHeaders), "answer with X-Request-Id", true},
		{"sse-keep-alive-interval", nil, num(&s.SSEKeepAlive), "seconds between SSE comments; 0: none", false},
		{"shutdown-timeout", nil, secondsValue(&s.ShutdownTimeout), "seconds to drain on SIGTERM before requests are aborted", false},
		{"max-num-queued-reqs", nil, num(&s.MaxNumQueuedReqs), "refuse with 503 above this many waiting requests; 0: no limit", false},
		{"max-num-queued-tokens", nil, num(&s.MaxNumQueuedTokens), "refuse with 503 above this many waiting prompt tokens; 0: no limit", false},

		{"chat-template", nil, str(&s.ChatTemplate), "chat template, a file or the text itself", false},
		{"chat-template-content-format", nil, choiceValue(&s.ChatTemplateContentFormat, "auto", "string", "openai"), "how message content is given to the template", false},
		{"trust-request-chat-template", nil, yes(&s.TrustRequestChatTemplate), "allow chat_template in requests", true},
		{"default-chat-template-kwargs", nil, str(&s.DefaultChatTemplateKwargs), "JSON object of template variables", false},
		{"response-role", nil, str(&s.ResponseRole), "role name of answers", false},
		{"return-tokens-as-token-ids", nil, yes(&s.ReturnTokensAsTokenIDs), "logprob tokens become token_id:N", true},
		{"enable-prompt-tokens-details", nil, yes(&s.EnablePromptTokensDetails), "fill usage.prompt_tokens_details", true},
		{"enable-per-request-metrics", nil, yes(&s.EnablePerRequestMetrics), "fill the response's metrics", true},
		{"enable-server-load-tracking", nil, yes(&s.EnableServerLoadTracking), "count requests in flight for /load", true},
		{"enable-force-include-usage", nil, yes(&s.ForceIncludeUsage), "usage in every stream", true},
		{"fingerprint-mode", nil, choiceValue(&s.FingerprintMode, "full", "hash", "none", "custom"), "system_fingerprint's content", false},
		{"fingerprint-value", nil, str(&s.FingerprintValue), "system_fingerprint for mode custom", false},
		{"generation-config", nil, str(&s.GenerationConfig), "auto: the model's generation_config.json; vllm: none; or a directory", false},
		{"override-generation-config", nil, str(&s.OverrideGenerationConfig), "JSON object over the generation config", false},
		{"max-logprobs", nil, num(&s.MaxLogprobs), "most logprobs a request may ask for; -1: all", false},
		{"stream-interval", nil, num(&s.StreamInterval), "tokens a streamed chunk", false},

		{"device", nil, choiceValue(&s.Device, "auto", "cpu", "cuda", "ref"), "where to run: cuda, cpu, or ref (the plain definition of every operation); auto: cuda where a usable GPU is, else cpu", false},
		{"cuda-lib", []string{"OMNI_CUDA_LIB"}, str(&s.CUDALib), "the CUDA driver's library, when not the system's libcuda.so.1", false},
		{"cublaslt-lib", []string{"OMNI_CUBLASLT_LIB"}, str(&s.CUBLASLtLib), "cuBLASLt's path or folder, for dense products of prefills on a GPU; auto: where it is found; none: own kernels", false},
		{"cuda-device", nil, num(&s.CUDADevice), "ordinal of the GPU", false},
		{"gpu-memory-utilization", nil, floatValue(&s.Utilization), "share of the GPU's memory that this process may take", false},
		{"enforce-eager", nil, yes(&s.EnforceEager), "no CUDA graphs; else those of all batch sizes are captured at start", true},
		{"threads", []string{"OMNI_THREADS"}, num(&s.Threads), "CPU threads; 0: what affinity and cgroup allow", false},
		{"cpu-level", []string{"OMNI_CPU_LEVEL"}, choiceValue(&s.CPULevel, "", "scalar", "avx2", "avx-vnni", "avx512-vnni", "avx512-amx", "amx-bf16"), "force a vector level", false},
		{"dtype", nil, choiceValue(&s.DType, "auto", "float32", "float", "bfloat16", "float16", "half"), "auto: the weights' own precision, on the CPU with 8-bit activations where they are quantised; float32: exact; bfloat16, float16: activations on a GPU", false},
		{"max-model-len", nil, humanValue(&s.MaxModelLen, true), "context length; 1k = 1000, 1K = 1024; auto: the model's", false},
		{"seed", nil, int64Value(&s.Seed), "seed of the engine's own draws", false},
		{"block-size", nil, num(&s.BlockSize), "tokens a KV block, a multiple of 16", false},
		{"kv-cache-memory-bytes", nil, bytesValue(&s.KVCacheBytes), "size of the KV cache", false},
		{"cpu-kvcache-space", []string{"VLLM_CPU_KVCACHE_SPACE"}, num(&s.KVSpaceGiB), "size of the KV cache in GiB", false},
		{"kv-cache-dtype", nil, choiceValue(&s.KVCacheDType, "auto", "float32", "float16", "bfloat16"), "element type of the KV cache", false},
		{"num-gpu-blocks-override", nil, num(&s.NumBlocks), "number of KV blocks, whatever the memory plan says", false},

		{"enable-prefix-caching", nil, yes(&s.PrefixCaching), "share KV blocks of equal prefixes", true},
		{"prefix-caching-hash-algo", nil, choiceValue(&s.PrefixHash, "sha256", "sha256_cbor"), "block hash in KV events", false},
		{"max-num-batched-tokens", nil, humanValue(&s.MaxNumBatchedTokens, false), "token budget of a step; not set: 512 on the CPU, 2048 on a GPU, 8192 from 70 GiB (not A100), 16384 from 160 GiB", false},
		{"max-num-scheduled-tokens", nil, num(&s.MaxNumScheduled), "scheduled tokens of a step; 0: the batch budget", false},
		{"max-num-seqs", nil, num(&s.MaxNumSeqs), "most running requests; not set: 128 on the CPU, 256 on a GPU, 1024 from 70 GiB (not A100)", false},
		{"max-num-active-seqs", nil, num(&s.MaxNumActiveSeqs), "most running and paused sessions; 0: max-num-seqs", false},
		{"long-prefill-token-threshold", nil, num(&s.LongPrefillThreshold), "cap of one request's prefill chunk; 0: none", false},
		{"max-prefill-tokens-beside-decode", nil, num(&s.PrefillBesideDecode), "cap of all prefill tokens of a step in which others decode, so that a prompt does not hold up their tokens; 0: none, -1: 32 on the CPU, none on a GPU", false},
		{"scheduling-policy", nil, choiceValue(&s.Policy, "fcfs", "priority"), "order of waiting requests", false},
		{"enable-chunked-prefill", nil, yes(&s.ChunkedPrefill), "split prompts over steps", true},
		{"watermark", nil, floatValue(&s.Watermark), "share of KV blocks kept free at admission", false},
		{"async-scheduling", nil, autoValue(&s.AsyncScheduling), "plan step n+1 while n runs; auto: on a GPU", true},
		{"scheduler-reserve-full-isl", nil, yes(&s.ReserveFullISL), "admit a request only if its whole sequence fits", true},
		{"input-wait-timeout", []string{"VLLM_OMNI_INPUT_WAIT_TIMEOUT_S"}, floatValue(&s.InputWaitTimeout), "seconds until a parked request fails; 0: never", false},

		{"log-stats", nil, yes(&s.LogStats), "log each request's stage times", false},
		{"no-log-stats", nil, yes(&s.NoLogStats), "record no stage times", false},
		{"disable-log-stats", nil, yes(&s.DisableLogStats), "record no stage times and export no vllm:* families", false},
		{"metrics-engine-label", nil, yes(&s.MetricsEngineLabel), "keep the label engine beside stage and replica", true},
		{"kv-cache-metrics", nil, yes(&s.KVCacheMetrics), "families of the lives of sampled KV blocks: lifetime, idle time, gaps between uses", true},
		{"kv-cache-metrics-sample", nil, floatValue(&s.KVCacheMetricsSample), "share of KV blocks that --kv-cache-metrics follows, in (0, 1]", false},
		{"show-hidden-metrics-for-version", nil, str(&s.ShowHiddenMetrics), "show families hidden since that version, as 0.31; none of this version is hidden", false},
		{"compute-nans-in-logits", []string{"VLLM_COMPUTE_NANS_IN_LOGITS"}, yes(&s.ComputeNaNs), "count the requests that NaN in their logits ended", true},
		{"custom-histogram-buckets", nil, str(&s.CustomBuckets), "JSON object: vLLM's family keys to bucket bounds", false},
		{"enable-log-requests", nil, yes(&s.LogRequests), "log each request's parameters", true},
		{"enable-log-outputs", nil, yes(&s.LogOutputs), "log each request's output", true},
		{"max-log-len", nil, num(&s.MaxLogLen), "most characters of logged text; -1: no limit", false},
		{"disable-uvicorn-access-log", nil, yes(&s.DisableAccessLog), "no access log", true},
		{"disable-access-log-for-endpoints", nil, listValue(&s.QuietEndpoints), "paths without access log", false},
		{"log-level", []string{"VLLM_LOGGING_LEVEL"}, choiceValue(&s.LogLevel, "debug", "info", "warning", "error"), "least severe level that is logged", false},
		{"log-format", nil, choiceValue(&s.LogFormat, "text", "json"), "form of log lines", false},
		{"disable-dashboard", nil, yes(&s.DisableDashboard), "no page at /dashboard, and no JSON behind it", true},
		{"otlp-traces-endpoint", []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"}, str(&s.OTLPEndpoint), "export each request's spans over OTLP; OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: grpc or http/protobuf", false},
		{"trace-file", nil, str(&s.TraceFile), "write a Chrome/Perfetto trace of every request's states", false},
	}
}
