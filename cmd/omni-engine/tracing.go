package main

import (
	"fmt"
	"os"
	"sync"

	"omni-engine/engine/request"
	"omni-engine/engine/tracefile"
	"omni-engine/internal/clock"
)

// stepTrace writes --trace-file from what leaves the core: a step's outputs carry every state change with the core's time.
type stepTrace struct {
	mu     sync.Mutex
	w      *tracefile.Writer
	budget int
	seq    uint64
	last   clock.Time
}

// openTrace creates the file.
func openTrace(path, name string, pair clock.Pair, budget int) (*stepTrace, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("--trace-file: %w", err)
	}
	return &stepTrace{w: tracefile.New(f, name, pair, 0), budget: budget}, nil
}

func (t *stepTrace) observe(so *request.StepOutputs) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range so.Outputs {
		t.w.Output(&so.Outputs[i])
	}
	t.last = so.At
	if !so.Scheduled.IsSet() {
		return
	}
	t.seq++
	s := &so.Stats
	t.w.Step(&tracefile.Step{Seq: t.seq, Start: so.Scheduled, End: so.At, Rows: s.Running, Tokens: s.ScheduledTokens, MaxTokens: t.budget,
		Running: s.Running, Waiting: s.Waiting + s.Skipped, KVUsage: s.Usage})
}

func (t *stepTrace) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.w.Close(t.last)
}
