//go:build cgo && linux && amd64

package cpu_test

import (
	"fmt"
	"testing"

	"omni-engine/kernels"
	"omni-engine/kernels/cpu"
)

// BenchmarkSteps runs whole steps of a real model: tokens a second of prefill, of one sequence and of many.
func BenchmarkSteps(b *testing.B) {
	m := realModel(b, "OMNI_MODEL_SMOLLM2")
	l := kernels.Limits{Tokens: 2048, Rows: 64, LogitRows: 64, MaxModelLen: 2304, BlockSize: 16, InFlight: 1}
	for _, level := range cpu.Levels() {
		if level == "scalar" {
			continue
		}
		s := newSession(b, open(b, cpu.Options{Level: level}), m.Module, l)
		ids := make([]int32, 2048)
		for i := range ids {
			ids[i] = int32((i*7919 + 13) % m.Vocab)
		}
		for _, n := range []int{512, 2048} {
			b.Run(fmt.Sprintf("%s/prefill-%d", level, n), func(b *testing.B) {
				for b.Loop() {
					s.run(part{tokens: ids[:n], logits: 1, sampling: greedy()})
					s.step.Release()
				}
				b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tokens/s")
			})
		}
		for _, c := range []struct{ rows, context int }{{1, 128}, {1, 2040}, {16, 128}, {64, 128}} {
			b.Run(fmt.Sprintf("%s/decode-%d-at-%d", level, c.rows, c.context), func(b *testing.B) {
				var parts []part
				for r := range c.rows {
					s.run(part{slot: r, tokens: ids[:c.context], sampling: greedy()})
					s.step.Release()
					parts = append(parts, part{slot: r, from: c.context, tokens: ids[:1], logits: 1, sampling: greedy()})
				}
				b.ResetTimer()
				for b.Loop() {
					s.run(parts...)
					s.step.Release()
				}
				b.ReportMetric(float64(c.rows*b.N)/b.Elapsed().Seconds(), "tokens/s")
			})
		}
	}
}
