package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"omni-engine/cuda"
	"omni-engine/kernels/cpu"
)

// deviceReport is what `devices` finds. Its JSON is for scripts: fields are added, not changed.
type deviceReport struct {
	CPU  cpuReport  `json:"cpu"`
	CUDA cudaReport `json:"cuda"`
}

type cpuReport struct {
	Name    string `json:"name"`
	Kernels string `json:"kernels"` // the instruction set in use, e.g. "avx512-vnni"
	Threads int    `json:"threads"`
	Memory  int64  `json:"memory_bytes,omitempty"`
	Error   string `json:"error,omitempty"`
}

type cudaReport struct {
	Error         string       `json:"error,omitempty"` // why no device can be used
	Library       string       `json:"library,omitempty"`
	Version       string       `json:"cuda_version,omitempty"`
	DriverVersion string       `json:"driver_version,omitempty"`
	Devices       []gpuReport  `json:"devices"`
	Libraries     []cuda.Found `json:"libraries"`
}

type gpuReport struct {
	Index           int      `json:"index"`
	Name            string   `json:"name"`
	UUID            string   `json:"uuid"`
	PCI             string   `json:"pci"`
	Capability      string   `json:"compute_capability"`
	Memory          int64    `json:"memory_bytes"`
	Multiprocessors int      `json:"multiprocessors"`
	Bandwidth       float64  `json:"bandwidth_bytes_per_second,omitempty"` // peak, by clock and width
	L2              int      `json:"l2_bytes"`
	Error           string   `json:"error,omitempty"` // why it cannot be used
	Status          *gpuNow  `json:"status,omitempty"`
	StatusError     string   `json:"status_error,omitempty"`
	Absent          []string `json:"status_absent,omitempty"` // what the device does not report
	Products        string   `json:"matrix_products"`         // what multiplies matrices
}

// gpuNow is NVML's view.
type gpuNow struct {
	Busy        int            `json:"gpu_busy_percent"`
	SMClock     int            `json:"sm_clock_mhz"`
	MemoryClock int            `json:"memory_clock_mhz"`
	Throttle    []string       `json:"throttle_reasons"`
	MemoryUsed  int64          `json:"memory_used_bytes"`
	Temperature int            `json:"temperature_celsius"`
	Power       int            `json:"power_milliwatts"`
	Processes   []cuda.Process `json:"processes"`
}

func devicesCommand() *cobra.Command {
	var asJSON bool
	var o cuda.Options
	var c compilation
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List the devices that a model can run on, or say exactly why a GPU cannot be used",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.source != "" {
				return c.run(o, cmd.OutOrStdout())
			}
			r := findDevices(o)
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(r)
			}
			return r.print(cmd.OutOrStdout())
		},
	}
	c.register(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	cmd.Flags().StringVar(&o.Driver, "cuda-lib", "", "libcuda's path or folder (else OMNI_CUDA_LIB, then the loader's)")
	cmd.Flags().StringVar(&o.BLAS, "cublaslt-lib", "", "cuBLASLt's path or folder (else OMNI_CUBLASLT_LIB, the loader's, pip's nvidia wheels, the toolkit)")
	cmd.Flags().StringVar(&o.Management, "nvml-lib", "", "NVML's path or folder (else OMNI_NVML_LIB, then the loader's)")
	cmd.Flags().StringVar(&o.Compiler, "nvrtc-lib", "", "NVRTC's path or folder (else OMNI_NVRTC_LIB, the loader's, pip's nvidia wheels, the toolkit)")
	return cmd
}

func findDevices(o cuda.Options) *deviceReport {
	r := &deviceReport{CPU: describeCPU(), CUDA: cudaReport{Devices: []gpuReport{}, Libraries: cuda.FindLibraries(o)}}
	drv, _, err := cuda.OpenDriver(o)
	if err != nil {
		r.CUDA.Error = err.Error()
		var missing *cuda.MissingError
		if errors.As(err, &missing) { // where it was looked for stands with the library
			r.CUDA.Error = fmt.Sprintf("%s (%s) was not found", missing.Library, missing.What)
		}
		return r
	}
	r.CUDA.Library = drv.Library()
	if v, err := drv.Version(); err == nil {
		r.CUDA.Version = cuda.VersionText(v)
	}
	m, _, managed := cuda.OpenManagement(o)
	if managed == nil {
		defer func() { _ = m.Close() }() // nothing is lost: the process ends
		r.CUDA.DriverVersion, _ = m.DriverVersion()
	}
	n, err := drv.DeviceCount()
	if err != nil {
		r.CUDA.Error = err.Error()
		return r
	}
	for i := range n {
		g := describeGPU(drv, i)
		g.Products = products(r.CUDA.Libraries)
		if managed == nil && g.UUID != "" {
			g.now(m)
		}
		r.CUDA.Devices = append(r.CUDA.Devices, g)
	}
	return r
}

