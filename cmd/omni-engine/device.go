package main

import (
	"fmt"
	"log/slog"

	"omni-engine/cuda"
	"omni-engine/internal/config"
	"omni-engine/kernels"
	"omni-engine/kernels/cpu"
	"omni-engine/kernels/gpu"
	"omni-engine/kernels/ref"
)

// openDevice opens what --device names; auto is a GPU where a usable one is, else the CPU.
func openDevice(cfg *config.Serve, log *slog.Logger) (kernels.Device, error) {
	switch cfg.Device {
	case "ref":
		return ref.Open(ref.Options{Threads: cfg.Threads}), nil
	case "cuda":
		return openCUDA(cfg, log)
	case "auto":
		if dev, err := openCUDA(cfg, log); err == nil {
			return dev, nil
		} else if cfg.CUDALib != "" {
			return nil, err // the user named a driver: something else is meant than the CPU
		}
	}
	return cpu.Open(cpu.Options{Threads: cfg.Threads, Level: cfg.CPULevel})
}

func openCUDA(cfg *config.Serve, log *slog.Logger) (kernels.Device, error) {
	driver, _, err := cuda.OpenDriver(cuda.Options{Driver: cfg.CUDALib})
	if err != nil {
		return nil, fmt.Errorf("--device cuda: %w", err)
	}
	dev, err := gpu.Open(driver, gpu.Options{Ordinal: cfg.CUDADevice, Eager: cfg.EnforceEager, BLAS: blasOf(cfg), Log: log})
	if err != nil {
		return nil, fmt.Errorf("--device cuda: %w", err)
	}
	return dev, nil
}

// blasOf is where cuBLASLt is looked for; empty: nowhere.
func blasOf(cfg *config.Serve) string {
	if cfg.CUBLASLtLib == "none" {
		return ""
	}
	return cfg.CUBLASLtLib
}

// sizeSteps gives a step the sizes that nobody set.
func sizeSteps(cfg *config.Serve, dev kernels.Device, maxLen int) error {
	i := dev.Info()
	if err := cfg.ForDevice(i.Kind, i.Name, i.Memory, maxLen); err != nil {
		return configError{err}
	}
	return nil
}
