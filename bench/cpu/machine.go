package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// machine is what the figures depend on.
type machine struct {
	Processor string   `json:"processor"`
	Flags     []string `json:"flags"` // of the vector sets that engines choose by
	CPUs      int      `json:"cpus"`
	Threads   int      `json:"threads"`
	L3        string   `json:"l3"`
	Memory    string   `json:"memory"`
	Kernel    string   `json:"kernel"`
	Go        string   `json:"go"`
	Load      string   `json:"load_average"` // when the runs had ended
	When      string   `json:"when"`
}

func readMachine(threads int) machine {
	m := machine{CPUs: runtime.NumCPU(), Threads: threads, Go: runtime.Version(), When: time.Now().UTC().Format("2006-01-02 15:04 MST")}
	m.Processor, m.Flags = parseCPUInfo(read("/proc/cpuinfo"))
	m.L3 = strings.TrimSpace(read("/sys/devices/system/cpu/cpu0/cache/index3/size"))
	m.Kernel = strings.TrimSpace(read("/proc/sys/kernel/osrelease"))
	if f := strings.Fields(read("/proc/meminfo")); len(f) > 1 {
		if kib, err := strconv.Atoi(f[1]); err == nil {
			m.Memory = strconv.Itoa(kib>>20) + " GiB"
		}
	}
	if f := strings.Fields(read("/proc/loadavg")); len(f) > 2 {
		m.Load = strings.Join(f[:3], " ")
	}
	return m
}

// read is a file's text, empty where there is none: a fact that a machine does not tell is left out.
func read(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}

// parseCPUInfo takes the first processor's model, with family and model number since a virtual machine's name says little.
func parseCPUInfo(text string) (name string, flags []string) {
	v := map[string]string{}
	for line := range strings.Lines(text) {
		k, value, ok := strings.Cut(line, ":")
		if k = strings.TrimSpace(k); ok && v[k] == "" {
			v[k] = strings.TrimSpace(value)
		}
	}
	telling := []string{"avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"}
	for _, f := range strings.Fields(v["flags"]) {
		if slices.Contains(telling, f) {
			flags = append(flags, f)
		}
	}
	name = v["model name"]
	if v["cpu family"] != "" {
		name += " (family " + v["cpu family"] + ", model " + v["model"] + ")"
	}
	return name, flags
}

// vectorInstructions counts, where objdump is installed, the instructions that quantised products are made of.
func vectorInstructions(ctx context.Context, binary string) [][2]string {
	cmd := exec.CommandContext(ctx, "objdump", "-d", "--no-show-raw-insn", binary)
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return nil
	}
	counts := countInstructions(bufio.NewReader(out))
	if cmd.Wait() != nil {
		return nil
	}
	var facts [][2]string
	for _, name := range countedInstructions() {
		facts = append(facts, [2]string{name, strconv.Itoa(counts[name])})
	}
	return facts
}

func countedInstructions() []string {
	return []string{"vpdpbusd", "vpdpbusds", "vpmaddubsw", "vfmadd231ps", "vdpbf16ps", "tdpbssd", "tdpbsud", "tdpbusd", "tdpbf16ps", "zmm"}
}

// countInstructions reads objdump's lines: address, mnemonic, operands; an instruction that touches a zmm register also counts there.
func countInstructions(r *bufio.Reader) map[string]int {
	counts := map[string]int{}
	for {
		line, err := r.ReadSlice('\n')
		if f := bytes.Fields(line); len(f) > 1 && bytes.HasSuffix(f[0], []byte(":")) {
			m := f[1]
			if string(m) == "{vex}" && len(f) > 2 {
				m = f[2]
			}
			counts[string(m)]++
			if bytes.Contains(line, []byte("%zmm")) {
				counts["zmm"]++
			}
		}
		if err != nil && err != bufio.ErrBufferFull {
			return counts
		}
	}
}
