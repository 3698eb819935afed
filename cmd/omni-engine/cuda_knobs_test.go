package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/cuda"
	"omni-engine/engine"
	"omni-engine/engine/models"
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/internal/weights/safetensors"
	"omni-engine/kernels/gpu"
	"omni-engine/scheduler"
)

// The software device reads its knobs when it is loaded, so what depends on one runs in a process of its own.
const knobTest = "OMNI_KNOB_TEST"

// withKnobs runs the named test of this binary with knobs in its environment, and returns what it printed.
func withKnobs(t *testing.T, name string, knobs ...string) string {
	t.Helper()
	lib := simulator(t)
	cmd := exec.Command(os.Args[0], "-test.run", "^"+name+"$", "-test.v")
	cmd.Env = append(os.Environ(), append(knobs, knobTest+"=1", "OMNI_CUDA_LIB="+lib)...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func inKnobProcess(t *testing.T) {
	t.Helper()
	if os.Getenv(knobTest) == "" {
		t.Skip("runs in a process of its own, by another test")
	}
}

// With a device that takes 10 ms a step (two graphs of 5 ms) and a host that takes 6 ms, a step's period is 10 ms when the next step is
// prepared meanwhile, and 16 ms when it is not.
func TestDevicePeriodIsTheLongerOfHostAndDevice(t *testing.T) {
	out := withKnobs(t, "TestKnobPeriods", "OMNI_SIM_DELAY_MS=5", "OMNI_SIM_NOOP=1")
	var plain, async time.Duration
	for line := range strings.Lines(out) {
		_, _ = fmt.Sscanf(strings.TrimSpace(line), "plain %d", &plain)
		_, _ = fmt.Sscanf(strings.TrimSpace(line), "asynchronous %d", &async)
	}
	t.Logf("plain %s, asynchronous %s a step", plain, async)
	require.GreaterOrEqual(t, async, 9*time.Millisecond, "the device's own time")
	require.GreaterOrEqual(t, plain, 15*time.Millisecond, "one after the other")
	require.LessOrEqual(t, async.Seconds(), 0.85*plain.Seconds(), "host and device overlap")
}

func TestKnobPeriods(t *testing.T) {
	inKnobProcess(t)
	for depth, name := range map[int]string{1: "plain", 2: "asynchronous"} {
		best := time.Hour
		for range 3 { // other programs on the machine only lengthen it
			best = min(best, devicePeriod(t, depth, 6*time.Millisecond))
		}
		fmt.Printf("%s %d\n", name, best)
	}
}

// slowHost takes its time for each step's outputs, on the core's goroutine, as a host with much to do.
type slowHost struct {
	host   time.Duration
	steps  int
	begin  time.Time
	period time.Duration
	done   chan struct{}
}

func (s *slowHost) Step(o *request.StepOutputs) {
	time.Sleep(s.host)
	const warm = 10 // graphs are captured
	switch s.steps++; s.steps {
	case warm:
		s.begin = time.Now()
	case warm + 40:
		s.period = time.Since(s.begin) / 40
		close(s.done)
	}
}
func (*slowHost) Terminal(clock.Time, []request.Output) {}
func (*slowHost) Lost(error)                            {}

func devicePeriod(t *testing.T, depth int, host time.Duration) time.Duration {
	t.Helper()
	dir := filepath.Join("..", "..", "engine", "models", "testdata", "tiny", "qwen3")
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	w, err := safetensors.Open(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Close()) }()
	m, err := models.Load(models.Source{Config: config, Weights: w})
	require.NoError(t, err)
	driver, _, err := cuda.OpenDriver(cuda.Options{Driver: os.Getenv("OMNI_CUDA_LIB")})
	require.NoError(t, err)
	dev, err := gpu.Open(driver, gpu.Options{})
	require.NoError(t, err)
	asm, err := engine.Assemble(dev, m.Module, engine.Settings{MaxModelLen: 128, MaxSeqs: 4, MaxTokens: 64, BlockSize: 16, Depth: depth, Blocks: 64})
	require.NoError(t, err)
	out := &slowHost{host: host, done: make(chan struct{})}
	core, err := engine.New(engine.Config{Name: "0", Scheduler: asm.Scheduler(scheduler.DefaultConfig(), m.Module), Outputs: out, Depth: depth}, asm.Runner)
	require.NoError(t, err)
	p := request.DefaultSampling()
	p.MaxTokens, p.IgnoreEOS, p.Temperature = 100, true, 0
	require.NoError(t, core.Submit(&request.Request{ID: "a", Prompt: []int32{5, 6, 7}, Sampling: p}))
	select {
	case <-out.done:
	case <-time.After(time.Minute):
		t.Fatalf("the request stopped after %d steps", out.steps)
	}
	core.Abort(request.FinishAbort, "a")
	require.NoError(t, core.Close())
	require.NoError(t, dev.Close())
	return out.period
}

// A GPU that is too small is refused at the start, with the plan and what to do.
func TestDeviceThatIsTooSmallIsToldWithThePlan(t *testing.T) {
	out := withKnobs(t, "TestKnobTooSmall", "OMNI_SIM_MEMORY=3000000")
	require.Contains(t, out, "The memory plan:")
	require.Regexp(t, `device memory +0\.00[0-9]+ GiB`, out)
	require.Contains(t, out, "--gpu-memory-utilization 0.92")
	require.Contains(t, out, "the model's weights and scratch take")
}

func TestKnobTooSmall(t *testing.T) {
	inKnobProcess(t)
	cmd := root()
	cmd.SetArgs([]string{"serve", tinyModel(t, "qwen3"), "--device", "cuda", "--port", "0"})
	err := cmd.ExecuteContext(t.Context())
	require.Error(t, err)
	fmt.Println(explain(err))
}

// inspect prints a device's plan; the KV cache follows the share that may be used.
func TestInspectPrintsTheDevicesPlan(t *testing.T) {
	lib := simulator(t)
	plan := func(flags ...string) string {
		cmd := root()
		out := &capture{}
		cmd.SetOut(out)
		cmd.SetArgs(append([]string{"inspect", tinyModel(t, "qwen3"), "--device", "cuda", "--cuda-lib", lib, "--max-num-seqs", "4"}, flags...))
		require.NoError(t, cmd.ExecuteContext(t.Context()))
		return out.String()
	}
	out := plan()
	require.Contains(t, out, "2 in flight", "asynchronous scheduling is on for a GPU")
	require.Regexp(t, `may be used +3\.68 GiB +--gpu-memory-utilization 0\.92`, out)
	require.Regexp(t, `may be used +2\.00 GiB`, plan("--gpu-memory-utilization", "0.5"))
	require.Regexp(t, `KV cache +0\.00[0-9]+ GiB +as set`, plan("--kv-cache-memory-bytes", "4m"))
	require.Contains(t, plan("--no-async-scheduling"), "1 in flight")
}

// Stop strings, aborts in mid-stream and logprobs with steps in flight: the answers are the CPU's.
func TestDeviceAnswersEndAsTheCPUs(t *testing.T) {
	lib := simulator(t)
	dir := tinyModel(t, "llama3_tied")
	flags := []string{"--dtype", "float32", "--max-model-len", "64", "--max-num-seqs", "4"}
	cpu := serverOf(t, dir, append(flags, "--device", "cpu")...).handler
	dev := serverOf(t, dir, append(flags, "--device", "cuda", "--cuda-lib", lib, "--kv-cache-memory-bytes", "4m")...).handler
	whole := complete(t, cpu, prompts()[:2], `,"max_tokens":16`)
	stop := whole[0].IDs[5]
	for name, extra := range map[string]string{
		"stop token":     fmt.Sprintf(`,"max_tokens":16,"stop_token_ids":[%d]`, stop),
		"seeded":         `,"max_tokens":12,"temperature":0.9,"seed":7,"top_k":50,"top_p":0.95`,
		"penalties":      `,"max_tokens":12,"repetition_penalty":1.5,"frequency_penalty":0.3`,
		"bias":           `,"max_tokens":8,"logit_bias":{"40":4}`,
		"minimum tokens": fmt.Sprintf(`,"max_tokens":16,"min_tokens":9,"stop_token_ids":[%d]`, stop),
	} {
		t.Run(name, func(t *testing.T) {
			want, got := complete(t, cpu, prompts()[:2], extra), complete(t, dev, prompts()[:2], extra)
			for i := range want {
				require.NotEmpty(t, want[i].IDs, want[i].Text)
				require.Equal(t, want[i], got[i])
			}
		})
	}
}
