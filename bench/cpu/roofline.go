package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"omni-engine/bench/cpu/probe"
)

// roofline holds our figures against what the machine can do at best, probed in the same run.
type roofline struct {
	Level       string
	Instruction string
	Peaks       probe.Peaks
	Peak        float64            // of the level's instruction, 1e9 operations a second
	Bandwidth   map[string]float64 // 1e9 bytes a second by working set
	Weights     float64            // the same, of a working set as large as the weights
	Work        engineReport
	// Matrix is the share of a prefill's processor time that its matrix products take; NaN where our binary was not built to tell
	// (OMNI_PHASE_TIMES).
	Matrix float64
}

// probeRoofline takes about three seconds. work is a run's facts about the model; phases, when not empty, is our binary built with
// -DOMNI_PHASE_TIMES.
func probeRoofline(ctx context.Context, o *omni, phases string) (*roofline, error) {
	if o.work.TokenMACs == 0 {
		return nil, errors.New("no run of ours has told how much the model multiplies")
	}
	r := &roofline{Level: o.work.Level, Work: o.work, Peaks: probe.Measure(o.threads), Bandwidth: map[string]float64{}, Matrix: math.NaN()}
	r.Peak, r.Instruction = r.Peaks.ForLevel(r.Level)
	for _, set := range []struct {
		name  string
		bytes int64
	}{{"512 KiB a thread", int64(o.threads) << 19}, {"32 MiB", 32 << 20}, {"1 GiB", 1 << 30}} {
		v, err := probe.Bandwidth(o.threads, set.bytes)
		if err != nil {
			return nil, err
		}
		r.Bandwidth[set.name] = v
	}
	var err error
	if r.Weights, err = probe.Bandwidth(o.threads, o.work.Bytes); err != nil {
		return nil, err
	}
	if phases != "" {
		r.Matrix, err = matrixShare(ctx, o, phases)
	}
	return r, err
}

// matrixShare runs one prefill with the binary that counts cycles by kind of phase.
func matrixShare(ctx context.Context, o *omni, binary string) (float64, error) {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return 0, err
	}
	args := append([]string{"bench", "engine", o.model, "--prompt", "512", "--gen", "1", "--rounds", "3", "--threads", strconv.Itoa(o.threads)}, o.level...)
	log, err := standardError(ctx, binary, args...)
	if err != nil {
		return 0, err
	}
	return shareOfLinear(log)
}

// shareOfLinear reads "linear 123 Mcycles on all threads" lines.
func shareOfLinear(log string) (float64, error) {
	linear, all := 0.0, 0.0
	for line := range strings.Lines(log) {
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != "Mcycles" {
			continue
		}
		v, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return 0, fmt.Errorf("cycles by phase: %q: %w", line, err)
		}
		all += v
		if f[0] == "linear" {
			linear += v
		}
	}
	if linear == 0 {
		return 0, errors.New("our binary told no cycles by phase: build it with CGO_CFLAGS=-DOMNI_PHASE_TIMES")
	}
	return linear / all, nil
}

// prefill is the rate of matrix operations, 1e9 a second, of a prefill at so many tokens a second.
func (r *roofline) prefill(tokens float64) float64 {
	return 2 * float64(r.Work.TokenMACs) * tokens / 1e9
}

// write adds the table of fractions; figures are ours, by name.
func (r *roofline) write(b *strings.Builder, figures map[string]float64) {
	p := r.Peaks
	fmt.Fprintf(b, "\nRoofline, probed in the same run, %d threads: vpdpbusd %s (512 bits) and %s (256 bits), vpmaddubsw sequence %s, tdpbusd %s, tdpbf16ps %s Gop/s; "+
		"float32 FMA %s GFLOP/s; reads %s GB/s (512 KiB a thread), %s (32 MiB), %s (%s, the weights), %s (1 GiB).\n",
		p.Threads, present(p.VNNI512), present(p.VNNI256), present(p.AVX2), present(p.TileInt8), present(p.TileBF16), present(p.FMA),
		number(r.Bandwidth["512 KiB a thread"]), number(r.Bandwidth["32 MiB"]), number(r.Weights), mib(r.Work.Bytes), number(r.Bandwidth["1 GiB"]))
	fmt.Fprintf(b, "\n| ours (%s) | reached | limit | fraction |\n|---|---|---|---|\n", r.Level)
	if v := figures["prefill"]; v > 0 && r.Peak > 0 {
		ops := r.prefill(v)
		fmt.Fprintf(b, "| prefill 512, whole | %s Gop/s | %s Gop/s (%s) | %.0f %% |\n", number(ops), number(r.Peak), r.Instruction, 100*ops/r.Peak)
		if !math.IsNaN(r.Matrix) {
			fmt.Fprintf(b, "| prefill 512, matrix phases (%.0f %% of the time) | %s Gop/s | the same | %.0f %% |\n", 100*r.Matrix, number(ops/r.Matrix), 100*ops/r.Matrix/r.Peak)
		}
	}
	if v := figures["decode"]; v > 0 {
		rate := v * float64(r.Work.Bytes) / 1e9
		fmt.Fprintf(b, "| decode behind 128, weights read | %s GB/s | %s GB/s | %.0f %% |\n", number(rate), number(r.Weights), 100*rate/r.Weights)
	}
}

func mib(n int64) string { return number(float64(n)/(1<<20)) + " MiB" }

// present is a rate, or a dash where the machine lacks the instruction.
func present(v float64) string {
	if v == 0 {
		return "–"
	}
	return number(v)
}

// phasesBinary is our binary that counts cycles by phase, where `make bench-cpu` built one.
func phasesBinary(omni string) string {
	path := omni + "-phases"
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}
