package main

import (
	"fmt"
	"strings"

	"omni-engine/cuda"
	"omni-engine/kernels"
	"omni-engine/kernels/gpu"
)

// sizes of a shape's kernels: a prefill's tokens and the contexts that decodes attend to.
func (s shape) sizes(prefill, rows, repeats int, contexts ...int) gpu.MeasureSizes {
	return gpu.MeasureSizes{Hidden: s.Hidden, FFN: s.FFN, Heads: s.Heads, KVHeads: s.KVHeads, Dim: s.Dim, Vocab: s.Vocab, Prefill: prefill, Rows: rows, Contexts: contexts, Repeats: repeats}
}

// singleKernels is the table of each kernel's time and how much of the device it reaches.
func singleKernels(driver cuda.Driver, dev kernels.Device, z gpu.MeasureSizes, ordinal int) (string, error) {
	info, err := cuda.Describe(driver, ordinal)
	if err != nil {
		return "", err
	}
	times, err := gpu.Measure(dev, z)
	if err != nil {
		return "", err
	}
	peak := tensorPeak(info)
	var s strings.Builder
	fmt.Fprintf(&s, "%s: %s GB/s, %s TFLOP/s of dense BF16 by its clocks. Means of %d launches on random data; bytes are those that must move once.\n\n",
		info.Name, known(info.Bandwidth()/1e9), known(peak/1e12), z.Repeats)
	s.WriteString("| kernel | shape | time | GB/s | of the bandwidth | TFLOP/s | of the peak |\n|---|---|---:|---:|---:|---:|---:|\n")
	for _, t := range times {
		sec := max(t.Time.Seconds(), 1e-9)
		rate, arithmetic, ofPeak := t.Bytes/sec, "", ""
		if t.Flops > 0 {
			arithmetic, ofPeak = fmt.Sprintf("%.1f", t.Flops/sec/1e12), share(t.Flops/sec, peak)
		}
		fmt.Fprintf(&s, "| %s | %s | %.1f µs | %.0f | %s | %s | %s |\n", t.Kernel, t.Shape, sec*1e6, rate/1e9, share(rate, info.Bandwidth()), arithmetic, ofPeak)
	}
	return s.String(), nil
}

// tensorPeak is the dense BF16 rate with float32 sums in operations a second, from the multiply-adds that a multiprocessor's tensor cores
// do in a cycle (NVIDIA's architecture papers) and the clock that the driver tells; 0: unknown.
func tensorPeak(i cuda.DeviceInfo) float64 {
	perCycle := map[cuda.ComputeCapability]float64{
		{Major: 8, Minor: 0}: 1024, {Major: 8, Minor: 6}: 512, {Major: 8, Minor: 9}: 512, {Major: 9, Minor: 0}: 2048,
		{Major: 10, Minor: 0}: 4096, {Major: 10, Minor: 3}: 4096, {Major: 12, Minor: 0}: 512,
	}[i.Capability]
	return 2 * perCycle * float64(i.Multiprocessors) * float64(i.ClockKHz) * 1e3
}

func share(v, most float64) string {
	if most <= 0 {
		return "?"
	}
	return fmt.Sprintf("%.0f %%", 100*v/most)
}

func known(v float64) string {
	if v <= 0 {
		return "an unknown number of"
	}
	return fmt.Sprintf("%.0f", v)
}
