// Package house holds the test that keeps the rooms' doors: who may import whom.
package house

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "omni-engine/"

// door says which rooms of the module a room may import. A room is a path prefix; the longest that matches counts.
// Its own subtree is always allowed.
type door struct {
	room   string
	allows []string
}

func doors() []door {
	leaves := []string{"internal/clock", "internal/tensor"}
	internals := []string{"internal/config", "internal/tokenizer", "internal/weights", "internal/hub", "internal/template",
		"internal/grammar", "internal/audio"}
	with := func(more ...string) []string { return append(append([]string{}, leaves...), more...) }
	rooms := []door{
		{"internal/clock", nil},
		{"internal/tensor", nil},
		{"engine/request", leaves},
		{"metrics/record", with("engine/request")},
		{"scheduler", with("engine/request")},
		{"kernels", with()},
		// ref reads quantised weights by their definition; cpu is compared with ref and is ref where cgo is off.
		{"kernels/ref", with("kernels", "internal/weights/quant")},
		{"kernels/cpu", with("kernels", "kernels/ref", "internal/weights/quant")},
		{"kernels/gpu", with("kernels", "cuda", "internal/weights/quant")},
		{"kernels/kerneltest", with("kernels")},
		{"cuda", nil},
		{"engine/models", with("kernels")},
		{"engine/sampling", with("kernels", "engine/request")},
		{"engine/tracefile", with("engine/request", "metrics/record")},
		{"engine", with("scheduler", "engine/models", "engine/sampling", "engine/tracefile", "kernels", "engine/request", "metrics/record")},
		{"output", with("engine/request", "metrics/record")},
		{"stages", with("engine", "output", "metrics/record", "engine/request", "scheduler", "kernels")},
		{"stages/remote", with("stages", "proto", "engine/request", "metrics/record")},
		{"metrics", with("metrics/record", "engine/request")},
		{"internal/server", append(with("stages", "metrics/record", "engine/request"), internals...)},
		{"bench", with("proto", "metrics/record")},
		{"bench/replaytrace", with("scheduler", "engine/request", "bench/replaytrace/replay")},
		{"bench/scheduler", with("scheduler", "engine/request", "bench/replaytrace/replay")},
		{"bench/gpu", with("cuda", "cuda/sim", "engine", "engine/models", "engine/request", "kernels", "kernels/gpu", "scheduler")},
		{"tools", with("internal")},
		{"cmd", []string{""}},
	}
	for _, room := range internals {
		rooms = append(rooms, door{room, leaves})
	}
	return rooms
}

func within(path, room string) bool {
	return room == "" || path == room || strings.HasPrefix(path, room+"/")
}

func find(path string) (d door, ok bool) {
	for _, c := range doors() {
		if within(path, c.room) && (!ok || len(c.room) > len(d.room)) {
			d, ok = c, true
		}
	}
	return d, ok
}

func TestDoors(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").CombinedOutput()
	require.NoError(t, err, string(out))
	seen := 0
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		from := strings.TrimPrefix(words[0], module)
		if words[0] == strings.TrimSuffix(module, "/") {
			continue
		}
		d, ok := find(from)
		require.True(t, ok, "%s is no room of docs/architecture.md", from)
		seen++
		for _, imported := range words[1:] {
			to, own := strings.CutPrefix(imported, module)
			if own && !within(to, d.room) && !allowed(d, to) {
				t.Errorf("%s may not import %s", from, to)
			}
			if !own && strings.Contains(strings.SplitN(imported, "/", 2)[0], ".") && plain(from) && !strings.HasPrefix(imported, "golang.org/x/s") {
				t.Errorf("%s may only use the standard library, x/sys and x/sync, not %s", from, imported)
			}
		}
	}
	require.Greater(t, seen, 5, "go list saw the module")
}

func allowed(d door, to string) bool {
	for _, a := range d.allows {
		// A door to a room opens that package alone, except for internal/* and cmd's.
		if to == a || a == "" || (strings.HasPrefix(a, "internal") && within(to, a)) {
			return true
		}
	}
	return false
}

// plain reports whether the room must do without third-party packages. kernels/kerneltest is test code.
func plain(path string) bool {
	if within(path, "kernels/kerneltest") {
		return false
	}
	for _, room := range []string{"scheduler", "kernels", "engine", "output", "metrics/record"} {
		if within(path, room) {
			return true
		}
	}
	return false
}

func TestDoorsAreShut(t *testing.T) {
	for _, c := range []struct {
		from, to string
		open     bool
	}{
		{"scheduler", "engine/request", true},
		{"scheduler", "engine", false},
		{"output", "engine", false},
		{"output", "metrics", false},
		{"metrics", "scheduler", false},
		{"kernels/ref", "engine/models", false},
		{"engine/models", "engine", false},
		{"internal/server/openai", "engine", false},
		{"internal/server/openai", "internal/tokenizer", true},
		{"internal/hub", "internal/config", false},
		{"cmd/omni-engine", "metrics", true},
	} {
		d, ok := find(c.from)
		require.True(t, ok, c.from)
		require.Equal(t, c.open, within(c.to, d.room) || allowed(d, c.to), "%s -> %s", c.from, c.to)
	}
}
