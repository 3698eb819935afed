package metrics

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutation is one rule of the specification, broken on purpose.
type mutation struct{ name, file, old, new string }

// mutations reads testdata/mutations.txt: a block a mutation, "== name", the file, then the lines taken out (-) and put in (+).
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

// TestEveryMutationStillApplies keeps the list true while the code changes.
func TestEveryMutationStillApplies(t *testing.T) {
	if os.Getenv("OMNI_MUTATED") == "1" {
		t.Skip("this is a copy with a mutation in it: that alone must not fail it")
	}
	list := mutations(t)
	require.Greater(t, len(list), 50)
	for _, m := range list {
		text, err := os.ReadFile(m.file)
		require.NoError(t, err)
		require.Contains(t, string(text), m.old, m.name)
	}
}

// TestEveryBrokenRuleFailsATest breaks each rule in a copy of these packages and runs their tests there. Minutes long.
func TestEveryBrokenRuleFailsATest(t *testing.T) {
	if os.Getenv("OMNI_MUTATE") != "1" {
		t.Skip("OMNI_MUTATE=1 breaks each rule in turn and runs the tests each time")
	}
	root := t.TempDir()
	for _, part := range []string{"metrics", "engine/request", "internal/clock", "internal/tensor", "docs"} {
		require.NoError(t, os.CopyFS(filepath.Join(root, part), os.DirFS(filepath.Join("..", part))))
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join("..", file))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(root, file), data, 0o600))
	}
	out, err := runTests(root, "./metrics/...")
	require.NoError(t, err, "the copy passes unbroken: %s", out)
	for _, m := range mutations(t) {
		t.Run(m.name, func(t *testing.T) {
			path := filepath.Join(root, "metrics", m.file)
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			defer func() { require.NoError(t, os.WriteFile(path, text, 0o600)) }()
			require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o600))
			out, err := runTests(root, "./"+filepath.Join("metrics", filepath.Dir(m.file))) // the own package first: it is quicker
			if err == nil {
				out, err = runTests(root, "./metrics/...")
			}
			require.Error(t, err, "it survives")
			require.NotContains(t, out, "[build failed]", "it proves nothing")
		})
	}
}

func runTests(root, packages string) (string, error) {
	cmd := exec.Command("go", "test", "-failfast", packages)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "OMNI_MUTATE=", "OMNI_LONG=", "OMNI_MUTATED=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("go test: %w", err)
	}
	return string(out), nil
}
