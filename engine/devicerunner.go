package engine

import (
	"context"
	"errors"
	"fmt"

	"omni-engine/engine/request"
	"omni-engine/engine/sampling"
	"omni-engine/kernels"
	"omni-engine/scheduler"
)

// DeviceRunner executes decisions of an autoregressive stage on a compiled program: it fills a batch in place, submits the
// entries "forward" and, where it is separate, "sample", and reads back what was sampled.
type DeviceRunner struct {
	program kernels.Program
	states  kernels.States
	limits  kernels.Limits
	seed    uint64
	vocab   int
	groups  int
	forward kernels.Call
	sample  *kernels.Call // nil: the forward entry samples

	steps []flight
	free  []Ticket
	slots []slotState
}

// flight is one step in flight; its memory is reused.
type flight struct {
	step    kernels.Step
	owners  []owner            // of each logit row
	reqs    []*request.Request // of each decision row
	prompt  []int              // of each decision row: how many of its tokens give prompt logprobs
	result  scheduler.StepResult
	tokens  []int32
	scratch sampling.Scratch
	done    bool // was run in parts at Start
}

// owner says what a logit row is for.
type owner struct {
	row    int // of the decision
	prompt bool
}

// slotState is what outlives a step for the request in a slot.
type slotState struct {
	owner    *request.Request
	prepared sampling.Prepared
	recent   []int32 // the last samples, newest last: asynchronous steps know them before the scheduler does

	prompt     []request.TokenLogprobs // prompt logprobs gathered over chunks
	promptDone bool                    // none are wanted, or they were handed out
}

// RunnerConfig of a [DeviceRunner].
type RunnerConfig struct {
	Module *kernels.Module
	Limits kernels.Limits
	Plan   kernels.MemoryPlan // with Blocks and Slots filled in
	Seed   uint64             // for requests without a seed
}

// NewDeviceRunner makes states and steps of a compiled program, which it then owns.
func NewDeviceRunner(program kernels.Program, cfg RunnerConfig) (*DeviceRunner, error) {
	r := &DeviceRunner{program: program, limits: cfg.Limits, seed: cfg.Seed, vocab: cfg.Module.Vocab,
		groups: max(len(cfg.Module.Groups), 1), slots: make([]slotState, cfg.Plan.Slots)}
	if cfg.Limits.LogitRows < 1 {
		return nil, fmt.Errorf("module %s: at least one row of logits a step is needed, got %d", cfg.Module.Name, cfg.Limits.LogitRows)
	}
	fwd := cfg.Module.Entry("forward")
	if fwd < 0 {
		return nil, fmt.Errorf("module %s has no entry \"forward\"", cfg.Module.Name)
	}
	r.forward = kernels.Call{Entry: fwd}
	if s := cfg.Module.Entry("sample"); s >= 0 {
		r.sample = &kernels.Call{Entry: s}
	}
	var err error
	if r.states, err = program.NewStates(cfg.Plan); err != nil {
		return nil, fmt.Errorf("allocating %d KV blocks and %d slots: %w", cfg.Plan.Blocks, cfg.Plan.Slots, err)
	}
	for i := range max(cfg.Limits.InFlight, 1) {
		s, err := program.NewStep(r.states)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("allocating a step: %w", err), r.states.Close())
		}
		r.steps = append(r.steps, flight{step: s})
		r.free = append(r.free, Ticket(i))
	}
	return r, nil
}

// Depth is the most steps in flight.
func (r *DeviceRunner) Depth() int { return len(r.steps) }

// States gives access to the KV blocks, for offload and transfer.
func (r *DeviceRunner) States() kernels.States { return r.states }

// Start fills the batch and submits the forward pass.
func (r *DeviceRunner) Start(d *scheduler.Decision) (Ticket, error) {
	if len(r.free) == 0 {
		return 0, fmt.Errorf("starting step %d: %d steps are in flight", d.Seq, len(r.steps))
	}
	t := r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	f := &r.steps[t]
	f.reset(d)
	if err := r.start(f, d); err != nil {
		r.release(t)
		return 0, fmt.Errorf("starting step %d: %w", d.Seq, err)
	}
	return t, nil
}

func (r *DeviceRunner) start(f *flight, d *scheduler.Decision) error {
	logits := 0
	for i := range d.Rows {
		if len(d.Rows[i].Drafts) > 0 {
			return fmt.Errorf("request %s: speculative tokens are not supported", d.Rows[i].ID)
		}
		if d.Rows[i].Slot >= len(r.slots) {
			return fmt.Errorf("request %s: slot %d of %d", d.Rows[i].ID, d.Rows[i].Slot, len(r.slots))
		}
		r.enter(f, &d.Rows[i])
		logits += f.logitRows(&d.Rows[i], i, 0, d.Rows[i].NumTokens)
	}
	if logits > r.limits.LogitRows {
		return r.runParts(f, d)
	}
	r.begin(f)
	for i := range d.Rows {
		r.fill(f, d, i, 0, d.Rows[i].NumTokens)
	}
	return f.step.Submit(r.forward)
}

// Sample submits sampling.
func (r *DeviceRunner) Sample(t Ticket, m *Masks) error {
	f := &r.steps[t]
	if f.done {
		return nil
	}
	if m != nil {
		f.step.Batch().Masks = m.Bits
	}
	if r.sample == nil {
		return nil
	}
	if err := f.step.Submit(*r.sample); err != nil {
		r.release(t)
		return fmt.Errorf("submitting sampling: %w", err)
	}
	return nil
}

// Collect waits for the step and reads back what was sampled.
func (r *DeviceRunner) Collect(ctx context.Context, t Ticket) (*scheduler.StepResult, error) {
	f := &r.steps[t]
	defer r.release(t)
	if f.done {
		return &f.result, nil
	}
	if err := r.wait(ctx, f); err != nil {
		return nil, err
	}
	return &f.result, nil
}

func (r *DeviceRunner) wait(ctx context.Context, f *flight) error {
	res, err := f.step.Wait(ctx)
	if err != nil {
		return fmt.Errorf("running a step: %w", err)
	}
	r.read(f, res)
	return nil
}

func (r *DeviceRunner) release(t Ticket) {
	r.steps[t].step.Release()
	r.free = append(r.free, t)
}

// runParts runs a step whose logits are more than fit at once (prompt logprobs) in parts, each with as many tokens as its
// logits allow. A row's parts are chunks of its prefill, so they change no result.
func (r *DeviceRunner) runParts(f *flight, d *scheduler.Decision) error {
	f.done = true
	room, filled := r.limits.LogitRows, false
	r.begin(f)
	flush := func() error {
		calls := []kernels.Call{r.forward}
		if r.sample != nil {
			calls = append(calls, *r.sample)
		}
		if err := f.step.Submit(calls...); err != nil {
			return fmt.Errorf("submitting a part: %w", err)
		}
		if err := r.wait(context.Background(), f); err != nil {
			return err
		}
		f.step.Release()
		r.begin(f)
		room, filled = r.limits.LogitRows, false
		return nil
	}
	for i := range d.Rows {
		row := &d.Rows[i]
		for from := 0; from < row.NumTokens; {
			n := min(f.fitting(row, i, from, room), row.NumTokens-from)
			if n > 0 {
				room -= r.fill(f, d, i, from, n)
				from += n
				filled = true
			}
			if from < row.NumTokens {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	if filled {
		return flush()
	}
	return nil
}

// Close frees the states and the program.
func (r *DeviceRunner) Close() error { return errors.Join(r.states.Close(), r.program.Close()) }
