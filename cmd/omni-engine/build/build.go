// Package build says what this binary is: the one place that `version`, /version and the build-info family read.
package build

import "runtime/debug"

// version and commit are set by the linker (make build, make dist); the toolchain's own stamp may be off.
var version, commit string

// VLLM is the version of vLLM whose behaviour is served; its clients ask /version for it.
const VLLM = "0.32.0"

// Info describes the binary.
type Info struct {
	Version  string // of omni-engine
	Commit   string
	Modified bool // the working tree had changes
	Go       string
}

// Read returns what the linker and the Go toolchain recorded.
func Read() Info {
	i := Info{Version: version, Commit: commit}
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return i
	}
	i.Go = b.GoVersion
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			i.Commit = s.Value
		case "vcs.modified":
			i.Modified = s.Value == "true"
		}
	}
	if i.Version == "" {
		if i.Version = "dev"; i.Commit != "" {
			i.Version = "dev-" + i.Commit[:min(12, len(i.Commit))]
		}
	}
	return i
}