func describeCPU() cpuReport {
	dev, err := cpu.Open(cpu.Options{})
	if err != nil {
		return cpuReport{Error: err.Error()}
	}
	i := dev.Info()
	r := cpuReport{Name: i.Name, Kernels: i.Level, Threads: i.Threads, Memory: i.Memory}
	if err := dev.Close(); err != nil {
		r.Error = err.Error()
	}
	return r
}

func describeGPU(drv cuda.Driver, ordinal int) gpuReport {
	i, err := cuda.Describe(drv, ordinal)
	g := gpuReport{Index: ordinal, Name: i.Name, UUID: i.UUID, PCI: i.PCI, Capability: i.Capability.String(), Memory: i.Memory,
		Multiprocessors: i.Multiprocessors, Bandwidth: i.Bandwidth(), L2: i.L2Bytes}
	if err == nil {
		err = i.Usable()
	}
	if err != nil {
		g.Error = err.Error()
	}
	return g
}

// now adds what NVML says of the moment.
func (g *gpuReport) now(m cuda.Management) {
	s, err := m.Status(g.UUID)
	if err != nil {
		g.StatusError = err.Error()
		return
	}
	g.Status = &gpuNow{Busy: s.GPUBusy, SMClock: s.SMClock, MemoryClock: s.MemoryClock, Throttle: s.Throttle.Names(), MemoryUsed: s.MemoryUsed,
		Temperature: s.Temperature, Power: s.Power, Processes: s.Processes}
	g.Absent = s.Absent
}

func (r *deviceReport) print(w io.Writer) error {
	var b strings.Builder
	if r.CPU.Error != "" {
		fmt.Fprintf(&b, "cpu     cannot be used: %s\n", r.CPU.Error)
	} else {
		fmt.Fprintf(&b, "cpu     %s, kernels %s, %d threads\n", r.CPU.Name, r.CPU.Kernels, r.CPU.Threads)
	}
	c := &r.CUDA
	switch {
	case c.Error != "":
		fmt.Fprintf(&b, "cuda    none: %s\n", c.Error)
	case len(c.Devices) == 0:
		b.WriteString("cuda    none: the driver has no device\n")
	}
	for i := range c.Devices {
		c.Devices[i].print(&b)
	}
	if c.Library != "" {
		fmt.Fprintf(&b, "driver  %s, CUDA %s%s\n", c.Library, c.Version, prefixed(", version ", c.DriverVersion))
	}
	if len(c.Libraries) > 0 {
		b.WriteString("\nlibraries\n")
	}
	for _, l := range c.Libraries {
		if l.Path != "" {
			last := l.Probes[len(l.Probes)-1]
			fmt.Fprintf(&b, "  %-18s %s (%s)\n", l.Name, l.Path, last.Where)
			continue
		}
		fmt.Fprintf(&b, "  %-18s not found: %s; looked for\n", l.Name, l.What)
		for _, p := range l.Probes {
			fmt.Fprintf(&b, "  %-18s   %s\n", "", p)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (g *gpuReport) print(b *strings.Builder) {
	fmt.Fprintf(b, "cuda:%-2d %s, compute capability %s, %s, %d multiprocessors", g.Index, g.Name, g.Capability, bytesText(g.Memory), g.Multiprocessors)
	if g.Bandwidth > 0 {
		fmt.Fprintf(b, ", %.2f TB/s", g.Bandwidth/1e12)
	}
	fmt.Fprintf(b, "\n        %s at %s\n", g.UUID, g.PCI)
	if s := g.Status; s != nil {
		fmt.Fprintf(b, "        %d %% busy, %s used, clocks %d/%d MHz, %d °C", s.Busy, bytesText(s.MemoryUsed), s.SMClock, s.MemoryClock, s.Temperature)
		if s.Power > 0 {
			fmt.Fprintf(b, ", %.0f W", float64(s.Power)/1e3)
		}
		if len(s.Throttle) > 0 {
			fmt.Fprintf(b, ", throttled: %s", strings.Join(s.Throttle, ", "))
		}
		if n := len(s.Processes); n > 0 {
			fmt.Fprintf(b, ", %d processes", n)
		}
		b.WriteString("\n")
	}
	if g.StatusError != "" {
		fmt.Fprintf(b, "        its state is unknown: %s\n", g.StatusError)
	}
	if g.Error != "" {
		fmt.Fprintf(b, "        cannot be used: %s\n", g.Error)
	} else {
		fmt.Fprintf(b, "        can be used; matrix products: %s\n", g.Products)
	}
}

// products says what multiplies matrices.
func products(libraries []cuda.Found) string {
	for _, l := range libraries {
		if l.Name == cuda.BLASLibrary().Name && l.Path != "" {
			return "cuBLASLt (" + l.Path + ") for dense ones of prefills, else own kernels"
		}
	}
	return "own kernels"
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}
