package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Probe is one place where a library was looked for.
type Probe struct {
	Where  string `json:"where"`            // "--cuda-lib", "OMNI_CUDA_LIB", "loader", "wheel", "toolkit"
	Path   string `json:"path"`             // what was opened
	Reason string `json:"reason,omitempty"` // why it did not open; empty where it did
}

func (p Probe) String() string {
	s := fmt.Sprintf("in %s: %s", p.Where, p.Path)
	if p.Reason != "" {
		s += ": " + p.Reason
	}
	return s
}

// Library is a shared library and the places where it may be.
type Library struct {
	Name    string   // the first file name, for messages
	What    string   // what it is and who installs it
	Flag    string   // the command line flag that names it
	Env     string   // the environment variable that names it
	Files   []string // names that the loader is asked for, newest first; the same names are looked for in folders
	Wheels  []string // folders below a site-packages folder, with wildcards
	Folders []string // other folders, with wildcards
}

// DriverLibrary is libcuda, which comes with NVIDIA's driver.
func DriverLibrary() Library {
	return Library{Name: "libcuda.so.1", What: "the CUDA driver library, installed with NVIDIA's driver", Flag: "--cuda-lib", Env: "OMNI_CUDA_LIB",
		Files: []string{"libcuda.so.1"}, Folders: []string{"/usr/lib/wsl/lib", "/usr/lib64", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib"}}
}

// BLASLibrary is cuBLASLt, from a toolkit or pip.
func BLASLibrary() Library {
	return Library{Name: "libcublasLt.so.13", What: "cuBLASLt, of the CUDA toolkit or pip install nvidia-cublas; optional", Flag: "--cublaslt-lib", Env: "OMNI_CUBLASLT_LIB",
		Files: []string{"libcublasLt.so.13", "libcublasLt.so.12"}, Wheels: []string{"nvidia/*/lib"}, Folders: toolkit()}
}

// CompilerLibrary is NVRTC, from a toolkit or pip.
func CompilerLibrary() Library {
	return Library{Name: "libnvrtc.so.13", What: "NVRTC, of the CUDA toolkit or pip install nvidia-cuda-nvrtc; for developers only", Flag: "--nvrtc-lib", Env: "OMNI_NVRTC_LIB",
		Files: []string{"libnvrtc.so.13", "libnvrtc.so.12"}, Wheels: []string{"nvidia/*/lib"}, Folders: toolkit()}
}

// ManagementLibrary is NVML, which comes with NVIDIA's driver.
func ManagementLibrary() Library {
	return Library{Name: "libnvidia-ml.so.1", What: "NVML, installed with NVIDIA's driver; optional", Flag: "--nvml-lib", Env: "OMNI_NVML_LIB",
		Files: []string{"libnvidia-ml.so.1"}, Folders: []string{"/usr/lib/wsl/lib", "/usr/lib64", "/usr/local/nvidia/lib64"}}
}

func toolkit() []string {
	return []string{"$CUDA_HOME/lib64", "$CUDA_PATH/lib64", "/usr/local/cuda/lib64", "/usr/local/cuda/targets/*/lib"}
}

// Found is what came of looking for a library.
type Found struct {
	Name   string  `json:"name"`
	What   string  `json:"what"`
	Path   string  `json:"path,omitempty"` // what was loaded; empty where nothing was
	Probes []Probe `json:"probes"`
}

// finder is how a library is looked for; tests replace its parts.
type finder struct {
	getenv func(string) string
	glob   func(string) ([]string, error)
	isDir  func(string) bool
	open   func(path string) (uintptr, error)
}

func systemFinder(open func(string) (uintptr, error)) finder {
	return finder{getenv: os.Getenv, glob: filepath.Glob, open: open,
		isDir: func(p string) bool { s, err := os.Stat(p); return err == nil && s.IsDir() }}
}

// find opens the first that there is of: the flag's path, the environment's path (either alone where given), the loader's, pip's
// wheels, the toolkit's folders. The probes tell what was tried, the last of them what succeeded.
func (f finder) find(l Library, flag string) (handle uintptr, probes []Probe, err error) {
	try := func(where, path string) bool {
		h, err := f.open(path)
		if err != nil {
			probes = append(probes, Probe{Where: where, Path: path, Reason: reason(err, path)})
			return false
		}
		handle = h
		probes = append(probes, Probe{Where: where, Path: path})
		return true
	}
	missing := func() error {
		return &MissingError{Library: l.Name, What: l.What, Probes: probes}
	}
	for _, named := range []struct{ where, path string }{{l.Flag, flag}, {l.Env, f.getenv(l.Env)}} {
		if named.path == "" {
			continue
		}
		// A path that the user named is the only one: another library than the one asked for would surprise.
		for _, p := range f.expand(named.path, l.Files) {
			if try(named.where, p) {
				return handle, probes, nil
			}
		}
		return 0, probes, missing()
	}
	for _, name := range l.Files {
		if try("loader", name) {
			return handle, probes, nil
		}
	}
	for _, group := range []struct {
		where   string
		folders []string
	}{{"wheel", f.wheels(l)}, {"folder", l.Folders}} {
		for _, folder := range group.folders {
			folder, ok := f.folder(folder)
			if !ok {
				continue
			}
			found := f.files(folder, l.Files)
			if len(found) == 0 {
				probes = append(probes, Probe{Where: group.where, Path: folder, Reason: "no such file"})
			}
			for _, p := range found {
				if try(group.where, p) {
					return handle, probes, nil
				}
			}
		}
	}
	return 0, probes, missing()
}

// folder expands the variable that a folder begins with; false where it is not set.
func (f finder) folder(folder string) (string, bool) {
	name, rest, _ := strings.Cut(folder, "/")
	name, variable := strings.CutPrefix(name, "$")
	if !variable {
		return folder, true
	}
	value := f.getenv(name)
	return filepath.Join(value, rest), value != ""
}

// expand is a named path itself, or the library's files in it where it is a folder.
func (f finder) expand(path string, files []string) []string {
	if !f.isDir(path) {
		return []string{path}
	}
	out := make([]string, 0, len(files))
	for _, name := range files {
		out = append(out, filepath.Join(path, name))
	}
	return out
}

// files are the library's files in a folder that may hold wildcards.
func (f finder) files(folder string, files []string) []string {
	var out []string
	for _, name := range files {
		found, err := f.glob(filepath.Join(folder, name))
		if err == nil {
			sort.Strings(found)
			out = append(out, found...)
		}
	}
	return out
}

// wheels are the folders of pip's packages in which the library may be.
func (f finder) wheels(l Library) []string {
	if len(l.Wheels) == 0 {
		return nil
	}
	var sites []string
	for _, prefix := range []string{f.getenv("VIRTUAL_ENV"), f.getenv("CONDA_PREFIX")} {
		if prefix != "" {
			sites = append(sites, filepath.Join(prefix, "lib/python3*/site-packages"))
		}
	}
	for _, p := range filepath.SplitList(f.getenv("PYTHONPATH")) {
		if filepath.IsAbs(p) {
			sites = append(sites, p)
		}
	}
	if home := f.getenv("HOME"); home != "" {
		sites = append(sites, filepath.Join(home, ".local/lib/python3*/site-packages"))
	}
	sites = append(sites, "/usr/local/lib/python3*/site-packages", "/usr/local/lib/python3*/dist-packages", "/usr/lib/python3*/dist-packages", "/usr/lib/python3*/site-packages")
	var out []string
	for _, s := range sites {
		for _, w := range l.Wheels {
			out = append(out, filepath.Join(s, w))
		}
	}
	return out
}

// reason is the loader's message without the path that the probe already gives.
func reason(err error, path string) string {
	return strings.TrimPrefix(err.Error(), path+": ")
}
