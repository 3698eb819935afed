package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"omni-engine/internal/hub"
)

func downloadCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "download MODEL",
		Short: "Fetch a model of the hub (org/name[@revision][:file.gguf]) and print its path",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := hub.Resolve(cmd.Context(), args[0], hub.Options{CacheDir: dir, Progress: progress(cmd.ErrOrStderr()), Retrying: retrying(cmd.ErrOrStderr())})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), path)
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "download-dir", "", "hub cache directory (default: huggingface_hub's)")
	return cmd
}

// retrying says why nothing moves.
func retrying(w io.Writer) func(error, time.Duration) {
	return func(err error, wait time.Duration) {
		_, _ = fmt.Fprintf(w, "%v; trying again in %s\n", err, wait.Round(time.Second/10))
	}
}

// progress shows downloads: one moving line on a terminal, a line a file elsewhere.
func progress(w io.Writer) func(hub.Progress) {
	terminal := false
	if f, ok := w.(*os.File); ok {
		if s, err := f.Stat(); err == nil {
			terminal = s.Mode()&os.ModeCharDevice != 0
		}
	}
	return func(p hub.Progress) {
		done := p.Done == p.Size
		switch {
		case terminal && p.Size > 0:
			fmt.Fprintf(w, "\r\x1b[K%s %5.1f%% of %s", p.File, 100*float64(p.Done)/float64(p.Size), bytesText(p.Size))
			if done {
				fmt.Fprintln(w)
			}
		case done:
			fmt.Fprintf(w, "fetched %s, %s\n", p.File, bytesText(p.Size))
		}
	}
}

// bytesText shows a size in binary units.
func bytesText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, u := float64(n), 0
	for f >= 1024 && u < len(units)-1 {
		f, u = f/1024, u+1
	}
	if u == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.2f %s", f, units[u])
}
