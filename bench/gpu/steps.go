package main

import (
	"errors"
	"fmt"
	"strings"

	"omni-engine/cuda"
	"omni-engine/kernels"
)

// stepTimes is the table of a large model's steps on a GPU, with the rates that its memory and its arithmetic reach.
func stepTimes(driver cuda.Driver, dev kernels.Device, shape shape, rows []int, prompt, budget int, o options) (string, error) {
	info, err := cuda.Describe(driver, o.ordinal)
	if err != nil {
		return "", err
	}
	version, err := driver.Version()
	if err != nil {
		return "", err
	}
	m, err := shape.load()
	if err != nil {
		return "", err
	}
	var s strings.Builder
	fmt.Fprintf(&s, "%s, CUDA %s, memory clock %d MHz, %d bit: %.0f GB/s. %s, BF16, prompts of %d tokens.\n\n", info.Name, cuda.VersionText(version), info.MemoryClockKHz/1000, info.MemoryBusBits, info.Bandwidth()/1e9, shape.Name, prompt)
	s.WriteString("| sequences | prefill | TFLOP/s | step | tokens/s | bytes a step | of the bandwidth |\n|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, n := range rows {
		l, asm, err := newLoop(dev, m, n, prompt, o.steps+300, budget)
		if err != nil {
			return "", err
		}
		took, err := l.prefill(n)
		if err == nil {
			_, step, measured := l.measure(o.steps)
			if err = measured; err == nil {
				bytes := shape.bytes(n, prompt+o.steps/2)
				flops := 2 * float64(shape.parameters()) * float64(n*prompt)
				share := "?"
				if b := info.Bandwidth(); b > 0 {
					share = fmt.Sprintf("%.0f %%", 100*bytes/step.Seconds()/b)
				}
				fmt.Fprintf(&s, "| %d | %.0f tokens/s | %.0f | %.2f ms | %.0f | %.2f GB | %s |\n", n, float64(n*prompt)/took.Seconds(), flops/took.Seconds()/1e12,
					step.Seconds()*1e3, float64(n)/step.Seconds(), bytes/1e9, share)
			}
		}
		if err := errors.Join(err, asm.Runner.Close()); err != nil {
			return "", fmt.Errorf("%d sequences: %w", n, err)
		}
	}
	return s.String(), nil
}

// parameters that a token's step multiplies by.
func (s shape) parameters() int {
	layer := s.Hidden*(s.Heads+2*s.KVHeads)*s.Dim + s.Heads*s.Dim*s.Hidden + 3*s.Hidden*s.FFN
	return s.Layers*layer + s.Vocab*s.Hidden
}

// bytes that a decode step reads: the weights once, and each sequence's keys and values.
func (s shape) bytes(rows, context int) float64 {
	return 2*float64(s.parameters()) + float64(rows)*float64(context)*float64(s.Layers*2*s.KVHeads*s.Dim*2)
}
