package main

import (
	"context"
	"errors"
)

// An engine runs one model. Every call starts fresh processes.
type engine interface {
	name() string
	// facts are what a reader needs to believe the figures: version, flags, vector instructions.
	facts() [][2]string
	// prefill processes one prompt of so many tokens; tokens a second.
	prefill(ctx context.Context, tokens int) (float64, error)
	// decode generates alone, behind a context of so many tokens; tokens a second.
	decode(ctx context.Context, behind, tokens int) (float64, error)
	// parallel generates in so many sequences at once, each behind a prompt of its own; tokens generated a second.
	parallel(ctx context.Context, sequences, in, out int) (float64, error)
	// serve starts an OpenAI server with room for so many sequences of so many tokens.
	serve(ctx context.Context, sequences, tokens int) (*server, error)
	// perplexity scores a text as llama-perplexity does, in windows of so many tokens.
	perplexity(ctx context.Context, text string, window int) (float64, error)
}

// errUnsupported says that an engine cannot do a work at all; the work is reported as not run, with this reason.
var errUnsupported = errors.New("not supported")
