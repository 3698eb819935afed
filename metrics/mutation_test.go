package metrics

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mutation is one rule of the specification, broken on purpose.
type mutation struct{ name, file, old, new string }

// mutations reads testdata/mutations.txt: a block a mutation, "== name", the file, then the lines taken out (-) and put in (+). The lines
// are the text itself and may end in the middle of one.
func mutations(t *testing.T) []mutation {
	t.Helper()
	data, err := os.ReadFile("testdata/mutations.txt")
	require.NoError(t, err)
	var out []mutation
	for _, block := range strings.Split("\n"+string(data), "\n== ")[1:] {
		lines := strings.Split(strings.TrimRight(block, "\n"), "\n")
		m := mutation{name: lines[0], file: lines[1]}
		var old, put []string
		for _, l := range lines[2:] {
			switch {
			case strings.HasPrefix(l, "-"):
				old = append(old, l[1:])
			case strings.HasPrefix(l, "+"):
				put = append(put, l[1:])
			}
		}
		m.old, m.new = strings.Join(old, "\n"), strings.Join(put, "\n")
		out = append(out, m)
	}
	return out
}

// rules are the ids of the phase split's specification.
func rules() (all []string) {
	for _, r := range [][2]int{{1, 4}, {10, 15}, {20, 24}, {30, 37}, {40, 41}, {50, 53}, {60, 62}, {70, 74}} {
		for n := r[0]; n <= r[1]; n++ {
			all = append(all, fmt.Sprintf("PS-%02d", n))
		}
	}
	return all
}

// unmutated are the rules that no line of code holds alone.
func unmutated() map[string]string {
	return map[string]string{
		"PS-35": "what the product must never add up, in words or pictures",
		"PS-62": "turn fields that are not defined yet",
		"PS-70": "a cost: make bench-metrics measures it",
	}
}

// TestEveryMutationStillApplies keeps the list true while the code changes, and complete: each rule is broken at least once.
func TestEveryMutationStillApplies(t *testing.T) {
	list := mutations(t)
	broken := map[string]int{}
	for _, m := range list {
		text, err := os.ReadFile(filepath.Join("..", m.file))
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), m.old), "%s: the text is in %s once", m.name, m.file)
		require.NotEqual(t, m.old, m.new, m.name)
		rule, _, _ := strings.Cut(m.name, " ")
		broken[rule]++
	}
	for _, rule := range rules() {
		if why := unmutated()[rule]; why == "" {
			require.Positive(t, broken[rule], "%s is never broken", rule)
		} else {
			require.Zero(t, broken[rule], "%s: %s", rule, why)
		}
	}
	require.GreaterOrEqual(t, len(list), 90)
}

// testsOf are the packages whose tests must notice a change of a file, in the order in which they are asked.
func testsOf(file string) [][]string {
	switch {
	case strings.HasPrefix(file, "metrics/"):
		return [][]string{{"./" + filepath.Dir(file)}, {"./metrics/...", "./output"}, {"./stages"}}
	case strings.HasPrefix(file, "output/"):
		return [][]string{{"./output"}, {"./stages"}}
	}
	return [][]string{{"./stages"}}
}

// TestEveryBrokenRuleFailsATest breaks each rule in turn, beside the sources (an overlay), and runs the tests that must notice. Minutes long.
func TestEveryBrokenRuleFailsATest(t *testing.T) {
	if os.Getenv("OMNI_MUTATE") != "1" {
		t.Skip("OMNI_MUTATE=1 breaks each rule in turn and runs the tests each time")
	}
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	out, err := runTests(root, nil, []string{"./metrics/...", "./output", "./stages"})
	require.NoError(t, err, "unbroken, the tests pass: %s", out)
	begin, n := time.Now(), 0
	for _, m := range mutations(t) {
		t.Run(m.name, func(t *testing.T) {
			n++
			path := filepath.Join(root, m.file)
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			broken := filepath.Join(t.TempDir(), filepath.Base(m.file))
			require.NoError(t, os.WriteFile(broken, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o600))
			for _, packages := range testsOf(m.file) {
				out, err := runTests(root, map[string]string{path: broken}, packages)
				require.NotContains(t, out, "[build failed]", "it proves nothing: %s", out)
				if err != nil {
					return
				}
			}
			t.Error("it survives")
		})
	}
	t.Logf("%d rules broken in %s", n, time.Since(begin).Round(time.Second))
}

// runTests tests packages with some files replaced.
func runTests(root string, replace map[string]string, packages []string) (string, error) {
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file, err := os.CreateTemp("", "overlay*.json")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	if _, err := file.Write(overlay); err != nil {
		return "", err
	}
	if err := file.Close(); err != nil {
		return "", err
	}
	// Tests of what a model computes take long and know nothing of these rules.
	cmd := exec.Command("go", append([]string{"test", "-failfast", "-vet=off", "-timeout", "90s", "-overlay", file.Name(),
		"-skip", "Greedy|ModelOutput|TokensDepend|Logprobs|AsynchronousLoop|TwoHundred|Memory|Recurrent|SlotOf|Promtool"}, packages...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "OMNI_MUTATE=", "OMNI_LONG=", "OMNI_OVERLAY="+string(overlay))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("go test: %w", err)
	}
	return string(out), nil
}
