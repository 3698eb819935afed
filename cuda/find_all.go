//go:build !nocuda && linux && (amd64 || arm64)

package cuda

// FindLibraries looks for every library that can be used, and loads what it finds.
func FindLibraries(o Options) []Found {
	var out []Found
	for _, l := range []struct {
		library Library
		flag    string
		open    func(string) (uintptr, error)
	}{{DriverLibrary(), o.Driver, dlopen}, {ManagementLibrary(), o.Management, dlopen}, {BLASLibrary(), o.BLAS, dlopen}, {CompilerLibrary(), o.Compiler, openCompilerLibrary}} {
		_, probes, err := systemFinder(l.open).find(l.library, l.flag)
		f := Found{Name: l.library.Name, What: l.library.What, Probes: probes}
		if err == nil {
			f.Path = probes[len(probes)-1].Path
		}
		out = append(out, f)
	}
	return out
}
