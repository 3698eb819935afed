package engine

import (
	"bufio"
	"bytes"
	"io/fs"
	"strconv"
	"strings"
)

// FreeMemory returns the bytes that this process may still take: what the machine has available, and what each cgroup from
// this process's up to the root leaves under its limit. root is the file system's root (os.DirFS("/")); 0: unknown.
func FreeMemory(root fs.FS) int64 {
	free := memAvailable(root)
	for _, left := range cgroupLeft(root) {
		if free == 0 || left < free {
			free = left
		}
	}
	return free
}

func memAvailable(root fs.FS) int64 {
	data, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0
	}
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		if f := strings.Fields(s.Text()); len(f) >= 2 && f[0] == "MemAvailable:" {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// cgroupLeft lists limit − usage of every cgroup above this process that has a memory limit; v2 and v1 layouts. Page cache
// that can be reclaimed does not count as used.
func cgroupLeft(root fs.FS) []int64 {
	data, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	var left []int64
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		base, limit, usage := "sys/fs/cgroup", "memory.max", "memory.current"
		if parts[1] != "" {
			if !strings.Contains(","+parts[1]+",", ",memory,") {
				continue
			}
			base, limit, usage = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
		}
		for dir := strings.Trim(parts[2], "/"); ; dir = parent(dir) {
			at := strings.TrimSuffix(base+"/"+dir, "/")
			if n, ok := groupLeft(root, at, limit, usage); ok {
				left = append(left, n)
			}
			if dir == "" {
				break
			}
		}
	}
	return left
}

func parent(dir string) string {
	i := strings.LastIndexByte(dir, '/')
	return dir[:max(i, 0)]
}

func groupLeft(root fs.FS, dir, limitFile, usageFile string) (int64, bool) {
	limit, ok := readInt(root, dir+"/"+limitFile)
	if !ok || limit >= 1<<60 {
		return 0, false
	}
	usage, ok := readInt(root, dir+"/"+usageFile)
	if !ok {
		return 0, false
	}
	return max(limit-usage+inactiveFile(root, dir), 0), true
}

// inactiveFile is the page cache that the kernel would drop first.
func inactiveFile(root fs.FS, dir string) int64 {
	data, err := fs.ReadFile(root, dir+"/memory.stat")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) == 2 && (f[0] == "inactive_file" || f[0] == "total_inactive_file") {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

func readInt(root fs.FS, name string) (int64, bool) {
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return n, err == nil
}
