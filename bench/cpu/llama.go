package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// llama is llama.cpp: llama-bench, llama-batched-bench and llama-server of one build.
type llama struct {
	folder, model string
	threads       int
	known         [][2]string
	// attention is the better setting of -fa as the parallel work saw it; servers are started with it.
	attention string
	// once keeps parallel work to that setting after the first comparison, for want of time.
	once bool
}

func openLlama(folder, model string, threads int, once bool) (*llama, error) {
	known, err := readFacts(folder)
	if err != nil {
		return nil, err
	}
	return &llama{folder: folder, model: model, threads: threads, known: known, attention: undecided, once: once}, nil
}

// readFacts are what scripts/bench-peers.sh wrote down about a build.
func readFacts(folder string) (known [][2]string, err error) {
	raw, err := os.ReadFile(filepath.Join(folder, "facts.tsv"))
	if err != nil {
		return nil, fmt.Errorf("%s is no build of scripts/bench-peers.sh: %w", folder, err)
	}
	for line := range strings.Lines(string(raw)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			known = append(known, [2]string{k, v})
		}
	}
	return known, nil
}

// undecided leaves -fa to llama.cpp itself.
const undecided = "auto"

func (l *llama) name() string { return "llama.cpp" }

func (l *llama) facts() [][2]string {
	return append(slices.Clone(l.known), [2]string{"-fa", l.attention + " in its servers, else the better of on and off"})
}

func (l *llama) program(name string) string { return filepath.Join(l.folder, "bin", name) }

// prefill, decode: the better of llama-bench without and with flash attention, both from one process.
func (l *llama) prefill(ctx context.Context, tokens int) (float64, error) {
	return l.bench(ctx, "-p", strconv.Itoa(tokens), "-n", "0")
}

func (l *llama) decode(ctx context.Context, behind, tokens int) (float64, error) {
	return l.bench(ctx, "-p", "0", "-n", strconv.Itoa(tokens), "-d", strconv.Itoa(behind))
}

func (l *llama) bench(ctx context.Context, args ...string) (float64, error) {
	args = append(args, "-m", l.model, "-t", strconv.Itoa(l.threads), "-r", "1", "-fa", "0,1", "-o", "json")
	out, err := command(ctx, l.program("llama-bench"), args...)
	if err != nil {
		return 0, err
	}
	return bestOfBench(out)
}

// bestOfBench is the largest rate of llama-bench's JSON.
func bestOfBench(out []byte) (best float64, err error) {
	var rows []struct {
		Rate float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(out, &rows); err != nil {
		return 0, fmt.Errorf("llama-bench's output: %w", err)
	}
	for _, r := range rows {
		best = max(best, r.Rate)
	}
	if best <= 0 {
		return 0, fmt.Errorf("llama-bench reported no rate: %s", clip(out))
	}
	return best, nil
}

// parallel is the better of llama-batched-bench without and with flash attention.
func (l *llama) parallel(ctx context.Context, sequences, in, out int) (best float64, err error) {
	settings := []string{"off", "on"}
	if l.once && l.attention != undecided {
		settings = []string{l.attention}
	}
	for _, fa := range settings {
		// One more token a sequence than is used, since the cache is padded.
		raw, err := command(ctx, l.program("llama-batched-bench"), "-m", l.model, "-t", strconv.Itoa(l.threads), "-fa", fa,
			"-c", strconv.Itoa(sequences*(in+out+1)), "-npp", strconv.Itoa(in), "-ntg", strconv.Itoa(out), "-npl", strconv.Itoa(sequences),
			"--output-format", "jsonl")
		if err != nil {
			return 0, err
		}
		rate, err := rateOfBatchedBench(raw)
		if err != nil {
			return 0, err
		}
		if rate > best {
			best, l.attention = rate, fa
		}
	}
	return best, nil
}

// rateOfBatchedBench finds the generation rate in llama-batched-bench's JSON line; other lines are logs.
func rateOfBatchedBench(out []byte) (float64, error) {
	s := bufio.NewScanner(bytes.NewReader(out))
	for s.Scan() {
		var row struct {
			Rate float64 `json:"speed_tg"`
		}
		if bytes.HasPrefix(s.Bytes(), []byte("{")) && json.Unmarshal(s.Bytes(), &row) == nil && row.Rate > 0 {
			return row.Rate, nil
		}
	}
	return 0, fmt.Errorf("llama-batched-bench reported no rate: %s", clip(out))
}

func (l *llama) serve(ctx context.Context, sequences, tokens int) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	return start(ctx, fmt.Sprintf("http://127.0.0.1:%d", port), "", l.program("llama-server"), "-m", l.model, "-t", strconv.Itoa(l.threads),
		"-np", strconv.Itoa(sequences), "-c", strconv.Itoa(sequences*tokens), "-fa", l.attention,
		"--host", "127.0.0.1", "--port", strconv.Itoa(port), "--no-webui")
}
