package main

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProcStatLine(t *testing.T) {
	busy, stolen, err := parseStat([]byte("cpu  100 20 30 4000 500 6 7 80 9 0\ncpu0 1 1\n"))
	require.NoError(t, err)
	require.InDelta(t, 1.63, busy, 1e-9, "user, nice, system, irq, softirq; waiting for disks is idle")
	require.InDelta(t, 0.80, stolen, 1e-9)
	for _, bad := range []string{"", "cpu 1 2\n", "intr 1 2 3 4 5 6 7 8\n", "cpu a 2 3 4 5 6 7 8\n"} {
		_, _, err := parseStat([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestForeignTimeLeavesOwnOut(t *testing.T) {
	from := usage{at: time.Unix(0, 0), busy: 10, own: 1, stolen: 2}
	to := usage{at: time.Unix(4, 0), busy: 18, own: 7, stolen: 3}
	require.Equal(t, disturbance{Foreign: 0.5, Stolen: 0.25}, between(from, to))
	to.own = 99 // own time is finer than the kernel's ticks
	require.Zero(t, between(from, to).Foreign)
}

// A child that works is ours once it has ended; this fails when its time counts as foreign.
func TestOwnChildrenAreNotForeign(t *testing.T) {
	from, err := readUsage()
	require.NoError(t, err)
	_, err = command(t.Context(), "sh", "-c", "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done")
	require.NoError(t, err)
	to, err := readUsage()
	require.NoError(t, err)
	require.Greater(t, to.own-from.own, 0.05)
}

func TestResidentMemory(t *testing.T) {
	require.Equal(t, 2.0, parseResident([]byte("Name:\tx\nVmHWM:\t    9999 kB\nVmRSS:\t    2048 kB\n")))
	require.Greater(t, resident(os.Getpid()), 1.0)
	require.Zero(t, resident(-1))
}

func TestProcessorFacts(t *testing.T) {
	name, flags := parseCPUInfo("processor\t: 0\ncpu family\t: 6\nmodel\t\t: 207\nmodel name\t: Xeon\nflags\t\t: fpu avx2 avx512_vnni amx_int8\n\nprocessor\t: 1\nmodel\t\t: 1\n")
	require.Equal(t, "Xeon (family 6, model 207)", name)
	require.Equal(t, []string{"avx2", "avx512_vnni", "amx_int8"}, flags)
}

func TestInstructionsAreCounted(t *testing.T) {
	text := `
0000000000401000 <f>:
  401000:	vpdpbusd %zmm1,%zmm2,%zmm3
  401006:	{vex} vpdpbusd %ymm1,%ymm2,%ymm3
  40100c:	vpmaddubsw %ymm1,%ymm2,%ymm3
  401012:	ret`
	got := countInstructions(bufio.NewReader(strings.NewReader(text)))
	require.Equal(t, 2, got["vpdpbusd"])
	require.Equal(t, 1, got["vpmaddubsw"])
	require.Equal(t, 1, got["zmm"])
}

func TestQuietFlagsOfTheShortForm(t *testing.T) {
	f, err := parse([]string{"-quick"})
	require.NoError(t, err)
	require.Less(t, f.budget+grace, 8*time.Minute)
	_, err = parse([]string{"-threads", "0"})
	require.Error(t, err)
}
