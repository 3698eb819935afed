// Package config is the one description of a server: a struct, checked once with all errors at once. A value comes from a
// flag, else the environment, else the configuration file, else its default; --print-config shows which.
package config

import "time"

// Serve is the configuration of `omni-engine serve`.
type Serve struct {
	Model           string
	ServedModelName []string
	Tokenizer       string
	Revision        string
	DownloadDir     string
	File            string // --config

	Host               string
	Port               int
	PortFile           string // the bound port is written there once the server listens
	UDS                string
	RootPath           string
	SSLCertFile        string
	SSLKeyFile         string
	APIKeys            []string
	AllowedOrigins     []string
	AllowedMethods     []string
	AllowedHeaders     []string
	AllowCredentials   bool
	RequestIDHeaders   bool
	SSEKeepAlive       int // seconds between SSE comments; 0: off
	ShutdownTimeout    time.Duration
	MaxNumQueuedReqs   int // 0: no limit
	MaxNumQueuedTokens int

	ChatTemplate              string
	ChatTemplateContentFormat string
	TrustRequestChatTemplate  bool
	DefaultChatTemplateKwargs string
	ResponseRole              string
	ReturnTokensAsTokenIDs    bool
	EnablePromptTokensDetails bool
	EnablePerRequestMetrics   bool
	EnableServerLoadTracking  bool
	ForceIncludeUsage         bool
	FingerprintMode           string
	FingerprintValue          string
	GenerationConfig          string
	OverrideGenerationConfig  string
	MaxLogprobs               int
	StreamInterval            int

	Device       string
	Threads      int    // 0: what affinity mask and cgroup quota allow
	CPULevel     string // "": the best that the processor has
	CUBLASLtLib  string // auto: the system's; none: own kernels
	CUDALib      string // the driver's library: "": the system's
	CUDADevice   int    // ordinal
	Utilization  float64
	EnforceEager bool
	DType        string
	MaxModelLen  int // 0: the model's
	Seed         int64
	BlockSize    int
	KVCacheBytes int64 // 0: the default plan
	KVSpaceGiB   int   // VLLM_CPU_KVCACHE_SPACE
	KVCacheDType string
	NumBlocks    int // --num-gpu-blocks-override; 0: from the memory plan

	PrefixCaching        bool
	PrefixHash           string
	MaxNumBatchedTokens  int
	TokensByDevice       bool // nobody set MaxNumBatchedTokens: see ForDevice
	SeqsByDevice         bool // nobody set MaxNumSeqs
	MaxNumScheduled      int
	MaxNumSeqs           int
	MaxNumActiveSeqs     int
	LongPrefillThreshold int
	PrefillBesideDecode  int // -1: by device, see ForDevice
	Policy               string
	ChunkedPrefill       bool
	Watermark            float64
	AsyncScheduling      string // auto: on for a device of its own, off on the CPU
	ReserveFullISL       bool
	InputWaitTimeout     float64 // seconds; 0: never

	LogStats             bool
	NoLogStats           bool
	DisableLogStats      bool
	MetricsEngineLabel   bool
	KVCacheMetrics       bool
	KVCacheMetricsSample float64 // share of blocks, in (0, 1]
	ShowHiddenMetrics    string  // a version
	ComputeNaNs          bool
	CustomBuckets        string
	LogRequests          bool
	LogOutputs           bool
	MaxLogLen            int // -1: no limit
	DisableAccessLog     bool
	QuietEndpoints       []string
	LogLevel             string
	LogFormat            string
	TraceFile            string
	OTLPEndpoint         string // empty: no spans are exported
	DisableDashboard     bool
}

// CPU defaults, with their reasons:
//
//   - BlockSize 16: the CPU kernels' page. A larger block only makes prefix sharing coarser; the scheduler's cost does not
//     depend on the number of blocks.
//   - MaxNumBatchedTokens 512: matrix kernels reach their best rate there (bench/RESULTS.md), and a prefill chunk of 512 keeps the
//     pause between two tokens of the running requests short.
//   - PrefillBesideDecode 32: a step that decodes 16 sequences takes about as long as prefilling 32 tokens, so a new prompt at most doubles the
//     pause between two tokens of the others; without the cap it is a whole budget's time, ten times as long (bench/RESULTS.md).
//   - MaxNumSeqs 128: throughput is flat beyond 64 sequences on few cores; twice that keeps the queue short without growing
//     buffers.
//   - Threads: the processors that the affinity mask and the cgroup quota allow; more only wait for each other.
const (
	DefaultBlockSize           = 16
	DefaultMaxNumBatchedTokens = 512
	DefaultMaxNumSeqs          = 128
	DefaultPrefillBesideDecode = 32 // on the CPU
	// DefaultUtilization is vLLM's default of --gpu-memory-utilization.
	DefaultUtilization = 0.92
	// DefaultModel is served when no model is named.
	DefaultModel = "HuggingFaceTB/SmolLM2-135M-Instruct"
)

// Default returns the defaults of every field.
func Default() Serve {
	return Serve{
		Host: "", Port: 8000, AllowedMethods: []string{"*"}, AllowedHeaders: []string{"*"},
		ShutdownTimeout: 30 * time.Second, ChatTemplateContentFormat: "auto", ResponseRole: "assistant",
		FingerprintMode: "full", GenerationConfig: "auto", MaxLogprobs: 20, StreamInterval: 1,
		Device: "auto", CUBLASLtLib: "auto", DType: "auto", BlockSize: DefaultBlockSize, KVCacheDType: "auto",
		PrefillBesideDecode: -1, PrefixCaching: true, PrefixHash: "sha256", MaxNumBatchedTokens: DefaultMaxNumBatchedTokens,
		MaxNumSeqs: DefaultMaxNumSeqs, Policy: "fcfs", ChunkedPrefill: true, ReserveFullISL: true, InputWaitTimeout: 600,
		KVCacheMetricsSample: 0.01, MaxLogLen: -1, LogLevel: "info", LogFormat: "text", AsyncScheduling: "auto", Utilization: DefaultUtilization,
	}
}

// Recording reports whether stage records are kept (PS-15).
func (s *Serve) Recording() bool { return !s.NoLogStats && !s.DisableLogStats }
