//go:build cgo && linux && amd64

package cpu_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"omni-engine/kernels"
	"omni-engine/kernels/cpu"
)

// cpuSeconds is the processor time of this process: on a busy machine tokens per processor second say more than per second.
func cpuSeconds() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// report adds tokens per second, and per processor second where one thread makes that meaningful.
func report(b *testing.B, tokens int, cpuStart float64) {
	b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
	if benchThreads() == 1 {
		b.ReportMetric(float64(tokens)/(cpuSeconds()-cpuStart), "tokens/cpu-s")
	}
}

func benchThreads() int {
	n, err := strconv.Atoi(os.Getenv("OMNI_BENCH_THREADS"))
	if err != nil {
		return 0
	}
	return n
}

// BenchmarkSteps runs whole steps of a real model: tokens a second of prefill, of one sequence and of many.
func BenchmarkSteps(b *testing.B) {
	m := realModel(b, "OMNI_MODEL_SMOLLM2")
	l := kernels.Limits{Tokens: 2048, Rows: 64, LogitRows: 64, MaxModelLen: 2304, BlockSize: 16, InFlight: 1}
	for _, level := range cpu.Levels() {
		if level == "scalar" {
			continue
		}
		s := newSession(b, open(b, cpu.Options{Level: level, Threads: benchThreads()}), m.Module, l)
		ids := make([]int32, 2048)
		for i := range ids {
			ids[i] = int32((i*7919 + 13) % m.Vocab)
		}
		for _, n := range []int{512, 2048} {
			b.Run(fmt.Sprintf("%s/prefill-%d", level, n), func(b *testing.B) {
				start := cpuSeconds()
				for b.Loop() {
					s.run(part{tokens: ids[:n], logits: 1, sampling: greedy()})
					s.step.Release()
				}
				report(b, n*b.N, start)
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
				start := cpuSeconds()
				for b.Loop() {
					s.run(parts...)
					s.step.Release()
				}
				report(b, c.rows*b.N, start)
			})
		}
	}
}
