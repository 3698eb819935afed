// Command replaytrace replays recordings of vLLM's scheduler on ours and compares every step. It prints the first difference of each
// trace that differs, and ends with status 1 when there is one.
package main

import (
	"fmt"
	"os"

	"omni-engine/bench/replaytrace/replay"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: replaytrace DIR_OR_FILE...")
		os.Exit(2)
	}
	files, err := replay.Find(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "replaytrace:", err)
		os.Exit(2)
	}
	traces, steps, mismatches := 0, 0, 0
	for _, f := range files {
		t, err := replay.Read(f)
		if err != nil {
			fmt.Fprintln(os.Stderr, "replaytrace:", err)
			mismatches++
			continue
		}
		res := replay.Run(t)
		traces, steps, mismatches = traces+1, steps+res.Steps, mismatches+res.Mismatches
		if res.First != "" {
			fmt.Printf("%s: %s\n", f, res.First)
		}
	}
	fmt.Printf("%d traces, %d steps, %d mismatches\n", traces, steps, mismatches)
	if mismatches > 0 || traces == 0 {
		os.Exit(1)
	}
}
