package record

import (
	"time"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// StageType says how a stage runs (spec phase-split, head).
type StageType uint8

// The stage types.
const (
	LLMAutoregressive StageType = iota // llm_ar
	LLMGeneration                      // llm_generation: one forward pass, or one a chunk
	Diffusion                          // diffusion: a denoising loop
)

func (t StageType) String() string {
	return [...]string{"llm_ar", "llm_generation", "diffusion"}[t]
}

// Label returns the stage_type label value that vLLM-Omni's families use: llm or diffusion.
func (t StageType) Label() string {
	if t == Diffusion {
		return "diffusion"
	}
	return "llm"
}

// Waits says which waits a stage can have at all; a wait that cannot happen is absent, not zero (PS-31).
type Waits uint8

// The waits that depend on how the stage is wired.
const (
	CanWaitInput Waits = 1 << iota // WAITING_FOR_INPUT, or the first chunk
	CanWaitChunk                   // later chunks
	CanReceiveKV                   // WAITING_FOR_REMOTE_KVS
	CanSendKV                      // stopped, until the extraction is acknowledged
	CannotWait   Waits = 0
)

// Identity says whose record it is. It does not change over the request's life.
type Identity struct {
	RequestID string // the user-visible id (cmpl-…)
	CoreID    request.ID
	Model     string       // served model name
	TraceID   string       // 32 hex digits, for exemplars; empty when the trace is not recorded
	Trace     TraceContext // of the span that the stage's belong under

	StageID   int
	StageName string // model_stage of the topology; empty: stage_<id>
	Type      StageType
	Replica   int
	Waits     Waits
	BatchID   int // the replica's sequence number of finished requests, from 1
}

// Times are the raw readings of one request and segment on the engine core's clock (spec §1). Absent: not observed.
type Times struct {
	QueuedTS, ScheduledTS, FirstTokenTS, LastTokenTS clock.Time

	NumPreemptions      int
	NumGenerationTokens int
}

// Stage is the record of one request in one stage. It holds raw readings; its methods are the only code of the product
// that subtracts them, and every view (response, log, histogram, span) reads it (PS-24). One owner at a time: the output
// side fills it; once it went to the [Sink] nobody changes it.
type Stage struct {
	Identity
	Arrival      clock.Wall // wall time of the submit to this stage; a streaming update moves it (PS-22, PS-50)
	RequestStart clock.Wall // arrival at the pipeline's front
	FinishedAt   clock.Wall

	PromptTokens int // of the request; 0 for a stage that gets rows, not tokens
	CachedTokens int // prompt tokens from the prefix cache
	MaxTokens    int // effective max_tokens, 0 for none
	Finish       request.FinishReason
	StopReason   string
	Params       Params
	Adapter      string // LoRA adapter's name, empty for none
	Corrupted    bool   // its logits held NaN

	Times
	Ledger Ledger
	EndTS  clock.Time // core time of the terminal output or record
	// SubmitTS is when the core's inbox took the request, on the core's clock.
	SubmitTS clock.Time

	// What the payload was; filled by whoever knows the modality.
	FinalOutputType string // empty: the stage is no final output
	OutputUnitType  string // text, stream, audio, image, …; empty: text
	Units           int    // output units when they are not tokens (audio samples, images)
	AudioFrames     int
	AudioSampleRate int
	ImagePixels     int
	InferenceSteps  int
	Postprocess     clock.Span
	FirstImage      clock.Span // stage submit to the first image
	DenoiseStep     clock.Span
	PeakMemoryMB    float64 // most device memory that the stage used; 0: not measured
	Pipeline        PipelineTimings
	Diffusion       []NamedFloat // vLLM-Omni's diffusion_metrics, in order, seconds

	segment       segmentState
	off           bool // recording is off now (PS-15)
	ended         bool
	earlierFrames int // audio of a session's segments before this one

	adapterAt    adapterState
	adapterKnown bool

	promptSeen bool // the prompt's tokens were counted in an Iteration
}

// PipelineTimings are the front end's: they come once a request, on the last stage's record.
type PipelineTimings struct{ QueueWait, Preprocess, AR2Diffusion clock.Span }

// NamedFloat is one measured value under the name that it is reported with.
type NamedFloat struct {
	Name  string
	Value float64
}

// segmentState is what a streaming update restarts besides [Times] (PS-50).
type segmentState struct {
	waits      waitClock
	sawOutput  bool // an output was processed, observed or not: a later one is never the first (PS-11)
	gap        bool // something was processed while recording was off
	firstWall  clock.Wall
	firstText  clock.Wall // the first output that held a token
	lastWall   clock.Wall
	stepNanos  int64 // sum of the steps after the first output
	stepTokens int64 // tokens of those steps
	itls       []time.Duration
	arrivals   []time.Duration // between successive outputs, front-end clock
}

// Begin returns the record of a request that is submitted to a stage now.
func Begin(id Identity, arrival clock.Wall) *Stage {
	return &Stage{Identity: id, Arrival: arrival, RequestStart: arrival}
}

// SetRecording turns recording on or off from here on (PS-15). While it is off nothing is observed and nothing is allocated.
func (s *Stage) SetRecording(on bool) {
	if s.off = !on; s.off {
		s.segment.gap = true
	}
}

// Recorded reports whether the record was filled; views skip it otherwise.
func (s *Stage) Recorded() bool { return !s.off }

// Ended reports whether the terminal output or record was applied.
func (s *Stage) Ended() bool { return s.ended }

// ApplyOutput takes in what a step, or an end without a step, said about the request. at is the step's core time, wall the
// front end's now. What the step adds to the families' counters goes to it, which may be nil. It does nothing once the
// record ended, so a late abort does not count twice.
func (s *Stage) ApplyOutput(at clock.Time, wall clock.Wall, o *request.Output, it *Iteration) {
	if s.ended {
		return
	}
	if o.Prefill != nil {
		s.CachedTokens = o.Prefill.Cached
	} else if o.NumCached > 0 {
		s.CachedTokens = o.NumCached
	}
	s.Corrupted = s.Corrupted || o.Corrupted
	if s.off {
		s.NumGenerationTokens += len(o.NewTokens)
		if !o.Terminal {
			s.segment.sawOutput, s.segment.gap = true, true
		}
	} else {
		s.applyEvents(o.Events, it) // before the output's own timestamps (PS-02)
		rest := s.applyChanges(o.Changes, at)
		if !o.Terminal {
			s.applyStep(at, wall, o, it)
		}
		s.applyChanges(rest, clock.Time{})
	}
	if o.Finish != request.NotFinished && !o.Segment {
		s.End(at, wall, o.Finish, it)
	}
}

// applyEvents is PS-01.
func (s *Stage) applyEvents(events []request.Event, it *Iteration) {
	for _, e := range events {
		switch e.Type {
		case request.Queued:
			s.QueuedTS = e.At
			s.segment.waits.restart()
			s.adapterEnters(adapterWaiting, it)
		case request.Scheduled:
			// After a gap the first SCHEDULED may have been missed: this one could be a resume.
			if !s.ScheduledTS.IsSet() && !s.segment.gap {
				s.ScheduledTS = e.At
			}
			s.segment.waits.resumed(e.At)
			s.adapterEnters(adapterRunning, it)
		case request.Preempted:
			s.NumPreemptions++
			s.segment.waits.preempted(e.At)
			s.adapterEnters(adapterWaiting, it)
			if it != nil {
				it.Preemptions++
			}
		}
	}
}

// applyChanges feeds the ledger and the waits with the changes up to limit (all when it is absent) and returns the others.
func (s *Stage) applyChanges(changes []request.StateChange, limit clock.Time) []request.StateChange {
	for i, c := range changes {
		if limit.Before(c.At) {
			return changes[i:]
		}
		s.Ledger.Enter(c.To, c.At)
		s.segment.waits.enter(c.To, c.At, s.QueuedTS, s.ScheduledTS)
	}
	return nil
}

// applyStep is PS-03: every output moves the last timestamp, the first one ends prefill, with or without a token.
func (s *Stage) applyStep(at clock.Time, wall clock.Wall, o *request.Output, it *Iteration) {
	g := &s.segment
	first := !g.sawOutput
	if first {
		g.sawOutput = true
		s.FirstTokenTS, g.firstWall = at, wall
	} else if step := at.Sub(s.LastTokenTS).NonNegative(); step.IsSet() {
		d, _ := step.Get()
		g.itls = append(g.itls, d)
		g.stepNanos += int64(d)
		g.stepTokens += int64(len(o.NewTokens))
		if it != nil {
			it.ITL = append(it.ITL, step)
		}
	}
	s.LastTokenTS = at
	g.waits.output(at, s.QueuedTS, s.ScheduledTS)
	s.NumGenerationTokens += len(o.NewTokens)
	if len(o.NewTokens) > 0 || o.Payload != nil {
		if !g.firstText.IsSet() {
			g.firstText = wall
		} else if d, ok := wall.Sub(g.lastWall).Get(); ok {
			g.arrivals = append(g.arrivals, d)
		}
		g.lastWall = wall
	}
	if it == nil {
		return
	}
	it.Outputs++
	it.GenerationTokens += len(o.NewTokens)
	if first {
		it.addTTFT(s.TTFT(), s.TraceID)
		s.countPrompt(o.Prefill, it)
	}
}

// countPrompt adds the prompt's tokens once, at the first output; a request that ends before it is counted at its end, so
// that the counters equal the sums of the per-request histograms (http.md, differences).
func (s *Stage) countPrompt(p *request.PrefillStats, it *Iteration) {
	if s.promptSeen && p == nil {
		return
	}
	s.promptSeen = true
	if p == nil {
		it.addPrompt(s.PromptTokens, s.CachedTokens, 0)
		return
	}
	s.PromptTokens = p.PromptTokens // a stage that was submitted without its input learns its length now
	it.addPrompt(p.PromptTokens, p.Cached-p.External, p.External)
}

// End closes the record with reason; [Stage.ApplyOutput] calls it for a terminal output. The front end calls it for an end
// that only it sees: a stop string, or a lost replica (at is absent then). It reports whether this call ended the record.
func (s *Stage) End(at clock.Time, wall clock.Wall, reason request.FinishReason, it *Iteration) bool {
	if s.ended {
		return false
	}
	s.ended = true
	s.Finish, s.EndTS, s.FinishedAt = reason, at, wall
	s.Ledger.End(at)
	s.adapterEnters(adapterEnded, it)
	if it != nil && !s.off && !s.promptSeen {
		s.countPrompt(nil, it)
	}
	return true
}

// SegmentRecord returns the record of a segment that ended while the session lives on: it has not ended, so it carries no
// split (PS-51).
func (s *Stage) SegmentRecord(wall clock.Wall, reason request.FinishReason) *Stage {
	c := *s
	c.Finish, c.FinishedAt = reason, wall
	return &c
}

// Restart begins the next segment when a streaming update is applied (PS-50): the four timestamps, the counts and the waits
// are unset, arrival is the update's. The ledger goes on.
func (s *Stage) Restart(arrival clock.Wall, promptTokens int) {
	if s.ended {
		return
	}
	s.Times, s.segment = Times{}, segmentState{gap: s.off}
	s.segment.waits = s.Ledger.waitClock()
	s.Arrival, s.PromptTokens, s.CachedTokens = arrival, promptTokens, 0
	s.earlierFrames += s.AudioFrames
	s.AudioFrames, s.Units = 0, 0
}
