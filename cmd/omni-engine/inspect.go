package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"omni-engine/engine"
	"omni-engine/engine/models"
	"omni-engine/internal/config"
	"omni-engine/internal/hub"
	"omni-engine/kernels"
)

func inspectCommand() *cobra.Command {
	loader := config.NewLoader()
	cmd := &cobra.Command{
		Use:   "inspect [MODEL]",
		Short: "Print a model's facts and the memory plan for a device, without loading it",
		Long: "Print what serving the model would take: weights, scratch, a KV block, and the cache that fits. serve's flags set the engine\n" +
			"up. Nothing is uploaded or packed; on a GPU the cache is sized again after the profiling step of a real start.",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loader.Load(cmd.Flags(), args, os.Getenv)
			if err != nil {
				return configError{err}
			}
			return inspect(cmd.Context(), cfg, cmd.OutOrStdout())
		},
	}
	loader.Register(cmd.Flags())
	return cmd
}

func inspect(ctx context.Context, cfg *config.Serve, w io.Writer) (err error) {
	src, err := openSource(ctx, cfg, func(hub.Progress) {})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	m, err := src.load(cfg)
	if err != nil {
		return fmt.Errorf("model %s: %w", src.path, err)
	}
	dev, err := openDevice(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	maxLen, err := contextLength(cfg, m)
	if err != nil {
		return err
	}
	if err := sizeSteps(cfg, dev, maxLen); err != nil {
		return err
	}
	asm, err := engine.Plan(dev, m.Module, settings(cfg, dev, m, maxLen))
	if err != nil {
		return err
	}
	return printPlan(w, src.path, m, dev.Info(), asm)
}

func printPlan(w io.Writer, path string, m *models.Model, dev kernels.DeviceInfo, asm *engine.Assembly) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("model", "%s", path)
	row("architecture", "%s, %d layers, hidden %d, vocabulary %d", m.Architecture, len(m.Config.Layers), m.Hidden, m.Vocab)
	row("context", "%d tokens (the model's: %d)", asm.Limits.MaxModelLen, m.MaxModelLen)
	row("device", "%s, %s", dev.Kind, dev.Name)
	row("a step", "at most %d tokens of %d requests, %d in flight", asm.Limits.Tokens, asm.Limits.Rows, asm.Limits.InFlight)
	row("weights", "%s", bytesText(asm.Memory.Weights))
	row("scratch", "%s", bytesText(asm.Memory.Scratch))
	row("a KV block", "%s for %d tokens", bytesText(asm.Cache.BlockBytes), asm.Limits.BlockSize)
	row("KV cache", "%s, %d blocks, %d tokens, %.2f requests of the whole context at once", bytesText(asm.Cache.Bytes), asm.Cache.Blocks, asm.Cache.Tokens, asm.Cache.MaxConcurrency)
	if err := t.Flush(); err != nil {
		return err
	}
	if asm.Device != nil {
		_, err := fmt.Fprintf(w, "\nThe device's memory:\n%s\n", asm.Device)
		return err
	}
	return nil
}
