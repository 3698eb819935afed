package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"omni-engine/cuda"
)

// compilation is the developers' way to try a kernel without a toolkit: NVRTC's messages, and a cubin to look into.
type compilation struct{ source, architecture string }

func (c *compilation) register(fs *pflag.FlagSet) {
	fs.StringVar(&c.source, "compile", "", "compile a kernel's source with NVRTC instead, into a file beside it")
	fs.StringVar(&c.architecture, "arch", "sm_80", "architecture to compile for: sm_90 gives a cubin, compute_90 PTX")
	for _, name := range []string{"compile", "arch"} {
		fs.Lookup(name).Hidden = true
	}
}

func (c compilation) run(o cuda.Options, w io.Writer) error {
	source, err := os.ReadFile(c.source)
	if err != nil {
		return fmt.Errorf("--compile: %w", err)
	}
	compiler, _, err := cuda.OpenCompiler(o)
	if err != nil {
		return fmt.Errorf("--compile: %w", err)
	}
	image, err := compiler.Compile(string(source), c.architecture, "-I"+filepath.Dir(c.source), "-std=c++17")
	if err != nil {
		return fmt.Errorf("--compile %s: %w", c.source, err)
	}
	kind := ".cubin"
	if !strings.HasPrefix(c.architecture, "sm_") {
		kind = ".ptx"
	}
	out := strings.TrimSuffix(c.source, filepath.Ext(c.source)) + kind
	if err := os.WriteFile(out, image, 0o644); err != nil {
		return fmt.Errorf("--compile: %w", err)
	}
	major, minor := compiler.Version()
	_, err = fmt.Fprintf(w, "%s: %d bytes for %s, by NVRTC %d.%d\n", out, len(image), c.architecture, major, minor)
	return err
}
