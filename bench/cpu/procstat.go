package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticks is Linux's USER_HZ: /proc counts in hundredths of a second on every architecture that Go supports.
const ticks = 100

// usage is processor time at one moment.
type usage struct {
	at           time.Time
	busy, stolen float64 // seconds of all processors since boot; stolen by the hypervisor
	own          float64 // seconds of this process and its descendants
}

func readUsage() (u usage, err error) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, fmt.Errorf("what else runs cannot be seen: %w", err)
	}
	if u.busy, u.stolen, err = parseStat(raw); err != nil {
		return u, err
	}
	u.at = time.Now()
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if err := syscall.Getrusage(who, &r); err != nil {
			return u, fmt.Errorf("own processor time: %w", err)
		}
		u.own += time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
	}
	for _, r := range family(os.Getpid()) {
		u.own += r.spent
	}
	return u, nil
}

// parseStat reads /proc/stat's first line: user nice system idle iowait irq softirq steal (guest is within user).
func parseStat(raw []byte) (busy, stolen float64, err error) {
	line, _, _ := bytes.Cut(raw, []byte("\n"))
	f := strings.Fields(string(line))
	if len(f) < 9 || f[0] != "cpu" {
		return 0, 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var v [8]float64
	for i := range v {
		n, err := strconv.ParseUint(f[i+1], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/stat: %w", err)
		}
		v[i] = float64(n) / ticks
	}
	return v[0] + v[1] + v[2] + v[5] + v[6], v[7], nil
}

// disturbance is what others used between two moments, in processors.
type disturbance struct {
	Foreign float64 `json:"foreign_cpus"` // other processes here
	Stolen  float64 `json:"stolen_cpus"`  // the hypervisor's other guests
}

func between(from, to usage) disturbance {
	wall := to.at.Sub(from.at).Seconds()
	if wall <= 0 {
		return disturbance{}
	}
	return disturbance{Foreign: max(0, to.busy-from.busy-(to.own-from.own)) / wall, Stolen: max(0, to.stolen-from.stolen) / wall}
}

// awaitQuiet waits until others used less than limit processors for half a second, at most patience long; not at all when that is 0.
func awaitQuiet(ctx context.Context, limit float64, patience time.Duration) error {
	if patience <= 0 {
		return ctx.Err()
	}
	for end := time.Now().Add(patience); ; {
		from, err := readUsage()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
		to, err := readUsage()
		if err != nil {
			return err
		}
		if between(from, to).Foreign <= limit || time.Now().After(end) {
			return nil
		}
	}
}

// watchMemory samples the resident memory of a process and its descendants until the returned function is called, which gives the largest in MiB.
func watchMemory(pid int) func() float64 {
	done, result := make(chan struct{}), make(chan float64)
	go func() {
		most := 0.0
		for {
			sum := resident(pid)
			for _, r := range family(pid) {
				sum += resident(r.pid)
			}
			most = max(most, sum)
			select {
			case <-done:
				result <- most
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() float64 {
		close(done)
		return <-result
	}
}

// resident is VmRSS in MiB: mapped files count, as they do for the kernel; 0 when the process is gone.
func resident(pid int) float64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	return parseResident(raw)
}

func parseResident(status []byte) float64 {
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(v)[0], 64)
			return kib / 1024
		}
	}
	return 0
}
