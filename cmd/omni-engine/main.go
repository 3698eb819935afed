// Command omni-engine serves language models through vLLM's interfaces.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"omni-engine/internal/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "omni-engine:", explain(err))
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "omni-engine",
		Short:         "An inference engine core with vLLM's interfaces and native metrics",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(serveCommand(), benchCommand(), downloadCommand(), healthCommand(), topCommand(), versionCommand(), inspectCommand(), devicesCommand())
	return cmd
}

// configError is everything that is wrong with a configuration.
type configError struct{ error }

// Unwrap returns the joined errors.
func (e configError) Unwrap() error { return e.error }

// explain says of an unknown flag whether it is one of vLLM's, and lists a configuration's errors a line each. Other errors keep
// their words: what is joined deep inside one is only a part of it.
func explain(err error) string {
	if name, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
		return config.Unknown(name).Error()
	}
	var bad configError
	if !errors.As(err, &bad) {
		return err.Error()
	}
	joined, ok := bad.error.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) < 2 {
		return err.Error()
	}
	var b strings.Builder
	b.WriteString("the configuration has errors:")
	for _, e := range joined.Unwrap() {
		b.WriteString("\n  " + e.Error())
	}
	return b.String()
}
