package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// hogArgument makes this program the busy process that some works run beside.
const hogArgument = "busy-process"

// startHog starts one process that never sleeps; the returned function ends it.
func startHog(ctx context.Context) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting a busy process: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, hogArgument)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a busy process: %w", err)
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // its end is the kill
	}, nil
}

func hog(ctx context.Context) error {
	parent := os.Getppid()
	for n := 0; ctx.Err() == nil; n++ {
		if n%(1<<20) == 0 && os.Getppid() != parent {
			return nil // the harness is gone
		}
	}
	return nil
}
