package stages

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"omni-engine/engine"
	"omni-engine/engine/enginetest"
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
	"omni-engine/output"
)

const stepTime = 10 * time.Millisecond

// sink keeps what it was told.
type sink struct {
	record.Discard
	mu          sync.Mutex
	finished    []*record.Stage
	parents     [][2]int
	prompt      int
	tokens      int
	preemptions int
}

func (s *sink) Step(st *request.SchedulerStats, it *record.Iteration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st != nil {
		s.preemptions += st.Preemptions
	}
	if it != nil {
		s.prompt += it.PromptTokens
		s.tokens += it.GenerationTokens
	}
}

func (s *sink) Finished(r *record.Stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = append(s.finished, r)
}

func (s *sink) ParentFinished(n, longest int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parents = append(s.parents, [2]int{n, longest})
}

// letters decodes token n as one letter, tokens of 200 and more as the bytes of split characters.
type letters struct{}

func (letters) NewStream([]int32, bool, bool) output.Detokenizer { return &letterStream{} }
func (l letters) Decode(ids []int32) string {
	s := letterStream{}
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(s.Push(id))
	}
	return b.String()
}

type letterStream struct{ held []byte }

func (s *letterStream) Push(id int32) string {
	s.held = append(s.held, byte('a'+id%26))
	if !utf8.FullRune(s.held) {
		return ""
	}
	out := string(s.held)
	s.held = s.held[:0]
	return out
}

// options of one replica under test.
type options struct {
	seqs, tokens, blocks, maxLen int
	depth                        int
	runner                       *enginetest.Runner
	noRecord, noPrefix           bool
	inputWait, stall             time.Duration
	inboxWait                    func(clock.Span)
	interval                     int
}

// blockSize is small, so that short requests have several blocks.
const blockSize = 16

func (o options) defaults() options {
	if o.blocks == 0 {
		o.blocks = 1000
	}
	if o.maxLen == 0 {
		o.maxLen = 1024
	}
	if o.seqs == 0 {
		o.seqs = 16
	}
	if o.tokens == 0 {
		o.tokens = 64
	}
	return o
}

type bench struct {
	*Local
	sink   *sink
	runner *enginetest.Runner
}

// start makes a replica over a fake device whose steps take stepTime of the bubble's time.
func start(t *testing.T, o options) *bench {
	t.Helper()
	if o.runner == nil {
		o.runner = &enginetest.Runner{StepTime: stepTime}
	}
	if o.depth > 1 {
		o.runner.InFlight = o.depth
	}
	o = o.defaults()
	k := &sink{}
	l, err := NewLocal(LocalConfig{
		Core: engine.Config{
			Name: "0/0", Scheduler: schedulerConfig(o), Depth: o.depth, NoRecord: o.noRecord, InputWaitTimeout: o.inputWait,
			StallAfter: o.stall, InboxWait: o.inboxWait,
		},
		Output: output.Config{Tokenizer: letters{}, Sink: k, StreamInterval: o.interval, Identity: record.Identity{Model: "m"}},
	}, o.runner)
	require.NoError(t, err)
	return &bench{l, k, o.runner}
}

func (b *bench) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, b.Close(context.Background()))
}

// ask makes a request of p prompt tokens that ends after n.
func ask(id request.ID, p, n int) *request.Request {
	s := request.DefaultSampling()
	s.MaxTokens, s.IgnoreEOS, s.Temperature = n, true, 0
	r := &request.Request{ID: id, External: "cmpl-" + string(id), Sampling: s, Arrival: clock.WallNow()}
	for i := range p {
		r.Prompt = append(r.Prompt, int32(i*7+len(id)*13+int(id[len(id)-1])))
	}
	return r
}

func (b *bench) submit(t *testing.T, r *request.Request) Stream {
	t.Helper()
	s, err := b.Submit(context.Background(), r)
	require.NoError(t, err)
	return s
}

// all reads a stream to its end.
func all(t *testing.T, s Stream) (sum Update) {
	t.Helper()
	for {
		u, err := s.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return sum
		}
		require.NoError(t, err)
		u.Text = sum.Text + u.Text
		u.Output.NewTokens = append(sum.Output.NewTokens, u.Output.NewTokens...)
		u.Logprobs = append(sum.Logprobs, u.Logprobs...)
		u.PromptLogprobs = append(sum.PromptLogprobs, u.PromptLogprobs...)
		sum = u
	}
}

// fields returns the split in ms; nil is absent.
func fields(r *record.Stage) []any {
	show := func(s clock.Span) any {
		if v, ok := s.Milliseconds(); ok {
			return v
		}
		return nil
	}
	var n any
	if v, ok := r.Preemptions(); ok {
		n = v
	}
	return []any{show(r.QueuedTime()), show(r.PrefillTime()), show(r.DecodeTime()), n}
}

// ledgerExact requires that the ledger's parts sum to the whole in integer nanoseconds (PS-32).
func ledgerExact(t *testing.T, r *record.Stage) {
	t.Helper()
	total, ok := r.Ledger.Total().Get()
	require.True(t, ok, "request %s has a ledger", r.CoreID)
	sum := time.Duration(0)
	for s := request.State(0); s < request.NumStates; s++ {
		d, _ := r.Ledger.Part(s).Get()
		sum += d
	}
	require.Equal(t, total, sum)
}
