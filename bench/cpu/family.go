package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// relative is a process as /proc/PID/stat tells of it.
type relative struct {
	pid, parent int
	spent       float64 // seconds, with those of its ended children
	began       string  // ticks after boot: tells a reused number apart
}

// family are a process's living descendants, in no order.
func family(pid int) (members []relative) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	var all []relative
	for _, f := range files {
		if raw, err := os.ReadFile(f); err == nil { // else it ended meanwhile
			if r, err := parseRelative(raw); err == nil {
				all = append(all, r)
			}
		}
	}
	of := map[int]bool{pid: true}
	for grown := true; grown; {
		grown = false
		for _, r := range all {
			if of[r.parent] && !of[r.pid] {
				of[r.pid], grown = true, true
				members = append(members, r)
			}
		}
	}
	return members
}

// parseRelative reads a stat line. The name in parentheses may hold anything, so that fields count from its end: state, parent, …;
// utime, stime, cutime, cstime are the 14th to 17th of the line, starttime is the 22nd.
func parseRelative(raw []byte) (r relative, err error) {
	head, _, _ := strings.Cut(string(raw), " ")
	end := bytes.LastIndexByte(raw, ')')
	if end < 0 {
		return r, fmt.Errorf("a process's line has no name: %q", raw)
	}
	f := strings.Fields(string(raw[end+1:]))
	if len(f) < 20 {
		return r, fmt.Errorf("a process's line is short: %q", raw)
	}
	if r.pid, err = strconv.Atoi(head); err == nil {
		r.parent, err = strconv.Atoi(f[1])
	}
	for _, v := range f[11:15] {
		if err != nil {
			return r, err
		}
		var n int64
		n, err = strconv.ParseInt(v, 10, 64)
		r.spent += float64(n) / ticks
	}
	r.began = f[19]
	return r, err
}
