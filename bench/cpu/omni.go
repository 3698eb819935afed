package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// omni is our binary: "bench engine" and "serve".
type omni struct {
	binary, model string
	level         []string // arguments
	threads       int
	known         [][2]string
	work          engineReport // the last run's facts about the model
}

func openOmni(ctx context.Context, binary, model, level string, threads int) (*omni, error) {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	version, err := command(ctx, binary, "version")
	if err != nil {
		return nil, fmt.Errorf("our binary (make build): %w", err)
	}
	o := &omni{binary: binary, model: model, threads: threads}
	if level != "" {
		o.level = []string{"--cpu-level", level}
	}
	o.known = [][2]string{{"name", "omni-engine"}, {"version", strings.Join(strings.Fields(string(version)), " ")}}
	o.known = append(o.known, vectorInstructions(ctx, binary)...)
	return o, nil
}

func (o *omni) name() string       { return "omni-engine" }
func (o *omni) facts() [][2]string { return o.known }

// engineReport is what `omni-engine bench engine --json` prints: one object.
type engineReport struct {
	Level     string    `json:"level"`
	TokenMACs int64     `json:"macs_per_token"`
	LogitMACs int64     `json:"macs_per_logit_row"`
	Bytes     int64     `json:"weight_bytes"`
	Prefill   []float64 `json:"prefill_tokens_per_second"` // a value a round
	Decode    []float64 `json:"decode_tokens_per_second"`
}

func (o *omni) bench(ctx context.Context, prompt, gen, batch int) (*engineReport, error) {
	args := append([]string{"bench", "engine", o.model, "--prompt", strconv.Itoa(prompt), "--gen", strconv.Itoa(gen),
		"--batch", strconv.Itoa(batch), "--rounds", "1", "--threads", strconv.Itoa(o.threads), "--json"}, o.level...)
	out, err := command(ctx, o.binary, args...)
	if err != nil {
		return nil, err
	}
	r := &engineReport{}
	if err := json.Unmarshal(out, r); err != nil {
		return nil, fmt.Errorf("bench engine's output: %w: %s", err, clip(out))
	}
	o.work = *r
	if r.Level != "" && !slices.ContainsFunc(o.known, func(f [2]string) bool { return f[0] == "level" }) {
		o.known = append(o.known, [2]string{"level", r.Level})
	}
	return r, nil
}

func (o *omni) prefill(ctx context.Context, tokens int) (float64, error) {
	r, err := o.bench(ctx, tokens, 1, 1)
	if err != nil {
		return 0, err
	}
	return only(r.Prefill, "prefill")
}

func (o *omni) decode(ctx context.Context, behind, tokens int) (float64, error) {
	return o.generate(ctx, behind, tokens, 1)
}

func (o *omni) parallel(ctx context.Context, sequences, in, out int) (float64, error) {
	return o.generate(ctx, in, out, sequences)
}

func (o *omni) generate(ctx context.Context, prompt, gen, batch int) (float64, error) {
	r, err := o.bench(ctx, prompt, gen, batch)
	if err != nil {
		return 0, err
	}
	return only(r.Decode, "decode")
}

func only(rates []float64, what string) (float64, error) {
	if len(rates) != 1 || rates[0] <= 0 {
		return 0, fmt.Errorf("bench engine gave the %s rates %v; one was expected", what, rates)
	}
	return rates[0], nil
}

// serve leaves everything at its default but threads and level: users start it so. The file with the port tells that it listens.
func (o *omni) serve(ctx context.Context, _, _ int) (*server, error) {
	dir, err := os.MkdirTemp("", "bench-cpu")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "port")
	args := append([]string{"serve", o.model, "--threads", strconv.Itoa(o.threads), "--host", "127.0.0.1", "--port", "0", "--port-file", file}, o.level...)
	s, err := start(ctx, "", file, o.binary, args...)
	if err != nil {
		return nil, err
	}
	s.cleanup = func() { os.RemoveAll(dir) }
	return s, nil
}
