// Command gpu measures the CUDA path: what a step costs the processor, and on a GPU how long it takes. Results go into a section of
// the results file; a section that was not measured keeps what it says.
//
//	go run ./bench/gpu -sim       the processor's part, over the software device with kernels that do nothing
//	go run ./bench/gpu            that, single kernels and whole steps of a model of 8B, on a GPU
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"omni-engine/cuda"
	"omni-engine/cuda/sim"
	"omni-engine/kernels"
	"omni-engine/kernels/gpu"
)

type options struct {
	lib     string
	blas    string
	ordinal int
	sim     bool
	steps   int
	out     string
	rows    string
	profile string
}

func main() {
	var o options
	flag.StringVar(&o.lib, "cuda-lib", os.Getenv("OMNI_CUDA_LIB"), "the CUDA driver's library")
	flag.StringVar(&o.blas, "cublaslt-lib", gpu.AnyBLAS, "cuBLASLt, for the products of prefills; empty: own kernels")
	flag.IntVar(&o.ordinal, "device", 0, "ordinal of the GPU")
	flag.BoolVar(&o.sim, "sim", false, "use the software device, with kernels that do nothing")
	flag.IntVar(&o.steps, "steps", 400, "steps to measure at each batch size")
	flag.StringVar(&o.out, "results", "", "markdown file whose sections are replaced; empty: print only")
	flag.StringVar(&o.rows, "rows", "1,64,256,1024", "batch sizes of the first table")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a processor profile to this file")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench/gpu:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	if o.sim && os.Getenv("OMNI_SIM_NOOP") == "" {
		return again()
	}
	if o.sim {
		b, err := sim.Make("driver", "kernels-plain")
		if err != nil {
			return err
		}
		o.lib, o.blas = b.Driver(), ""
	}
	driver, _, err := cuda.OpenDriver(cuda.Options{Driver: o.lib})
	if err != nil {
		return err
	}
	dev, err := gpu.Open(driver, gpu.Options{Ordinal: o.ordinal, BLAS: o.blas})
	if err != nil {
		return err
	}
	stop, err := profile(o.profile)
	if err != nil {
		return errors.Join(err, dev.Close())
	}
	host, err := hostCost(dev, o)
	stop()
	if err == nil {
		err = publish(o.out, "host", host)
	}
	if err == nil && !o.sim {
		var table string
		if table, err = singleKernels(driver, dev, eightB().sizes(2048, 32, 50, 1024, 8192), o.ordinal); err == nil {
			err = publish(o.out, "kernels", table)
		}
		if err == nil {
			table, err = stepTimes(driver, dev, eightB(), []int{1, 8, 32, 64, 128, 256}, 512, 8192, o)
		}
		if err == nil {
			err = publish(o.out, "steps", table)
		}
	}
	return errors.Join(err, dev.Close())
}

// again runs this program in an environment that the software device reads when it is loaded.
func again() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), "OMNI_SIM_NOOP=1", "OMNI_SIM_MEMORY=6442450944")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// hostCost is the table of what a step costs the processor.
func hostCost(dev kernels.Device, o options) (string, error) {
	steps := o.steps
	m, err := small().load()
	if err != nil {
		return "", err
	}
	var s strings.Builder
	fmt.Fprintf(&s, "Processor time of one decode step with asynchronous scheduling, by the thread's clock, median of %d steps; %s, %s, device %q.\n\n", steps, runtime.Version(), processor(), dev.Info().Name)
	s.WriteString("| sequences | schedule | prepare and launch | collect | update | step |\n|---:|---:|---:|---:|---:|---:|\n")
	for _, field := range strings.Split(o.rows, ",") {
		const prompt = 128
		n, err := strconv.Atoi(field)
		if err != nil {
			return "", fmt.Errorf("-rows: %w", err)
		}
		l, asm, err := newLoop(dev, m, n, prompt, steps+300, 2048)
		if err != nil {
			return "", err
		}
		_, err = l.prefill(n)
		var p phases
		if err == nil {
			p, _, err = l.measure(steps)
		}
		if err := errors.Join(err, asm.Runner.Close()); err != nil {
			return "", fmt.Errorf("%d sequences: %w", n, err)
		}
		fmt.Fprintf(&s, "| %d | %s | %s | %s | %s | %s |\n", n, micro(p.schedule), micro(p.launch), micro(p.collect), micro(p.update), micro(p.sum()))
	}
	return s.String(), nil
}

// profile starts a processor profile, and returns what ends it.
func profile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { pprof.StopCPUProfile(); _ = f.Close() }, nil
}

func micro(d time.Duration) string { return fmt.Sprintf("%.1f µs", float64(d.Nanoseconds())/1e3) }

// processor is the machine's name for itself.
func processor() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(raw)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// publish prints a section and puts it between its marks in the results file.
func publish(path, section, text string) error {
	fmt.Println(text)
	if path == "" {
		return nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+section+" -->\n", "<!-- /"+section+" -->"
	before, rest, ok1 := strings.Cut(string(raw), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s has no section %s", path, section)
	}
	return os.WriteFile(path, []byte(before+begin+"\n"+text+"\n"+end+after), 0o644)
}
