// Package replay feeds recorded workloads of vLLM's scheduler to ours and compares every decision.
package replay

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"omni-engine/engine/request"
	"omni-engine/scheduler"
)

// Trace is one recording, format 1.
type Trace struct {
	Format   int       `json:"format"`
	Family   string    `json:"family"`
	Seed     int       `json:"seed"`
	EOS      int32     `json:"eos_token_id"`
	Config   Config    `json:"config"`
	Requests []Arrival `json:"requests"`
	Steps    []Step    `json:"steps"`
}

// Config is the recorded configuration.
type Config struct {
	MaxNumBatchedTokens   int     `json:"max_num_batched_tokens"`
	MaxNumScheduledTokens int     `json:"max_num_scheduled_tokens"`
	MaxNumSeqs            int     `json:"max_num_seqs"`
	MaxNumActiveSeqs      int     `json:"max_num_active_seqs"`
	LongPrefill           int     `json:"long_prefill_token_threshold"`
	LongPrefillAdaptive   bool    `json:"long_prefill_token_threshold_adaptive"`
	ChunkedPrefill        bool    `json:"enable_chunked_prefill"`
	Policy                string  `json:"policy"`
	ReserveFullISL        bool    `json:"scheduler_reserve_full_isl"`
	Watermark             float64 `json:"watermark"`
	BlockSize             int     `json:"block_size"`
	NumBlocks             int     `json:"num_gpu_blocks"`
	PrefixCaching         bool    `json:"enable_prefix_caching"`
	MaxModelLen           int     `json:"max_model_len"`
	NumSpecTokens         int     `json:"num_spec_tokens"`
	NumLookaheadTokens    int     `json:"num_lookahead_tokens"`
	DraftSlots            int     `json:"draft_slots"`
	Mode                  string  `json:"mode"`
	BatchQueueSize        int     `json:"batch_queue_size"`
	V2                    bool    `json:"use_v2_model_runner"`
	PPSize                int     `json:"pp_size"`
	FinishedSets          bool    `json:"include_finished_set"`
}

// Scheduler is the same configuration for our scheduler.
func (c *Config) Scheduler() scheduler.Config {
	cfg := scheduler.Config{
		MaxNumBatchedTokens: c.MaxNumBatchedTokens, MaxNumScheduledTokens: c.MaxNumScheduledTokens,
		MaxNumSeqs: c.MaxNumSeqs, MaxNumActiveSeqs: c.MaxNumActiveSeqs,
		LongPrefillTokenThreshold: c.LongPrefill, LongPrefillTokenThresholdAdaptive: c.LongPrefillAdaptive,
		EnableChunkedPrefill: c.ChunkedPrefill, Policy: scheduler.Policy(c.Policy), ReserveFullISL: c.ReserveFullISL, Watermark: c.Watermark,
		BlockSize: c.BlockSize, NumBlocks: c.NumBlocks, EnablePrefixCaching: c.PrefixCaching, MaxModelLen: c.MaxModelLen,
		NumSpecTokens: c.NumSpecTokens, NumLookaheadTokens: c.NumLookaheadTokens, DraftSlots: c.DraftSlots, Async: c.Mode == "async",
		MaxConcurrentBatches: c.BatchQueueSize,
	}
	if cfg.Async && c.V2 {
		cfg.DecodeStagger = c.PPSize
	}
	return cfg
}

// Arrival is one request record.
type Arrival struct {
	ID           string  `json:"id"`
	Prompt       []int32 `json:"prompt_token_ids"`
	MaxTokens    int     `json:"max_tokens"`
	MinTokens    int     `json:"min_tokens"`
	StopTokenIDs []int32 `json:"stop_token_ids"`
	IgnoreEOS    bool    `json:"ignore_eos"`
	Arrival      float64 `json:"arrival_time"`
	Priority     int     `json:"priority"`
	CacheSalt    string  `json:"cache_salt"`
	Client       int     `json:"client"`
	SkipReading  bool    `json:"skip_reading_prefix_cache"`
	Resumable    bool    `json:"resumable"`
	Repetition   *struct {
		MaxPatternSize int `json:"max_pattern_size"`
		MinPatternSize int `json:"min_pattern_size"`
		MinCount       int `json:"min_count"`
	} `json:"repetition"`
}

