package gpu

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// gate is one kernel on one architecture, as compiled (scripts/kernel-gates.py).
type gate struct {
	kernel, arch string
	n            map[string]int
}

func readGates(t *testing.T) []gate {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "gates.tsv"))
	require.NoError(t, err)
	defer f.Close()
	var out []gate
	var columns []string
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Split(s.Text(), "\t")
		if columns == nil {
			columns = fields
			continue
		}
		g := gate{kernel: fields[0], arch: fields[1], n: map[string]int{}}
		for i := 2; i < len(fields); i++ {
			v, err := strconv.Atoi(fields[i])
			require.NoError(t, err)
			g.n[columns[i]] = v
		}
		out = append(out, g)
	}
	return out
}

// rule is what the kernels of a pattern must and may have.
type rule struct {
	pattern string
	most    map[string]int
	least   map[string]int
}

// rules: registers are bounded so that the blocks that shared memory allows fit a multiprocessor's 65,536; instructions show that
// tensor cores, asynchronous copies and matrix loads are used where they are meant.
func rules() []rule {
	return []rule{
		{"^gemm_(bf16|f16)_128$", map[string]int{"registers": 128}, map[string]int{"HMMA": 64, "LDGSTS": 16, "LDSM": 24}},
		{"^gemm_(bf16|f16)_64$", map[string]int{"registers": 128}, map[string]int{"HMMA": 32, "LDGSTS": 16, "LDSM": 16}},
		{"^gemm_(bf16|f16)_16$", map[string]int{"registers": 128}, map[string]int{"HMMA": 8, "LDGSTS": 12, "LDSM": 8}},
		{"^mmq_", map[string]int{"registers": 128}, map[string]int{"HMMA": 32, "LDGSTS": 12, "LDSM": 16}},
		{"^attn_prefill_.*_64$", map[string]int{"registers": 168}, map[string]int{"HMMA": 64, "LDGSTS": 16, "LDSM": 36}},
		{"^attn_prefill_.*_128$", map[string]int{"registers": 240}, map[string]int{"HMMA": 128, "LDGSTS": 32, "LDSM": 72}},
		{"^attn_prefill_.*_256$", map[string]int{"registers": 255}, map[string]int{"HMMA": 128, "LDGSTS": 32, "LDSM": 80}},
		{"^attn_decode_.*_(64|128)$", map[string]int{"registers": 168}, map[string]int{"HMMA": 16, "LDGSTS": 16, "LDSM": 12}},
		{"^attn_decode_.*_256$", map[string]int{"registers": 255}, map[string]int{"HMMA": 64, "LDGSTS": 32, "LDSM": 32}},
		{"^gemv_q[4568]_.*_1$", map[string]int{"registers": 64}, map[string]int{"IDP": 8}},
		{"^gemv_q[4568]_.*_8$", map[string]int{"registers": 128}, map[string]int{"IDP": 64}},
		{"^(norm|group_norm|heads|embed|gated|unary|gather|copy|quantize|logits|sample|logprobs|attn_merge|attn_any)", map[string]int{"registers": 128}, nil},
	}
}

func TestCompiledKernelsKeepTheirBudgets(t *testing.T) {
	gates := readGates(t)
	seen := map[string]map[string]bool{}
	for _, g := range gates {
		if seen[g.arch] == nil {
			seen[g.arch] = map[string]bool{}
		}
		seen[g.arch][g.kernel] = true
		require.Zero(t, g.n["spilled"], "%s on sm_%s spills registers", g.kernel, g.arch)
		if l, ok := launches()[g.kernel]; ok {
			require.LessOrEqual(t, g.n["shared"]+l.shared, 99<<10, "%s on sm_%s: the smallest GPU gives a block 99 KiB", g.kernel, g.arch)
			require.LessOrEqual(t, g.n["registers"]*l.threads, 65536, "%s on sm_%s", g.kernel, g.arch)
		}
		for _, r := range rules() {
			if !regexp.MustCompile(r.pattern).MatchString(g.kernel) {
				continue
			}
			for k, v := range r.most {
				require.LessOrEqual(t, g.n[k], v, "%s on sm_%s: %s", g.kernel, g.arch, k)
			}
			for k, v := range r.least {
				require.GreaterOrEqual(t, g.n[k], v, "%s on sm_%s: %s", g.kernel, g.arch, k)
			}
		}
	}
	require.Len(t, seen, 5, "architectures")
	for arch, kernels := range seen {
		for name := range launches() {
			require.True(t, kernels[name], "%s is not compiled for sm_%s", name, arch)
		}
		require.Len(t, kernels, len(launches()), "sm_%s has kernels that are in no table", arch)
	}
}

// The compiled kernels in the repository are those of its sources: scripts/kernels.sh wrote both hashes.
func TestFatbinIsOfTheseSources(t *testing.T) {
	sum, err := os.ReadFile("kernels.sum")
	require.NoError(t, err)
	recorded := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(sum)), "\n") {
		key, value, _ := strings.Cut(line, " ")
		recorded[key] = value
	}
	var files []string
	for _, pattern := range []string{"src/*.cu", "src/*.cuh", "src/*.h"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		slices.Sort(found)
		files = append(files, found...)
	}
	require.NotEmpty(t, files)
	require.Equal(t, recorded["sources"], hashOf(t, files...), "run make kernels and commit what it changes")
	require.Equal(t, recorded["fatbin"], hashOf(t, "kernels.fatbin"))
	require.Equal(t, recorded["gates"], hashOf(t, filepath.Join("testdata", "gates.tsv")))
	require.Less(t, len(fatbin()), 2<<20)
}

func hashOf(t *testing.T, files ...string) string {
	t.Helper()
	h := sha256.New()
	for _, name := range files {
		f, err := os.Open(name)
		require.NoError(t, err)
		_, err = io.Copy(h, f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	return hex.EncodeToString(h.Sum(nil))
}
