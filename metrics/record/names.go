package record

// The names of the phase split and the waits (PS-13). No other file of the product spells them: rows are encoded from
// [Fields], and exclusion sets, merge lists and tables refer to these constants.
const (
	VLLMQueuedMS       = "vllm_queued_ms"
	VLLMPrefillMS      = "vllm_prefill_ms"
	VLLMDecodeMS       = "vllm_decode_ms"
	VLLMNumPreemptions = "vllm_num_preemptions"

	VLLMInputWaitMS       = "vllm_input_wait_ms"
	VLLMChunkWaitMS       = "vllm_chunk_wait_ms"
	VLLMKVWaitMS          = "vllm_kv_wait_ms"
	VLLMPreemptedMS       = "vllm_preempted_ms"
	VLLMUnscheduledWaitMS = "vllm_unscheduled_wait_ms"

	VLLMTTFTMS = "vllm_ttft_ms"
	VLLMTPOTMS = "vllm_tpot_ms"
	VLLMITLMS  = "vllm_itl_ms"
	VLLMITLsMS = "vllm_itls_ms"
)

// The other names of a stage's row, vLLM-Omni's.
const (
	StageID             = "stage_id"
	RequestID           = "request_id"
	ReplicaID           = "replica_id"
	StageNameField      = "stage_name"
	BatchID             = "batch_id"
	BatchSize           = "batch_size"
	FinalOutputType     = "final_output_type"
	FinishReasonField   = "finish_reason"
	NumTokensIn         = "num_tokens_in"
	NumTokensOut        = "num_tokens_out"
	StageGenTimeMS      = "stage_gen_time_ms"
	PostprocessTimeMS   = "postprocess_time_ms"
	AudioGeneratedFrame = "audio_generated_frames"
	AudioFrames         = "audio_frames" // what a snapshot calls the field above
	AudioSampleRate     = "audio_sample_rate"
	AudioDurationS      = "audio_duration_s"
	ImagePixels         = "image_pixels"
	NumInferenceSteps   = "num_inference_steps"
	DenoiseStepMS       = "denoise_step_latency_ms"
	OutputUnitType      = "output_unit_type"
	OutputUnitCount     = "output_unit_count"
	ServingFirstMS      = "serving_time_to_first_output_ms"
	ImageFirstMS        = "image_time_to_first_output_ms"
	TimePerUnitMS       = "time_per_output_unit_ms"
	InterOutputMS       = "inter_output_latency_ms"
	InterOutputsMS      = "inter_output_latencies_ms"
)

// FoldRule says how several rows of one stage fold into one.
type FoldRule uint8

// The fold rules: vLLM-Omni's, and terminal wins (PS-60).
const (
	FoldKeep          FoldRule = iota // the first row's
	FoldSum                           // add
	FoldFirstPositive                 // the first value above 0
	FoldLastPositive                  // the last value above 0
	FoldLastSet                       // the last value that is not absent; 0 is a value (terminal wins)
	FoldConcat                        // lists one after the other
	FoldMeanOf                        // the mean of the folded list named by Of
	FoldPerUnit                       // (gen time − first output)/(units − 1)
)

// Group says what a field belongs to, for exclusion sets and the rule by which a table drops a row.
type Group uint8

// The groups.
const (
	GroupPlain Group = iota
	GroupPhase       // the four fields
	GroupWait        // the waits
)

// Field is one column of a stage's row.
type Field struct {
	Name  string
	Group Group
	Fold  FoldRule
	Of    string // FoldMeanOf: the list
	Value func(*Stage) Value
	// Snapshot is the field's name in the stage_metrics snapshot, empty when it is not there.
	Snapshot string
	// Table is false for what the tables leave out: it identifies, or the title says it.
	Table bool
}

