package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"omni-engine/cmd/omni-engine/build"
)

func versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say what this binary is",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i := build.Read()
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"version": i.Version, "commit": i.Commit,
					"modified": i.Modified, "go": i.Go, "platform": runtime.GOOS + "/" + runtime.GOARCH, "vllm_api": build.VLLM})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "omni-engine %s (commit %s, %s, %s/%s), API of vLLM %s\n", i.Version, orNone(i.Commit), i.Go,
				runtime.GOOS, runtime.GOARCH, build.VLLM)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return cmd
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
