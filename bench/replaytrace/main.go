// Command replaytrace replays recordings of vLLM's scheduler on ours and compares every step. It prints the first difference of each
// trace that differs, and ends with status 1 when there is one.
package main

import (
	"fmt"
	"io"
	"os"

	"omni-engine/bench/replaytrace/replay"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit status: 0 all alike, 1 something differs or cannot be read, 2 nothing was named that could be replayed.
func run(args []string, out, errs io.Writer) int {
	if len(args) == 0 {
		fmt.Fprintln(errs, "usage: replaytrace DIR_OR_FILE...")
		return 2
	}
	files, err := replay.Find(args)
	if err != nil {
		fmt.Fprintln(errs, "replaytrace:", err)
		return 2
	}
	traces, steps, mismatches := 0, 0, 0
	for _, f := range files {
		t, err := replay.Read(f)
		if err != nil {
			fmt.Fprintln(errs, "replaytrace:", err)
			mismatches++
			continue
		}
		res := replay.Run(t)
		traces, steps, mismatches = traces+1, steps+res.Steps, mismatches+res.Mismatches
		if res.First != "" {
			fmt.Fprintf(out, "%s: %s\n", f, res.First)
		}
	}
	fmt.Fprintf(out, "%d traces, %d steps, %d mismatches\n", traces, steps, mismatches)
	if mismatches > 0 || traces == 0 {
		return 1
	}
	return 0
}