func (a *Arrival) sampling() request.SamplingParams {
	p := request.DefaultSampling()
	p.MaxTokens, p.MinTokens, p.StopTokenIDs, p.IgnoreEOS = a.MaxTokens, a.MinTokens, a.StopTokenIDs, a.IgnoreEOS
	return p
}

func (a *Arrival) repetition() *request.Repetition {
	if a.Repetition == nil {
		return nil
	}
	return &request.Repetition{MaxPatternSize: a.Repetition.MaxPatternSize, MinPatternSize: a.Repetition.MinPatternSize, MinCount: a.Repetition.MinCount}
}

// Request is the arrival as a request; as a later part of a session it is a Segment.
func (a *Arrival) Request(eos int32) *request.Request {
	return &request.Request{
		ID: request.ID(a.ID), Prompt: a.Prompt, Sampling: a.sampling(), EOS: []int32{eos}, Priority: a.Priority, ArrivalOrder: a.Arrival,
		CacheSalt: a.CacheSalt, SkipReadingPrefixCache: a.SkipReading, Resumable: a.Resumable, Client: a.Client, Repetition: a.repetition(),
	}
}

// Segment is the arrival as a session's next part; one that is not resumable is the end marker.
func (a *Arrival) Segment() request.Segment {
	if !a.Resumable {
		return request.Segment{Last: true}
	}
	p := a.sampling()
	return request.Segment{Tokens: a.Prompt, Sampling: &p, Repetition: a.repetition(), Order: a.Arrival}
}

// Step is one engine iteration. What is compared stays undecoded JSON.
type Step struct {
	I     int             `json:"i"`
	Pre   []Action        `json:"pre"`
	Sched json.RawMessage `json:"sched"`
	Mid   []Action        `json:"mid"`
	Upd   *struct {
		Of      int             `json:"of"`
		Sampled []tokens        `json:"sampled"`
		Clients json.RawMessage `json:"clients"`
	} `json:"upd"`
	Drafts []tokens        `json:"drafts"`
	State  json.RawMessage `json:"state"`
}

// tokens is a pair [id, [tokens]].
type tokens struct {
	ID     string
	Tokens []int32
}

// UnmarshalJSON reads the pair.
func (t *tokens) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &[2]any{&t.ID, &t.Tokens}) }

// Action is what arrives from outside.
type Action struct {
	Op      string          `json:"op"`
	R       int             `json:"r"`
	ID      string          `json:"id"`
	IDs     []string        `json:"ids"`
	Aborted []string        `json:"aborted"`
	State   string          `json:"state"`
	Running bool            `json:"running"`
	Result  json.RawMessage `json:"result"`
}

// Read reads a gzipped trace.
func Read(path string) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading trace: %w", err)
	}
	defer func() { _ = f.Close() }()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			return nil, fmt.Errorf("reading trace %s: %w", path, err)
		}
	}
	t := &Trace{}
	if err := json.NewDecoder(r).Decode(t); err != nil {
		return nil, fmt.Errorf("reading trace %s: %w", path, err)
	}
	if t.Format != 1 {
		return nil, fmt.Errorf("reading trace %s: format %d is not known, 1 is", path, t.Format)
	}
	return t, nil
}

// Find returns the trace files that the arguments name: files, and all traces below folders.
func Find(args []string) ([]string, error) {
	var out []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, fmt.Errorf("looking for traces: %w", err)
		}
		if !info.IsDir() {
			out = append(out, arg)
			continue
		}
		err = filepath.WalkDir(arg, func(path string, e os.DirEntry, err error) error {
			if err == nil && !e.IsDir() && (strings.HasSuffix(path, ".json.gz") || strings.HasSuffix(path, ".json")) {
				out = append(out, path)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("looking for traces in %s: %w", arg, err)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
