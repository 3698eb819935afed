package cuda

// Options say where libraries are. Zero values search (see each [Library]).
type Options struct {
	Driver     string // --cuda-lib: libcuda's path or folder
	BLAS       string // cuBLASLt's
	Compiler   string // NVRTC's
	Management string // NVML's
}

// checkVersion refuses a driver that the kernels cannot run on.
func checkVersion(d Driver) error {
	v, err := d.Version()
	if err != nil {
		return err
	}
	if v < MinimumVersion {
		return &OldDriverError{Have: v, Need: MinimumVersion}
	}
	return nil
}
