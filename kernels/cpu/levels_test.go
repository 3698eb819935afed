//go:build cgo && linux && amd64

package cpu_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/kernels/cpu"
)

// TestLevelsHoldNoWiderInstruction compiles each level's file as cgo does and looks at the machine code: an instruction of a
// higher level would be an illegal one on the processors that the level is for.
func TestLevelsHoldNoWiderInstruction(t *testing.T) {
	for _, tool := range []string{"gcc", "objdump"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	wide := regexp.MustCompile(`%zmm|%[xy]mm(1[6-9]|2[0-9]|3[01])|\{%k[0-7]\}|vpdpbusd`)
	vector := regexp.MustCompile(`%ymm`)
	tiles := regexp.MustCompile(`%tmm|ldtilecfg|tilerelease`)
	for _, c := range []struct {
		file             string
		wide, any, tiles bool
	}{
		{"level_avx2.c", false, true, false}, {"level_scalar.c", false, false, false}, {"level_avx512.c", true, true, false},
		{"level_amx.c", true, true, true}, {"level_amxbf16.c", true, true, true},
	} {
		if os.Getenv("OMNI_LONG") == "" && c.file != "level_avx2.c" {
			continue
		}
		obj := filepath.Join(t.TempDir(), "level.o")
		out, err := exec.Command("gcc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-c", c.file, "-o", obj).CombinedOutput()
		require.NoError(t, err, string(out))
		code, err := exec.Command("objdump", "-d", obj).Output()
		require.NoError(t, err)
		require.Greater(t, len(code), 10000)
		require.Equal(t, c.wide, wide.Match(code), "%s: %q", c.file, wide.Find(code))
		require.Equal(t, c.any, vector.Match(code), c.file)
		require.Equal(t, c.tiles, tiles.Match(code), c.file)
	}
}

func TestUnknownLevelIsRefusedWithWhatThereIs(t *testing.T) {
	_, err := cpu.Open(cpu.Options{Level: "avx1024"})
	require.ErrorContains(t, err, "avx1024")
	require.ErrorContains(t, err, "scalar")
}
