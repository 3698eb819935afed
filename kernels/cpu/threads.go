package cpu

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// processors returns how many processors this process may use: its affinity mask, and its cgroup's quota (in processors; 0: none).
func processors() (allowed int, quota float64) {
	return runtime.NumCPU(), cgroupQuota("/proc/self/cgroup", "/sys/fs/cgroup")
}

// defaultThreads rounds a quota up: 1.5 processors keep two threads busy three quarters of the time.
func defaultThreads(allowed int, quota float64) int {
	if quota > 0 {
		allowed = min(allowed, int(math.Ceil(quota)))
	}
	return max(allowed, 1)
}

// cgroupQuota is the smallest quota on the path from the process's cgroup to the root, for cgroup v2 and v1.
func cgroupQuota(self, root string) float64 {
	raw, err := os.ReadFile(self)
	if err != nil {
		return 0
	}
	best := 0.0
	take := func(q float64) {
		if q > 0 && (best == 0 || q < best) {
			best = q
		}
	}
	for s := bufio.NewScanner(bytes.NewReader(raw)); s.Scan(); {
		parts := strings.SplitN(s.Text(), ":", 3)
		if len(parts) != 3 {
			continue
		}
		base, read := root, quotaV2
		if parts[1] != "" {
			if !strings.Contains(","+parts[1]+",", ",cpu,") {
				continue
			}
			base, read = filepath.Join(root, "cpu"), quotaV1
		}
		for dir := filepath.Clean("/" + parts[2]); ; dir = filepath.Dir(dir) {
			take(read(filepath.Join(base, dir)))
			if dir == "/" {
				break
			}
		}
	}
	return best
}

func quotaV2(dir string) float64 {
	raw, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(raw))
	if len(f) != 2 {
		return 0
	}
	return ratio(f[0], f[1])
}

func quotaV1(dir string) float64 {
	quota, err1 := os.ReadFile(filepath.Join(dir, "cpu.cfs_quota_us"))
	period, err2 := os.ReadFile(filepath.Join(dir, "cpu.cfs_period_us"))
	if err1 != nil || err2 != nil {
		return 0
	}
	return ratio(strings.TrimSpace(string(quota)), strings.TrimSpace(string(period)))
}

func ratio(quota, period string) float64 {
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return 0
	}
	return q / p
}
