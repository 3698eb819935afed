package cuda

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// machine is a file system and environment to look for libraries in.
type machine struct {
	env    map[string]string
	files  []string // absolute
	dirs   []string
	loader []string // names that the loader knows
	broken map[string]string
}

func (m machine) finder(opened *[]string) finder {
	return finder{
		getenv: func(k string) string { return m.env[k] },
		glob: func(p string) ([]string, error) {
			var out []string
			for _, f := range m.files {
				if ok, _ := filepath.Match(p, f); ok {
					out = append(out, f)
				}
			}
			return out, nil
		},
		isDir: func(p string) bool { return slices.Contains(m.dirs, p) },
		open: func(p string) (uintptr, error) {
			*opened = append(*opened, p)
			if why, ok := m.broken[p]; ok {
				return 0, errors.New(p + ": " + why)
			}
			if slices.Contains(m.files, p) || slices.Contains(m.loader, p) {
				return 1, nil
			}
			return 0, errors.New(p + ": cannot open shared object file: No such file or directory")
		},
	}
}

func TestLibrariesAreLookedForInOrder(t *testing.T) {
	wheel := "/venv/lib/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12"
	newer := "/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13"
	for _, c := range []struct {
		name  string
		m     machine
		flag  string
		found string
		where string
	}{
		{"the flag first", machine{env: map[string]string{"OMNI_CUBLASLT_LIB": "/env.so"}, files: []string{"/flag.so", "/env.so"}, loader: []string{"libcublasLt.so.13"}}, "/flag.so", "/flag.so", "--cublaslt-lib"},
		{"a folder by the flag", machine{files: []string{"/d/libcublasLt.so.12"}, dirs: []string{"/d"}}, "/d", "/d/libcublasLt.so.12", "--cublaslt-lib"},
		{"then the environment", machine{env: map[string]string{"OMNI_CUBLASLT_LIB": "/env.so"}, files: []string{"/env.so"}, loader: []string{"libcublasLt.so.13"}}, "", "/env.so", "OMNI_CUBLASLT_LIB"},
		{"then the loader", machine{env: map[string]string{"VIRTUAL_ENV": "/venv"}, files: []string{newer}, loader: []string{"libcublasLt.so.12"}}, "", "libcublasLt.so.12", "loader"},
		{"then wheels, newest first", machine{env: map[string]string{"VIRTUAL_ENV": "/venv"}, files: []string{wheel, newer}}, "", newer, "wheel"},
		{"a wheel that does not load is passed over", machine{env: map[string]string{"VIRTUAL_ENV": "/venv"}, files: []string{wheel, newer}, broken: map[string]string{newer: "wrong ELF class"}}, "", wheel, "wheel"},
		{"then the toolkit", machine{env: map[string]string{"CUDA_HOME": "/opt/cuda"}, files: []string{"/opt/cuda/lib64/libcublasLt.so.13"}}, "", "/opt/cuda/lib64/libcublasLt.so.13", "folder"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var opened []string
			_, probes, err := c.m.finder(&opened).find(BLASLibrary(), c.flag)
			require.NoError(t, err)
			last := probes[len(probes)-1]
			require.Equal(t, Probe{Where: c.where, Path: c.found}, last)
			for _, p := range probes[:len(probes)-1] {
				require.NotEmpty(t, p.Reason, "a miss has its reason: %v", p)
			}
		})
	}
}

// What the user named is the only thing that is tried.
func TestANamedLibraryHasNoSubstitute(t *testing.T) {
	var opened []string
	m := machine{env: map[string]string{"OMNI_CUDA_LIB": "/gone.so"}, loader: []string{"libcuda.so.1"}}
	_, _, err := m.finder(&opened).find(DriverLibrary(), "")
	require.Error(t, err)
	require.Equal(t, []string{"/gone.so"}, opened)
	require.ErrorContains(t, err, "looked for it in OMNI_CUDA_LIB: /gone.so: cannot open shared object file")
}

func TestEveryMissIsExplained(t *testing.T) {
	var opened []string
	m := machine{env: map[string]string{"HOME": "/home/u", "CUDA_HOME": "/opt/cuda"}, files: []string{"/usr/lib/wsl/lib/libcuda.so.1"}, broken: map[string]string{"/usr/lib/wsl/lib/libcuda.so.1": "file too short"}}
	_, probes, err := m.finder(&opened).find(DriverLibrary(), "")
	require.Error(t, err)
	for _, p := range probes {
		require.NotEmpty(t, p.Reason)
	}
	for _, says := range []string{"in loader: libcuda.so.1: cannot open", "in folder: /usr/lib/wsl/lib/libcuda.so.1: file too short", "in folder: /usr/lib64: no such file"} {
		require.ErrorContains(t, err, says)
	}
	_, _, err = m.finder(&opened).find(BLASLibrary(), "")
	for _, says := range []string{"in loader: libcublasLt.so.13:", "in wheel: /home/u/.local/lib/python3*/site-packages/nvidia/*/lib: no such file", "in folder: /opt/cuda/lib64: no such file", "in folder: /usr/local/cuda/lib64: no such file"} {
		require.ErrorContains(t, err, says)
	}
	require.False(t, strings.Contains(err.Error(), "$CUDA_PATH"), "an unset variable is no place")
}