// Fields returns the ordered registry: the row of stage_table, field by field (PS-13). The slice is fresh.
func Fields() []Field {
	plain := func(name string, fold FoldRule, value func(*Stage) Value) Field {
		return Field{Name: name, Fold: fold, Value: value, Snapshot: name, Table: true}
	}
	hidden := func(f Field) Field { f.Table = false; return f }
	local := func(f Field) Field { f.Snapshot = ""; return f }
	mean := func(name, of string, value func(*Stage) Value) Field {
		f := plain(name, FoldMeanOf, value)
		f.Of = of
		return f
	}
	frames := plain(AudioGeneratedFrame, FoldSum, func(s *Stage) Value { return IntValue(s.AudioFrames) })
	frames.Snapshot = AudioFrames
	return append([]Field{
		hidden(plain(StageID, FoldKeep, func(s *Stage) Value { return IntValue(s.StageID) })),
		hidden(plain(FinalOutputType, FoldLastSet, func(s *Stage) Value { return TextValue(s.FinalOutputType) })),
		hidden(plain(FinishReasonField, FoldLastSet, func(s *Stage) Value { return TextValue(s.Finish.String()) })),
		local(plain(BatchID, FoldLastSet, func(s *Stage) Value { return IntValue(s.BatchID) })),
		local(plain(BatchSize, FoldKeep, func(*Stage) Value { return IntValue(1) })),
		plain(NumTokensIn, FoldSum, func(s *Stage) Value { return IntValue(s.tokensIn()) }),
		plain(NumTokensOut, FoldSum, func(s *Stage) Value { return IntValue(s.NumGenerationTokens) }),
		plain(StageGenTimeMS, FoldSum, func(s *Stage) Value { return Millis(s.GenTime()).orZero() }),
		plain(ReplicaID, FoldLastSet, func(s *Stage) Value { return IntValue(s.Replica) }),
		plain(PostprocessTimeMS, FoldSum, func(s *Stage) Value { return Millis(s.Postprocess).orZero() }),
		frames,
		plain(AudioSampleRate, FoldFirstPositive, func(s *Stage) Value { return IntValue(s.AudioSampleRate) }),
		plain(AudioDurationS, FoldSum, func(s *Stage) Value { return FloatValue(s.AudioSeconds()) }),
		plain(ImagePixels, FoldSum, func(s *Stage) Value { return IntValue(s.ImagePixels) }),
		local(plain(NumInferenceSteps, FoldLastPositive, func(s *Stage) Value { return IntValue(s.InferenceSteps) })),
		plain(DenoiseStepMS, FoldLastPositive, func(s *Stage) Value { return Millis(s.DenoiseStep).orZero() }),
		plain(OutputUnitType, FoldLastSet, func(s *Stage) Value { return TextValue(s.unitType()) }),
		plain(OutputUnitCount, FoldSum, func(s *Stage) Value { return IntValue(s.unitCount()) }),
		plain(ServingFirstMS, FoldFirstPositive, func(s *Stage) Value { return Millis(s.FirstOutput()).orZero() }),
		plain(ImageFirstMS, FoldFirstPositive, func(s *Stage) Value { return Millis(s.FirstImage).orZero() }),
		plain(TimePerUnitMS, FoldPerUnit, func(s *Stage) Value { return s.timePerUnit() }),
		mean(InterOutputMS, InterOutputsMS, func(s *Stage) Value { return FloatValue(durations(s.OutputGaps()).Mean()) }),
		plain(InterOutputsMS, FoldConcat, func(s *Stage) Value { return durations(s.OutputGaps()) }),
		// These four are 0 or empty when absent, in vLLM-Omni's own keys and tables only (http.md, differences).
		plain(VLLMTTFTMS, FoldFirstPositive, func(s *Stage) Value { return Millis(s.TTFT()).orZero() }),
		plain(VLLMTPOTMS, FoldLastPositive, func(s *Stage) Value { return Millis(s.TPOT()).orZero() }),
		mean(VLLMITLMS, VLLMITLsMS, func(s *Stage) Value { return Millis(s.ITL()).orZero() }),
		plain(VLLMITLsMS, FoldConcat, func(s *Stage) Value { return durations(s.ITLs()) }),
	}, SplitFields()...)
}

// SplitFields returns the phase split and the waits, in their order: null when absent, terminal wins when folded.
func SplitFields() []Field {
	split := func(name string, g Group, value func(*Stage) Value) Field {
		return Field{Name: name, Group: g, Fold: FoldLastSet, Value: value, Snapshot: name, Table: true}
	}
	return []Field{
		split(VLLMQueuedMS, GroupPhase, func(s *Stage) Value { return Millis(s.QueuedTime()) }),
		split(VLLMPrefillMS, GroupPhase, func(s *Stage) Value { return Millis(s.PrefillTime()) }),
		split(VLLMDecodeMS, GroupPhase, func(s *Stage) Value { return Millis(s.DecodeTime()) }),
		split(VLLMNumPreemptions, GroupPhase, func(s *Stage) Value {
			if n, ok := s.Preemptions(); ok {
				return IntValue(n)
			}
			return Value{}
		}),
		split(VLLMInputWaitMS, GroupWait, func(s *Stage) Value { return Millis(s.InputWait()) }),
		split(VLLMChunkWaitMS, GroupWait, func(s *Stage) Value { return Millis(s.ChunkWait()) }),
		split(VLLMKVWaitMS, GroupWait, func(s *Stage) Value { return Millis(s.KVWait()) }),
		split(VLLMPreemptedMS, GroupWait, func(s *Stage) Value { return Millis(s.PreemptedTime()) }),
		split(VLLMUnscheduledWaitMS, GroupWait, func(s *Stage) Value { return Millis(s.UnscheduledWait()) }),
	}
}

// SnapshotOrder returns the keys of one stage in the stage_metrics snapshot, in order.
func SnapshotOrder() []string {
	order := []string{StageID, FinalOutputType, FinishReasonField, NumTokensIn, NumTokensOut, StageGenTimeMS, PostprocessTimeMS,
		AudioFrames, AudioSampleRate, AudioDurationS, ImagePixels, DenoiseStepMS, OutputUnitType, OutputUnitCount,
		ServingFirstMS, ImageFirstMS, TimePerUnitMS, InterOutputMS, InterOutputsMS, VLLMTTFTMS, VLLMTPOTMS, VLLMITLMS, VLLMITLsMS}
	for _, f := range SplitFields() {
		order = append(order, f.Name)
	}
	return append(order, StageNameField, ReplicaID)
}

// DuplexStageTableExclude is what the duplex table and its stage_table leave out: the split and the waits describe an
// engine-core request, not a turn (PS-61); the first-output time is vLLM-Omni's own exclusion.
func DuplexStageTableExclude() map[string]bool {
	set := map[string]bool{ServingFirstMS: true}
	for _, f := range SplitFields() {
		set[f.Name] = true
	}
	return set
}
